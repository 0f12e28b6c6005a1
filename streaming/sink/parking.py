"""The table of parked records: what `Sinks` could not give to a table of its own, and which tables the stream has.

Each batch's parked records are one commit, by a Sink, so each record is there once. A record keeps all of its columns
and gets those of PARKED_COLUMNS. The commits also say, for each query, which tables it has written to (`txn` entries
`tidelog/joined/<query id>/<table>`): one of those that has no claim any more was lost, and is not made again.

A parked batch is pending until its own table has its ledger entry, as any other batch of that table. So nothing has to
be marked as applied, and a crash at any moment leaves each record parked or applied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
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
from tidelog.log.system import REAL_SYSTEM, logger
from tidelog.streaming.jvm_reading.tables import read
from tidelog.streaming.sink.dead_letters import REASON
from tidelog.streaming.sink.ledger import Ledger
from tidelog.streaming.sink.micro_batch import MicroBatch
from tidelog.streaming.sink.settings import ADOPT
from tidelog.streaming.sink.sink import Sink

TABLE, QUERY, BATCH, OFFSETS, AT = ("_table", "_query", "_batch", "_offsets", "_parked_at")
PARKED_COLUMNS = (TABLE, QUERY, BATCH, OFFSETS, AT, REASON)
_LOGGER = logger("tidelog.streaming")


@dataclass(frozen=True, slots=True)
class ParkedBatch:
    """The parked records of one batch of one table, and why they were parked."""

    name: str
    batch: MicroBatch
    reason: str


class Parking:
    """The table of parked records of one `Sinks`. `sink` writes it."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        settings = sink.__getstate__()
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

    def park(self, frame: DataFrame, reasons: Mapping[str, str], batch: MicroBatch) -> None:
        """Add the frame's rows, whose column TABLE is one of `reasons`. The first call of a query claims the table."""
        if not reasons and self._is_claimed:
            return
        reason = F.coalesce(*(F.when(F.col(TABLE) == name, F.lit(text)) for name, text in reasons.items()), F.lit(""))
        parked = frame.withColumns(
            {
                QUERY: F.lit(batch.query_id),
                BATCH: F.lit(batch.batch_id).cast("long"),
                OFFSETS: F.lit(batch.fingerprint).cast("long"),
                AT: F.lit(REAL_SYSTEM.now_ms()).cast("long"),
                REASON: reason,
            }
        )
        parked = parked.withColumn(AT, F.timestamp_millis(AT))
        self.sink(parked.where(F.col(TABLE).isin(list(reasons)) if reasons else F.lit(False)), batch.batch_id)  # noqa: FBT003
        self._is_claimed = True
        if self.sink.last is not None and self.sink.last.skipped:
            self._require_parked(reasons, batch)

    def _require_parked(self, reasons: Mapping[str, str], batch: MicroBatch) -> None:
        """Raise the reason if the batch, which was parked before, holds nothing of one of these tables."""
        own = (batch.query_id, batch.batch_id)
        there = {parked.name for parked in self.batches() if (parked.batch.query_id, parked.batch.batch_id) == own}
        for name in sorted(set(reasons) - there):
            raise CheckpointResetError(
                f"batch {batch.batch_id} was parked in {self.path} without the rows of {name!r}, which had them then "
                f"and refuses them now: {reasons[name]}",
                advice="put the table back as it was, and start the query again",
                path=self.path,
                sink=name,
            )

    def batches(self, names: Collection[str] | None = None) -> list[ParkedBatch]:
        """What is parked, for these tables or for all, in the order of its batches, applied or not."""
        table = self._opened()
        if table is None or TABLE not in table.schema.names:
            return []
        columns = [TABLE, QUERY, BATCH, OFFSETS, REASON, AT]
        known: dict[tuple[Any, ...], dict[str, Any]] = {}
        for batch in table.scan(columns=columns).to_batches():  # all at once can be more than the memory holds
            found = pa.Table.from_batches([batch])
            if names is not None:
                found = found.filter(pc.is_in(found[TABLE], pa.array(sorted(names), pa.string())))
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
            ParkedBatch(row[TABLE], MicroBatch(row[QUERY], "replay", row[BATCH], row[OFFSETS]), row[f"{REASON}_min"])
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
            name, query = (text.replace("'", "''") for text in (applied.name, applied.batch.query_id))
            table.delete(f"{TABLE} = '{name}' AND {QUERY} = '{query}' AND {BATCH} = {applied.batch.batch_id}")

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
    settings = sink.__getstate__()
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
