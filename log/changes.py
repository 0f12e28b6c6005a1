"""Changes between two points of a table's history.

An interval is left-open, (after, until], by ID version or by time. A compaction in it contributes nothing, even where
its rows lie in compacted files now: the files that the data-changing commits named are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import compress

import pyarrow as pa

from tidelog.log.datafile import DataFile, read_batches
from tidelog.log.errors import ConfigurationError, NotAppendOnlyError
from tidelog.log.format import statistics
from tidelog.log.format.actions import AddFile, Commit, Metadata
from tidelog.log.format.schema import TIMESTAMP
from tidelog.log.pruning import may_match
from tidelog.log.scan import RowReader, Selection
from tidelog.log.storage import Store
from tidelog.log.system import to_datetime

COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
MODES = ("append",)


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """A file whose live rows are changes of one commit; picklable. `rows` is None where no statistics tell it."""

    file: DataFile
    version: int
    timestamp_ms: int
    size_bytes: int
    rows: int | None


def appended_files(commit: Commit, timestamp_ms: int, path: str) -> list[ChangeFile]:
    """The files whose rows `commit` inserted, in its own order; none for a compaction.

    Raises NotAppendOnlyError where the commit removed or changed rows.
    """
    for remove in commit.removes:
        if remove.data_change:
            raise NotAppendOnlyError(
                f"version {commit.version} of {path} removed or changed rows, which an append-only reader cannot show",
                advice="start after that version",
                path=path,
                version=commit.version,
            )
    return [
        ChangeFile(DataFile.of(add), commit.version, timestamp_ms, add.size, statistics.num_records(add.stats))
        for add in appended(commit)
    ]


def appended(commit: Commit) -> list[AddFile]:
    """The adds of a commit that brought rows into the table."""
    return [add for add in commit.adds if add.data_change]


def change_schema(table_schema: pa.Schema) -> pa.Schema:
    """The columns of the change feed in append mode: the table's, then commit version and commit time."""
    for name in (COMMIT_VERSION, COMMIT_TIMESTAMP):
        if name in table_schema.names:
            raise ConfigurationError(
                f"the table has a column {name!r} of its own, which the change feed adds",
                advice="rename the column",
            )
    fields = [pa.field(COMMIT_VERSION, pa.int64()), pa.field(COMMIT_TIMESTAMP, TIMESTAMP)]
    return pa.schema([*table_schema, *fields])


def read_change_batches(store: Store, change: ChangeFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one change file with exactly `schema`, commit version and time filled in where it has them."""
    own = {COMMIT_VERSION: change.version, COMMIT_TIMESTAMP: change.timestamp_ms * 1000}
    data_schema = pa.schema([field for field in schema if field.name not in own])
    for batch in read_batches(store, change.file, data_schema):
        columns = [
            pa.repeat(pa.scalar(own[field.name], field.type), batch.num_rows)
            if field.name in own
            else batch.column(field.name)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


class Changes(RowReader):
    """The rows inserted in an interval, in commit order.

    `complete_until` is a commit time up to which no later commit can appear, so that a reader may go on from there.
    """

    def __init__(
        self,
        store: Store,
        commits: Sequence[tuple[Commit, int]],
        table_schema: pa.Schema,
        metadata: Metadata,
        where: str | None,
        columns: Sequence[str] | None,
        complete_until_ms: int,
    ) -> None:
        self._store = store
        feed_schema = change_schema(table_schema)
        self._selection = Selection(feed_schema, where, columns)
        self.schema = self._selection.schema
        self.complete_until: datetime = to_datetime(complete_until_ms)
        files = [file for commit, stamp in commits for file in appended_files(commit, stamp, store.url)]
        if self._selection.tree is not None:
            adds = [add for commit, _ in commits for add in appended(commit)]
            files = list(compress(files, may_match(adds, self._selection.tree, feed_schema, metadata)))
        self._files = files

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as record batches of `schema`, oldest commit first, read file by file as they are consumed."""
        for change in self._files:
            for batch in read_change_batches(self._store, change, self._selection.read_schema):
                yield from self._selection.apply(batch)


def require_mode(mode: str) -> None:
    """Raise ConfigurationError for a mode that the feed does not have."""
    if mode not in MODES:
        raise ConfigurationError(f"the change mode {mode!r} is not available", advice=f"use one of {', '.join(MODES)}")
