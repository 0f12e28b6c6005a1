"""One step of a daemon for one table: look at it, take its lease, do its upkeep, compact it once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

import msgspec

from tidelog.compaction_daemon.compaction.applying import Conduct
from tidelog.compaction_daemon.compaction.compaction import apply_fresh, read_history
from tidelog.compaction_daemon.compaction.compaction_report import NOTHING, CompactionReport
from tidelog.compaction_daemon.leases import Held, Lease, heartbeat_commit
from tidelog.compaction_daemon.planning.history import History
from tidelog.compaction_daemon.planning.plan import Plan
from tidelog.compaction_daemon.planning.planner import NO_HISTORY, plan_snapshot
from tidelog.compaction_daemon.planning.request import AUTO_LEVEL, Budget, CompactionRequest
from tidelog.compaction_daemon.process.daemon_status import TableState
from tidelog.compaction_daemon.process.kept_leases import KeptLeases
from tidelog.compaction_daemon.process.watched_tables import WatchedTable, known_error
from tidelog.compaction_daemon.settings.config import DaemonConfig
from tidelog.compaction_daemon.upkeep import UpkeepReport
from tidelog.log import Snapshot, Table
from tidelog.log.errors import CompactionGrowthError, CompactionVerificationError, LeaseLostError, TidelogError
from tidelog.log.log_records import event
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class TableStep:
    """What a step did for one table.

    Args:
        path: The table.
        version: Its newest version after the step; None if the step failed.
        compaction: What the compaction did; a report without a version if there was nothing to do.
        upkeep: What upkeep did; None if nothing was due.
        error: What went wrong; None if nothing did.
        state: What the daemon is doing about the table after the step.
        seconds: How long the step took for this table.
    """

    path: str
    version: int | None
    compaction: CompactionReport
    upkeep: UpkeepReport | None = None
    error: TidelogError | None = None
    state: TableState = TableState.WATCHED
    seconds: float = 0.0

    @property
    def did_anything(self) -> bool:
        """Whether the table was compacted, got a checkpoint or was cleaned up."""
        return self.compaction.did_anything or (self.upkeep is not None and self.upkeep.did_anything)

    @property
    def checkpointed(self) -> bool:
        """Whether a checkpoint was written."""
        return self.upkeep is not None and self.upkeep.checkpoint is not None


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step did.

    Args:
        tables: One entry for each table that the step looked at.
    """

    tables: tuple[TableStep, ...]

    @property
    def did_anything(self) -> bool:
        """Whether anything was done for any table."""
        return any(table.did_anything for table in self.tables)


