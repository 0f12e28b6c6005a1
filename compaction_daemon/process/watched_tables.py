"""The tables of a daemon: those that were named, and those that searches find from time to time.

Each has a handle, which comes and goes with the table, a schedule and a status.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tidelog.compaction_daemon.compaction.compaction_report import NOTHING, CompactionReport
from tidelog.compaction_daemon.leases import Held
from tidelog.compaction_daemon.planning.failed_groups import FailedGroups
from tidelog.compaction_daemon.planning.history import History
from tidelog.compaction_daemon.process.daemon_status import DebtSample, LeftAlone, SearchError, TableState, TableStatus
from tidelog.compaction_daemon.settings.config import DaemonConfig
from tidelog.compaction_daemon.settings.sources import (
    FoundTable,
    FoundTables,
    TableSource,
    find_tables,
    require_store,
    source_at,
)
from tidelog.compaction_daemon.upkeep import Upkeep, UpkeepReport
from tidelog.log import Table
from tidelog.log.errors import (
    CompactionGrowthError,
    CompactionVerificationError,
    ConfigurationError,
    ConflictError,
    LeaseLostError,
    RetryableError,
    TableNotFoundError,
    TableReplacedError,
    TidelogError,
)
from tidelog.log.log_records import event
from tidelog.log.system import System, logger, to_datetime

_LOGGER = logger(__name__)

# A table that keeps failing is tried less and less often, but always again: its store may come back.
RETRY_LIMIT_S = 300.0
# Beyond so many doublings every wait is at its limit.
_MAX_DOUBLINGS = 32
# Debt samples that are kept for each table: enough for a line on a page.
_SAMPLES = 120
# A partition has to be quiet for minutes or hours before it is rewritten, so a plan need not look more often.
_PLAN_AGAIN_S = 60.0
# One conflict is bad luck. So many in a row mean that a writer is always faster, and that each try is work in vain.
_MANY_CONFLICTS = 3


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a table is due, by a clock that never steps backwards.

    `quiet` counts the looks since the table last changed, `failures` those that failed in a row.
    """

    interval_s: float
    idle_interval_s: float
    due_s: float = 0.0
    quiet: int = 0
    failures: int = 0

    def is_due(self, now_s: float) -> bool:
        """Whether it is time to look."""
        return now_s >= self.due_s

    def worked(self, now_s: float) -> Schedule:
        """After a look that found something to do: look again at once, there may be more."""
        return replace(self, due_s=now_s, quiet=0, failures=0)

    def changed(self, now_s: float) -> Schedule:
        """After a look that found a new version, but nothing to do yet."""
        return replace(self, due_s=now_s + self.interval_s, quiet=0, failures=0)

    def quieter(self, now_s: float) -> Schedule:
        """After a look that found nothing new: each one doubles the wait."""
        wait_s = _doubled(self.interval_s, self.quiet, max(self.interval_s, self.idle_interval_s))
        return replace(self, due_s=now_s + wait_s, quiet=self.quiet + 1, failures=0)

    def failed(self, now_s: float, limit_s: float = RETRY_LIMIT_S) -> Schedule:
        """After a look that failed: each one doubles the wait, up to `limit_s`."""
        wait_s = _doubled(self.interval_s, self.failures + 1, max(self.interval_s, limit_s))
        return replace(self, due_s=now_s + wait_s, quiet=0, failures=self.failures + 1)

    def at(self, due_s: float) -> Schedule:
        """The same, due at another time."""
        return replace(self, due_s=due_s)


def _doubled(start_s: float, times: int, limit_s: float) -> float:
    return min(limit_s, start_s * 2.0 ** min(times, _MAX_DOUBLINGS))


