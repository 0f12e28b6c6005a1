"""One micro-batch: identify it, skip it if it is committed, else stage and commit its rows, then report.

    identify -> throttle -> collect -> write -> commit

These are also the phases in a BatchReport.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from tidelog.log import Committed, Table, Transaction
from tidelog.log.commit.result import committed
from tidelog.log.errors import CheckpointResetError, ConcurrentTransactionException, ConfigurationError
from tidelog.log.format.actions import SetTransaction
from tidelog.log.operations.merge_rules import PARTIAL
from tidelog.log.operations.upsert_order import OUTDATED
from tidelog.log.statements import run_statement
from tidelog.log.storage import open_store
from tidelog.log.system import REAL_SYSTEM, logger
from tidelog.streaming.executors.collected import collected
from tidelog.streaming.executors.computed_once import computed_once
from tidelog.streaming.executors.plain_frame import arrow_schema, has_voids, typed_voids, without_voids
from tidelog.streaming.executors.session import is_connect, is_running, require_apart
from tidelog.streaming.executors.tasks import require_reachable
from tidelog.streaming.monitoring.batch_report import BatchReport, Phases
from tidelog.streaming.sink.batch_identity import Identifier, StreamingCheckpoint
from tidelog.streaming.sink.batch_rows import BatchRows, WriterChoice, columns_read, reads_twice, rows_of_batch
from tidelog.streaming.sink.captured import (
    OF_RECORD,
    Captured,
    captured,
    has_columns,
    reason_in,
    require_order,
    without_control,
)
from tidelog.streaming.sink.control import ORDER, RAW
from tidelog.streaming.sink.dead_letters import add_missing, apart
from tidelog.streaming.sink.ledger import BatchStatus, Ledger
from tidelog.streaming.sink.left_out import BaseTable
from tidelog.streaming.sink.micro_batch import MicroBatch
from tidelog.streaming.sink.settings import (
    ADOPT,
    APPEND,
    DRIVER,
    OVERWRITE_PARTITIONS,
    SPARK,
    UPSERT,
    SinkSettings,
)
from tidelog.streaming.sink.target import Target
from tidelog.streaming.sink.throttle import BackPressure, Brake

_LOGGER = logger(__name__)

# The `outputMode` in a commit's operation parameters, as other engines write it.
_OUTPUT_MODES = {APPEND: "Append", UPSERT: "Update", OVERWRITE_PARTITIONS: "Overwrite"}
# Spark's output mode of batches that have the query's whole result.
_COMPLETE = "complete"
# The name of commits without an operation of their own, as other engines write it.
_OPERATION = "STREAMING UPDATE"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What `Sinks` knows about the batches that it gives to a sink, and to that sink's dead letters.

    `joins`: the table is new in the stream, so it may lack a claim although the query is past batch 0. `parked`: the
    rows are those of this earlier batch, which is not the stream's current one; there may be no stream at all.
    `are_kept`: each look at the rows finds the same. `is_computed`: the stream's batch is computed, whatever becomes of
    these rows. `of_refused`: they are those that another sink cannot apply.
    """

    joins: bool = False
    parked: MicroBatch | None = None
    are_kept: bool = False
    is_computed: bool = False
    of_refused: bool = False


_circumstances: ContextVar[Circumstances] = ContextVar("circumstances", default=Circumstances())  # noqa: B039 - frozen


@contextmanager
def in_circumstances(found: Circumstances) -> Iterator[None]:
    """Within the block, sinks are called in these circumstances."""
    token = _circumstances.set(found)
    try:
        yield
    finally:
        _circumstances.reset(token)


class SinkParts:
    """The state that one sink keeps from batch to batch."""

    def __init__(self, settings: SinkSettings) -> None:
        self.settings = settings
        self.identifier = identifier_of(settings)
        self.target = Target(settings)
        writer = DRIVER if settings.columns == PARTIAL else settings.writer
        self.writer_choice = WriterChoice(writer, open_store(settings.path, settings.storage_options))
        self.back_pressure = BackPressure(settings.throttle)
        # The run of the query whose first batch was compared with the ledger.
        self.run_id: str | None = None
        # The run of the query that was found to go with the sink.
        self.fitting_run_id: str | None = None


def identifier_of(settings: SinkSettings) -> Identifier:
    """What identifies the batches of a sink with these settings."""
    if settings.checkpoint is None:
        return Identifier(None)
    return Identifier(StreamingCheckpoint.of_store(open_store(settings.checkpoint, settings.storage_options)))


