"""The table of parked records: what `Sinks` could not give to a table of its own, and which tables the stream has.

Each batch's parked records are one commit, by a Sink, so each record is there once. A record keeps all of its columns
and gets those of PARKED_COLUMNS. The commits also say, for each query, which tables it has written to (`txn` entries
`tidelog/joined/<query id>/<table>`): one of those that has no claim any more was lost, and is not made again.

A batch that runs again can be refused by further tables: the rows of each of these are one more commit, by a Sink of
their own, so that each is there once as well.

A parked batch is pending until its own table has its ledger entry, as any other batch of that table. So nothing has to
be marked as applied, and a crash at any moment leaves each record parked or applied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log import Table
from tidelog.log.errors import (
    CheckpointResetError,
    ConcurrentTransactionException,
    SchemaMismatchError,
    TableNotFoundError,
)
from tidelog.log.format.actions import SetTransaction
from tidelog.log.predicate import Literal, to_sql
from tidelog.log.system import REAL_SYSTEM, logger, to_datetime
from tidelog.streaming.jvm_reading.tables import read
from tidelog.streaming.sink.batch import Circumstances, in_circumstances
from tidelog.streaming.sink.dead_letters import REASON
from tidelog.streaming.sink.ledger import Ledger
from tidelog.streaming.sink.micro_batch import MicroBatch, digest_63
from tidelog.streaming.sink.settings import ADOPT
from tidelog.streaming.sink.sink import Sink

TABLE, QUERY, BATCH, OFFSETS, AT = ("_table", "_query", "_batch", "_offsets", "_parked_at")
PARKED_COLUMNS = (TABLE, QUERY, BATCH, OFFSETS, AT, REASON)
_LOGGER = logger("tidelog.streaming")


@dataclass(frozen=True, slots=True)
class ParkedBatch:
    """The parked records of one batch of one table, why they were parked, and when."""

    name: str
    batch: MicroBatch
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many batches of a table are parked, and since when the oldest of them is."""

    batches: int
    since: datetime