@dataclass(slots=True)
class TableWork:
    """What a step found and did for one table, collected until it is noted.

    Attributes:
        table: The table at its newest version; None if it could not be opened.
        is_new: Whether that version was not seen before.
        has_debt: Whether a plan for it had anything to do, now or later; None if none was made.
        upkeep: What upkeep did.
        compaction: What the compaction did, also if it ended with an error.
        failures: The errors of single groups.
        heartbeat: Whether a heartbeat was committed.
        left: Whether something is left to do.
        held: Who has the lease, if another daemon has it.
        error: What ended the step early.
    """

    table: Table | None = None
    is_new: bool = False
    has_debt: bool | None = None
    upkeep: UpkeepReport | None = None
    compaction: CompactionReport = NOTHING
    failures: list[Exception] = field(default_factory=list)
    heartbeat: bool = False
    left: bool = False
    held: Held | None = None
    error: Exception | None = None

    @property
    def did_anything(self) -> bool:
        """Whether anything was committed, written or deleted."""
        return self.compaction.did_anything or self.heartbeat or (self.upkeep is not None and self.upkeep.did_anything)

    @property
    def is_superseded(self) -> bool:
        """Whether the compaction had nothing left to commit, because others took all of its files."""
        has_error = self.error is not None or bool(self.failures)
        return self.compaction.bytes_read > 0 and not (self.compaction.did_anything or has_error)

    @property
    def group_error(self) -> TidelogError | None:
        """The first error of a group. One that would grow is no error: it stays as it is."""
        errors = (known_error(each) for each in self.failures if not isinstance(each, CompactionGrowthError))
        return next(errors, None)