@dataclass(frozen=True, slots=True)
class _Written:
    """The rows of a batch and their commit, None if they change nothing; `claim` is a commit of the claim alone.

    `metrics` are those of the statement, also if it changed nothing.
    """

    rows: BatchRows
    commit: Committed | None
    claim: Committed | None
    metrics: Mapping[str, int]


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
        self._circumstances = _circumstances.get()
        parked = self._circumstances.parked
        with self._phases("identify"):
            self._identity: MicroBatch = parked or parts.identifier.identify(frame, batch_id)
            if parked is None:
                self._require_fit()
        settings = self._settings
        self._ledger = Ledger(settings.name, self._identity, settings.adopt_txn, settings.path)
        self._is_adopted = False
        # Those of the rows that were committed, or found to be too old.
        self._metrics: Mapping[str, int] = {}

    def run(self) -> BatchReport:
        """Commit the batch unless it is already in the table. Raises the errors that `Sink.__call__` lists."""
        with self._phases("identify"):
            self._transaction = self._target.begin()
        with _claimed(self._settings, self._identity, self._target):
            with self._phases("identify"):
                is_committed = self._is_committed(self._transaction)
            if is_committed and self._transaction is not None:
                if is_connect(self._frame.sparkSession) and not _has_begun(self._settings, self._identity):
                    self._target.require_replay(self._identity)
                self._transaction.require_durable_base()
                if not self._circumstances.is_computed:
                    with self._phases("collect"):
                        self._parts.identifier.compute_skipped(self._frame)
                return self._report(skipped=True)
            _note_begun(self._settings, self._identity)
            brake = self._hold_back()
            if brake:
                # Another copy of the query may have committed this batch during the wait.
                self._transaction = self._begin_again()
            if has_voids(self._frame.schema):
                self._frame = self._without_voids()
            few_files = brake is not None and brake.coalesce
            with self._readable() as batch, self._applicable(batch) as frame:
                if batch is not None and not batch.has_columns:
                    # A table that is not there yet comes with the first batch that says what its columns are.
                    return self._report(None if self._transaction is None else self._commit(_NoRows()), brake)
                with self._phases("collect"):
                    rows = self._rows(frame, few_files=few_files)
                    if batch is not None and batch.needs_table:
                        rows = _WithTable(lambda base: self._completed(batch, frame, base, few_files=few_files))
                return self._report(self._commit(rows), brake)

    def _require_fit(self) -> None:
        """Raise ConfigurationError if the query's checkpoint or output mode does not go with the sink."""
        settings, run_id = self._settings, self._identity.run_id
        if run_id and run_id == self._parts.fitting_run_id:
            return
        run = self._parts.identifier.run(self._frame.sparkSession)
        if run is None:  # of Spark Connect, where the sink knows the checkpoint from its arguments alone
            return
        require_apart(settings.path, run.checkpoint)
        appends_all = run.output_mode == _COMPLETE and settings.mode == APPEND and not settings.append_complete
        if appends_all and not self._circumstances.of_refused:
            raise ConfigurationError(
                f"the query has outputMode('complete'), so each batch has all rows of its result, and sink "
                f"{settings.name!r} would append them to {settings.path} each time",
                advice=f"pass mode={UPSERT!r} with the columns of the groups as keys, or "
                f"mode={OVERWRITE_PARTITIONS!r}; or use outputMode('append') with a watermark; if the function leaves "
                "only new rows in each batch, pass append_complete=True",
            )
        self._parts.fitting_run_id = run_id

    def _without_voids(self) -> DataFrame:
        """The batch's rows in the table's types; a column without a type, all null, waits for a batch that has one."""
        table = pa.schema([]) if self._transaction is None else self._transaction.schema
        frame = typed_voids(self._frame, table)
        return without_voids(frame, table, columns_read(self._settings, arrow_schema(frame)))

    def _completed(self, batch: Captured, frame: DataFrame, transaction: Transaction, *, few_files: bool) -> BatchRows:
        """The rows of a batch together with what they need of the table that the transaction is based on."""
        keys = self._settings.keys_of(transaction.schema, transaction.properties)
        whole, unknown = batch.completed(frame, keys, self._base(transaction))
        if unknown is not None:
            letters: Any = self._settings.dead_letters
            if letters is None:
                batch.raise_unknown(unknown)
            add_missing(letters.settings, collected(unknown), by=(ORDER, RAW))
        return self._rows(whole, few_files=few_files)

    def _base(self, transaction: Transaction) -> BaseTable:
        """The table that a transaction is based on."""
        table = self._target.table
        if table is None:
            raise AssertionError(self._identity)  # it was opened or created for the transaction
        return BaseTable(transaction, table.at(version=transaction.base_version))

    def _rows(self, frame: DataFrame, *, few_files: bool) -> BatchRows:
        writer = None if self._transaction is None else self._transaction.writer
        return rows_of_batch(self._settings, frame, self._parts.writer_choice, writer, few_files=few_files)

    @contextmanager
    def _readable(self) -> Iterator[Captured | None]:
        """The batch as change records, if the sink takes these. Raises DataError if one cannot be read or kept."""
        settings = self._settings
        if settings.captured is None:
            yield None
            return
        if self._transaction is not None:
            require_order(self._transaction.schema, settings.path)
        if not has_columns(self._frame) and self._transaction is None and not self._circumstances.joins:
            reason = reason_in(self._frame)
            raise ConfigurationError(
                f"no record of the batch says what the columns are, and there is no table at {settings.path} yet"
                + ("" if reason is None else f"; of one of them {reason}"),
                advice="pass schema=, or create the table",
            )
        keys = self._columns()[0] if has_columns(self._frame) else []
        kept = {*settings.captured, *(() if self._transaction is None else self._transaction.schema.names)}
        with captured(self._frame, keys, kept, keep_raw=settings.dead_letters is not None) as batch:
            if settings.dead_letters is None:
                batch.require_read()
            yield batch

    def _columns(self) -> tuple[list[str], list[str], Sequence[str]]:
        """The columns of the key, of the order and of partitions, of the table that is or will be."""
        settings, transaction = self._settings, self._transaction
        schema = arrow_schema(self._frame) if transaction is None else transaction.schema
        properties = settings.properties if transaction is None else transaction.properties
        of_table = None if transaction is None else transaction.state.head.metadata.partition_columns
        partition_by = settings.partition_by if of_table is None else of_table
        return settings.keys_of(schema, properties), settings.order_of(schema, properties), partition_by

    @contextmanager
    def _applicable(self, batch: Captured | None) -> Iterator[DataFrame]:
        """The rows that can be applied, once the sink for the others has committed those."""
        settings, transaction = self._settings, self._transaction
        if batch is not None and not batch.has_columns:
            with self._letters_given(batch.unread):
                yield batch.rows
            return
        needs_state = batch is not None and batch.has_left_out and transaction is not None
        state = self._base(transaction) if needs_state and transaction is not None else None
        if settings.dead_letters is None:
            if batch is not None:
                yield batch.known(self._columns()[0], state)
            elif reads_twice(settings, self._frame, self._parts.writer_choice):
                with self._kept(self._frame) as kept:
                    yield kept
            else:
                yield self._frame
            return
        keys, order, partition_by = self._columns()
        frame, beside = (self._frame, ()) if batch is None else (batch.rows, OF_RECORD)
        with self._kept(frame) as kept, apart(kept, keys, order, partition_by, beside) as parts:
            rows, others = parts if batch is None else batch.told_apart(*parts, keys, state)
            with self._letters_given(others, None if batch is None else batch.unknown):
                yield rows

    @contextmanager
    def _kept(self, frame: DataFrame) -> Iterator[DataFrame]:
        """Rows that are read twice, computed once."""
        # `captured` keeps its rows, as `Sinks` does.
        if self._circumstances.are_kept or self._settings.captured is not None:
            yield frame
            return
        with self._phases("collect"):
            once = ExitStack()
            kept = once.enter_context(computed_once(frame))
        with once:
            yield kept

    @contextmanager
    def _letters_given(self, others: DataFrame, unknown: DataFrame | None = None) -> Iterator[None]:
        """Give the rows that cannot be applied to their sink; if the block fails, it can be called again.

        `unknown` are those of them that depend on the table. It may have been another one when the sink was given the
        batch before a crash.
        """
        letters: Any = self._settings.dead_letters
        if letters is None:
            yield
            return
        with self._phases("dead_letters"):
            with in_circumstances(replace(self._circumstances, of_refused=True, is_computed=True)):
                letters(others, self._identity.batch_id)
            if unknown is not None and letters.last.skipped:
                add_missing(letters.settings, collected(unknown), by=(ORDER, RAW))
        try:
            yield
        except BaseException:
            _release(letters.settings, self._identity)
            raise

    def _is_committed(self, transaction: Transaction | None) -> bool:
        """Whether the batch is in the table; `transaction` is on its newest version, None if there is no table yet.

        Raises CheckpointResetError, FencedError or ConfigurationError if it is not but must not be written either.
        """
        transactions = None if transaction is None else transaction.transactions
        status = self._ledger.judge(transactions or {})
        if status is BatchStatus.UNCLAIMED and self._circumstances.joins:
            return False
        refusal = self._ledger.refusal(status, transactions)
        if refusal is not None:
            if self._settings.on_reset != ADOPT or not isinstance(refusal, CheckpointResetError):
                raise refusal
            if not self._is_adopted:
                _LOGGER.warning("on_reset='adopt': committing the batch as new, although %s", refusal.message)
            self._is_adopted = True
        elif status is BatchStatus.COMMIT:
            self._log_missing(self._ledger.missing_batches(transactions or {}))
        return status is BatchStatus.SKIP

    def _log_missing(self, missing: range) -> None:
        """At the first batch of a run, log which batches before it left nothing in the table."""
        batch = self._identity
        if missing and batch.run_id != self._parts.run_id:
            _LOGGER.info(
                "batches %d to %d of query %s left nothing in %s under the sink name %r: they changed no rows, or went "
                "to another table",
                missing[0],
                missing[-1],
                batch.query_id,
                self._settings.path,
                self._settings.name,
            )
        self._parts.run_id = batch.run_id

    def _begin_again(self) -> Transaction:
        """A transaction on the newest version, for a batch that was not committed on an earlier one."""
        transaction = self._target.begin()
        if transaction is None:
            raise AssertionError(self._identity)  # an opened table stays open, or its refresh raises
        if self._is_committed(transaction):
            batch = self._identity
            raise ConcurrentTransactionException(
                f"another copy of query {batch.query_id} committed batch {batch.batch_id} to {self._settings.path}",
                advice="run only one copy",
                path=self._settings.path,
                app_id=self._ledger.app_id,
            )
        return transaction

    def _hold_back(self) -> Brake | None:
        """Wait as long as the throttle asks for; None if there is no throttle or no table yet."""
        if self._target.table is None or self._settings.throttle is None:
            return None
        session, query_id = self._frame.sparkSession, self._identity.query_id
        with self._phases("throttle"):
            return self._parts.back_pressure.hold(self._target.table, lambda: is_running(session, query_id))

    def _commit(self, rows: BatchRows) -> _Written:
        """Commit the rows, staging them again if a conflict requires it, or claim the sink's name."""
        path = self._settings.path
        if self._transaction is None:
            self._target.create(
                self._frame
                if self._settings.captured is None
                else without_control(self._frame, self._settings.captured)
            )
            self._transaction = self._begin_again()
        is_claimed = self._ledger.is_claimed(self._transaction.transactions)
        commit = run_statement(lambda: self._commit_once(rows), path)
        # What is parked counts as applied once the ledger has it, also if it changes nothing.
        is_recorded = is_claimed and self._circumstances.parked is None
        claim = None if commit or is_recorded else run_statement(self._claim, path)
        return _Written(rows, commit, claim, self._metrics)

    def _claim(self) -> Committed | None:
        """Claim the name by a commit without rows, which has no time version; None if that has been done."""
        transaction = self._begin_again()
        entries = self._ledger.claim if self._circumstances.parked is None else self._ledger.entries
        claim = entries(transaction.transactions, REAL_SYSTEM.now_ms())
        if not claim:
            transaction.abort()
            return None
        transaction.stage_adds([]).note(operation=_OPERATION)
        self._record_batch(transaction, claim)
        return self._put(transaction)

    def _next_transaction(self) -> Transaction:
        """The transaction that the batch began with, then a new one for each retry after a conflict."""
        begun, self._transaction = self._transaction, None
        return begun or self._begin_again()

    def _commit_once(self, rows: BatchRows) -> Committed | None:
        transaction = self._next_transaction()
        with self._phases("write"):
            rows.stage(transaction)
        if not rows.count:
            transaction.abort()
            return None
        self._record_batch(transaction, self._ledger.entries(transaction.transactions, REAL_SYSTEM.now_ms()))
        made = self._put(transaction)
        if made is not None or self._outcome.metrics.get(OUTDATED):
            self._metrics = self._outcome.metrics
        return made

    def _put(self, transaction: Transaction) -> Committed | None:
        """Commit what is staged; None if that changes nothing."""
        with self._phases("commit"):
            outcome = self._outcome = committed(transaction.commit())
        if outcome.version == transaction.base_version:
            return None
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
            read_applications={self._ledger.owner_id},
            record={
                "batch": {
                    "queryId": batch.query_id,
                    "runId": batch.run_id,
                    "batchId": batch.batch_id,
                    "sink": self._settings.name,
                    **({} if batch.query_name is None else {"queryName": batch.query_name}),
                    "fingerprint": batch.fingerprint,
                    # How long it took up to its commit, for who reads the history.
                    "ms": round(sum(self._phases.seconds.values()) * 1000),
                }
            },
        )

    def _report(
        self, written: _Written | None = None, brake: Brake | None = None, *, skipped: bool = False
    ) -> BatchReport:
        commit = written.commit if written else None
        newest = commit or (written.claim if written else None)
        metrics = written.metrics if written else {}
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


