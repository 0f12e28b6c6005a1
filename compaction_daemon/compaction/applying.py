"""Apply a plan: rewrite its groups, and commit what is finished from time to time.

A group is planned for one version of the table. Its rewrite depends on nothing but its files, so it can be committed
on any later version in which these files, with their deletion vectors, were still live: the rebase does the rest. So
while groups are being rewritten, finished ones are committed, and the rest is checked against the version that this
makes. A conflict or a crash then loses the work of one interval, however large the plan is.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tidelog.compaction_daemon.compaction.compaction_report import CompactionReport, say_what_was_committed, summed
from tidelog.compaction_daemon.compaction.executors import Rewritten, begin_rewrite, require_usable, rewritten_group
from tidelog.compaction_daemon.planning.checking import DroppedGroup, check
from tidelog.compaction_daemon.planning.failed_groups import FailedGroups, code_of, text_of
from tidelog.compaction_daemon.planning.history import RECORD, Cost, CostRecord, scope_of
from tidelog.compaction_daemon.planning.plan import MAJOR, PlannedGroup, total
from tidelog.compaction_daemon.rewriting.rewrite import rewrite
from tidelog.log import Committed, OperationClass, Snapshot, Superseded, Transaction
from tidelog.log.conflict.staged import MoveGroup
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import (
    CommitStateUnknownError,
    CompactionGrowthError,
    ConflictError,
    FencedError,
    RetryableError,
    StoreAccessError,
    TableReplacedError,
    TidelogError,
    WorkerLostError,
)
from tidelog.log.format import paths, properties
from tidelog.log.format.actions import AddFile, SetTransaction
from tidelog.log.format.clustering import clustering_columns
from tidelog.log.format.statistics import num_records
from tidelog.log.log_records import event
from tidelog.log.read.read_ahead import SharedThreads
from tidelog.log.system import logger

if TYPE_CHECKING:
    from tidelog.log import Table

_LOGGER = logger(__name__)

# A commit takes some milliseconds on a disk and up to a second on an object store, so at most a twentieth of the time
# goes into commits, and a crash loses at most this much work and the groups that are being rewritten.
COMMIT_INTERVAL_S = 20.0
# With several fast workers that is a lot of data. A commit names all of its files, and if another compaction came
# first, the rebase may have to follow every row in memory.
COMMIT_BYTES = 8 * 2**30
COMMIT_ROWS = 50_000_000
# Groups that are rewritten at the same time in this process, where each takes about 300 MB.
THREADS = 4
# Groups that an executor has at a time: enough for many workers, few enough to stop soon.
MAX_RUNNING = 64
# Errors of a rewrite that the other groups would meet as well.
_OF_THE_TABLE = (ConflictError, RetryableError, FencedError, StoreAccessError, TableReplacedError)


@dataclass(frozen=True, slots=True)
class Conduct:
    """How groups are rewritten and committed.

    Args:
        executor: Rewrites groups in parallel; None rewrites up to `THREADS` at a time in threads of this process, and
            clustered ones one after the other.
        fence: The epoch of a daemon's lease, for every commit.
        failed: The groups that failed before; those that fail are added.
        stopping: Whether to begin no further group; what is finished is still committed.
        on_failed: Is called with the error of each group that fails. Then it is not raised.
        on_commit: Is called with a report of each commit.
        on_end: Is called with the report of the whole, also after an error.
    """

    executor: Executor | None = None
    fence: SetTransaction | None = None
    failed: FailedGroups = field(default_factory=FailedGroups)
    stopping: Callable[[], bool] = lambda: False
    on_failed: Callable[[Exception], None] | None = None
    on_commit: Callable[[CompactionReport], None] = lambda _: None
    on_end: Callable[[CompactionReport], None] = lambda _: None


def apply_groups(
    table: Table, snapshot: Snapshot, groups: Sequence[PlannedGroup], conduct: Conduct
) -> CompactionReport:
    """Rewrite and commit groups that were planned for, or checked against, `snapshot`.

    What was committed stays, whatever happens then:

    - A group whose files are damaged, whose rewrite is refused, or that fails in any other way, is left alone. The rest
      is committed, and then the first such error is raised.
    - A group that would take more space is left alone as well, and is an error only if nothing was committed.
    - If a process of the executor dies, no further group is begun, and what the others finish is committed. The groups
      that it may have died of come last in the next compaction, one at a time. A conflict or a store that does not
      answer ends the work. Each is raised if nothing was committed, because such an error promises that; else it is in
      the report.
    - If the table has no metadata retry and its policy refuses the groups of a partition, they are dropped, and the
      work goes on in other partitions. The first such conflict is raised if nothing was committed.
    - An error of a commit, or one that is about the whole table, ends the work and is raised.

    An error of tidelog that is raised after a commit says so, and its field `report` has the report of what was done.
    """
    return _Run(table, snapshot, groups, conduct).committed()


def stage_groups(
    transaction: Transaction, table: Table, snapshot: Snapshot, groups: Sequence[PlannedGroup], level: str
) -> Transaction:
    """Rewrite groups, and stage them in a transaction with the record of what that cost.

    It raises the errors of `apply_groups`. After an error no written file is left.
    """
    run = _Run(table, snapshot, groups, Conduct())
    finished = run.rewritten()
    moves = [each.moves for each in finished]
    transaction.stage_moves(moves, operation_class=OperationClass(level.upper()))
    return transaction.note(record=_cost_record(finished, run.seconds))


@dataclass(frozen=True, slots=True)
class _Work:
    """A group on its way, with its place in the plan, and the version that it was checked against."""

    number: int
    planned: PlannedGroup
    base: Snapshot


@dataclass(frozen=True, slots=True)
class _Finished:
    """A rewritten group, not yet committed."""

    work: _Work
    moves: MoveGroup


class _Run:
    """One compaction: the groups to come, those being rewritten, and those that were."""

    def __init__(self, table: Table, snapshot: Snapshot, groups: Sequence[PlannedGroup], conduct: Conduct) -> None:
        require_usable(table.store, conduct.executor)
        self._table = table
        self._system = table.timeline.system
        self._conduct = conduct
        self._checked = snapshot
        # What may cost a worker comes last.
        self._rest = deque(sorted(groups, key=self._is_suspect))
        self._begun = 0
        self._running: dict[Future[Rewritten], _Work] = {}
        self._finished: list[_Finished] = []
        self._failed: Exception | None = None
        self._worker_lost: WorkerLostError | None = None
        self._refused: ConflictError | None = None
        self._stopped: str | None = None
        self._bytes_read = self._bytes_written = self._bytes_wasted = 0
        self._retries = properties.metadata_retry(snapshot.properties)
        self._reports: list[CompactionReport] = []
        self._dropped: list[DroppedGroup] = []
        self._began_s = self._interval_s = self._system.monotonic_s()
        self._executor, self._most = conduct.executor, MAX_RUNNING
        if conduct.executor is None:
            self._most = _threads(table, groups)
        folders = snapshot.state.uses_partition_folders()
        writer = DataWriter(table.store, snapshot.state.head.metadata, self._system, folders)
        clusters_by = clustering_columns(snapshot.state.head.domains, snapshot.schema)
        now_ms, version = self._system.now_ms(), snapshot.version
        self._rewrite = partial(
            rewrite, writer, snapshot.schema, now_ms=now_ms, version=version, table_clusters_by=clusters_by
        )
        if conduct.executor is None and table.store.small_reads_at_once <= 1:
            # On a disk, groups that are rewritten side by side share the cores. With more threads they would only take
            # the cores from each other. In an object store a reader mostly waits.
            self._rewrite = partial(self._rewrite, threads=SharedThreads(table.store.reads_at_once))

    def committed(self) -> CompactionReport:
        """Rewrite and commit all groups."""
        try:
            self._rewrite_and_commit()
            self._raise_if_failed(anything_done=self._did_anything)
        except TidelogError as error:
            say_what_was_committed(error, self._report())
            raise
        finally:
            report = self._report()
            self._conduct.on_end(report)
        return report

    def _rewrite_and_commit(self) -> None:
        try:
            with self._workers():
                while self._submit():
                    self._collect()
                    if self._is_due():
                        self._commit()
            self._commit()
            self._raise_if_lost()
        except (ConflictError, RetryableError) as error:
            left = self._discard()
            if not self._did_anything:
                raise
            say_what_was_committed(error, self._report())
            text = f"{self._table.path}: stopped after {len(self._reports)} commits: {error}"
            _LOGGER.warning(text, extra=event("compaction_stopped", **self._facts(error)))
            self._stopped = str(error)
            self._rest.extendleft(left)
        except BaseException:
            self._discard()
            raise

    @property
    def _did_anything(self) -> bool:
        return any(report.did_anything for report in self._reports)

    def _report(self) -> CompactionReport:
        """What was done so far, with the work that came to nothing."""
        report = summed(self._reports, groups_left=len(self._rest), dropped=self._dropped, seconds=self.seconds)
        return replace(
            report,
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            wasted_bytes=report.wasted_bytes + self._bytes_wasted,
            stopped=self._stopped,
        )

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return self._system.monotonic_s() - self._began_s

    def rewritten(self) -> list[_Finished]:
        """Rewrite all groups."""
        try:
            with self._workers():
                while self._submit():
                    self._collect()
            self._raise_if_lost()
            self._raise_if_failed(anything_done=bool(self._finished))
        except BaseException:
            self._discard()
            raise
        return self._finished

    # --- rewriting

    @contextmanager
    def _workers(self) -> Iterator[None]:
        """Threads for the groups, unless there is an executor, or one group at a time."""
        if self._executor is not None or self._most == 1:
            yield
            return
        with ThreadPoolExecutor(self._most, "tidelog-rewrite") as self._executor:
            yield

    def _submit(self) -> bool:
        """Begin further groups; whether any are being rewritten."""
        while self._may_begin():
            planned = self._rest.popleft()
            try:
                future = begin_rewrite(self._executor, self._rewrite, planned)
            except WorkerLostError as error:
                self._worker_lost = self._worker_lost or error
                self._rest.appendleft(planned)
                break
            self._bytes_read += planned.bytes_to_read
            self._begun += 1
            self._running[future] = _Work(self._begun, planned, self._checked)
        return bool(self._running)

    def _may_begin(self) -> bool:
        if not self._rest or self._worker_lost is not None or self._conduct.stopping():
            return False
        return len(self._running) < (1 if self._is_suspect(self._rest[0]) else self._most)

    def _is_suspect(self, planned: PlannedGroup) -> bool:
        return self._conduct.failed.is_suspect(planned.paths)

    def _collect(self) -> None:
        """Wait for at least one group, and take those that are rewritten."""
        done = wait(self._running, return_when=FIRST_COMPLETED).done
        for future in [future for future in self._running if future in done]:
            work = self._running.pop(future)
            try:
                finished = _Finished(work, rewritten_group(future))
            except WorkerLostError as error:
                self._lose(work.planned, error)
            except _OF_THE_TABLE:
                raise
            except Exception as error:  # noqa: BLE001 - one group must not keep the others from being compacted
                self._leave_alone(work.planned, error)
            else:
                self._finished.append(finished)
                self._bytes_written += _output_bytes([finished])

    def _lose(self, planned: PlannedGroup, error: WorkerLostError) -> None:
        """Note that a worker was lost with this group."""
        self._worker_lost = self._worker_lost or error
        if self._is_suspect(planned):
            self._leave_alone(planned, error)
        else:
            self._conduct.failed.suspect(planned.paths, error, self._system.monotonic_s())
            self._rest.appendleft(planned)

    def _leave_alone(self, planned: PlannedGroup, error: Exception) -> None:
        """Note that a group failed. Of several errors, one about damaged or lost rows is reported."""
        is_news = self._conduct.failed.fail(planned.paths, error, self._system.monotonic_s())
        said = event("group_refused", **self._facts(error))
        trace = None if isinstance(error, TidelogError) else error
        level = logging.WARNING if is_news else logging.DEBUG
        _LOGGER.log(level, "%s: %s", self._table.path, text_of(error), exc_info=trace, extra=said)
        if self._failed is None or isinstance(self._failed, CompactionGrowthError):
            self._failed = error
        if self._conduct.on_failed:
            self._conduct.on_failed(error)

    def _facts(self, error: Exception) -> dict[str, Any]:
        """What a record about an error says besides its text."""
        message = error.message if isinstance(error, TidelogError) else text_of(error)
        return {"table": self._table.path, "code": code_of(error), "error": message}

    def _raise_if_failed(self, *, anything_done: bool) -> None:
        if self._failed is None or self._conduct.on_failed is not None:
            return
        if not (anything_done and isinstance(self._failed, CompactionGrowthError)):
            raise self._failed

    def _raise_if_lost(self) -> None:
        if self._worker_lost:
            raise self._worker_lost
        if self._refused and not self._did_anything:
            raise self._refused

    # --- committing

    def _is_due(self) -> bool:
        if not self._finished:
            return False
        adds = [add for finished in self._finished for add in finished.work.planned.inputs]
        return (
            self._system.monotonic_s() - self._interval_s >= COMMIT_INTERVAL_S
            or sum(add.size for add in adds) >= COMMIT_BYTES
            or sum(output.rows for finished in self._finished for output in finished.moves.lineage.outputs)
            >= COMMIT_ROWS
        )

    def _commit(self) -> None:
        """Commit what is finished. Then check what is to come against the newest version."""
        took_s = self._system.monotonic_s() - self._interval_s
        expected_s = total([finished.work.planned.predicted for finished in self._finished]).seconds
        alone = True
        for part in _commit_parts(self._finished, by_partition=not self._retries):
            share = total([finished.work.planned.predicted for finished in part]).seconds / (expected_s or 1)
            try:
                report = self._commit_part(part, took_s * share)
            except ConflictError as error:
                # With the retry a conflict is about the whole table. Without, a partition that is being written must
                # not keep the others from being compacted.
                if self._retries or error.scope is None:
                    raise
                self._refuse_part(part, error)
                alone = False
            else:
                alone = alone and report.did_anything and not report.rebased_over
        if not alone and self._rest:
            self._check_rest()
        self._checked = self._table.at()
        self._interval_s = self._system.monotonic_s()

    def _commit_part(self, part: Sequence[_Finished], seconds: float) -> CompactionReport:
        base = min((finished.work.base for finished in part), key=lambda snapshot: snapshot.version)
        # From here on the transaction owns the files: after an unknown outcome they must stay.
        self._finished = [finished for finished in self._finished if finished not in part]
        transaction = self._table.begin_at(base, began_s=self._interval_s)
        operation_class = OperationClass(part[0].work.planned.level.upper())
        transaction.stage_moves([finished.moves for finished in part], operation_class=operation_class)
        transaction.note(record=_cost_record(part, seconds))
        try:
            outcome = transaction.fenced(self._conduct.fence).commit()
        except TidelogError as error:
            if not isinstance(error, CommitStateUnknownError):
                self._bytes_wasted += _output_bytes(part)
            raise
        report = _commit_report(part, transaction.dropped, outcome)
        self._reports.append(report)
        self._conduct.on_commit(report)
        return report

    def _refuse_part(self, part: Sequence[_Finished], error: ConflictError) -> None:
        """Drop groups that the conflict policy refused."""
        _LOGGER.info("%s: %s", self._table.path, error, extra=event("partition_refused", **self._facts(error)))
        self._refused = self._refused or error
        for planned in (finished.work.planned for finished in part):
            first = planned.inputs[0].path
            self._dropped.append(DroppedGroup(planned.partition_values, first, len(planned.inputs), error.evidence))

    def _check_rest(self) -> None:
        checked = check(self._rest, self._table.at())
        self._rest = deque(checked.groups)
        self._dropped += checked.dropped

    def _discard(self) -> list[PlannedGroup]:
        """Delete the files of groups that are certainly not committed, and return these groups."""
        running = [future for future in self._running if not future.cancel()]
        self._bytes_read -= sum(work.planned.bytes_to_read for each, work in self._running.items() if each.cancelled())
        wait(running)
        moves = [rewritten_group(future) for future in running if future.exception() is None]
        self._bytes_written += sum(add.size for group in moves for add in group.outputs)
        moves += [finished.moves for finished in self._finished]
        for add in (add for group in moves for add in group.outputs):
            self._bytes_wasted += add.size
            self._table.store.delete(paths.to_storage_path(add.path))
        works = [*self._running.values(), *(finished.work for finished in self._finished)]
        return [work.planned for work in works]


def _threads(table: Table, groups: Sequence[PlannedGroup]) -> int:
    """How many groups to rewrite at a time in this process."""
    if any(group.cluster_by for group in groups):
        return 1  # one takes up to 1 GB, and has threads of its own
    # On a disk, a store reads as many files at once as there are cores.
    return max(1, min(THREADS, len(groups), table.store.reads_at_once, int(pa.cpu_count())))


def _commit_parts(finished: Sequence[_Finished], *, by_partition: bool) -> list[list[_Finished]]:
    """Groups by commits: one for each level, and if asked for, for each partition."""
    # Parallel work ends in any order; the log should not depend on that.
    ordered = sorted(finished, key=lambda each: (each.work.planned.level == MAJOR, each.work.number))
    parts: dict[object, list[_Finished]] = {}
    for each in ordered:
        planned = each.work.planned
        scope = scope_of(planned.partition_values) if by_partition else None
        parts.setdefault((planned.level, scope), []).append(each)
    return list(parts.values())


def _cost_record(part: Sequence[_Finished], seconds: float) -> dict[str, Any]:
    """What the commit of these groups says about their cost, for later predictions.

    `seconds` is how long their rewriting took.
    """
    planned = [finished.work.planned for finished in part]
    predicted = total([group.predicted for group in planned])
    record = CostRecord(
        groups=len(planned),
        files=sum(len(group.inputs) for group in planned),
        live_bytes=sum(_live_bytes(add) for group in planned if group.outputs for add in group.inputs),
        clustered=any(group.cluster_by for group in planned),
        predicted=Cost(predicted.bytes_to_read, predicted.bytes_to_write, predicted.seconds, predicted.conflict_odds),
        actual=Cost(sum(group.bytes_to_read for group in planned), _output_bytes(part), round(seconds, 3)),
    )
    return {RECORD: msgspec.to_builtins(record)}


def _commit_report(
    part: Sequence[_Finished], lost: Collection[MoveGroup], outcome: Committed | Superseded
) -> CompactionReport:
    """What the commit of these groups did; `lost` are those that it dropped, because others took their inputs."""
    committed = outcome if isinstance(outcome, Committed) else None
    gone = {id(group) for group in lost}
    kept = [finished for finished in part if id(finished.moves) not in gone]
    return CompactionReport(
        version=committed.version if committed else None,
        groups=len(kept) if committed else 0,
        files_removed=committed.metrics["numRemovedFiles"] if committed else 0,
        files_added=committed.metrics["numAddedFiles"] if committed else 0,
        bytes_read=sum(finished.work.planned.bytes_to_read for finished in part),
        bytes_written=_output_bytes(part),
        wasted_bytes=sum(add.size for group in lost for add in group.outputs),
        rebased_over=committed.rebased_over if committed else (),
        versions=(committed.version,) if committed else (),
        predicted=total([finished.work.planned.predicted for finished in part]),
        levels=(part[0].work.planned.level,) if committed else (),
    )


def _output_bytes(part: Sequence[_Finished]) -> int:
    """The size of the written files."""
    return sum(add.size for finished in part for add in finished.moves.outputs)


def _live_bytes(add: AddFile) -> int:
    """What the live rows of a file take on disk, if all of its rows are equally large."""
    rows = num_records(add.stats) if add.deletion_vector else None
    return round(add.size * (1 - add.deletion_vector.cardinality / rows)) if rows and add.deletion_vector else add.size
