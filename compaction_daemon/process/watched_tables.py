"""All tables of a daemon: those that were named, and those that searches find from time to time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidelog.compaction_daemon.process.daemon_status import SearchError
from tidelog.compaction_daemon.process.watched_table import WatchedTable
from tidelog.compaction_daemon.settings.config import DaemonConfig
from tidelog.compaction_daemon.settings.sources import (
    FoundTable,
    FoundTables,
    TableSource,
    find_tables,
    require_store,
    source_at,
)
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, TableNotFoundError
from tidelog.log.log_records import event
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)


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
