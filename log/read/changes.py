"""The changes between two points of a table's history.

An interval is (after, until], by ID version or by time. A start is exclusive here, and inclusive in Delta's change
feed. Compactions add no changes, because the rows come from the files that the data-changing commits named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import compress
from typing import Literal, TypeAlias, get_args

import pyarrow as pa

from tidelog.log.data.writer import CHANGE_TYPE
from tidelog.log.errors import ConfigurationError, DataFileMissingError, HistoryExpiredError
from tidelog.log.format.actions import Commit, Metadata, RemoveFile
from tidelog.log.format.schema import TIMESTAMP
from tidelog.log.pruning.file_pruning import may_match
from tidelog.log.read.change_files import (
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    ChangeFile,
    appended_files,
    changed_files,
    read_change_batches,
)
from tidelog.log.read.large_net_changes import net_change_batches
from tidelog.log.read.read_ahead import read_ahead
from tidelog.log.read.scan import RowReader, Selection, columns_text
from tidelog.log.storage import Store
from tidelog.log.system import to_datetime

Mode: TypeAlias = Literal["append", "cdc", "net"]
CHANGE_MODES: tuple[Mode, ...] = get_args(Mode)


def change_schema(table_schema: pa.Schema, mode: Mode = "append") -> pa.Schema:
    """The columns of the change feed: the table's, the change type (not in append mode), commit version and time.

    Raises ConfigurationError if the table has a column of such a name.
    """
    own = [pa.field(COMMIT_VERSION, pa.int64()), pa.field(COMMIT_TIMESTAMP, TIMESTAMP)]
    if mode != "append":
        own.insert(0, pa.field(CHANGE_TYPE, pa.string()))
    for field in own:
        if field.name in table_schema.names:
            raise ConfigurationError(
                f"the table has a column {field.name!r}, a name that the change feed uses for its own column",
                advice="rename the column",
            )
    return pa.schema([*table_schema, *own])


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


def change_files_of(
    commits: Iterable[tuple[Commit, int]],
    mode: Mode,
    path: str,
    partition_values_of: Callable[[int, RemoveFile], dict[str, str | None]],
) -> list[ChangeFile]:
    """The files that hold the changes of these commits, with their times; see `changed_files`.

    Raises NotAppendOnlyError.
    """
    return [
        file
        for commit, stamp in commits
        for file in (
            appended_files(commit, stamp, path)
            if mode == "append"
            else changed_files(commit, stamp, partition_values_of)
        )
    ]


class Changes(RowReader):
    """The changed rows of an interval of a table's history; made by `Table.changes`.

    The interval is (after, until]: a start is exclusive here, and inclusive in Delta's change feed. Rows come in commit
    order. In the mode `net` there is at most one row per key, ordered by the key's last version.

    Nothing is read before the rows are requested. Every way of reading works several times. Use `to_arrow`,
    `to_batches`, `to_reader`, `to_pandas` or `count`, or pass the object to anything that takes an Arrow stream, such
    as Polars or DuckDB.

    Attributes:
        schema: The chosen columns. To choose from are the table's own, `_change_type` (string; not in the mode
            `append`), `_commit_version` (int64) and `_commit_timestamp` (timestamp in microseconds, UTC).
        complete_until: The commit time (UTC) of the table's newest version when the changes were requested. Every later
            commit has a later time, so a reader that gave no `until` can continue with `after=changes.complete_until`.

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
        files: Sequence[ChangeFile],
        table_schema: pa.Schema,
        metadata: Metadata,
        *,
        request: ChangeRequest,
        complete_until_ms: int,
    ) -> None:
        self._store = store
        self._request = request
        self._full_schema = change_schema(table_schema, request.mode)
        self._selection = Selection(self._full_schema, request.where, request.columns)
        self.schema = self._selection.schema
        self.complete_until: datetime = to_datetime(complete_until_ms)
        tree = self._selection.tree
        if tree is not None and request.mode != "net":
            files = list(compress(files, may_match(files, tree, self._full_schema, metadata)))
        self._files = files

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

    def _read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        readings = (partial(self._read_file, change, schema) for change in self._files)
        return read_ahead(readings, self._store.reads_at_once)

    def _read_file(self, change: ChangeFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            yield from read_change_batches(self._store, change, schema)
        except DataFileMissingError as error:
            raise HistoryExpiredError(
                f"the changes of version {change.version} of {self._store.url} are no longer available: a vacuum "
                "deleted their files",
                advice=f"start after version {change.version} (a start is exclusive here, and inclusive in Delta's "
                "change feed) or read a snapshot; to keep deleted files longer, raise "
                "delta.deletedFileRetentionDuration",
                path=self._store.url,
                earliest_version=change.version,
                latest_version=self._files[-1].version,
            ) from error
