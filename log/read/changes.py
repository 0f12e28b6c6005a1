"""Changes between two points of a table's history.

An interval is left-open, (after, until], by ID version or by time. A compaction in it contributes nothing, even where
its rows lie in compacted files now: the files that the data-changing commits named are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
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
from tidelog.log.read.net_changes import net_changes
from tidelog.log.read.scan import RowReader, Selection, columns_text
from tidelog.log.storage import Store
from tidelog.log.system import to_datetime

Mode: TypeAlias = Literal["append", "cdc", "net"]
CHANGE_MODES: tuple[Mode, ...] = get_args(Mode)


def change_schema(table_schema: pa.Schema, mode: Mode = "append") -> pa.Schema:
    """The columns of the change feed: the table's, the change type (not in append mode), commit version and time."""
    own = [pa.field(COMMIT_VERSION, pa.int64()), pa.field(COMMIT_TIMESTAMP, TIMESTAMP)]
    if mode != "append":
        own.insert(0, pa.field(CHANGE_TYPE, pa.string()))
    for field in own:
        if field.name in table_schema.names:
            raise ConfigurationError(
                f"the table has a column {field.name!r} of its own, which the change feed adds",
                advice="rename the column",
            )
    return pa.schema([*table_schema, *own])


def require_mode(mode: str) -> Mode:
    """The mode; raises ConfigurationError for one that there is not."""
    if mode not in CHANGE_MODES:
        raise ConfigurationError(f"there is no change mode {mode!r}", advice=f"use one of {', '.join(CHANGE_MODES)}")
    return mode


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """Which changes a caller wants to see, and how; `keys` are for the mode `net`."""

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
    """The files that hold the changes of these commits; see `changed_files`. Raises NotAppendOnlyError."""
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
    """The changes of an interval: in commit order, or in `net` mode one row a key at most.

    `complete_until` is a commit time up to which no later commit can appear, so that a reader may go on from there.
    Reading raises HistoryExpiredError where a file that a change names was vacuumed.
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
        """The rows as record batches of `schema`; read file by file as they are consumed, in `net` mode all first."""
        if self._request.mode == "net":
            # A row's fate is known at the end of the interval only, and its predicate is judged on what came of it.
            everything = pa.Table.from_batches(self._read(self._full_schema), schema=self._full_schema)
            batches: Iterable[pa.RecordBatch] = net_changes(
                everything, self._request.keys, self._store.url
            ).to_batches()
            wanted = self._selection.read_schema.names
            batches = (batch.select(wanted) for batch in batches)
        else:
            batches = self._read(self._selection.read_schema)
        for batch in batches:
            yield from self._selection.apply(batch)

    def __repr__(self) -> str:
        where = f", where={self._request.where!r}" if self._request.where else ""
        return f"Changes({self._store.url!r}, mode={self._request.mode!r}, columns={columns_text(self.schema)}{where})"

    def _read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for change in self._files:
            try:
                yield from read_change_batches(self._store, change, schema)
            except DataFileMissingError as error:
                raise HistoryExpiredError(
                    f"the rows that version {change.version} of {self._store.url} changed are gone: its files were "
                    "removed by a vacuum",
                    advice=f"begin after version {change.version}, or from a snapshot, and keep deleted files longer "
                    "(delta.deletedFileRetentionDuration)",
                    path=self._store.url,
                    earliest_version=change.version,
                    latest_version=self._files[-1].version,
                ) from error
