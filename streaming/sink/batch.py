"""One micro-batch: identify it, skip it if it is committed, else stage and commit its rows, then report.

    identify -> throttle -> collect -> write -> commit

These are also the phases in a BatchReport.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from tidelog.log import Committed, Transaction
from tidelog.log.commit.result import committed
from tidelog.log.errors import ConfigurationError, UnsupportedFeatureError
from tidelog.log.format.actions import SetTransaction
from tidelog.log.statements import run_statement
from tidelog.log.storage import open_store
from tidelog.log.system import REAL_SYSTEM, logger
from tidelog.streaming.executors.collecting import collected
from tidelog.streaming.executors.ruled_frame import only_in_spark
from tidelog.streaming.executors.session import is_connect, is_local
from tidelog.streaming.executors.tasks import require_reachable
from tidelog.streaming.monitoring.batch_report import BatchReport
from tidelog.streaming.monitoring.phases import Phases
from tidelog.streaming.sink.background_checkpoint import BackgroundCheckpoint
from tidelog.streaming.sink.batch_rows import BatchRows, CollectedRows, FrameRows
from tidelog.streaming.sink.claims import claimed, has_begun, note_begun
from tidelog.streaming.sink.identity import Identifier
from tidelog.streaming.sink.micro_batch import MicroBatch
from tidelog.streaming.sink.query_state import is_running
from tidelog.streaming.sink.settings import APPEND, OVERWRITE_PARTITIONS, SPARK, UPSERT, SinkSettings
from tidelog.streaming.sink.streaming_checkpoint import StreamingCheckpoint
from tidelog.streaming.sink.target import Target
from tidelog.streaming.sink.throttle import BackPressure, Brake
from tidelog.streaming.sink.writer_choice import WriterChoice

_LOGGER = logger(__name__)

# The `outputMode` in a commit's operation parameters, as other engines write it.
_OUTPUT_MODES = {APPEND: "Append", UPSERT: "Update", OVERWRITE_PARTITIONS: "Overwrite"}
# The name of commits without an operation of their own, as other engines write it.
_OPERATION = "STREAMING UPDATE"
_TOO_LARGE = "spark.driver.maxResultSize"


class SinkParts:
    """The state that one sink keeps from batch to batch."""

    def __init__(self, settings: SinkSettings) -> None:
        self.settings = settings
        self.identifier = Identifier(_named_checkpoint(settings))
        self.target = Target(settings)
        self.writer_choice = WriterChoice(settings.writer, open_store(settings.path, settings.storage_options))
        self.back_pressure = BackPressure(settings.throttle)
        self.checkpoints = BackgroundCheckpoint(settings.path, settings.storage_options)


def _named_checkpoint(settings: SinkSettings) -> StreamingCheckpoint | None:
    if settings.checkpoint is None:
        return None
    return StreamingCheckpoint.of_store(open_store(settings.checkpoint, settings.storage_options))


@dataclass(frozen=True, slots=True)
class _Written:
    """The rows of a batch and their commit, None if they change nothing; `claim` is a commit of the claim alone."""

    rows: BatchRows
    commit: Committed | None
    claim: Committed | None


class Batch:
    """One call of a sink; call `run` once."""

    def __init__(self, parts: SinkParts, frame: DataFrame, batch_id: int) -> None:
        self._parts = parts
        self._settings = parts.settings.of_batch(REAL_SYSTEM.now_ms)
        self._target = parts.target
        self._frame = frame
        self._phases = Phases(REAL_SYSTEM)
        self._transaction: Transaction | None = None
        if is_connect(frame.sparkSession):
            require_reachable(open_store(parts.settings.path, parts.settings.storage_options))
        with self._phases("identify"):
            self._identity: MicroBatch = parts.identifier.identify(frame, batch_id)

    def run(self) -> BatchReport:
        """Commit the batch unless it is already in the table. Raises the errors that `Sink.__call__` lists."""
        with self._phases("identify"):
            self._transaction = self._target.begin()
        with claimed(self._settings, self._identity, lambda: self._target.table):
            with self._phases("identify"):
                transactions = self._transaction.transactions if self._transaction else {}
                is_committed = self._target.is_committed(transactions, self._identity)
            if is_committed and self._transaction is not None:
                if is_connect(self._frame.sparkSession) and not has_begun(self._settings, self._identity):
                    self._target.require_replay(self._identity)
                self._transaction.require_durable_base()
                return self._report(skipped=True)
            note_begun(self._settings, self._identity)
            brake = self._hold_back()
            if brake:
                # Another copy of the query may have committed this batch during the wait.
                self._transaction = self._target.begin_again(self._identity)
            with self._phases("collect"):
                rows = self._rows(few_files=brake is not None and brake.coalesce)
            return self._report(self._commit(rows), brake)

    def _hold_back(self) -> Brake | None:
        """Wait as long as the throttle asks for; None if there is no throttle or no table yet."""
        if self._target.table is None or self._settings.throttle is None:
            return None
        session, query_id = self._frame.sparkSession, self._identity.query_id
        with self._phases("throttle"):
            return self._parts.back_pressure.hold(self._target.table, lambda: is_running(session, query_id))

    def _rows(self, *, few_files: bool) -> BatchRows:
        """The batch's rows, collected to the driver if they are few."""
        choice = self._parts.writer_choice
        local = is_local(self._frame.sparkSession)
        beyond = self._only_in_spark()
        if choice.choose(local=local) == SPARK or (choice.may_change and beyond):
            return FrameRows(self._settings, self._frame, choice, few_files=few_files)
        if beyond:
            raise UnsupportedFeatureError(
                f"a rule of {self._settings.path} needs {beyond[0]!r}, which the driver cannot evaluate: it has a "
                "function that tidelog lacks, or depends on the session's time zone, which is not UTC",
                advice="leave writer out, or pass writer='spark'",
                path=self._settings.path,
                features=beyond[0],
            )
        try:
            return CollectedRows(self._settings, collected(self._frame))
        except Exception as error:
            if _TOO_LARGE not in str(error):
                raise
            if not choice.may_change:
                raise ConfigurationError(
                    "the batch exceeds spark.driver.maxResultSize, so the driver cannot collect it",
                    advice="leave writer out, raise spark.driver.maxResultSize, or limit the source's batches",
                ) from error
            _LOGGER.info("a batch for %s exceeds spark.driver.maxResultSize: Spark writes it", self._settings.path)
            return FrameRows(self._settings, self._frame, choice, few_files=few_files)

    def _only_in_spark(self) -> tuple[str, ...]:
        """The expressions of the table's rules that only Spark can evaluate."""
        return () if self._transaction is None else only_in_spark(self._frame, self._transaction.writer)

    def _commit(self, rows: BatchRows) -> _Written:
        """Commit the rows, staging them again if a conflict requires it, or claim the sink's name."""
        path = self._settings.path
        if self._transaction is None:
            self._transaction = self._target.create(self._frame, self._identity)
        is_claimed = self._target.ledger(self._identity).is_claimed(self._transaction.transactions)
        commit = run_statement(lambda: self._commit_once(rows), path)
        claim = None if commit or is_claimed else run_statement(self._claim, path)
        return _Written(rows, commit, claim)

    def _claim(self) -> Committed | None:
        """Claim the name by a commit without rows, which has no time version; None if that has been done."""
        transaction = self._target.begin_again(self._identity)
        claim = self._target.ledger(self._identity).claim(transaction.transactions, REAL_SYSTEM.now_ms())
        if not claim:
            transaction.abort()
            return None
        transaction.stage_adds([]).note(operation=_OPERATION)
        self._record_batch(transaction, claim)
        return self._put(transaction)

    def _next_transaction(self) -> Transaction:
        """The transaction that the batch began with, then a new one for each retry after a conflict."""
        begun, self._transaction = self._transaction, None
        return begun or self._target.begin_again(self._identity)

    def _commit_once(self, rows: BatchRows) -> Committed | None:
        transaction = self._next_transaction()
        with self._phases("write"):
            rows.stage(transaction)
        if not rows.count:
            transaction.abort()
            return None
        ledger = self._target.ledger(self._identity)
        self._record_batch(transaction, ledger.entries(transaction.transactions, REAL_SYSTEM.now_ms()))
        return self._put(transaction)

    def _put(self, transaction: Transaction) -> Committed | None:
        """Commit what is staged; None if that changes nothing."""
        with self._phases("commit"):
            outcome = committed(transaction.commit())
        if outcome.version == transaction.base_version:
            return None
        self._parts.checkpoints.committed(outcome.version, transaction.properties)
        return outcome

    def _record_batch(self, transaction: Transaction, entries: Sequence[SetTransaction]) -> None:
        """Add the ledger's entries and the batch's identity to the commit."""
        batch = self._identity
        output_mode = _OUTPUT_MODES[self._settings.mode]
        transaction.note(
            operation=_OPERATION if self._settings.mode == APPEND else None,
            parameters={"outputMode": output_mode, "queryId": batch.query_id, "epochId": str(batch.batch_id)},
            transactions=entries,
            # Read always, though written only when it changes: a query that takes over the name is then a conflict.
            read_applications={self._target.ledger(batch).owner_id},
            record={
                "batch": {
                    "queryId": batch.query_id,
                    "runId": batch.run_id,
                    "batchId": batch.batch_id,
                    "sink": self._settings.name,
                    "fingerprint": batch.fingerprint,
                }
            },
        )

    def _report(
        self, written: _Written | None = None, brake: Brake | None = None, *, skipped: bool = False
    ) -> BatchReport:
        commit = written.commit if written else None
        newest = commit or (written.claim if written else None)
        metrics = commit.metrics if commit else {}
        report = BatchReport(
            self._identity.batch_id,
            newest.version if newest else None,
            rows=written.rows.count if written else 0,
            files=metrics.get("numFiles", metrics.get("numAddedFiles", 0)),
            bytes=metrics.get("numOutputBytes", metrics.get("numAddedBytes", 0)),
            skipped=skipped,
            rebased_over=newest.rebased_over if newest else (),
            seconds=self._phases.seconds,
            mode=self._settings.mode,
            writer=written.rows.writer if written and commit else None,
            metrics=metrics,
            debt_files=brake.debt.small_files if brake and brake.debt else None,
            delayed_s=brake.delayed_s if brake else 0.0,
            sink=self._settings.name,
            path=self._settings.path,
            query_id=self._identity.query_id,
            run_id=self._identity.run_id,
        )
        if commit:
            self._parts.writer_choice.wrote(report.rows, report.bytes)
        return report