class Parking:
    """The table of parked records of one `Sinks`. `make` returns the Sink of a name that writes it."""

    def __init__(self, make: Callable[[str], Sink]) -> None:
        self._make = make
        self.sink = make("parked")
        settings = self.sink.settings
        self.path, self._options = settings.path, settings.storage_options
        self._name, self._adopts = settings.name, settings.on_reset == ADOPT
        self._is_claimed = False
        # Of each query that was asked for, the tables that it has written to.
        self._joined: dict[str, set[str]] = {}

    def begin(self, batch: MicroBatch) -> None:
        """Look at the ledger, before the first batch of a run. Raises the errors of a Sink that is refused."""
        table = self._opened()
        transactions = None if table is None else _transactions(table)
        ledger = Ledger(self._name, batch, path=self.path)
        refusal = ledger.refusal(ledger.judge(transactions or {}), transactions)
        if refusal is not None and not (self._adopts and isinstance(refusal, CheckpointResetError)):
            raise refusal
        self._is_claimed = refusal is None and ledger.is_claimed(transactions or {})
        self._joined = {}
        self._joined_by(batch.query_id)

    def has_joined(self, name: str, batch: MicroBatch) -> bool:
        """Whether the query of the batch has written to the table of this name."""
        return name in self._joined_by(batch.query_id)

    def _joined_by(self, query_id: str) -> set[str]:
        if query_id not in self._joined:
            table, prefix = self._opened(), _joined_id(query_id, "")
            names = () if table is None else _transactions(table)
            self._joined[query_id] = {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
        return self._joined[query_id]

    def join(self, names: Collection[str], batch: MicroBatch) -> None:
        """Record the tables that the query has written to for the first time."""
        joined = self._joined_by(batch.query_id)
        new = sorted(set(names) - joined)
        table = self._opened() if new else None
        if table is None:
            return
        number, now = batch.batch_id, REAL_SYSTEM.now_ms()
        ids = [_joined_id(batch.query_id, name) for name in new]
        entries = [SetTransaction(app_id=app_id, version=number, last_updated=now) for app_id in ids]
        with suppress(ConcurrentTransactionException):  # a replay in another process has recorded one of them
            table.begin().stage_adds([]).note(operation="STREAMING UPDATE", transactions=entries).commit()
        joined.update(new)

    def park(self, frame: DataFrame, reasons: Mapping[str, str], batch: MicroBatch) -> Mapping[str, datetime]:
        """Add the frame's rows, whose column TABLE is one of `reasons`, and return which are new, and their time.

        The first call of a query claims the table.
        """
        if not reasons and self._is_claimed:
            return {}
        now = REAL_SYSTEM.now_ms()
        reason = F.coalesce(*(F.when(F.col(TABLE) == name, F.lit(text)) for name, text in reasons.items()), F.lit(""))
        parked = frame.withColumns(
            {
                QUERY: F.lit(batch.query_id),
                BATCH: F.lit(batch.batch_id).cast("long"),
                OFFSETS: F.lit(batch.fingerprint).cast("long"),
                AT: F.lit(now).cast("long"),
                REASON: reason,
            }
        )
        parked = parked.withColumn(AT, F.timestamp_millis(AT))
        rows = parked.where(F.col(TABLE).isin(list(reasons)) if reasons else F.lit(False))  # noqa: FBT003 - a value
        with in_circumstances(Circumstances(is_computed=True, of_refused=True)):
            self.sink(rows, batch.batch_id)
        self._is_claimed = True
        new = set(reasons)
        if self.sink.last is not None and self.sink.last.skipped:
            new -= self._parked_of(batch)
            new = {name for name in sorted(new) if self._park_more(parked.where(F.col(TABLE) == name), name, batch)}
        return dict.fromkeys(new, to_datetime(now))

    def _park_more(self, rows: DataFrame, name: str, batch: MicroBatch) -> bool:
        """Add the rows of a table that refuses a batch only now, and say if they are new.

        They are never applied if the table has the batch.
        """
        sink = self._make(f"parked-{digest_63(f'{batch.query_id}/{name}'):x}")
        with in_circumstances(Circumstances(joins=True, is_computed=True, of_refused=True)):
            sink(rows, batch.batch_id)
        return sink.last is not None and not sink.last.skipped

    def _parked_of(self, batch: MicroBatch) -> set[str]:
        """The tables of which this batch is parked."""
        table = self._opened()
        if table is None or TABLE not in table.schema.names:
            return set()
        own = f"{QUERY} = {to_sql(Literal(batch.query_id))} AND {BATCH} = {batch.batch_id}"
        return {name for rows in table.scan(own, [TABLE]).to_batches() for name in rows[TABLE].unique().to_pylist()}

    def batches(self, names: Collection[str] | None = None) -> list[ParkedBatch]:
        """What is parked, for these tables or for all, in the order of its batches, applied or not."""
        table = self._opened()
        if table is None or TABLE not in table.schema.names:
            return []
        if names is not None and not names:
            return []
        columns = [TABLE, QUERY, BATCH, OFFSETS, REASON, AT]
        known: dict[tuple[Any, ...], dict[str, Any]] = {}
        chosen = None if names is None else f"{TABLE} IN ({', '.join(to_sql(Literal(name)) for name in sorted(names))})"
        for batch in table.scan(chosen, columns).to_batches():  # all at once can be more than the memory holds
            found = pa.Table.from_batches([batch])
            for row in found.group_by(columns[:-2]).aggregate([(AT, "min"), (REASON, "min")]).to_pylist():
                key = tuple(row[name] for name in columns[:-2])
                other = known.setdefault(key, row)
                other |= {name: min(other[name], row[name]) for name in (f"{AT}_min", f"{REASON}_min")}
        rows = list(known.values())
        began: dict[str, Any] = {}
        for row in sorted(rows, key=lambda row: row[f"{AT}_min"]):
            began.setdefault(row[QUERY], row[f"{AT}_min"])
        rows.sort(key=lambda row: (began[row[QUERY]], row[QUERY], row[BATCH]))
        return [
            ParkedBatch(
                row[TABLE],
                MicroBatch(row[QUERY], "replay", row[BATCH], row[OFFSETS]),
                row[f"{REASON}_min"],
                row[f"{AT}_min"],
            )
            for row in rows
        ]

    def rows(self, spark: SparkSession, parked: ParkedBatch) -> DataFrame:
        """The records of a parked batch, as the stream had them."""
        frame = read(spark, self.path, storage_options=self._options)
        own = (
            (F.col(TABLE) == parked.name)
            & (F.col(QUERY) == parked.batch.query_id)
            & (F.col(BATCH) == parked.batch.batch_id)
        )
        return frame.where(own).drop(*PARKED_COLUMNS)

    def forget(self, applied: ParkedBatch) -> None:
        """Delete records that are applied. They do no harm if this fails, and the next replay deletes them."""
        table = self._opened()
        if table is not None:
            name, query = to_sql(Literal(applied.name)), to_sql(Literal(applied.batch.query_id))
            table.delete(f"{TABLE} = {name} AND {QUERY} = {query} AND {BATCH} = {applied.batch.batch_id}")

    def _opened(self) -> Table | None:
        try:
            return Table.open(self.path, storage_options=self._options)
        except TableNotFoundError:
            return None


def require_free(frame: DataFrame) -> None:
    """Raise SchemaMismatchError if the stream has a column with a name of the parked records' own."""
    for name in frame.columns:
        if name.lower() in PARKED_COLUMNS:
            raise SchemaMismatchError(
                f"the stream has a column {name!r}, a name that parked records use", advice="rename it", column=name
            )


def is_pending(parked: ParkedBatch, sink: Sink) -> bool:
    """Whether the table of a sink lacks a parked batch."""
    newest = newest_batch(sink, parked.batch)
    return newest is None or newest < parked.batch.batch_id


def newest_batch(sink: Sink, batch: MicroBatch) -> int | None:
    """The newest batch of the query that a sink's table has; None if it has none, or if there is no table."""
    settings = sink.settings
    try:
        table = Table.open(settings.path, storage_options=settings.storage_options)
    except TableNotFoundError:
        return None
    return _transactions(table).get(Ledger(settings.name, batch).app_id)


def _transactions(table: Table) -> Mapping[str, int]:
    transaction = table.begin()
    try:
        return transaction.transactions
    finally:
        transaction.abort()


def _joined_id(query_id: str, name: str) -> str:
    return f"tidelog/joined/{query_id}/{name}"


def backlogs(parked: Iterable[ParkedBatch]) -> dict[str, Backlog]:
    """The backlog of each table."""
    found: dict[str, Backlog] = {}
    for one in parked:
        known = found.get(one.name, Backlog(0, one.at))
        found[one.name] = Backlog(known.batches + 1, min(known.since, one.at))
    return found
