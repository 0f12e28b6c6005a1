"""The changes between two points of a table's history.

An interval is (after, until], by ID version or by time. A start is exclusive here, and inclusive in Delta's change
feed. Compactions add no changes, because the rows come from the files that the data-changing commits named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import pyarrow as pa

from tidelog.log.data.writer import CHANGE_TYPE
from tidelog.log.errors import ConfigurationError, DataFileMissingError, HistoryExpiredError
from tidelog.log.format.actions import Commit, Metadata
from tidelog.log.format.schema import TIMESTAMP
from tidelog.log.read.change_files import COMMIT_TIMESTAMP, COMMIT_VERSION
from tidelog.log.read.commit_changes import CHANGE_MODES, ChangeSource, Mode, commit_changes, read_change_batches
from tidelog.log.read.inserted_files import Changed, compacted, one_by_one
from tidelog.log.read.mixed_commits import Change, pruned
from tidelog.log.read.net_changes import net_change_batches
from tidelog.log.read.read_ahead import read_ahead
from tidelog.log.read.scan import RowReader, Selection, columns_text
from tidelog.log.storage import Store
from tidelog.log.system import to_datetime


def change_schema(table_schema: pa.Schema, mode: Mode = "append") -> pa.Schema:
    """The columns of the change feed: the table's, the change type (not in append mode), commit version and time.

    Raises ConfigurationError if the table has a column of such a name.
    """
    own = [pa.field(COMMIT_VERSION, pa.int64()), pa.field(COMMIT_TIMESTAMP, TIMESTAMP)]
    if mode != "append":
        own.insert(0, pa.field(CHANGE_TYPE, pa.string()))
    known = {name.lower() for name in table_schema.names}
    for field in own:
        if field.name in known:
            raise ConfigurationError(
                f"the table has a column {field.name!r}, a name that the change feed uses for its own column",
                advice="rename the column",
            )
    return pa.schema([*table_schema, *own])


# The columns of a change itself, beside those of the row.
OWN_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)


def columns_with_change(columns: Sequence[str] | None, mode: Mode, table_schema: pa.Schema) -> Sequence[str] | None:
    """The columns of changes for which `columns` asks: those, and the columns of the change that it does not name.

    Without the type of a change, deleted rows look like others. So `-_change_type` says in so many words that this
    column is left out; `-_commit_version` and `-_commit_timestamp` do the same. If `columns` names no other column, all
    of the table's are chosen. Raises ConfigurationError if a column is both named and left out.
    """
    if columns is None or isinstance(columns, str):
        return columns
    left_out = [name for name in columns if name[:1] == "-" and name[1:] in OWN_COLUMNS]
    chosen: list[str] = [name for name in columns if name not in left_out]
    for name in left_out:
        if name[1:] in chosen:
            raise ConfigurationError(
                f"columns name {name[1:]!r} and leave it out ({name!r})", advice="keep one of the two"
            )
    if left_out and not chosen:
        chosen = list(table_schema.names)
    own = [name for name in change_schema(table_schema, mode).names if name in OWN_COLUMNS]
    return [*chosen, *(name for name in own if name not in chosen and f"-{name}" not in left_out)]


def only_these(names: Sequence[str]) -> list[str]:
    """What `columns` must be to get exactly these columns of changes."""
    return [*names, *(f"-{name}" for name in OWN_COLUMNS if name not in names)]


def require_mode(mode: str) -> Mode:
    """Return `mode`; raise ConfigurationError if it is unknown."""
    if mode not in CHANGE_MODES:
        raise ConfigurationError(f"unknown change mode {mode!r}", advice=f"use one of {', '.join(CHANGE_MODES)}")
    return mode


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """The changes that a caller asks for; `keys` count in the mode `net` only."""

    mode: Mode
    where: str | None
    columns: Sequence[str] | None
    keys: Sequence[str]


def changes_of(
    commits: Iterable[tuple[Commit, int]], mode: Mode, source: ChangeSource, *, with_statistics: bool
) -> list[Changed]:
    """The units that hold the changes of these commits, with their times; see `commit_changes`.

    Without statistics, the many files of commits that only inserted rows are one InsertedFiles. Raises
    NotAppendOnlyError.
    """
    read = partial(commit_changes, mode=mode, source=source, with_statistics=with_statistics)
    if not with_statistics:
        return [*compacted(commits, read)]
    return [change for commit, stamp in commits for change in read(commit, stamp)]


class Changes(RowReader):
    """The changed rows of an interval of a table's history; made by `Table.changes`.

    The interval is (after, until]: a start is exclusive here, and inclusive in Delta's change feed. Rows come in commit
    order. In the mode `net` there is at most one row per key, ordered by the key's last version.

    Nothing is read before the rows are requested. Every way of reading works several times. Use `to_arrow`,
    `to_batches`, `to_reader`, `to_pandas`, `to_polars`, `to_duckdb` or `count`, or pass the object to anything that
    takes an Arrow stream.

    Attributes:
        schema: The chosen columns of the table, and those of the change: `_change_type` (string; not in the mode
            `append`), `_commit_version` (int64) and `_commit_timestamp` (timestamp in microseconds, UTC).
        complete_until: A time (UTC) up to which the result is complete: it has the changes of every commit of the
            interval up to this time, and no later commit can get a time at or before it. So a reader can continue with
            `after=changes.complete_until`. It is the commit time of the interval's last version, whether that changed
            rows or not; or `until`, if that is a time and the table has a later commit.

    Raises:
        HistoryExpiredError: While reading, if a vacuum deleted a file that holds changes.
        DuplicateKeyError: While reading in the mode `net`, if a key has several rows at a time.
        CorruptLogError: While reading, if a file cannot be read.

    Example:
        >>> changes = table.changes(after=12, mode="cdc", where="price > 100")
        >>> changes.to_arrow()
        >>> table.changes(after=changes.complete_until)

    """

    def __init__(
        self,
        store: Store,
        changes: Sequence[Changed],
        table_schema: pa.Schema,
        metadata: Metadata,
        *,
        request: ChangeRequest,
        complete_until_ms: int,
    ) -> None:
        self._store = store
        self._request = request
        self._full_schema = change_schema(table_schema, request.mode)
        chosen = columns_with_change(request.columns, request.mode, table_schema)
        self._selection = Selection(self._full_schema, request.where, chosen)
        self.schema = self._selection.schema
        self.complete_until: datetime = to_datetime(complete_until_ms)
        tree = self._selection.tree
        if tree is not None and request.mode != "net":
            changes = pruned([*one_by_one(changes)], tree, self._full_schema, metadata)
        self._changes = changes

    @property
    def mode(self) -> Mode:
        """Which changes these are."""
        return self._request.mode

    @property
    def keys(self) -> Sequence[str]:
        """The key columns, in the mode `net`."""
        return self._request.keys

    @property
    def units(self) -> Sequence[Changed]:
        """What can hold rows of the result, in commit order; in the mode `net`, all that holds changes.

        Many inserted files can be one InsertedFiles.
        """
        return self._changes

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows as record batches of `schema`.

        Files are read as the batches are consumed. In the mode `net` all changes of the interval are read first, and
        those that do not fit into a few hundred MB are written to a temporary file.
        """
        return self._select(self._selection)

    def count(self) -> int:
        """Count the rows. Except in the mode `net`, only the columns of the predicate are read."""
        return sum(batch.num_rows for batch in self._select(self._selection.without_columns()))

    def _select(self, selection: Selection) -> Iterator[pa.RecordBatch]:
        if self._request.mode == "net":
            # The net effect is known at the end of the interval only, and the predicate applies to it.
            everything = self._read(self._full_schema)
            batches = net_change_batches(everything, self._full_schema, self._request.keys, self._store.url)
            batches = (batch.select(selection.read_schema.names) for batch in batches)
        else:
            batches = self._read(selection.read_schema)
        for batch in batches:
            yield from selection.apply(batch)

    def __repr__(self) -> str:
        where = f", where={self._request.where!r}" if self._request.where else ""
        return f"Changes({self._store.url!r}, mode={self._request.mode!r}, columns={columns_text(self.schema)}{where})"

    def _facts(self) -> dict[str, object]:
        return {
            "path": self._store.url,
            "mode": self._request.mode,
            "complete until": self.complete_until.isoformat(),
            "where": self._request.where or "all changes",
        }

    def _read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        readings = (partial(self._read_change, change, schema) for change in one_by_one(self._changes))
        return read_ahead(readings, self._store.reads_at_once)

    def _read_change(self, change: Change, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            yield from read_change_batches(self._store, change, schema)
        except DataFileMissingError as error:
            raise expired_changes(self._store, change.version, self._changes[-1].version) from error


def expired_changes(store: Store, version: int, latest_version: int) -> HistoryExpiredError:
    """The error for changes of `version` whose file is missing."""
    return HistoryExpiredError(
        f"the changes of version {version} of {store.url} are no longer available: a vacuum deleted their files",
        advice=f"start after version {version} (a start is exclusive here, and inclusive in Delta's change feed) or "
        "read a snapshot; to keep deleted files longer, raise delta.deletedFileRetentionDuration",
        path=store.url,
        earliest_version=version,
        latest_version=latest_version,
    )