class _NoRows:
    """The rows of a batch that has none."""

    count = 0
    writer = DRIVER

    def stage(self, transaction: Transaction) -> None:
        """See BatchRows."""


class _WithTable:
    """The rows of a batch that are complete only with rows of the table; each time they are staged, with its own."""

    def __init__(self, completed: Callable[[Transaction], BatchRows]) -> None:
        self.count = 0
        self.writer = SPARK
        self._completed = completed

    def stage(self, transaction: Transaction) -> None:
        """See BatchRows."""
        rows = self._completed(transaction)
        rows.stage(transaction)
        self.count, self.writer = rows.count, rows.writer


@contextmanager
def _claimed(settings: SinkSettings, batch: MicroBatch, target: Target) -> Iterator[None]:
    """Claim one batch for a sink within this process; if the block fails, the batch can be claimed again.

    A second call for the batch would find the first one's commit and drop its rows.

    Raises ConfigurationError if a sink of this name has claimed the batch, under this path or another one of the same
    table.
    """
    keys = _keys(settings, target.table)
    with _lock:
        if any(_claims.get(key) == batch for key in keys):
            raise ConfigurationError(
                f"sink {settings.name!r} was called twice for batch {batch.batch_id} of {settings.path}",
                advice="give each Sink in a batch function its own name, and call it once for each batch",
            )
        _claims.update(dict.fromkeys(keys, batch))
    try:
        yield
    except BaseException:
        with _lock:
            for key in _keys(settings, target.table):
                if _claims.get(key) == batch:
                    del _claims[key]
        raise
    with _lock:
        # The block may have created the table.
        keys = _claimed_by[settings.path, settings.name] = _keys(settings, target.table)
        _claims.update(dict.fromkeys(keys, batch))


