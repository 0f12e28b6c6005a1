"""`Feed`: the stream of `format("tidelog")` for a batch function, with DataFrames that nothing has read yet.

A batch function of `readStream` gets rows whose scan Spark has planned already. A `Feed` gives it a lazy DataFrame of
the same rows, so that the function's own filters and columns reach the files, and says in `last` what the micro-batch
has. Offsets, options and errors are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, PrerequisiteError
from tidelog.log.presentable import presentable
from tidelog.log.read.scan import Selection
from tidelog.log.read.timeline import Point, to_timestamp_ms
from tidelog.log.storage import Store
from tidelog.streaming import spark_versions
from tidelog.streaming.datasource import feed_references, frames, jvm_source
from tidelog.streaming.datasource.read_options import parse_read
from tidelog.streaming.executors.session import (
    QUERY_ID,
    is_connect,
    java_query,
    prepare_session,
    require_apart,
    stopped_quietly,
)
from tidelog.streaming.executors.tasks import require_reachable
from tidelog.streaming.feed_planning.limits import NO_LIMITS
from tidelog.streaming.feed_planning.query_columns import LoadedColumns

# The arguments whose names are not those of the options; the others have the same.
_ARGUMENTS = {
    "startingVersion": "starting_version",
    "startingTimestamp": "starting_timestamp",
    "initialSnapshot": "initial_snapshot",
    "maxFilesPerTrigger": "max_files",
    "maxBytesPerTrigger": "max_bytes",
    "maxRowsPerTrigger": "max_rows",
    "skipChangeCommits": "skip_change_commits",
}
# What a Feed passes on where its caller says nothing.
_UNSAID = {("changes", "append"), ("initialSnapshot", "false"), ("skipChangeCommits", "false")}

BatchFunction = Callable[[DataFrame, int], object]


@dataclass(frozen=True, slots=True)
class FeedReport:
    """What a micro-batch of a Feed was given; see `Feed.last`. Immutable.

    Attributes:
        batch_id: Spark's number of the batch.
        version: The newest version of which the batch has changes; None if it has none.
        files: How many files it reads.
        bytes: Their size.
        complete_until: Every commit up to this time (UTC) is in this batch or an earlier one, so a time window of
            commits that ends here can be closed. None as long as no version has been read as a whole.
        skipped_commits: How many commits `skip_change_commits` has left out since the stream began.
    """

    batch_id: int
    version: int | None
    files: int
    bytes: int
    complete_until: datetime | None
    skipped_commits: int


class Feed:
    """The changes of a table for a batch function, exactly as often as Spark calls it.

    Spark's checkpoint holds the position. After a crash Spark calls the function again with the same changes, so a
    function that writes elsewhere should be idempotent, as `Sink` is.

    Args:
        spark: A Spark session, classic or Spark Connect. On Spark Connect the batch function runs in a process beside
            the server, and tidelog's own reader reads, in Python tasks.
        path: The table: a local path or an fsspec URL.
        changes: `append`: the inserted rows; a commit that removed or changed rows is an error. `cdc`: every change,
            with `_change_type`. Both have `_commit_version` and `_commit_timestamp`.
        after: Begin after this version or time, which is not included; `earliest` (the default) or `latest`. A time is
            ISO-8601 with a time zone, or an aware datetime. Ignored once the checkpoint has a position, as all
            arguments about the start.
        starting_version: Begin with this version, as Delta does: it is included.
        starting_timestamp: Begin with the first commit at or after this time.
        initial_snapshot: Begin with the table as it is, then follow it.
        consumer: A name under which the stream's position keeps `expire` and `vacuum` from what it still needs.
        max_files: The most files in one micro-batch; without any limit, 10,000. On Spark Connect below Spark 4.2 there
            is no limit then, and with one `trigger(availableNow=True)` is a PrerequisiteError: Spark runs one
            micro-batch for it there.
        max_bytes: The most bytes in one micro-batch. One file is always read.
        max_rows: The most rows in one micro-batch. One file is always read.
        columns: The columns to read, in this order; None for all. Those of the change come along, unless one is left
            out: `-_commit_timestamp`.
        where: SQL text; only rows for which it is true are read.
        skip_change_commits: With `append`, leave commits out that removed or changed rows, instead of failing.
        storage_options: Credentials and endpoints of the store.

    Attributes:
        last: What the newest micro-batch was given; None before the first. On Spark Connect the batch function sees it,
            and the process that started the query does not.

    Raises:
        ConfigurationError: An argument is wrong, or the table is in this process's memory. A wrong interval is found
            when the query starts.
        TableNotFoundError: There is no table at the path.
        PrerequisiteError: Java or Spark is missing or too old.

    Example:
        feed = Feed(spark, "/data/events", changes="cdc", initial_snapshot=True)
        query = feed.foreachBatch(apply).option("checkpointLocation", "/data/_cp").start()
    """

    def __init__(  # noqa: PLR0913 - the public signature
        self,
        spark: SparkSession,
        path: str,
        *,
        changes: str = "append",
        after: Point | None = None,
        starting_version: int | str | None = None,
        starting_timestamp: datetime | str | None = None,
        initial_snapshot: bool = False,
        consumer: str | None = None,
        max_files: int | None = None,
        max_bytes: int | None = None,
        max_rows: int | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        skip_change_commits: bool = False,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        prepare_session(spark)
        given = {
            "path": path,
            "changes": changes,
            "after": _point_text(after),
            "startingVersion": starting_version,
            "startingTimestamp": _point_text(starting_timestamp),
            "initialSnapshot": str(initial_snapshot).lower(),
            "consumer": consumer,
            "maxFilesPerTrigger": max_files,
            "maxBytesPerTrigger": max_bytes,
            "maxRowsPerTrigger": max_rows,
            "columns": None if columns is None else json.dumps(list(columns)),
            "where": where,
            "skipChangeCommits": str(skip_change_commits).lower(),
        }
        self._options = {name: str(value) for name, value in given.items() if value is not None}
        self._options |= {f"storageOption.{name}": text for name, text in (storage_options or {}).items()}
        self._spark: SparkSession | None = spark
        self._read = parse_read(self._options, streaming=True)
        opened = self._open()
        require_reachable(opened.store)
        self._read.query_columns.selection(opened.schema)
        self.last: FeedReport | None = None

    def foreachBatch(self, function: BatchFunction) -> DataStreamWriter:  # noqa: N802 - Spark's name
        """A query that calls `function(changes, batch_id)` for each micro-batch.

        It has the columns that the table has now. When a commit changes them, the query stops with a
        SchemaChangedError; call `foreachBatch` again and start the query with the same checkpoint.

        Args:
            function: Is called with a DataFrame and the number of the batch. The DataFrame is valid in the call only.

        Returns:
            Spark's writer, for `.option("checkpointLocation", ...)`, `.trigger(...)` and `.start()`.
        """
        if self._spark is None:
            raise ConfigurationError(
                "this Feed is a copy, which has no Spark session", advice="start queries where the Feed was made"
            )
        stream = jvm_source.planned_stream(self._spark, self._options)
        if stream is not None:
            return stream.writeStream.foreachBatch(_Call(self, function, frames.planned))
        table = self._open()
        selection = self._read.query_columns.selection(table.schema)
        stream = feed_references.open_stream(self._spark, self._options, LoadedColumns(table.version, table.schema))
        is_cut_short = self._read.limits != NO_LIMITS and not spark_versions.SOURCES_TAKE_LIMITS
        writer = _without_triggers_that_end(stream.writeStream) if is_cut_short else stream.writeStream
        return writer.foreachBatch(_Call(self, function, _References(table.store, selection)))

    def __repr__(self) -> str:
        """The table and the arguments that are not the default, without the storage options."""
        shown = [repr(self._read.path)]
        for name, value in self._options.items():
            if name != "path" and not name.startswith("storageOption.") and (name, value) not in _UNSAID:
                shown.append(f"{_ARGUMENTS.get(name, name)}={value!r}")
        return presentable(f"Feed({', '.join(shown)})")

    def __getstate__(self) -> dict[str, Any]:
        """All but the session, which another process cannot use: Spark Connect calls the function in one."""
        return {**self.__dict__, "_spark": None}

    def _open(self) -> Table:
        return Table.open(self._read.path, storage_options=self._read.storage_options)


class _References:
    """What a micro-batch of references reads. It is picklable."""

    def __init__(self, store: Store, selection: Selection) -> None:
        self._store = store
        self._selected = selection.row_schema, selection.where, selection.schema.names
        self._apart: str | None = None

    def __call__(self, batch: DataFrame) -> frames.PlannedBatch:
        session = batch.sparkSession
        query_id = None if is_connect(session) else session.sparkContext.getLocalProperty(QUERY_ID)
        if query_id is not None and query_id != self._apart:
            require_apart(self._store.url, str(java_query(session, query_id).resolvedCheckpointRoot()))
            self._apart = query_id
        found = feed_references.referenced(batch)
        return frames.PlannedBatch(found.changes, found.end, self._store, Selection(*self._selected))


class _Call:
    """What Spark calls for each micro-batch. It is picklable if the user's function and `planned` are."""

    def __init__(
        self, feed: Feed, function: BatchFunction, planned: Callable[[DataFrame], frames.PlannedBatch]
    ) -> None:
        self._feed = feed
        self._function = function
        self._planned = planned

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        planned = self._planned(batch)
        self._feed.last = _report(batch_id, planned)
        with stopped_quietly(batch.sparkSession):
            self._function(planned.frame(batch.sparkSession), batch_id)


