"""A long-running process that compacts tables and writes their checkpoints, alongside their writers."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import FrameType

import pyarrow as pa

from tidelog.compaction_daemon.compaction import NOTHING, CompactionReport, GrowingGroups, compact_once
from tidelog.compaction_daemon.planning.minor import GROWTH
from tidelog.compaction_daemon.planning.planner import CompactionRequest
from tidelog.log import Table
from tidelog.log.errors import CompactionGrowthError, ConfigurationError, ConflictError, RetryableError, TidelogError
from tidelog.log.internals import REAL_SYSTEM, System, logger, properties

_LOGGER = logger(__name__)

# A table that keeps failing is tried less and less often, but always again: its store may come back.
_BACKOFF_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """How a daemon runs.

    Args:
        interval_s: Seconds to sleep after a step that found nothing to do; more than 0.
        growth: About how many times its largest file a group must be before it is rewritten; at least 1. A larger value
            means fewer and larger rewrites.

    Raises:
        ConfigurationError: A value is out of range.
    """

    interval_s: float = 1.0
    growth: float = GROWTH

    def __post_init__(self) -> None:
        if self.interval_s <= 0:
            raise ConfigurationError(f"interval_s is {self.interval_s}", advice="give seconds above zero")
        if self.growth < 1:
            raise ConfigurationError(f"growth is {self.growth}", advice="give 1 or more")


@dataclass(frozen=True, slots=True)
class TableStep:
    """What a step did for one table.

    Args:
        path: The table.
        version: Its newest version after the step; None if the step failed.
        compaction: What the compaction did; a report without a version if there was nothing to do.
        checkpointed: Whether a checkpoint was written.
        error: What went wrong; None if nothing did.
    """

    path: str
    version: int | None
    compaction: CompactionReport
    checkpointed: bool
    error: TidelogError | None = None

    @property
    def did_anything(self) -> bool:
        """Whether the table has a new version or a new checkpoint."""
        return self.compaction.did_anything or self.checkpointed


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step did.

    Args:
        tables: One entry for each table that was due; a table that failed is skipped for a while.
    """

    tables: tuple[TableStep, ...]

    @property
    def did_anything(self) -> bool:
        """Whether any table has a new version or a new checkpoint."""
        return any(table.did_anything for table in self.tables)


class Daemon:
    """Compact tables and write their checkpoints until stopped.

    `step` does one bounded round of work, for programs and tests; `run` repeats it until SIGTERM or SIGINT. The process
    can be killed at any moment: a compaction is one commit, and files that were not committed are garbage that `vacuum`
    deletes.

    Args:
        tables: The tables, or their paths; at least one.
        config: How to run; by default `DaemonConfig()`.
        clock: Replaces the real clock of the daemon and of its tables, for tests.
        on_step: Is called with the report of every step.

    Raises:
        ConfigurationError: `tables` is empty or a string.
        TableNotFoundError: There is no table at a path.

    Example:
        Daemon(["/data/events", "/data/users"]).run()
    """

    def __init__(
        self,
        tables: Sequence[Table | str],
        *,
        config: DaemonConfig | None = None,
        clock: System | None = None,
        on_step: Callable[[StepReport], None] | None = None,
    ) -> None:
        if isinstance(tables, str) or not tables:
            raise ConfigurationError("a daemon needs a list of tables", advice="give a list with at least one path")
        self._system = clock or REAL_SYSTEM
        self._tables = [self._opened(table, clock) for table in tables]
        self._config = config or DaemonConfig()
        self._on_step = on_step
        self._stopped = False
        # An Event would not do: its lock can be held when a signal handler wants it. A SimpleQueue is made for that.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._failures: dict[str, int] = {}
        self._request = CompactionRequest(growth=self._config.growth)
        # A rewrite that costs space is tried once, until the files change.
        self._growing: dict[str, GrowingGroups] = {}
        self._resume_s: dict[str, float] = {}

    def _opened(self, table: Table | str, clock: System | None) -> Table:
        if not isinstance(table, Table):
            return Table.open(table, system=self._system)
        if clock is None:
            return table
        return Table.open(table.path, storage_options=table.store.storage_options, system=clock)

    def step(self) -> StepReport:
        """Do one round of work: at most one checkpoint and one compaction for each table.

        An error of one table, such as a conflict or a store that does not answer, is reported and does not keep the
        rest from being compacted. The table is skipped for a while, twice as long after each failure, up to 5 minutes.

        Returns:
            What was done for each table that was due.
        """
        due = [table for table in self._tables if self._is_due(table)]
        report = StepReport(tuple(self._step_table(table) for table in due))
        if self._on_step:
            self._on_step(report)
        return report

    def run(self) -> None:
        """Repeat `step` until `stop`, SIGTERM or SIGINT; the current step is finished first.

        After a step that found nothing to do it sleeps for `interval_s`. Call it in the main thread, where Python
        handles signals.
        """
        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            while not self._stopped:
                if not self.step().did_anything and not self._stopped:
                    with suppress(Empty):
                        self._wake.get(timeout=self._config.interval_s)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """End `run` after the current step; safe to call from any thread."""
        self._stopped = True
        self._wake.put(None)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.stop()

    def _is_due(self, table: Table) -> bool:
        return self._system.monotonic_s() >= self._resume_s.get(table.path, 0)

    def _step_table(self, table: Table) -> TableStep:
        compaction = NOTHING
        try:
            # The checkpoint comes first: a file that cannot be compacted must not prevent checkpoints.
            checkpointed = self._checkpoint_if_due(table.refresh())
            # The groups of such an error are remembered, and not tried again.
            with suppress(CompactionGrowthError):
                compaction = compact_once(table, self._request, growing=self._growing.setdefault(table.path, set()))
        except (TidelogError, OSError, pa.ArrowException) as error:
            return self._failed(table, compaction, error)
        self._failures.pop(table.path, None)
        if compaction.did_anything:
            _LOGGER.info(
                "%s: version %d: %d files became %d (%d to %d bytes)",
                table.path,
                compaction.version,
                compaction.files_removed,
                compaction.files_added,
                compaction.bytes_read,
                compaction.bytes_written,
            )
        return TableStep(table.path, table.version, compaction, checkpointed)

    def _checkpoint_if_due(self, table: Table) -> bool:
        interval = properties.count(table.properties, properties.CHECKPOINT_INTERVAL)
        if table.commits_since_checkpoint() < interval:
            return False
        table.checkpoint()
        return True

    def _failed(self, table: Table, compaction: CompactionReport, error: Exception) -> TableStep:
        known = (
            error if isinstance(error, TidelogError) else RetryableError(str(error), advice="the daemon tries again")
        )
        count = self._failures[table.path] = self._failures.get(table.path, 0) + 1
        # Losing to a user's commit is normal alongside writers: the next step plans again.
        level = logging.INFO if isinstance(error, ConflictError) else logging.ERROR
        _LOGGER.log(level, "%s: %s", table.path, known, exc_info=level == logging.ERROR)
        delay = min(_BACKOFF_LIMIT_S, self._config.interval_s * 2 ** min(count, 16))
        self._resume_s[table.path] = self._system.monotonic_s() + delay
        return TableStep(table.path, None, compaction, checkpointed=False, error=known)