def _release(settings: SinkSettings, batch: MicroBatch) -> None:
    """Let a batch be claimed again, for a sink of which the same call is due once more."""
    with _lock:
        for key in _claimed_by.get((settings.path, settings.name), ()):
            if _claims.get(key) == batch:
                del _claims[key]


def _note_begun(settings: SinkSettings, batch: MicroBatch) -> None:
    """Remember that a sink of this process begins to write the batch."""
    _begun[settings.path, settings.name] = batch


def _has_begun(settings: SinkSettings, batch: MicroBatch) -> bool:
    """Whether a sink of this process has started to write the batch, and may have committed it."""
    return _begun.get((settings.path, settings.name)) == batch


def _keys(settings: SinkSettings, table: Table | None) -> list[tuple[str, str]]:
    """The sink's name with the path, and with the table's id, since one table can have several paths."""
    return [(place, settings.name) for place in (settings.path, *([] if table is None else [table.id]))]


# The newest batch that each sink of this process claimed.
_claims: dict[tuple[str, str], MicroBatch] = {}
# The keys by which each sink of this process claims its batches.
_claimed_by: dict[tuple[str, str], list[tuple[str, str]]] = {}
# The newest batch that each sink of this process began to write, also if that failed.
_begun: dict[tuple[str, str], MicroBatch] = {}
_lock = Lock()
