"""All writers at full speed: statements in threads of their own, beside the stream and the compaction daemon."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from threading import Event, Thread

from examples.shared.child_process import ChildProcess
from examples.update_beside_stream.flights import (
    DELETE_CANCELLED,
    IS_LATE,
    SET_CHECKED,
    SET_LATE,
    Flights,
    where_day,
)
from tidelog.log import Committed, Table
from tidelog.log.errors import ConflictError

_DAY_S = 0.5
# A statement does not run more often, so that the table does not get a thousand versions.
_STATEMENT_S = 0.1


@dataclass
class Statement:
    """A statement that runs again and again, and what became of it.

    Attributes:
        text: The statement as text.
        committed: How often it committed.
        rebased: How often of these another writer had committed first.
        given_up: How often it lost all of its attempts.
    """

    text: str
    run: Callable[[Table], Committed]
    committed: int = 0
    rebased: int = 0
    given_up: int = 0

    def __str__(self) -> str:
        return (
            f"{self.text:<40} {self.committed:>4} times, of which rebased {self.rebased:>4}, given up {self.given_up}"
        )


def race(flights: Flights, daemon: ChildProcess, seconds: float, seed: int) -> list[Statement]:
    """Let all of them run for some seconds. Raises the error of a thread, and ChildEndedError."""
    statements = [
        Statement("DELETE cancelled flights", lambda table: table.delete(DELETE_CANCELLED)),
        Statement("UPDATE late flights, also new ones", lambda table: table.update(IS_LATE, SET_LATE)),
        Statement("UPDATE all flights of a past day", _check_a_day(flights, Random(seed))),
    ]
    ended, errors = Event(), list[BaseException]()
    threads = [Thread(target=_repeat, args=(statement, flights.path, ended, errors)) for statement in statements]
    for thread in threads:
        thread.start()
    try:
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s and not errors:
            flights.writer.require_running()
            daemon.require_running()
            if not flights.is_complete:
                flights.announce_day()
            ended.wait(_DAY_S)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    flights.await_days()
    return statements


def finish(flights: Flights) -> None:
    """Run the statements a last time, for the flights that came after them."""
    flights.table.refresh().delete(DELETE_CANCELLED)
    flights.table.update(IS_LATE, SET_LATE)


def _check_a_day(flights: Flights, random: Random) -> Callable[[Table], Committed]:
    last = flights.days - 1

    def run(table: Table) -> Committed:
        day = random.randint(0, last)
        done = table.update(where_day(day), SET_CHECKED)
        flights.check_day(day)
        return done

    return run


def _repeat(statement: Statement, path: str, ended: Event, errors: list[BaseException]) -> None:
    table = Table.open(path)
    try:
        while not ended.wait(_STATEMENT_S):
            before = table.refresh().version
            try:
                done = statement.run(table)
            except ConflictError:
                statement.given_up += 1
                continue
            if done.version > before:
                statement.committed += 1
                statement.rebased += bool(done.rebased_over)
    except BaseException as error:  # noqa: BLE001 - raised again in the main thread
        errors.append(error)
