"""Where a daemon's tables are: paths, globs and folders, and the tables that are found there.

A table is a folder with a `_delta_log`. A search costs one listing for each folder that it looks into, and stops at a
table: it never looks for tables inside of one. On an object store a listing is one request for each 1,000 entries, and
several are sent at the same time.

Patterns of paths are those of a shell: within a name `*` stands for any characters, `?` for one, and `[a-f]` for one of
these; `**` as a whole name stands for any number of folders, also none. A wildcard at the beginning of a name does not
stand for `.` or `_`, with which hidden names begin. `[*]` stands for the character itself, and a `[` without a `]` for
itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tidelog.log.errors import ConfigurationError, StoreUnavailableError, TidelogError
from tidelog.log.presentable import without_credentials
from tidelog.log.storage import Store, open_store
from tidelog.log.storage.local import LocalStore

# What one source may find and cost. A lake has few levels; a search that goes on is in the wrong place, such as `/`.
MAX_TABLES = 10_000
MAX_FOLDERS = 10_000
MAX_DEPTH = 16
# One source can have an unreadable folder after the other; the first ones show what is wrong.
_MAX_ERRORS = 5

_LOG_FOLDER = "_delta_log"

ANY_FOLDERS = "**"
"""The name in a pattern that stands for any number of folders."""

_WILD = re.compile(r"[*?]|\[[^]/]+\]")
_HIDDEN = (".", "_")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(//)?")


@dataclass(frozen=True, slots=True)
class TableSource:
    """Where tables are.

    Args:
        path: A table's path or URL, which need not exist yet; a glob (`/data/*/events`, `s3://bucket/lake/*`,
            `/data/lake/**`); or, with `folder`, a folder.
        folder: Find all tables below `path`, as with `path/**`.
        include: Take only tables whose path below the folder, or below the part of the glob before the first wildcard,
            matches one of these patterns.
        exclude: Leave out these tables, and do not look into these folders; relative like `include`.
        storage_options: As for `Table.open`. Never shown.

    Raises:
        ConfigurationError: The path is empty or contains credentials, `include` or `exclude` is given for a single
            table, or a wildcard stands where a bucket belongs.
    """

    path: str
    folder: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)

    def __post_init__(self) -> None:
        if not self.path.strip():
            raise ConfigurationError(f"a source of tables has the path {self.path!r}", advice="give a path or a URL")
        if "://" in self.path and without_credentials(self.path) != self.path:
            raise ConfigurationError(
                f"the path {self.path} contains credentials, which would be shown",
                advice="give them as storage options",
            )
        if not self.is_search and (self.include or self.exclude):
            raise ConfigurationError(
                f"include and exclude have no meaning for the single table {self.path}",
                advice="give a glob, or a folder with folder=true, or leave them out",
            )
        base = split_pattern(self.path)[0]
        if self.is_search and base.endswith(("://", ":")):
            raise ConfigurationError(
                f"a wildcard in {self.path} stands where a bucket belongs", advice="write the name of the bucket"
            )

    @property
    def is_search(self) -> bool:
        """Whether tables have to be searched for."""
        return self.folder or is_pattern(self.path)


def source_at(path: str, storage_options: Mapping[str, Any] | None = None) -> TableSource:
    """The source that a user means by a path: a folder of this name on this machine, or else what the path says.

    Raises ConfigurationError for something that is no path.
    """
    if not isinstance(path, str):
        path = open_store(path).url
    is_folder = is_pattern(path) and "\0" not in path and Path(path).is_dir()
    return TableSource(as_pattern(path) if is_folder else path, storage_options=storage_options)


def require_store(source: TableSource) -> None:
    """Raise the error of `open_store` if no store can be opened for this source; it sends no request."""
    open_store(split_pattern(source.path)[0] if source.is_search else source.path, source.storage_options)


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table that a source stands for.

    Attributes:
        path: The canonical path or URL.
        storage_options: Those of the source. Never shown.
        source: The source's path.
    """

    path: str
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)
    source: str = ""


@dataclass(frozen=True, slots=True)
class FoundTables:
    """The tables of some sources.

    Attributes:
        tables: The tables, each once: if two sources have it, the first one's options are used. In the order of the
            sources, then by path.
        errors: What kept a source from being searched completely, with the source's path.
        empty: The sources that stand for no table now.
    """

    tables: tuple[FoundTable, ...] = ()
    errors: tuple[tuple[str, TidelogError], ...] = ()
    empty: tuple[str, ...] = ()