class Bytes:
    """How many bytes were read in the last hour. `limit` is the most per hour; None for no limit.

    It is a limit on average: a compaction that takes more is not interrupted, but the next one waits. One thread takes;
    any thread may ask.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._taken: deque[tuple[float, int]] = deque()

    def take(self, count: int, now_s: float) -> None:
        """Note that `count` bytes were read."""
        while self._taken and self._taken[0][0] <= now_s - HOUR_S:
            self._taken.popleft()
        if count:
            self._taken.append((now_s, count))

    def used(self, now_s: float) -> int:
        """The bytes that were read in the last hour."""
        return sum(count for at_s, count in self._taken.copy() if at_s > now_s - HOUR_S)

    def left(self, now_s: float) -> int | None:
        """The bytes that may be read now; None if there is no limit, 0 if none are left."""
        return None if self.limit is None else max(0, self.limit - self.used(now_s))


@dataclass(slots=True)
class _Work:
    """What was done so far.

    `failures` are the errors of single groups; `left` if something is left to do, `held` if another daemon has the
    lease.
    """

    compaction: CompactionReport = NOTHING
    failures: list[Exception] = field(default_factory=list)
    upkeep: UpkeepReport | None = None
    heartbeat: bool = False
    left: bool = False
    held: Held | None = None

    @property
    def did_anything(self) -> bool:
        return self.compaction.did_anything or self.heartbeat or (self.upkeep is not None and self.upkeep.did_anything)

    @property
    def error(self) -> TidelogError | None:
        """The first error of a group. One that would grow is no error: it stays as it is."""
        errors = (known_error(each) for each in self.failures if not isinstance(each, CompactionGrowthError))
        return next(errors, None)


class TableStepper:
    """Makes steps, with what all tables of a daemon share: its settings, its leases, its budget and its executor."""

    def __init__(
        self,
        config: DaemonConfig,
        owner: str,
        system: System,
        executor: Executor | None = None,
        *,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.bytes = Bytes(config.bytes_per_hour)
        self.leases = KeptLeases(owner, config.lease_ttl_s, system)
        self._system = system
        self._executor = executor
        self._stopping = stopping
        self.reconfigure(config)

    def reconfigure(self, config: DaemonConfig) -> None:
        """Follow new settings from the next step on."""
        self._config = config
        self.bytes.limit = config.bytes_per_hour
        self.leases.ttl_s = config.lease_ttl_s
        self.request = CompactionRequest(AUTO_LEVEL if config.major else "minor", growth=config.growth)

    def look(self, watched: WatchedTable) -> Table | Exception:
        """The table at its newest version, or what kept it from being opened. Tables can be looked at in parallel."""
        try:
            return watched.newest()
        except Exception as failure:  # noqa: BLE001 - it is reported, and must not stop the other tables
            return failure

    def step(self, watched: WatchedTable, look: Table | Exception) -> TableStep:
        """Do what is due for one table, within bounds. An error of the table is part of the report."""
        began_s = self._system.monotonic_s()
        work = _Work()
        error = None
        try:
            table = _opened(look)
            watched.opened()
            changed = table.version != watched.status.version
            watched.sampled(table)
            self._work(watched, table, work, changed=changed)
            watched.sampled(table)
            if work.held is not None:
                watched.held_by(work.held.owner, work.held.free_in_s)
            else:
                # What a failed group kept from being done is done at once: it is left out of the next plan.
                worked = work.did_anything or bool(work.failures)
                watched.looked(worked=worked, changed=changed, pending=work.left)
        except LeaseLostError as lost:
            # Another daemon has taken over and goes on with the table, or the table is gone, as the next look will say.
            self.leases.lost(watched.path, lost)
            watched.lost_lease()
        except Exception as failure:  # noqa: BLE001 - as above
            error = watched.failed(failure)
        watched.has_epoch(self.leases.epoch(watched.path))
        watched.stepped()
        seconds = self._system.monotonic_s() - began_s
        # A race that was lost to a writer is no failure yet, and the status has no error.
        is_failure = error is not None and watched.status.error is not None
        refused = sum(isinstance(failure, CompactionVerificationError) for failure in work.failures)
        watched.count(step_seconds=seconds, failures=int(is_failure), refused=refused)
        watched.noted_groups()
        version = None if error is not None else watched.status.version
        error = error or work.error
        return TableStep(watched.path, version, work.compaction, work.upkeep, error, watched.status.state, seconds)

    def _work(self, watched: WatchedTable, table: Table, work: _Work, *, changed: bool) -> None:
        """Do what is due, under the lease of the table; nothing is asked of the store if nothing is."""
        chores = watched.upkeep.due(table)
        snapshot = table.at()
        planned = self._planned(watched, table, snapshot, work) if changed or watched.is_planning_due() else None
        beats = self._is_heartbeat_due(table)
        if not (chores or planned or beats):
            return
        lease = self.leases.take(table)
        if isinstance(lease, Held):
            work.held = lease
            return
        # The checkpoint comes first: a file that cannot be compacted must not prevent checkpoints.
        if chores:
            work.upkeep = self._keep_up(watched, table)
            work.left = work.left or work.upkeep.running is not None
        if planned:
            self._compact(watched, table, snapshot, planned, lease, work)
            work.left = work.left or work.compaction.groups_left > 0
        if beats and not work.did_anything:
            heartbeat_commit(table, lease)
            work.heartbeat = True
        if work.left:
            # Another daemon can go on with it while this one is at its other tables.
            self.leases.release(watched.path)

    def _planned(self, watched: WatchedTable, table: Table, snapshot: Snapshot, work: _Work) -> Plan | None:
        """What to compact now; None if there is nothing, or if the budget does not allow it."""
        left = self.bytes.left(self._system.monotonic_s())
        if left == 0:
            work.left = True
            return None
        watched.failed_groups.keep_live(snapshot.files()["path"], self._system.monotonic_s())
        most = self._config.compaction_bytes
        budget = Budget(size_bytes=most if left is None else min(most, left))
        # The history costs requests, so it is read only for a table that has or had debt.
        if watched.history is None and not _has_debt(self._plan(watched, snapshot, budget, NO_HISTORY)):
            watched.planned(has_debt=False)
            return None
        watched.history = read_history(table, watched.history)
        planned = self._plan(watched, snapshot, budget, watched.history)
        # What is left alone for a while is debt as well.
        watched.planned(has_debt=_has_debt(planned))
        return planned if planned.groups else None

    def _plan(self, watched: WatchedTable, snapshot: Snapshot, budget: Budget, history: History) -> Plan:
        now_ms = self._system.now_ms()
        apart = watched.failed_groups.apart(self._system.monotonic_s())
        return plan_snapshot(snapshot, self.request, history=history, now_ms=now_ms, budget=budget, apart=apart)

    def _is_heartbeat_due(self, table: Table) -> bool:
        every_s = self._config.heartbeat_s
        return every_s is not None and self._system.now_ms() - table.head.timestamp_ms >= every_s * 1000

    def _keep_up(self, watched: WatchedTable, table: Table) -> UpkeepReport:
        report = watched.upkeep.run(table)
        watched.count(checkpoints=int(report.checkpoint is not None), files_deleted=report.files_deleted)
        if report.checkpoint is not None:
            watched.sampled(table, again=True)  # the log has no tail any more
        return report

    def _compact(
        self, watched: WatchedTable, table: Table, snapshot: Snapshot, planned: Plan, lease: Lease, work: _Work
    ) -> None:
        def ended(report: CompactionReport) -> None:
            # Also after an error: what was committed stays, and what was read was read.
            work.compaction = replace(report, groups_left=report.groups_left + planned.left_out.groups)
            self._note(watched, table, work.compaction)

        conduct = Conduct(
            self._executor,
            fence=lease.fence,
            failed=watched.failed_groups,
            stopping=lambda: self._stopping() or not lease.is_held,
            on_failed=work.failures.append,
            on_commit=lambda report: watched.count_compactions(report.levels),
            on_end=ended,
        )
        report = apply_fresh(table, snapshot, planned, conduct)
        watched.count(superseded=int(report.bytes_read > 0 and not (report.did_anything or work.failures)))

    def _note(self, watched: WatchedTable, table: Table, report: CompactionReport) -> None:
        """Count, log and charge what a compaction did."""
        self.bytes.take(report.bytes_read, self._system.monotonic_s())
        watched.count(
            files_removed=report.files_removed,
            files_added=report.files_added,
            bytes_read=report.bytes_read,
            bytes_written=report.bytes_written,
            wasted_bytes=report.wasted_bytes,
            rebased_over=len(report.rebased_over),
        )
        if report.did_anything:
            watched.sampled(table)
            watched.failed_groups.keep_live(table.at().files()["path"], self._system.monotonic_s())
            _LOGGER.info(
                "%s: version %d: %d files became %d (%d to %d bytes)",
                watched.path,
                report.version,
                report.files_removed,
                report.files_added,
                report.bytes_read,
                report.bytes_written,
                extra=event("compacted", table=watched.path, **msgspec.to_builtins(report)),
            )


def _has_debt(planned: Plan) -> bool:
    return bool(planned.groups or planned.scopes)


def _opened(look: Table | Exception) -> Table:
    if isinstance(look, Exception):
        raise look
    return look
