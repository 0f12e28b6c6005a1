"""One step of a daemon for one table: look at it, take its lease, do its upkeep, compact it once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import msgspec

from tidelog.compaction_daemon.compaction.applying import Conduct
from tidelog.compaction_daemon.compaction.compaction import apply_fresh, read_history
from tidelog.compaction_daemon.compaction.compaction_report import CompactionReport
from tidelog.compaction_daemon.leases import Held, Lease, heartbeat_commit
from tidelog.compaction_daemon.planning.compaction_planner import NO_HISTORY, plan_snapshot
from tidelog.compaction_daemon.planning.history import History
from tidelog.compaction_daemon.planning.plan import Plan
from tidelog.compaction_daemon.planning.request import AUTO_LEVEL, Budget, CompactionRequest
from tidelog.compaction_daemon.process.daemon_status import TableState
from tidelog.compaction_daemon.process.kept_leases import KeptLeases
from tidelog.compaction_daemon.process.watched_tables import TableWork, WatchedTable
from tidelog.compaction_daemon.settings.config import DaemonConfig
from tidelog.compaction_daemon.upkeep import UpkeepReport
from tidelog.log import Snapshot, Table
from tidelog.log.errors import LeaseLostError, TidelogError
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
        work = TableWork()
        try:
            work.table = _opened(look)
            work.is_new = watched.begun(work.table)
            self._work(watched, work.table, work)
        except LeaseLostError as lost:
            self.leases.lost(watched.path, lost)
            work.error = lost
        except Exception as failure:  # noqa: BLE001 - as above
            work.error = failure
        seconds = self._system.monotonic_s() - began_s
        error = watched.ended(work, self.leases.epoch(watched.path), seconds)
        status = watched.status
        version = None if error is not None else status.version
        error = error or work.group_error
        return TableStep(watched.path, version, work.compaction, work.upkeep, error, status.state, seconds)

    def _work(self, watched: WatchedTable, table: Table, work: TableWork) -> None:
        """Do what is due, under the lease of the table; nothing is asked of the store if nothing is."""
        chores = watched.upkeep.due(table)
        snapshot = table.at()
        planned = self._planned(watched, table, snapshot, work) if work.is_new or watched.is_planning_due() else None
        beats = self._is_heartbeat_due(table)
        if not (chores or planned or beats):
            return
        lease = self.leases.take(table)
        if isinstance(lease, Held):
            work.held = lease
            return
        # The checkpoint comes first: a file that cannot be compacted must not prevent checkpoints.
        if chores:
            work.upkeep = watched.upkeep.run(table)
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

    def _planned(self, watched: WatchedTable, table: Table, snapshot: Snapshot, work: TableWork) -> Plan | None:
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
            work.has_debt = False
            return None
        watched.history = read_history(table, watched.history)
        planned = self._plan(watched, snapshot, budget, watched.history)
        # What is left alone for a while is debt as well.
        work.has_debt = _has_debt(planned)
        return planned if planned.groups else None

    def _plan(self, watched: WatchedTable, snapshot: Snapshot, budget: Budget, history: History) -> Plan:
        now_ms = self._system.now_ms()
        apart = watched.failed_groups.apart(self._system.monotonic_s())
        return plan_snapshot(snapshot, self.request, history=history, now_ms=now_ms, budget=budget, apart=apart)

    def _is_heartbeat_due(self, table: Table) -> bool:
        every_s = self._config.heartbeat_s
        return every_s is not None and self._system.now_ms() - table.head.timestamp_ms >= every_s * 1000

    def _compact(
        self, watched: WatchedTable, table: Table, snapshot: Snapshot, planned: Plan, lease: Lease, work: TableWork
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
        apply_fresh(table, snapshot, planned, conduct)

    def _note(self, watched: WatchedTable, table: Table, report: CompactionReport) -> None:
        """Log and charge what a compaction did."""
        self.bytes.take(report.bytes_read, self._system.monotonic_s())
        if report.did_anything:
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