def find_tables(
    sources: Iterable[TableSource], *, previous: FoundTables | None = None, known: Collection[str] = ()
) -> FoundTables:
    """Find the tables of all sources. An error of one source does not keep the others from being searched.

    Args:
        sources: Where to look. A single table is taken as it is: whether it exists is not checked.
        previous: What the last search found. Of a source that cannot be searched completely now, its tables stay.
        known: Paths at which there is a table for certain, which saves a request for each.
    """
    tables: dict[str, FoundTable] = {}
    errors: list[tuple[str, TidelogError]] = []
    empty: list[str] = []
    for source in sources:
        found, problems = _tables_of(source, frozenset(known))
        if problems and previous is not None:
            paths = {table.path for table in found}
            earlier = (table for table in previous.tables if table.source == source.path and table.path not in paths)
            found = [*found, *earlier][:MAX_TABLES]
        for table in found:
            tables.setdefault(_identity(table.path), table)
        errors += [(source.path, problem) for problem in problems]
        if not found:
            empty.append(source.path)
    return FoundTables(tuple(tables.values()), tuple(errors), tuple(empty))


def _tables_of(source: TableSource, known: frozenset[str]) -> tuple[list[FoundTable], list[TidelogError]]:
    """The tables of one source, and what kept it from being searched."""
    try:
        if source.is_search:
            search = _Search(source, known)
            search.run()
            return search.tables, search.errors
        store = open_store(source.path, source.storage_options)
    except TidelogError as error:
        return [], [error]
    return [FoundTable(store.url, source.storage_options, source.path)], []


def _identity(path: str) -> str:
    """The same for all paths that lead to one table: links on this machine are followed."""
    # `Path.resolve` raises an error for a link that leads to itself.
    return os.path.realpath(path) if path.startswith("/") else path


class _Search:
    """A search of one source, level by level, so that the folders of a level can be listed at the same time."""

    def __init__(self, source: TableSource, known: frozenset[str]) -> None:
        self.tables: list[FoundTable] = []
        self.errors: list[TidelogError] = []
        base, pattern = split_pattern(source.path)
        self._source = source
        self._pattern = (*pattern, ANY_FOLDERS) if source.folder else pattern
        self._store: Store = open_store(base, source.storage_options)
        self._known = known
        self._include = [_parts(text) for text in source.include]
        self._exclude = [_parts(text) for text in source.exclude]
        self._seen: set[str] = set()
        self._limits: set[str] = set()

    def run(self) -> None:
        """Fill `tables` and `errors`. Raises what opening the store raises."""
        level: list[tuple[str, ...]] = [()]
        listed = 0
        while level:
            if listed + len(level) > MAX_FOLDERS:
                level = level[: MAX_FOLDERS - listed]
                self._limit(f"more than {MAX_FOLDERS:,} folders")
            listed += len(level)
            level = [
                (*names, child)
                for names, children in zip(level, self._visit_all(level), strict=True)
                for child in children
            ]
        self.tables.sort(key=lambda table: table.path)

    def _visit_all(self, level: Sequence[tuple[str, ...]]) -> list[list[str]]:
        at_once = min(len(level), self._store.small_reads_at_once)
        if at_once <= 1:
            return [self._visit(names) for names in level]
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(self._visit, level))

    def _visit(self, names: tuple[str, ...]) -> list[str]:
        """Note the table in this folder, if it is one; otherwise the names of the folders in it to go on with."""
        if any(names_match(names, pattern) for pattern in self._exclude):
            return []
        following = self._following(names)
        if following and not is_pattern(following):
            return [following]
        path = "/".join([self._store.url.rstrip("/"), *names])
        if self._is_seen(path):
            return []
        if path in self._known:
            self._take(path, names)
            return []
        try:
            folders = self._store.folders("/".join(names), until=_LOG_FOLDER)
        except (TidelogError, OSError) as error:
            self._failed(error, path)
            return []
        if _LOG_FOLDER in folders:
            self._take(path, names)
            return []
        return self._children(names, following, folders)

    def _following(self, names: tuple[str, ...]) -> str:
        """The part of the pattern that folders in this one must match; empty at the end, `**` once that has begun."""
        begun = ANY_FOLDERS in self._pattern[: len(names) + 1]
        return ANY_FOLDERS if begun else "".join(self._pattern[len(names) : len(names) + 1])

    def _children(self, names: tuple[str, ...], following: str, folders: Iterable[str]) -> list[str]:
        if following != ANY_FOLDERS:
            return [name for name in folders if following and name_matches(name, following)]
        if len(names) >= MAX_DEPTH:
            self._limit(f"folders more than {MAX_DEPTH} levels deep")
            return []
        return [name for name in folders if not is_hidden(name) or name in self._pattern]

    def _take(self, path: str, names: tuple[str, ...]) -> None:
        wanted = not self._include or any(names_match(names, pattern) for pattern in self._include)
        if not wanted or not names_match(names, self._pattern):
            return
        if len(self.tables) >= MAX_TABLES:
            self._limit(f"more than {MAX_TABLES:,} tables")
            return
        self.tables.append(FoundTable(path, self._source.storage_options, self._source.path))

    def _is_seen(self, path: str) -> bool:
        """Whether the folder was visited before, by another path; links can lead in a circle."""
        if not isinstance(self._store, LocalStore):
            return False
        identity = _identity(path)
        if identity in self._seen:
            return True
        self._seen.add(identity)
        return False

    def _failed(self, error: TidelogError | OSError, path: str) -> None:
        if not isinstance(error, TidelogError):
            error = StoreUnavailableError(
                f"cannot list {path}: {error.strerror or error}",
                advice="check the folder and its permissions",
                path=path,
            )
        if len(self.errors) < _MAX_ERRORS:
            self.errors.append(error)

    def _limit(self, what: str) -> None:
        """Report once that there is more than a search takes."""
        if what in self._limits:
            return
        self._limits.add(what)
        self.errors.append(
            ConfigurationError(
                f"the source {self._source.path} has {what}; the rest is left out",
                advice="give narrower sources, or leave folders out with exclude",
                path=self._source.path,
            )
        )


