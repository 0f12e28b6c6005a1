"""The sink: a `foreachBatch` function that commits each micro-batch exactly once."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from threading import Lock, Thread

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from tidelog.log import Committed, Table, Transaction
from tidelog.log.conform import conform
from tidelog.log.errors import (
    CheckpointResetError,
    ConcurrentTransactionException,
    ConfigurationError,
    FencedError,
    TableNotFoundError,
    TidelogError,
)
from tidelog.log.format import properties as table_properties
from tidelog.log.storage import open_store
from tidelog.log.system import REAL
from tidelog.streaming.ledger import Ledger, Verdict
from tidelog.streaming.micro_batch import MicroBatch, identify
from tidelog.streaming.phases import Phases
from tidelog.streaming.prerequisites import require_spark
from tidelog.streaming.report import BatchReport

_LOGGER = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_ON_RESET = ("error", "adopt")


class Sink:
    """Append each micro-batch of a stream to a table, once, whatever crashes.

        query = df.writeStream.foreachBatch(Sink(path)).option("checkpointLocation", c).start()

    A batch is known by the streaming checkpoint's query id, its number and its source offsets; the commit that adds
    the rows also records it, so a batch that Spark replays is skipped. `name` tells several sinks of one query, or
    several streams into one table, apart; it belongs to the first query that uses it. A checkpoint that was deleted
    (a new query under a known name) or restored (a batch number with other offsets) is a CheckpointResetError and
    nothing is written; `on_reset="adopt"` takes the batch as new after you looked.

    The table is created at the first batch if it does not exist, with `partition_by` and `properties`. Rows are
    collected by the driver, so a batch must fit there (`spark.driver.maxResultSize`). An empty batch commits nothing.
    Files are fsynced before the commit, and the commit is.
    """

    def __init__(
        self,
        path: str,
        *,
        name: str = "default",
        partition_by: Sequence[str] = (),
        properties: Mapping[str, object] | None = None,
        storage_options: Mapping[str, str] | None = None,
        on_reset: str = "error",
    ) -> None:
        require_spark()
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"a sink cannot be named {name!r}", advice="use up to 100 letters, digits, dots, dashes, underscores"
            )
        if on_reset not in _ON_RESET:
            raise ConfigurationError(f"on_reset cannot be {on_reset!r}", advice=f"use one of {', '.join(_ON_RESET)}")
        self.last: BatchReport | None = None
        self._path = open_store(str(path), storage_options).url
        self._name = name
        self._partition_by = tuple(partition_by)
        self._properties = table_properties.validate(properties or {})
        self._storage_options = storage_options
        self._on_reset = on_reset
        self._table: Table | None = None
        self._checkpointing: Thread | None = None
        # The version at which a checkpoint was last thought of, so that each interval is looked at once.
        self._looked_at = 0

    def __call__(self, batch_df: DataFrame, batch_id: int) -> None:
        """Commit one micro-batch; Spark calls this. Raises CheckpointResetError, FencedError, NotInStreamError,
        SchemaMismatchError, and what a commit raises.
        """
        phases = Phases(REAL)
        with phases("identify"):
            batch = identify(batch_df, batch_id)
            self._refuse_second_call(batch)
            transaction = self._begin()
            skip = transaction is not None and self._is_committed(transaction, batch)
        if skip:
            self._report(batch, BatchReport(batch_id, None, 0, 0, 0, skipped=True, seconds=phases.seconds))
            return
        with phases("collect"):
            rows = batch_df.toArrow()
        if rows.num_rows == 0:
            self._report(batch, BatchReport(batch_id, None, 0, 0, 0, skipped=False, seconds=phases.seconds))
            return
        committed = self._commit(transaction or self._create(batch_df, batch), batch, rows, phases)
        report = BatchReport(
            batch_id,
            committed.version,
            rows.num_rows,
            committed.metrics["numFiles"],
            committed.metrics["numOutputBytes"],
            skipped=False,
            rebased_over=committed.rebased_over,
            seconds=phases.seconds,
        )
        self._report(batch, report)

    def _begin(self) -> Transaction | None:
        """A transaction on the table's newest version, or None where there is no table yet.

        That one version decides whether the batch is committed already, and the commit is staged against it: a winner
        that wrote the same ledger after it is a conflict.
        """
        if self._table is None:
            try:
                self._table = Table.open(self._path, storage_options=self._storage_options)
            except TableNotFoundError:
                return None
        transaction = self._table.begin()
        self._check(transaction.properties, self._table)
        return transaction

    def _check(self, properties: Mapping[str, str], table: Table) -> None:
        """Raise ConfigurationError where this sink may not write to `table`; its properties may change at any time."""
        if table_properties.TRANSACTION_RETENTION in properties:
            raise ConfigurationError(
                f"{table.path} has {table_properties.TRANSACTION_RETENTION}, which would let the record of committed "
                "batches expire and batches be written twice",
                advice="remove that property",
            )
        if self._partition_by and self._partition_by != table.partition_by:
            raise ConfigurationError(
                f"{table.path} is partitioned by {list(table.partition_by)}, not by {list(self._partition_by)}",
                advice="leave partition_by out, or give the table's own",
            )

    def _is_committed(self, transaction: Transaction, batch: MicroBatch) -> bool:
        """Whether the batch is in the table. Raises where it must not be written either."""
        match Ledger(self._name, batch).judge(transaction.transactions):
            case Verdict.COMMIT:
                return False
            case Verdict.SKIP:
                return True
            case Verdict.REPLACED:
                raise FencedError(
                    f"another query has taken over the sink name {self._name!r} of {self._path}",
                    advice="stop this query; only one may write under a name",
                )
            case Verdict.OTHER_QUERY:
                return self._reset(
                    f"the sink name {self._name!r} of {self._path} belongs to another query than {batch.query_id}: "
                    "its checkpoint was deleted, or a second stream needs a name of its own",
                    "restore the checkpoint, or give the second stream a Sink(name=...), or go on with "
                    "on_reset='adopt' after making sure that no row comes twice",
                )
            case Verdict.OTHER_OFFSETS:
                return self._reset(
                    f"batch {batch.batch_id} of query {batch.query_id} was committed to {self._path} with other "
                    "source offsets, or a later one was: the checkpoint was restored from an older copy",
                    "put the newest checkpoint back, or go on with on_reset='adopt' after making sure that no row "
                    "comes twice",
                )

    def _reset(self, what: str, advice: str) -> bool:
        if self._on_reset == "adopt":
            _LOGGER.warning("adopting: %s", what)
            return False
        raise CheckpointResetError(what, advice=advice, path=self._path, sink=self._name)

    def _create(self, batch_df: DataFrame, batch: MicroBatch) -> Transaction:
        """A transaction on a new table of the batch's schema, all nullable; another may have made it meanwhile."""
        schema = to_arrow_schema(batch_df.schema, timezone="UTC")
        nullable = pa.schema([field.with_nullable(True) for field in schema])  # noqa: FBT003 - pyarrow's signature
        table = Table.create(
            self._path,
            nullable,
            partition_by=self._partition_by,
            properties=self._properties,
            storage_options=self._storage_options,
            exist_ok=True,
        )
        self._table = table
        transaction = table.begin()
        self._check(transaction.properties, table)
        if self._is_committed(transaction, batch):
            raise ConcurrentTransactionException(
                f"another copy of query {batch.query_id} committed batch {batch.batch_id} to {self._path}",
                advice="let only one copy run",
                path=self._path,
                app_id=Ledger(self._name, batch).app_id,
            )
        return transaction

    def _commit(self, transaction: Transaction, batch: MicroBatch, rows: pa.Table, phases: Phases) -> Committed:
        ledger = Ledger(self._name, batch)
        with phases("write"):
            adds = transaction.writer.write(conform(rows, transaction.schema))
        transaction.stage_adds(
            adds,
            operation="STREAMING UPDATE",
            parameters={"outputMode": "Append", "queryId": batch.query_id, "epochId": str(batch.batch_id)},
            transactions=ledger.entries(transaction.transactions, REAL.now_ms()),
            # Read, though written only when it changes: whoever takes the name over fences this batch off.
            read_applications={ledger.owner_id},
            record={
                "batch": {
                    "queryId": batch.query_id,
                    "batchId": batch.batch_id,
                    "sink": self._name,
                    "fingerprint": batch.fingerprint,
                }
            },
        )
        with phases("commit"):
            committed = transaction.commit()
        if not isinstance(committed, Committed):
            raise AssertionError(committed)  # noqa: TRY004 - only a compaction can be superseded
        self._checkpoint_if_due(transaction, committed.version)
        return committed

    def _checkpoint_if_due(self, transaction: Transaction, version: int) -> None:
        """Where no daemon writes checkpoints, do it beside the stream, never in a batch's own time."""
        interval = table_properties.count(transaction.properties, table_properties.CHECKPOINT_INTERVAL)
        busy = self._checkpointing is not None and self._checkpointing.is_alive()
        if version // interval > self._looked_at // interval and not busy:
            arguments = (self._path, self._storage_options, interval)
            self._checkpointing = Thread(target=_checkpoint, args=arguments, daemon=True)
            self._checkpointing.start()
            self._looked_at = version

    def _refuse_second_call(self, batch: MicroBatch) -> None:
        """A second call for one batch would take the first one's commit for its own and drop its rows."""
        with _handled_lock:
            handled = _handled.get((self._path, self._name))
        if handled == batch:
            raise ConfigurationError(
                f"batch {batch.batch_id} was given to the sink {self._name!r} of {self._path} twice",
                advice="give each Sink of one batch function a name of its own, and call it once for a batch",
            )

    def _report(self, batch: MicroBatch, report: BatchReport) -> None:
        self.last = report
        with _handled_lock:
            _handled[self._path, self._name] = batch
        _LOGGER.info("batch %d of %s: %s", report.batch_id, self._path, report)


# The batch that each sink of this process (path and name) handled last.
_handled: dict[tuple[str, str], MicroBatch] = {}
_handled_lock = Lock()


def _checkpoint(path: str, storage_options: Mapping[str, str] | None, interval: int) -> None:
    try:
        table = Table.open(path, storage_options=storage_options)
        # A daemon that is running keeps the tail at about one interval; a longer one means that there is none.
        if table.commits_since_checkpoint() >= interval:
            table.checkpoint()
    except (TidelogError, OSError) as error:
        # The batches are safe without; the next interval tries again.
        _LOGGER.warning("no checkpoint was written for %s: %s", path, error)
