"""The daemon's loop: look at each table, compact what pays, keep its log short; for months, beside the writers."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event
from types import FrameType

import pyarrow as pa

from tidelog.compaction_daemon.compaction import NOTHING, CompactionReport, compact
from tidelog.compaction_daemon.planning.minor import GROWTH
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, ConflictError, RetryableError, TidelogError
from tidelog.log.internals import REAL_SYSTEM, System, properties

_LOGGER = logging.getLogger(__name__)

# A table that keeps failing is looked at less and less often, but never given up: its store may come back.
_BACKOFF_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """How the daemon runs. `interval_s`: how long it sleeps after a step that found nothing to do.

    `growth`: how many times its largest file a group must be before it is rewritten; more means fewer, larger rewrites.
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
    """What a step did for one table. `error` holds what went wrong, if anything did."""

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
    """What a step did, table by table."""

    tables: tuple[TableStep, ...]

    @property
    def did_anything(self) -> bool:
        """Whether any table has a new version or a new checkpoint."""
        return any(table.did_anything for table in self.tables)


class Daemon:
    """Compacts `tables` (paths or tables) until it is stopped.

    `step` is one bounded unit of work and can be driven by a program or a test; `run` calls it until SIGTERM or
    SIGINT. Killing it at any moment loses nothing: a compaction is one commit, and files without one are garbage.
    `clock` replaces the real clock for the daemon and for the tables that it opens; a Table keeps its own.
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
            raise ConfigurationError("a daemon needs a list of tables", advice="give at least one path in a list")
        self._system = clock or REAL_SYSTEM
        self._tables = [Table.open(table, system=self._system) if isinstance(table, str) else table for table in tables]
        self._config = config or DaemonConfig()
        self._on_step = on_step
        self._stopping = Event()
        self._failures: dict[str, int] = {}
        self._resume_s: dict[str, float] = {}

    def step(self) -> StepReport:
        """Look at each table once: at most one compaction and one checkpoint each.

        An error of one table (its store is away, a conflict) is reported and does not stop the others.
        """
        due = [table for table in self._tables if self._is_due(table)]
        report = StepReport(tuple(self._step_table(table) for table in due))
        if self._on_step:
            self._on_step(report)
        return report

    def run(self) -> None:
        """Step until `stop` or a SIGTERM or SIGINT; the step in hand is finished first."""
        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            while not self._stopping.is_set():
                if not self.step().did_anything:
                    self._stopping.wait(self._config.interval_s)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """End `run` after the step in hand; safe from any thread."""
        self._stopping.set()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.stop()

    def _is_due(self, table: Table) -> bool:
        return self._system.monotonic_s() >= self._resume_s.get(table.path, 0)

    def _step_table(self, table: Table) -> TableStep:
        compaction = NOTHING
        try:
            # The checkpoint first: a file that cannot be compacted must not keep the log from being shortened.
            checkpointed = self._checkpoint_if_due(table.refresh())
            compaction = compact(table, growth=self._config.growth)
        except (TidelogError, OSError, pa.ArrowException) as error:
            return self._failed(table, compaction, error)
        self._failures.pop(table.path, None)
        if compaction.did_anything:
            _LOGGER.info("%s: %s", table.path, compaction)
        return TableStep(table.path, table.version, compaction, checkpointed)

    def _checkpoint_if_due(self, table: Table) -> bool:
        interval = properties.count(table.properties, properties.CHECKPOINT_INTERVAL)
        if table.commits_since_checkpoint() < interval:
            return False
        table.checkpoint()
        return True

    def _failed(self, table: Table, compaction: CompactionReport, error: Exception) -> TableStep:
        known = error if isinstance(error, TidelogError) else RetryableError(str(error), advice="it is tried again")
        count = self._failures[table.path] = self._failures.get(table.path, 0) + 1
        # Losing to a user's commit is everyday life beside writers: the next step plans anew.
        level = logging.INFO if isinstance(error, ConflictError) else logging.ERROR
        _LOGGER.log(level, "%s: %s", table.path, known, exc_info=level == logging.ERROR)
        delay = min(_BACKOFF_LIMIT_S, self._config.interval_s * 2 ** min(count, 16))
        self._resume_s[table.path] = self._system.monotonic_s() + delay
        return TableStep(table.path, None, compaction, checkpointed=False, error=known)