def _parts(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split("/") if name)


# --- patterns of paths


def as_pattern(path: str) -> str:
    """The pattern that only this path matches."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def is_pattern(text: str) -> bool:
    """Whether a path or a name has a wildcard."""
    return _WILD.search(text) is not None


def is_hidden(name: str) -> bool:
    """Whether wildcards pass over the name."""
    return name.startswith(_HIDDEN)


def split_pattern(path: str) -> tuple[str, tuple[str, ...]]:
    """The folder in which to search, and the names that follow: `/data/*/events` becomes `/data`, (`*`, `events`).

    The folder is as it is written; `.` if the pattern begins with a wildcard, and empty after a scheme.
    """
    scheme = (_SCHEME.match(path) or [""])[0]
    rest = path[len(scheme) :]
    names = rest.split("/")
    first = next((number for number, name in enumerate(names) if is_pattern(name)), len(names))
    folder = "/".join(names[:first])
    if first < len(names) and not folder:
        folder = "/" if rest.startswith("/") else "" if scheme else "."
    return scheme + folder, tuple(name for name in names[first:] if name)


def name_matches(name: str, pattern: str) -> bool:
    """Whether one name matches one part of a pattern."""
    if is_hidden(name) and is_pattern(pattern[:1]):
        return False
    return fnmatchcase(name, pattern)


def names_match(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the names of a path match a whole pattern."""
    reached = {0}  # the places in the pattern that the names so far can have led to
    for name in names:
        reached = {
            place + (part != ANY_FOLDERS)
            for place in _with_no_folders(reached, pattern)
            if place < len(pattern)
            for part in [pattern[place]]
            if (part == ANY_FOLDERS and not is_hidden(name)) or (part != ANY_FOLDERS and name_matches(name, part))
        }
    return len(pattern) in _with_no_folders(reached, pattern)


def _with_no_folders(places: set[int], pattern: Sequence[str]) -> set[int]:
    """The places, and those behind a `**` that stands for no folder."""
    found = set(places)
    for place in range(len(pattern)):
        if place in found and pattern[place] == ANY_FOLDERS:
            found.add(place + 1)
    return found
