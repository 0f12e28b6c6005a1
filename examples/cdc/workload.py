"""The workload: transactions on the database, from a thread that goes on when the database comes back after a kill."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from threading import Event as Flag
from threading import Thread
from typing import Any

import psycopg

from examples.cdc.postgres import Postgres
from examples.cdc.shop import SCHEMA_CHANGES, Connection

_RECONNECT_S = 0.2
# How long to go on for schema changes that had to wait, as a multiple of the time.
_LONGEST = 3
_ODD_TEXTS = ("", " ", "null", 'quote " \\ tab \t line \n', "äöü ß \u2028 \U0001f600", "\u0001\u007f")


class Workload(Thread):
    """Runs transactions at a rate, and each schema change at its time.

    A transaction that a kill interrupts is not run again: whether it was committed is the database's business, since
    the tables are compared with what the database has in the end.
    """

    def __init__(self, database: Postgres, seconds: float, rate: float, seed: int) -> None:
        super().__init__(name="workload", daemon=True)
        self.transactions = 0
        self.interrupted = 0
        self.schema_changes = 0
        self.error: Exception | None = None
        self._database = database
        self._seconds = seconds
        self._rate = rate
        self._random = Random(seed)
        self._ended = Flag()
        self._next_id = 10_000_000
        self._kinds: list[tuple[Callable[[Connection], None], int]] = [
            (self._update_customers, 6),
            (self._order, 6),
            (self._pay, 5),
            (self._delete_order, 2),
            (self._renumber_line, 2),
            (self._edit_document, 4),
            (self._new_document, 1),
            (self._edit_note, 2),
            (self._move_note, 2),
            (self._move_customer, 2),
            (self._undo, 1),
            (self._insert_and_delete, 1),
            (self._review, 2),
        ]

    def run(self) -> None:
        """Run until the time is over and all schema changes were made; an error is kept in `error`."""
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - the main thread checks it
            self.error = error

    def end(self) -> None:
        """Stop early."""
        self._ended.set()

    def _run(self) -> None:
        begun_s = time.monotonic()
        waiting = list(SCHEMA_CHANGES)
        kinds, weights = zip(*self._kinds, strict=True)
        connection: Connection | None = None
        number = 0
        while not self._ended.wait(max(0.0, begun_s + number / self._rate - time.monotonic())):
            share = (time.monotonic() - begun_s) / self._seconds
            if share >= 1 and (not waiting or share >= _LONGEST):
                break
            number = max(number + 1, int((time.monotonic() - begun_s - 1) * self._rate))
            try:
                if connection is None:
                    connection = self._database.connect()
                if waiting and share >= waiting[0][0] and _has_snapshot_ended(connection):
                    with suppress(psycopg.errors.DuplicateColumn, psycopg.errors.DuplicateTable):
                        connection.execute(waiting[0][1].encode())
                    waiting.pop(0)
                    self.schema_changes += 1
                with connection.transaction():
                    self._random.choices(kinds, weights)[0](connection)
                self.transactions += 1
            except psycopg.errors.UndefinedTable:
                pass  # `reviews` is not there yet
            except psycopg.OperationalError:
                self.interrupted += connection is not None
                if connection is not None:
                    connection.close()
                connection = None
                time.sleep(_RECONNECT_S)
        if connection is not None:
            connection.close()

    def _update_customers(self, connection: Connection) -> None:
        count = self._random.choice((1, 1, 1, 20))
        first = self._any_id(connection, "customers")
        connection.execute(
            "UPDATE customers SET balance = balance + %s, active = NOT active, name = name || '.' "
            "WHERE id >= %s AND id < %s",
            [self._random.randint(-500, 500) / 100, first, first + count],
        )
        if self._chance(0.3):
            attributes = '{"text": "\\u00e9 \\" \\\\", "number": 12345678901234567890.5, "list": [1, null, {}]}'
            connection.execute("UPDATE customers SET attributes = %s WHERE id = %s", [attributes, first])
        with suppress(psycopg.errors.UndefinedColumn), connection.transaction():
            connection.execute(
                "UPDATE customers SET phone = %s WHERE id = %s", [self._random.choice((None, "+41 1")), first]
            )
            connection.execute("UPDATE customers SET seen = now(), balance = 12345678901234.56 WHERE id = %s", [first])

    def _order(self, connection: Connection) -> None:
        """Several tables in one transaction."""
        number, customer = self._new_id(), self._any_id(connection, "customers")
        tags = self._random.choice((None, [], ["a", None, 'b "c"'], list(_ODD_TEXTS[:5])))
        connection.execute(
            "INSERT INTO orders (id, customer, state, placed, total, tags, weight) VALUES "
            "(%s, %s, 'new', now(), 0, %s, %s)",
            [number, customer, tags, self._random.choice((0.1, 1e-40, float("nan"), float("inf"), None))],
        )
        for line in range(self._random.randint(1, 4)):
            connection.execute(
                "INSERT INTO order_lines VALUES (%s, %s, %s, %s, %s)",
                [number, line, self._text(), self._random.randint(1, 9), self._random.randint(0, 99_999) / 100],
            )
        connection.execute(
            "UPDATE orders SET total = (SELECT sum(quantity * price) FROM order_lines WHERE order_id = id) "
            "WHERE id = %s",
            [number],
        )
        connection.execute("UPDATE customers SET balance = balance - 1 WHERE id = %s", [customer])

    def _pay(self, connection: Connection) -> None:
        number = self._any_id(connection, "orders")
        state = self._random.choice(("paid", "sent", "sent back"))
        connection.execute("UPDATE orders SET state = %s, weight = weight * 1.1 WHERE id = %s", [state, number])
        connection.execute("UPDATE order_lines SET quantity = quantity + 1 WHERE order_id = %s", [number])
        # Too great for the column's first types.
        with suppress(psycopg.errors.UndefinedColumn, psycopg.errors.NumericValueOutOfRange), connection.transaction():
            connection.execute("UPDATE orders SET discount = -1.125 WHERE id = %s", [number])
            connection.execute(
                "UPDATE order_lines SET quantity = 40000000000 WHERE order_id = %s AND line = 1", [number]
            )

    def _delete_order(self, connection: Connection) -> None:
        number = self._any_id(connection, "orders")
        connection.execute("DELETE FROM order_lines WHERE order_id = %s", [number])
        connection.execute("DELETE FROM orders WHERE id = %s", [number])

    def _renumber_line(self, connection: Connection) -> None:
        """A part of a key changes, for one line or for several that change places."""
        number = self._any_id(connection, "orders")
        connection.execute("UPDATE order_lines SET line = line + 100 WHERE order_id = %s", [number])
        if self._chance(0.5):
            connection.execute("UPDATE order_lines SET line = 200 - line WHERE order_id = %s", [number])

    def _edit_document(self, connection: Connection) -> None:
        """Mostly without its long columns."""
        number = self._any_id(connection, "documents", "gen_random_uuid()")
        connection.execute(
            "UPDATE documents SET revision = revision + 1, title = %s, score = score / 3, at = now() WHERE id = %s",
            [self._text(), number],
        )
        if self._chance(0.2):
            body = self._random.choice((None, "", "short", self._text() * 100, self._text() * 4000))
            connection.execute("UPDATE documents SET body = %s WHERE id = %s", [body, number])
        if self._chance(0.1):
            connection.execute("UPDATE documents SET raw = %s WHERE id = %s", [self._random.randbytes(4000), number])
        with suppress(psycopg.errors.NumericValueOutOfRange), connection.transaction():
            connection.execute(
                "UPDATE documents SET revision = revision + 40000 WHERE id = %s AND day IS NULL", [number]
            )

    def _new_document(self, connection: Connection) -> None:
        connection.execute(
            "INSERT INTO documents VALUES (gen_random_uuid(), %s, %s, %s, 0, NULL, now(), %s)",
            [self._text(), self._text() * 3000, self._random.randbytes(10), self._random.random()],
        )

    def _edit_note(self, connection: Connection) -> None:
        number = self._any_id(connection, "notes")
        connection.execute("UPDATE notes SET author = author + 1 WHERE id = %s", [number])

    def _move_note(self, connection: Connection) -> None:
        number = self._any_id(connection, "notes")
        connection.execute("UPDATE notes SET id = %s WHERE id = %s", [self._new_id(), number])

    def _move_customer(self, connection: Connection) -> None:
        """A key changes, and often another row takes the key that is free now."""
        number = self._any_id(connection, "customers")
        connection.execute("UPDATE customers SET id = %s WHERE id = %s", [self._new_id(), number])
        if self._chance(0.5):
            connection.execute(
                "INSERT INTO customers (id, name, balance, since) VALUES (%s, %s, 0, now()) ON CONFLICT DO NOTHING",
                [number, self._text()],
            )

    def _undo(self, connection: Connection) -> None:
        """A transaction that is rolled back in part."""
        with suppress(ZeroDivisionError), connection.transaction():
            connection.execute("DELETE FROM orders WHERE id = %s", [self._any_id(connection, "orders")])
            raise ZeroDivisionError
        self._update_customers(connection)

    def _insert_and_delete(self, connection: Connection) -> None:
        """A row that never outlives its transaction, and one that is deleted and inserted again."""
        number = self._new_id()
        connection.execute("INSERT INTO notes VALUES (%s, 0, 'never seen')", [number])
        connection.execute("DELETE FROM notes WHERE id = %s", [number])
        known = self._any_id(connection, "notes")
        connection.execute("DELETE FROM notes WHERE id = %s", [known])
        connection.execute("INSERT INTO notes VALUES (%s, 1, %s)", [known, self._text() * 2000])

    def _review(self, connection: Connection) -> None:
        connection.execute(
            "INSERT INTO reviews VALUES (%s, %s, %s, now())", [self._new_id(), self._random.randint(1, 5), self._text()]
        )
        connection.execute("DELETE FROM reviews WHERE id = (SELECT min(id) FROM reviews HAVING count(*) > 20)")

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _any_id(self, connection: Connection, table: str, above: str = "") -> Any:
        """A key of the table, drawn at random: the first one from a random number on."""
        bound = above or str(
            self._random.choice((self._random.randrange(30_000), self._random.randrange(self._next_id)))
        )
        row = connection.execute(f"SELECT id FROM {table} WHERE id >= {bound} ORDER BY id LIMIT 1".encode()).fetchone()
        return (
            row[0]
            if row
            else connection.execute(f"SELECT id FROM {table} ORDER BY id LIMIT 1".encode()).fetchall()[0][0]
        )

    def _new_id(self) -> int:
        self._next_id += self._random.randint(1, 3)
        return self._next_id

    def _text(self) -> str:
        return self._random.choice(_ODD_TEXTS) + f"{self._random.random():.3f}"


def _has_snapshot_ended(connection: Connection) -> bool:
    """Whether the connector streams.

    A change of a column's type rewrites the table, and PostgreSQL shows a rewritten table as empty to a transaction
    that began before: the rows would be missing in the connector's snapshot.
    """
    return bool(connection.execute("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'").fetchall())