class WatchedTable:
    """A table that a daemon looks at, whether it exists or not.

    Args:
        path: The table.
        storage_options: As for `Table.open`.
        config: The daemon's settings.
        system: The clock, sleep and randomness.
        table: An open handle, if there is one.
    """

    def __init__(
        self,
        path: str,
        storage_options: Mapping[str, str] | None,
        config: DaemonConfig,
        system: System,
        table: Table | None = None,
    ) -> None:
        self.path = path if table is None else table.path
        self.storage_options = storage_options
        # The groups whose rewrite failed; the rest of the table is compacted without them.
        self.failed_groups = FailedGroups()
        # Whether the loaded version may leave something to do; if not, only a new version can.
        self.pending = True
        # What recent commits tell, if it was needed before.
        self.history: History | None = None
        self._plan_again_s = 0.0
        # The kind of the error that was logged last; None after a look without an error.
        self._reported: tuple[str, type[Exception]] | None = None
        # How often in a row a writer was faster.
        self._conflicts = 0
        self.upkeep = Upkeep(system=system, clean_up=config.clean_up)
        self.schedule = _schedule(config)
        self.status = TableStatus(self.path, TableState.NEW, to_datetime(system.now_ms()))
        self._system = system
        self._table = table
        self._missing_limit_s = min(RETRY_LIMIT_S, config.discovery_interval_s)

    def reconfigure(self, config: DaemonConfig) -> None:
        """Follow new settings from the next look on, which comes at once."""
        self.pending = True
        self.upkeep.stop()
        self.upkeep = Upkeep(system=self._system, clean_up=config.clean_up)
        self.schedule = _schedule(config, self._system.monotonic_s())
        self._missing_limit_s = min(RETRY_LIMIT_S, config.discovery_interval_s)

    def is_due(self, now_s: float) -> bool:
        """Whether it is time to look."""
        return self.schedule.is_due(now_s)

    def newest(self) -> Table:
        """The table at its newest version; opens it if it is not open, and again if it was replaced by another.

        Raises TableNotFoundError if there is none, and what opening or refreshing raises.
        """
        if self._table is not None:
            try:
                return self._table.refresh()
            except TableReplacedError:
                said = event("replaced", table=self.path)
                _LOGGER.info("%s: a new table has taken its place; the daemon goes on with that", self.path, extra=said)
                self._forget()
        self._table = Table.open(self.path, storage_options=self.storage_options, system=self._system)
        return self._table

    def _forget(self) -> None:
        """Drop what was known about the table at this path."""
        self._table = None
        self.failed_groups.clear()
        self.history = None
        self.status = replace(self.status, table_id=None, version=None, debt=())

    def begun(self, table: Table) -> bool:
        """Note, before the work on it, that there is a table at this version. Whether the version is new."""
        is_new = table.version != self.status.version
        if self.status.state is TableState.MISSING:
            self._recovered("there is a table now")
            self._to(TableState.WATCHED, self.schedule)
        self._sample(table)
        return is_new

    def ended(self, work: TableWork, epoch: int | None, seconds: float) -> TidelogError | None:
        """Note all that a step found and did, once, and when to look again. Returns the error that ended it, if any.

        `epoch` is that of the lease; None if this daemon does not have it.
        """
        if work.table is not None and (work.error is None or work.compaction.did_anything):
            try:
                # After a checkpoint the log has no tail any more.
                is_checkpointed = work.upkeep is not None and work.upkeep.checkpoint is not None
                self._sample(work.table, again=is_checkpointed)
            except Exception as failure:  # noqa: BLE001 - as any error of the step
                work.error = work.error or failure
        if work.has_debt is not None:
            # Debt that waits for a quiet partition is planned for again, without a new version.
            self._plan_again_s = self._system.monotonic_s() + _PLAN_AGAIN_S if work.has_debt else float("inf")
        error = None
        if isinstance(work.error, LeaseLostError):
            # Another daemon goes on with the table, or the table is gone, as the next look will say.
            self.pending = True
            self._next_look(self.schedule.changed(self._system.monotonic_s()))
        elif work.error is not None:
            error = self._failed(work.error)
        else:
            self._looked(work)
        self._note_groups(epoch)
        # A race that was lost to a writer is no failure yet, and the status has no error. Neither is a missing
        # table, as before a stream's first batch.
        is_failure = error is not None and self.status.error is not None and self.status.state is not TableState.MISSING
        self._count(work, seconds, is_failure=is_failure)
        return error

    def _sample(self, table: Table, *, again: bool = False) -> None:
        """Note the debt of the loaded version. If that version has a sample, only `again` replaces it."""
        status = self.status
        kept = status.debt if status.table_id == table.id else ()
        if kept and kept[-1].version == table.version:
            if not again:
                return
            kept = kept[:-1]
        kept = kept[1 - _SAMPLES :]
        sample = DebtSample(to_datetime(self._system.now_ms()), table.version, table.debt())
        self.status = replace(status, table_id=table.id, version=table.version, debt=(*kept, sample))

    def _looked(self, work: TableWork) -> None:
        """Note a look without an error."""
        now_s = self._system.monotonic_s()
        self._reported, self._conflicts = None, 0
        if work.held is not None:
            # There may be something to do although there is no new version.
            self.pending = True
            self._recovered("another daemon works on it")
            self._to(TableState.ELSEWHERE, self.schedule.at(now_s + work.held.free_in_s))
            self.status = replace(self.status, held_by=work.held.owner)
            return
        # What a failed group kept from being done is done at once: it is left out of the next plan.
        worked = work.did_anything or bool(work.failures)
        self.pending = worked or work.left
        self._recovered("works again")
        if worked:
            self._to(TableState.WORKING, self.schedule.worked(now_s))
        else:
            schedule = self.schedule.changed(now_s) if work.is_new else self.schedule.quieter(now_s)
            self._to(TableState.WATCHED, schedule)

    def is_planning_due(self) -> bool:
        """Whether a plan can have something to do, although there is no new version."""
        return self.pending or self._system.monotonic_s() >= self._plan_again_s

    def _failed(self, error: Exception) -> TidelogError:
        """Note a look that failed, and log it if this is news. Returns the error as one of tidelog's."""
        known = known_error(error)
        self.pending = True
        # A path or a version in the text changes from one look to the next; the kind of the error does not.
        kind = (known.code, type(error))
        is_news, self._reported = kind != self._reported, kind
        if not isinstance(known, ConflictError):
            self._conflicts = 0
        if isinstance(known, TableNotFoundError):
            self._forget()
            state, limit_s = TableState.MISSING, self._missing_limit_s
            if is_news:
                said = event("missing", table=self.path, code=known.code)
                _LOGGER.warning("%s: there is no table; the daemon looks for it again", self.path, extra=said)
        elif isinstance(known, ConflictError):
            # Losing to a user's commit is normal alongside writers: the next step plans again. Losing each time is not.
            self._conflicts += 1
            lost = self._conflicts
            is_often = lost >= _MANY_CONFLICTS
            state = TableState.FAILING if is_often else TableState.WORKING
            if not is_often:
                self._recovered("works, but lost a race against a writer")
            limit_s = RETRY_LIMIT_S if is_often else self.schedule.interval_s
            times = f" ({lost} times in a row; the table is not compacted)" if is_often else ""
            level = logging.WARNING if lost == _MANY_CONFLICTS else logging.INFO
            said = event("conflict", table=self.path, code=known.code, times=lost)
            _LOGGER.log(level, "%s: %s%s", self.path, known, times, extra=said)
        else:
            state, limit_s = TableState.FAILING, RETRY_LIMIT_S
            if is_news:
                said = event("failed", table=self.path, code=known.code, error=known.message)
                _LOGGER.error("%s: %s", self.path, known, exc_info=error if _trace(error) else None, extra=said)
        failed = self.schedule.failed(self._system.monotonic_s(), limit_s)
        self._to(state, failed, None if state is TableState.WORKING else known)
        return known

    def _note_groups(self, epoch: int | None) -> None:
        """Note which groups are left alone, and log it if these were the last ones; and what upkeep fails at."""
        is_here = self.status.state not in {TableState.MISSING, TableState.ELSEWHERE}
        failures = self.failed_groups.left_alone()
        found = LeftAlone(len(failures), failures[-1].error, failures[-1].code) if failures else None
        if self.status.left_alone and found is None:
            said = event("recovered", table=self.path)
            _LOGGER.info("%s: no group is left alone any more", self.path, extra=said)
        self.status = replace(
            self.status,
            epoch=epoch,
            apart=self.failed_groups.apart(self._system.monotonic_s()),
            upkeep_errors=self.upkeep.errors if is_here else (),
            left_alone=found,
        )

    def _count(self, work: TableWork, seconds: float, *, is_failure: bool) -> None:
        """Add what was done to the totals, but for the commits, which are counted when they are made."""
        totals, done = self.status.totals, work.compaction
        is_checkpointed = work.upkeep is not None and work.upkeep.checkpoint is not None
        is_refused = [isinstance(failure, CompactionVerificationError) for failure in work.failures]
        totals = replace(
            totals,
            files_removed=totals.files_removed + done.files_removed,
            files_added=totals.files_added + done.files_added,
            bytes_read=totals.bytes_read + done.bytes_read,
            bytes_written=totals.bytes_written + done.bytes_written,
            wasted_bytes=totals.wasted_bytes + done.wasted_bytes,
            rebased_over=totals.rebased_over + len(done.rebased_over),
            superseded=totals.superseded + work.is_superseded,
            refused=totals.refused + sum(is_refused),
            checkpoints=totals.checkpoints + is_checkpointed,
            files_deleted=totals.files_deleted + (0 if work.upkeep is None else work.upkeep.files_deleted),
            failures=totals.failures + is_failure,
            step_seconds=totals.step_seconds + seconds,
        )
        self.status = replace(self.status, totals=totals)

    def count_compactions(self, levels: Iterable[str]) -> None:
        """Count a commit, now, of a compaction of each of these levels; without any, there was none."""
        totals = self.status.totals
        for level in levels:
            totals = replace(totals, compactions={**totals.compactions, level: totals.compactions.get(level, 0) + 1})
            self.status = replace(self.status, totals=totals, last_compaction=to_datetime(self._system.now_ms()))

    def _recovered(self, text: str) -> None:
        """Log the end of an error, if there was one."""
        if self.status.error is not None:
            _LOGGER.info("%s: %s", self.path, text, extra=event("recovered", table=self.path))

    def _next_look(self, schedule: Schedule) -> None:
        self.schedule = schedule
        wait_ms = round(1000 * max(0.0, schedule.due_s - self._system.monotonic_s()))
        self.status = replace(self.status, next_look=to_datetime(self._system.now_ms() + wait_ms))

    def _to(self, state: TableState, schedule: Schedule, error: TidelogError | None = None) -> None:
        self._next_look(schedule)
        now = to_datetime(self._system.now_ms())
        self.status = replace(
            self.status,
            state=state,
            since=self.status.since if state is self.status.state else now,
            error=None if error is None else str(error),
            error_code=None if error is None else error.code,
            held_by=None,
        )


