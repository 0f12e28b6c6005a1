"""The sink: a `foreachBatch` function that commits each micro-batch exactly once."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame

from tidelog.log import Committed, Table, Transaction
from tidelog.log.errors import (
    ConcurrentTransactionException,
    ConfigurationError,
    ConflictError,
    TableNotFoundError,
)
from tidelog.log.format import properties as table_properties
from tidelog.log.read.changes import change_schema
from tidelog.log.statements import STATEMENT_RETRIES
from tidelog.log.storage import open_store
from tidelog.log.system import REAL
from tidelog.streaming.executors.plain_frame import arrow_schema
from tidelog.streaming.executors.prerequisites import require_spark
from tidelog.streaming.monitoring.batch_log import failures_logged, publish
from tidelog.streaming.monitoring.phases import Phases
from tidelog.streaming.monitoring.report import BatchReport
from tidelog.streaming.sink.admission import Admission
from tidelog.streaming.sink.background_checkpoint import BackgroundCheckpoint
from tidelog.streaming.sink.batch_rows import BatchRows, CollectedRows, FrameRows
from tidelog.streaming.sink.claims import claimed
from tidelog.streaming.sink.micro_batch import MicroBatch, identify
from tidelog.streaming.sink.query_state import is_running
from tidelog.streaming.sink.settings import (
    APPEND,
    AUTO,
    OVERWRITE_PARTITIONS,
    SPARK,
    UPSERT,
    SinkSettings,
    sink_settings,
)
from tidelog.streaming.sink.throttle import BackPressure, Brake, Throttle
from tidelog.streaming.sink.writer_choice import WriterChoice

_LOGGER = logging.getLogger(__name__)

# As other engines show the commit of a stream's batch; an UPSERT and an OVERWRITE keep their own names.
_OUTPUT_MODES = {APPEND: "Append", UPSERT: "Update", OVERWRITE_PARTITIONS: "Overwrite"}
_TOO_LARGE = "spark.driver.maxResultSize"


class Sink:
    """Commit each micro-batch of a stream to a table, once, whatever crashes.

        query = df.writeStream.foreachBatch(Sink(path)).option("checkpointLocation", c).start()

    A batch is known by the streaming checkpoint's query id, its number and its source offsets; the commit that adds
    the rows also records it, so a batch that Spark replays is skipped. `name` tells several sinks of one query, or
    several streams into one table, apart; it belongs to the first query that uses it. A checkpoint that was deleted
    (a new query under a known name) or restored (a batch number with other offsets) is a CheckpointResetError and
    nothing is written; `on_reset="adopt"` takes the batch as new after you looked. `adopt_txn` goes on with a stream
    that another engine wrote under that application id, with its checkpoint.

    `mode`: `append`; `upsert`, by `keys` (default: the table's `tidelog.primaryKey`), where of several rows of a key
    in one batch the one with the greatest `order_by` counts, and a row for which the SQL text `delete_where` is true
    deletes its key; `overwrite-partitions`, where the batch takes the place of the partitions that it has rows in.

    The table is created at the first batch that has rows, with `partition_by` and `properties`. `schema_evolution` adds
    the batch's new columns to it by the same commit. `writer`: `driver` collects the batch and writes it in the driver
    (it must fit `spark.driver.maxResultSize`), `spark` writes by the executors, `auto` chooses by the batches before.
    `throttle` slows the stream down while the table has many small files. An empty batch commits nothing. Files are
    fsynced before the commit, and the commit is.
    """

    def __init__(  # noqa: PLR0913 - the public signature
        self,
        path: str,
        *,
        name: str = "default",
        mode: str = APPEND,
        keys: Sequence[str] = (),
        order_by: str | Sequence[str] | None = None,
        delete_where: str | None = None,
        adopt_txn: str | None = None,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, object] | None = None,
        storage_options: Mapping[str, str] | None = None,
        schema_evolution: bool = False,
        writer: str = AUTO,
        on_reset: str = "error",
        throttle: Throttle | None = None,
    ) -> None:
        require_spark()
        self._settings = sink_settings(
            path,
            name=name,
            mode=mode,
            keys=keys,
            order_by=order_by,
            delete_where=delete_where,
            adopt_txn=adopt_txn,
            partition_by=partition_by,
            properties=properties,
            storage_options=storage_options,
            schema_evolution=schema_evolution,
            writer=writer,
            on_reset=on_reset,
            throttle=throttle,
        )
        self.last: BatchReport | None = None
        self._admission = Admission(self._settings)
        self._write_path = WriterChoice(writer, open_store(self._settings.path, storage_options))
        self._checkpoints = BackgroundCheckpoint(self._settings.path, storage_options)
        self._back_pressure = BackPressure(throttle)
        self._table: Table | None = None

    def __call__(self, batch_df: DataFrame, batch_id: int) -> None:
        """Commit one micro-batch; Spark calls this. Raises CheckpointResetError, FencedError, NotInStreamError,
        SchemaMismatchError, DuplicateKeyError, and what a commit raises.
        """
        with failures_logged(sink=self._settings.name, path=self._settings.path, batch_id=batch_id):
            phases = Phases(REAL)
            with phases("identify"):
                batch = identify(batch_df, batch_id)
                transaction = self._begin()
            with claimed(self._settings, batch, lambda: self._table):
                self._handle(batch_df, batch, transaction, phases)

    def _handle(self, batch_df: DataFrame, batch: MicroBatch, transaction: Transaction | None, phases: Phases) -> None:
        with phases("identify"):
            skip = transaction is not None and self._admission.is_committed(transaction.transactions, batch)
        if skip:
            self._report(batch, Outcome(skipped=True), phases)
            return
        brake = Brake()
        if self._table is not None and self._settings.throttle is not None:
            with phases("throttle"):
                query_id, session = batch.query_id, batch_df.sparkSession
                brake = self._back_pressure.hold(self._table, lambda: is_running(session, query_id))
                # What came into the table during the wait may be this very batch, of another copy of the query.
                transaction = self._again(batch)
        with phases("collect"):
            rows = self._rows_of(batch_df, few_files=brake.coalesce)
        committed = None
        if not (isinstance(rows, CollectedRows) and rows.count == 0):
            committed = self._commit(transaction, batch, batch_df, rows, phases)
        self._report(batch, Outcome(rows, committed, brake), phases)

    def _begin(self) -> Transaction | None:
        """A transaction on the table's newest version, or None where there is no table yet.

        That one version decides whether the batch is committed already, and the commit is staged against it: a winner
        that wrote the same ledger after it is a conflict.
        """
        if self._table is None:
            try:
                self._table = Table.open(self._settings.path, storage_options=self._settings.storage_options)
            except TableNotFoundError:
                return None
        transaction = self._table.begin()
        self._admission.require_table(transaction.properties, self._table)
        return transaction

    def _rows_of(self, batch_df: DataFrame, *, few_files: bool) -> BatchRows:
        """The batch's rows, collected where they are few."""
        local = (batch_df.sparkSession.sparkContext.master or "").startswith("local")
        if self._write_path.choose(local=local) == SPARK:
            return FrameRows(self._settings, batch_df, self._write_path, few_files=few_files)
        try:
            return CollectedRows(self._settings, batch_df.toArrow())
        except Exception as error:
            if _TOO_LARGE not in str(error):
                raise
            if not self._write_path.may_change:
                raise ConfigurationError(
                    "the batch is larger than the driver takes in",
                    advice="leave writer out, raise spark.driver.maxResultSize, or let the source give smaller batches",
                ) from error
            _LOGGER.info("a batch for %s is larger than spark.driver.maxResultSize", self._settings.path)
            return FrameRows(self._settings, batch_df, self._write_path, few_files=few_files)

    def _create(self, batch_df: DataFrame, batch: MicroBatch) -> Transaction:
        """A transaction on a new table of the batch's schema, all nullable; another may have made it meanwhile."""
        chosen = self._settings
        if chosen.adopt_txn is not None:
            raise ConfigurationError(
                f"there is no table at {chosen.path}, so no stream {chosen.adopt_txn!r} to go on with",
                advice="check the path, or leave adopt_txn out",
            )
        nullable = pa.schema([field.with_nullable(True) for field in arrow_schema(batch_df)])  # noqa: FBT003 - pyarrow's signature
        change_schema(nullable, "cdc")
        properties = dict(chosen.properties)
        key = table_properties.spell_names(chosen.keys)
        if key is not None:
            properties.setdefault(table_properties.PRIMARY_KEY, key)
        table = Table.create(
            chosen.path,
            nullable,
            partition_by=chosen.partition_by,
            properties=properties,
            storage_options=chosen.storage_options,
            exist_ok=True,
        )
        self._table = table
        transaction = table.begin()
        self._admission.require_table(transaction.properties, table)
        self._admission.require_not_committed(transaction, batch)
        return transaction

    def _commit(
        self,
        transaction: Transaction | None,
        batch: MicroBatch,
        batch_df: DataFrame,
        rows: BatchRows,
        phases: Phases,
    ) -> Committed | None:
        """Commit the rows, again from the start where another writer's commit asks for it; None where they change
        nothing.
        """
        if transaction is None:
            if isinstance(rows, FrameRows) and batch_df.isEmpty():
                return None
            transaction = self._create(batch_df, batch)
        for left in reversed(range(STATEMENT_RETRIES + 1)):
            with phases("write"):
                rows.stage(transaction)
            if not rows.count:
                transaction.abort()
                return None
            self._note(transaction, batch)
            try:
                with phases("commit"):
                    committed = transaction.commit()
            except ConcurrentTransactionException:
                raise
            except ConflictError:
                if not left:
                    raise
                _LOGGER.info("another writer's commit on %s came first: staging again", self._settings.path)
                transaction = self._again(batch)
                continue
            if not isinstance(committed, Committed):
                raise AssertionError(committed)  # noqa: TRY004 - only a compaction can be superseded
            if committed.version == transaction.base_version:
                return None
            self._checkpoints.committed(committed.version, transaction.properties)
            return committed
        raise AssertionError(batch)  # the last conflict was raised

    def _again(self, batch: MicroBatch) -> Transaction:
        transaction = self._begin()
        if transaction is None:
            raise AssertionError(batch)  # a table that was begun on stays, or its refresh raises
        self._admission.require_not_committed(transaction, batch)
        return transaction

    def _note(self, transaction: Transaction, batch: MicroBatch) -> None:
        """Note with what is staged that it is this batch's."""
        ledger = self._admission.ledger(batch)
        output_mode = _OUTPUT_MODES[self._settings.mode]
        transaction.note(
            operation="STREAMING UPDATE" if self._settings.mode == APPEND else None,
            parameters={"outputMode": output_mode, "queryId": batch.query_id, "epochId": str(batch.batch_id)},
            transactions=ledger.entries(transaction.transactions, REAL.now_ms()),
            # Read, though written only when it changes: whoever takes the name over fences this batch off.
            read_applications={ledger.owner_id},
            record={
                "batch": {
                    "queryId": batch.query_id,
                    "batchId": batch.batch_id,
                    "sink": self._settings.name,
                    "fingerprint": batch.fingerprint,
                }
            },
        )

    def _report(self, batch: MicroBatch, outcome: Outcome, phases: Phases) -> None:
        report = outcome.report(batch, self._settings, phases.seconds)
        self.last = report
        if report.version is not None:
            self._write_path.wrote(report.rows, report.bytes)
        publish(report)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a batch."""

    rows: BatchRows | None = None
    committed: Committed | None = None
    brake: Brake = field(default_factory=Brake)
    skipped: bool = False

    def report(self, batch: MicroBatch, chosen: SinkSettings, seconds: Mapping[str, float]) -> BatchReport:
        """The same for people and programs."""
        metrics = {} if self.committed is None else self.committed.metrics
        return BatchReport(
            batch.batch_id,
            None if self.committed is None else self.committed.version,
            rows=0 if self.rows is None else self.rows.count,
            files=metrics.get("numFiles", metrics.get("numAddedFiles", 0)),
            bytes=metrics.get("numOutputBytes", metrics.get("numAddedBytes", 0)),
            skipped=self.skipped,
            rebased_over=() if self.committed is None else self.committed.rebased_over,
            seconds=seconds,
            mode=chosen.mode,
            writer=None if self.rows is None or self.committed is None else self.rows.writer,
            metrics=metrics,
            debt_files=None if self.brake.debt is None else self.brake.debt.small_files,
            delayed_s=self.brake.delayed_s,
            sink=chosen.name,
            path=chosen.path,
            query_id=batch.query_id,
            run_id=batch.run_id,
        )