def _without_triggers_that_end(writer: DataStreamWriter) -> DataStreamWriter:
    """The writer of a feed with limits, for a Spark that runs one micro-batch for triggers that end."""
    set_trigger = writer.trigger

    def trigger(**kinds: Any) -> DataStreamWriter:
        """Raise PrerequisiteError for triggers that would end before everything was read."""
        if kinds.get("availableNow") or kinds.get("once"):
            raise PrerequisiteError(
                "Spark below 4.2 runs one micro-batch for Trigger.AvailableNow and Trigger.Once, and a limit such as "
                "max_files would end it before everything is read",
                advice="leave the limits out, so that the batch reads everything; or install pyspark 4.2 or later, "
                "use trigger(processingTime=...), or read the versions in parts with tidelog.streaming.changes",
            )
        return set_trigger(**kinds)

    vars(writer)["trigger"] = trigger
    return writer


def _report(batch_id: int, planned: frames.PlannedBatch) -> FeedReport:
    changes, end = planned.changes, planned.end
    return FeedReport(
        batch_id=batch_id,
        version=changes[-1].version if changes else None,
        files=sum(change.num_files for change in changes),
        bytes=sum(change.size_bytes for change in changes),
        complete_until=datetime.fromisoformat(end.complete_until) if end.complete_until else None,
        skipped_commits=end.skipped,
    )


def _point_text(point: Point | None) -> str | None:
    if isinstance(point, datetime):
        to_timestamp_ms(point)  # raises an error for a time without a zone
        return point.isoformat()
    return None if point is None else str(point)