def _schedule(config: DaemonConfig, due_s: float = 0.0) -> Schedule:
    # A look must not come later than the heartbeat that it makes.
    idle_s = min(config.idle_interval_s, config.heartbeat_s or config.idle_interval_s)
    return Schedule(config.interval_s, idle_s, due_s)


def known_error(error: Exception) -> TidelogError:
    """The error as one of tidelog's."""
    if isinstance(error, TidelogError):
        return error
    if isinstance(error, OSError | pa.ArrowException):
        return RetryableError(str(error), advice="the daemon tries again")
    return RetryableError(
        f"an error that tidelog does not expect: {type(error).__name__}: {error}",
        advice="the daemon tries again; please report this as a bug, with the traceback in the log",
    )


def _trace(error: Exception) -> bool:
    """Whether the traceback is worth its lines: not for an error that says what is wrong."""
    return _LOGGER.isEnabledFor(logging.DEBUG) or not isinstance(error, TidelogError | OSError)


class WatchedTables:
    """The tables of a daemon, each once. A table that stays from one search to the next keeps what is known of it.

    Args:
        tables: Open tables, paths, globs and sources.
        config: The daemon's settings.
        system: The clock, sleep and randomness.
        keep_handles: Whether to use the handles of open tables, rather than to open them again with `system`.

    Raises:
        ConfigurationError: `tables` is empty or a string.
    """

    def __init__(
        self, tables: Sequence[Table | str | TableSource], config: DaemonConfig, system: System, *, keep_handles: bool
    ) -> None:
        self._config = config
        self._system = system
        self._keep_handles = keep_handles
        self._watched: dict[str, WatchedTable] = {}
        self._found = FoundTables()
        # What the last search by these settings found; None before the first one.
        self._searched: set[str] | None = None
        self._logged: set[tuple[str, str]] = set()
        self._logged_empty: set[str] = set()
        require_tables(tables)
        self.follow(tables, config)

    def __iter__(self) -> Iterator[WatchedTable]:
        """The tables in the order of their sources; safe in any thread."""
        return iter(list(self._watched.values()))

    def watches(self, watched: WatchedTable) -> bool:
        """Whether this is still one of the tables."""
        return self._watched.get(watched.path) is watched

    def storage_options(self, path: str) -> Mapping[str, str] | None:
        """The storage options of a table; safe in any thread. Raises TableNotFoundError if it is not watched."""
        watched = self._watched.get(path)
        if watched is None:
            raise TableNotFoundError(f"no table at {path} is watched", advice="check the path", path=path)
        return watched.storage_options

    def follow(self, tables: Sequence[Table | str | TableSource], config: DaemonConfig) -> None:
        """Watch these tables and no others, by these settings. Searches are made by `search_if_due`."""
        self._config = config
        self._handles = [table for table in tables if isinstance(table, Table)]
        self._sources = sources_of(tables)
        self._next_search_s = float("-inf")
        self._searched = None
        # What searches found before stays until the next search, which is due at once.
        self._take(find_tables(source for source in self._sources if not source.is_search), stays=self._searches)
        for watched in self:
            watched.reconfigure(config)

    def search_if_due(self) -> None:
        """Search globs and folders, if it is time. Tables that are gone are no longer watched."""
        now_s = self._system.monotonic_s()
        if now_s < self.next_search_s:
            return
        self._next_search_s = now_s + self._config.discovery_interval_s
        known = {each.path for each in self if each.status.version is not None and each.status.error is None}
        self._found = find_tables(self._sources, previous=self._found, known=known)
        self._take(self._found)
        self._log_news(self._found)
        self._log_errors(self._found)
        self._log_empty(self._found)

    @property
    def search_errors(self) -> tuple[SearchError, ...]:
        """What went wrong at the newest search; safe in any thread."""
        return tuple(SearchError(source, str(error), error.code) for source, error in self._found.errors)

    @property
    def next_search_s(self) -> float:
        """When the next search is due, by the monotonic clock; infinite if there is nothing to search."""
        return self._next_search_s if self._searches else float("inf")

    @property
    def _searches(self) -> bool:
        return any(source.is_search for source in self._sources)

    def _take(self, found: FoundTables, *, stays: bool = False) -> None:
        """Watch the tables that were found, and the open ones. With `stays`, also those of searches before."""
        before = self._watched
        kept = dict(before) if stays else {}
        for table in self._handles:
            kept[table.path] = before.get(table.path) or self._of_handle(table)
        for entry in found.tables:
            known = before.get(entry.path)
            # Other storage options need a new handle.
            is_same = known is not None and (known.storage_options or {}) == (entry.storage_options or {})
            kept[entry.path] = known if known is not None and is_same else self._of_entry(entry)
        self._watched = kept

    def _of_handle(self, table: Table) -> WatchedTable:
        handle = table if self._keep_handles else None
        return WatchedTable(table.path, table.store.storage_options, self._config, self._system, handle)

    def _of_entry(self, entry: FoundTable) -> WatchedTable:
        return WatchedTable(entry.path, entry.storage_options, self._config, self._system)

    def _log_news(self, found: FoundTables) -> None:
        """Log which tables this search found that the last one did not, and the other way round."""
        searches = {source.path for source in self._sources if source.is_search}
        before, after = self._searched, {table.path for table in found.tables if table.source in searches}
        self._searched = after
        if before is not None:
            for path in sorted(after - before):
                _LOGGER.info("%s: is a table now; the daemon watches it", path, extra=event("found", table=path))
            for path in sorted(before - after):
                _LOGGER.info("%s: is gone; the daemon no longer watches it", path, extra=event("gone", table=path))

    def _log_errors(self, found: FoundTables) -> None:
        """Log what kept a source from being searched, once until it changes."""
        current = {(source, error.code) for source, error in found.errors}
        for source, error in found.errors:
            if (source, error.code) not in self._logged:
                said = event("search_failed", source=source, code=error.code, error=error.message)
                _LOGGER.error("%s: the search for tables failed: %s", source, error, extra=said)
        for source in sorted({source for source, _ in self._logged} - {source for source, _ in current}):
            _LOGGER.info("%s: the search works again", source, extra=event("search_recovered", source=source))
        self._logged = current

    def _log_empty(self, found: FoundTables) -> None:
        """Log which sources have no table, once until they have one: it may be a typing error."""
        empty = set(found.empty) - {source for source, _ in found.errors}
        for source in sorted(empty - self._logged_empty):
            text = "%s: there is no table yet; the daemon searches again every %g s"
            said = event("source_empty", source=source)
            _LOGGER.warning(text, source, self._config.discovery_interval_s, extra=said)
        self._logged_empty = empty


def sources_of(tables: Sequence[Table | str | TableSource]) -> list[TableSource]:
    """The sources among the tables of a daemon, with those that are given as paths."""
    others = [entry for entry in tables if not isinstance(entry, Table)]
    return [entry if isinstance(entry, TableSource) else source_at(entry) for entry in others]


def require_tables(tables: Sequence[Table | str | TableSource]) -> None:
    """Raise ConfigurationError unless this is a list with at least one entry, and each path in it can be one."""
    if isinstance(tables, str | Table | TableSource) or not tables:
        raise ConfigurationError("a daemon needs a list of tables", advice="give a list with at least one path")
    for source in sources_of(tables):
        require_store(source)
