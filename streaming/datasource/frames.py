"""Frames behind `format("tidelog")` in the JVM: those of a batch read, the micro-batches of a stream, and writes.

What a query reads is planned by the code that plans for the Python source (`FeedReader`), or for `read` and `changes`.
Spark's own parquet reader reads the rows, as it does for `read`, and where that one leaves them to Python.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from threading import Lock
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tidelog.log import Table
from tidelog.log.data.writer import CHANGE_TYPE
from tidelog.log.errors import (
    ConfigurationError,
    PredicateError,
    RetryableError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
)
from tidelog.log.format.actions import Metadata
from tidelog.log.read.changes import only_these
from tidelog.log.read.mixed_commits import Change
from tidelog.log.read.scan import Selection
from tidelog.log.read.table_reader import TableReader
from tidelog.log.rules import declared
from tidelog.log.storage import Store
from tidelog.log.system import REAL_SYSTEM
from tidelog.streaming import spark_versions
from tidelog.streaming.datasource.batch_reader import require_one_kind
from tidelog.streaming.datasource.batch_writer import BatchWriter, TaskResult
from tidelog.streaming.datasource.feed_reader import FeedReader
from tidelog.streaming.datasource.file_partitions import (
    announced_columns,
    interval,
    read_columns,
    snapshot_to_read,
    table_to_read,
)
from tidelog.streaming.datasource.pushed_filters import predicate_of
from tidelog.streaming.datasource.read_options import ReadOptions
from tidelog.streaming.datasource.spark_expressions import each, node_kind
from tidelog.streaming.datasource.write_options import parse_write
from tidelog.streaming.executors.plain_frame import has_voids, quoted, typed_voids
from tidelog.streaming.executors.session import QUERY_ID, java_query
from tidelog.streaming.executors.tasks import run_on_rows
from tidelog.streaming.feed_planning.feed_planner import FeedPlanner
from tidelog.streaming.feed_planning.limits import DEFAULT_FILES
from tidelog.streaming.feed_planning.offsets import Offset
from tidelog.streaming.feed_planning.query_columns import LoadedColumns, QueryColumns
from tidelog.streaming.jvm_reading import file_scan
from tidelog.streaming.jvm_reading.jvm_rows import are_columns_readable, jvm_rows, snapshot_rows
from tidelog.streaming.jvm_reading.tables import rows_of_changes

# Where Spark, and so delta-spark, keeps the type of a text with a length.
_CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
_CHAR = re.compile(r"\bchar\(", re.IGNORECASE)
_EXECUTION_ID = "spark.sql.execution.id"
_ROOT_EXECUTION_ID = "spark.sql.execution.root.id"
_MOST_PINS = 256
# Nodes of a streaming query's plan: of a watermark; and of a source, with the name of its method that gives the source,
# and the class of the source of a feed.
_WATERMARK = "EventTimeWatermark"
_SOURCES = {
    "StreamingExecutionRelation": ("source", "tidelog.DefaultSource$Feed"),
    "StreamingDataSourceV2ScanRelation": ("stream", "tidelog.ChangesCatalog$Feed"),
}
# What a writing mode is called in Java.
_OVERWRITE, _IF_NEW, _IGNORE = "Overwrite", "ErrorIfExists", "Ignore"
# What a name that Spark's catalog does not have yet stands for, of the modes above.
_NEW_NAME = "NewName"


# --- batch reads ------------------------------------------------------------------------------------------------------


def batch_columns(options: ReadOptions, asked: StructType | None) -> StructType:
    """The columns of a batch read; `asked` are those of `.schema(...)`.

    Raises TableNotFoundError and the errors of the options, before any query is planned.
    """
    require_one_kind(options)
    table = table_to_read(options)
    schema = snapshot_to_read(table, options).schema
    if asked is not None:
        announced_columns(options.query_columns.all_columns(schema), asked)
        if options.changes in {"cdc", "net"} and CHANGE_TYPE not in asked.names:
            raise ConfigurationError(
                f"changes={options.changes} without the column {CHANGE_TYPE}: rows that were deleted would look like "
                "others",
                advice="load the path without .schema(...) and .table(...), or name that column",
            )
        return asked
    if options.is_interval:
        interval(table, options)
    found = spark_versions.columns_from_arrow(read_columns(schema, options.query_columns))
    return with_char_types(found, snapshot_to_read(table, options).state.head.metadata, options.path)


def with_char_types(columns: StructType, metadata: Metadata, path: str) -> StructType:
    """The columns with those of the type CHAR said to be such: Spark compares their texts with spaces at the end."""
    rules = declared(metadata, path)
    kinds = {rule.column: rule.kind for rule in rules.unknown_types if _CHAR.search(rule.kind)}
    kinds |= {rule.column: rule.kind for rule in rules.lengths if rule.pads}
    for field in columns:
        if field.name in kinds:
            field.metadata = {**field.metadata, _CHAR_TYPE: kinds[field.name]}
    return columns


def batch_rows(
    spark: SparkSession, options: ReadOptions, asked: StructType | None, names: Sequence[str], filters: Iterable[Any]
) -> DataFrame:
    """The columns `names` of a batch read, for one scan of a query.

    Rows that fail Spark's `filters` may be left out.
    """
    table = table_to_read(options)
    newest = _pinned(spark, table)
    snapshot = snapshot_to_read(table, options) if options.snapshot is not None else table.at(version=newest)
    whole = options.query_columns.all_columns(snapshot.schema)
    plain = whole if asked is None else _same_types(whole, announced_columns(whole, asked))
    where = with_pushed(options.where, predicate_of(filters, plain), whole)
    if options.snapshot is None:
        _note_read(spark, table, None if options.is_interval else where)
    chosen = list(names) or [_cheapest(options.query_columns.selection(snapshot.schema).schema)]
    if not options.is_interval:
        frame = snapshot_rows(spark, table.store, snapshot, chosen, where)
    else:
        after, until = interval(table, options)
        until = newest if options.end is None else until
        after = min(after, until)
        if options.changes == "net":
            writer = Table.open(options.path, storage_options=options.storage_options)
            found = writer.changes(
                after=after, until=until, mode="net", columns=only_these(chosen), where=where, keys=options.keys
            )
            frame = rows_of_changes(spark, writer, found, where, pre_images=options.pre_images)
        else:
            planner = FeedPlanner(table, REAL_SYSTEM, QueryColumns(options.changes, where, None).only(chosen))
            changes = list(planner.between(Offset(table.id, after), Offset(table.id, until)))
            frame = jvm_rows(spark, table.store, changes, whole, chosen, where)
    if asked is not None:
        frame = _cast(frame, asked)
    return frame if names else frame.select()


def require_types(frame: DataFrame, expected: StructType, path: str) -> None:
    """Raise SchemaMismatchError if a column changed its type since the load: Spark would misread the rows, or crash."""
    for field in frame.schema:
        before = expected[field.name].dataType
        if _plain(before) != _plain(field.dataType):
            raise SchemaMismatchError(
                f"column {field.name!r} of {path} is {field.dataType.simpleString()} now, and was "
                f"{before.simpleString()} when the table was loaded",
                advice="load the table again; a name in Spark's catalog has to be made again",
                column=field.name,
            )


def _plain(kind: DataType) -> Any:
    """A type without what does not matter for its rows: nullability, and metadata of fields."""
    if isinstance(kind, StructType):
        return [(field.name, _plain(field.dataType)) for field in kind]
    if isinstance(kind, ArrayType):
        return "array", _plain(kind.elementType)
    if isinstance(kind, MapType):
        return "map", _plain(kind.keyType), _plain(kind.valueType)
    return kind


def with_pushed(own: str | None, pushed: str | None, schema: pa.Schema) -> str | None:
    """The query's own predicate and the pushed one, unless they are too much: Spark applies the pushed one again."""
    both = " AND ".join(f"({text})" for text in (own, pushed) if text) or None
    try:
        Selection(schema, both, schema.names)
    except PredicateError:
        return own
    return both


def _same_types(schema: pa.Schema, asked: pa.Schema) -> pa.Schema:
    """The columns whose type the query did not change."""
    return pa.schema(
        [field for field in schema if field.name in asked.names and asked.field(field.name).type == field.type]
    )


def _cheapest(schema: pa.Schema) -> str:
    """A column to read where only the number of rows matters: one that Spark's reader can read."""
    readable = (field.name for field in schema if are_columns_readable(pa.schema([field])))
    return str(next(readable, schema.names[0]))


def _cast(frame: DataFrame, asked: StructType) -> DataFrame:
    """The frame with the types that `.schema(...)` said."""
    return frame.select(*(frame[quoted(name)].cast(asked[name].dataType).alias(name) for name in frame.columns))


def _pinned(spark: SparkSession, table: TableReader) -> int:
    """The version that a query reads: all scans of a query read the same one.

    Spark numbers queries. What a batch function plans itself has the number of its micro-batch, which can outlast
    commits of the same function, so there the newest version is read.
    """
    for statement in pinned_reads(spark):
        if statement.table_id == table.id:
            return statement.version
    context = spark.sparkContext
    own = context.getLocalProperty(_EXECUTION_ID)
    is_of_stream = context.getLocalProperty(QUERY_ID) is not None and own == context.getLocalProperty(
        _ROOT_EXECUTION_ID
    )
    if own is None or is_of_stream:
        return table.version
    with _lock:
        version = _pins.setdefault((context.applicationId, own, table.path, table.id), table.version)
        while len(_pins) > _MOST_PINS:
            _pins.popitem(last=False)
    return version


_pins: OrderedDict[tuple[str, ...], int] = OrderedDict()
_lock = Lock()


@dataclass(slots=True)
class PinnedReads:
    """A table whose newest version is `version` for what a thread reads.

    `wheres` are the predicates of all reads, and `other_scans` is how many of them are planned here.
    """

    table_id: str
    version: int
    wheres: list[str | None] = dataclasses.field(default_factory=list)
    other_scans: int = 0


@contextmanager
def pinned(spark: SparkSession, reads: PinnedReads) -> Iterator[None]:
    """Let all scans of what runs within the block read the same version of a table, and note them.

    Spark plans some again while a query runs, and those of a subquery in threads of its own, which have the local
    properties of this one.
    """
    context, number = spark.sparkContext, str(next(_numbers))
    before = context.getLocalProperty(_PINNED)
    _pinned_reads[number] = reads
    context.setLocalProperty(_PINNED, f"{before or ''} {number}")
    try:
        yield
    finally:
        context.setLocalProperty(_PINNED, before)  # type: ignore[arg-type]
        del _pinned_reads[number]


def pinned_reads(spark: SparkSession) -> list[PinnedReads]:
    """Those of the statements that this thread plans for, the innermost one last."""
    if not _pinned_reads:
        return []
    numbers = (spark.sparkContext.getLocalProperty(_PINNED) or "").split()
    return [_pinned_reads[number] for number in numbers if number in _pinned_reads]


def _note_read(spark: SparkSession, table: TableReader, where: str | None) -> None:
    for statement in pinned_reads(spark):
        if statement.table_id == table.id:
            statement.wheres.append(where)
            statement.other_scans += 1


# By the numbers that a thread's local property has.
_pinned_reads: dict[str, PinnedReads] = {}
_numbers = count()
_PINNED = "tidelog.pinned"


# --- streams ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """What one micro-batch reads, the offset at its end, and what makes a frame of it."""

    changes: Sequence[Change]
    end: Offset
    store: Store
    selection: Selection

    def frame(self, spark: SparkSession, *, of_stream: bool = False) -> DataFrame:
        """The rows."""
        chosen = self.selection
        names = chosen.schema.names
        return jvm_rows(spark, self.store, self.changes, chosen.row_schema, names, chosen.where, of_stream=of_stream)


class FrameFeed:
    """The change feed of one query, whose micro-batches are frames.

    Offsets are texts, in the form that Spark stores and the Python source writes, so a query goes on with either.
    """

    def __init__(
        self,
        spark: SparkSession,
        raw_options: Mapping[str, str],
        *,
        key: str,
        zone: str,
        loaded: LoadedColumns | None,
        asked: StructType | None,
        only_plans: bool,
    ) -> None:
        """The source in the query's plan has the same key.

        `only_plans` is for a Feed: the frames are empty, and `planned` has what they would read.
        """
        self.spark = spark
        self._key = key
        self._reader = FeedReader(raw_options, asked or StructType(), zone, loaded)
        self._asked = asked
        self._only_plans = only_plans
        self._query_id: str | None = None

    def latest(self, start: str | None, *, reads_all: bool) -> str:
        """The end of the next micro-batch; `start` itself if there are no new rows.

        Without a start it is where the stream begins, or further. Spark runs a micro-batch for it, even without rows,
        and so records where the stream began.
        """
        limits = self._reader.batch_limits(reads_all=reads_all)
        begin = self._reader.first_offset() if start is None else json.loads(start)
        end = self._reader.next_offset(begin, limits)
        if Offset.from_json(end).snapshot:
            self._require_no_watermark()
        return start if start is not None and end is begin else json.dumps(end)

    def _require_no_watermark(self) -> None:
        """Raise ConfigurationError if a query that reads a snapshot in parts has a watermark over its rows.

        The files are not in the order of the rows' times: after a part with later ones, Spark drops the others as late.
        """
        query_id = self.spark.sparkContext.getLocalProperty(QUERY_ID)
        if query_id is None or not self._is_below_watermark(java_query(self.spark, query_id).logicalPlan()):
            return
        raise ConfigurationError(
            "the query has a watermark, and 'initialSnapshot' is read in several micro-batches, whose files are not "
            "in the order of the rows' times: Spark would drop rows as late",
            advice="leave the limits out (maxFilesPerTrigger and others; without any, a micro-batch has up to "
            f"{DEFAULT_FILES} files), or read the table by a query without a watermark first",
        )

    def _is_below_watermark(self, plan: Any, *, has_watermark: bool = False) -> bool:
        """Whether rows of this feed pass through a watermark in a part of the query's plan, or in one above it."""
        has_watermark = has_watermark or node_kind(plan) == _WATERMARK
        if has_watermark and node_kind(plan) in _SOURCES:
            method, feed = _SOURCES[node_kind(plan)]
            source = getattr(plan, method)()
            return str(source.getClass().getName()) == feed and str(source.key()) == self._key
        return any(self._is_below_watermark(part, has_watermark=has_watermark) for part in each(plan.children()))

    def first(self) -> str:
        """Where the stream begins, for a Spark that asks for it before the first micro-batch."""
        return json.dumps(self._reader.first_offset())

    def batch(self, start: str | None, end: str) -> DataFrame:
        """The rows between two offsets, as a part of the query's plan."""
        last = json.loads(end)
        changes = list(self._reader.changes_between(last if start is None else json.loads(start), last))
        options, table, schema = self._reader.query
        chosen = options.query_columns
        if self._asked is not None:
            announced_columns(chosen.all_columns(schema), self._asked)
            chosen = chosen.only(self._asked.names)
        plan = PlannedBatch(changes, Offset.from_json(last), table.store, chosen.selection(schema))
        if self._only_plans:
            self._query_id = self.spark.sparkContext.getLocalProperty(QUERY_ID)
            _planned[self._query_id] = plan
            return file_scan.empty_stream(self.spark, plan.selection.schema)
        frame = plan.frame(self.spark, of_stream=True)
        return frame if self._asked is None else _cast(frame, self._asked)

    def rows(self, start: str, end: str, names: Sequence[str]) -> DataFrame:
        """These columns of the rows between two offsets, as a frame with a plan of its own."""
        last = json.loads(end)
        changes = list(self._reader.changes_between(json.loads(start), last))
        options, table, schema = self._reader.query
        plan = PlannedBatch(changes, Offset.from_json(last), table.store, options.query_columns.selection(schema))
        return plan.frame(self.spark).select(*map(quoted, names))

    def newest(self) -> str:
        """The newest version seen and its time, for the query's progress."""
        return json.dumps(self._reader.newest())

    def end_at_newest(self) -> None:
        """Fix the version at which this run ends."""
        self._reader.end_at_newest()

    def close(self) -> None:
        """The query has ended."""
        if self._query_id is not None:
            _planned.pop(self._query_id, None)


_planned: dict[str | None, PlannedBatch] = {}


def planned(batch: DataFrame) -> PlannedBatch:
    """What the micro-batch of a Feed's query reads. It can be asked for once."""
    return _planned.pop(batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID))


# --- writes -----------------------------------------------------------------------------------------------------------


def write(
    raw_options: Mapping[str, str],
    mode: str,
    data: DataFrame,
    *,
    partition_by: Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
    reads_table: Callable[[str], bool] = lambda _: False,
    partitions: pa.Table | None = None,
) -> None:
    """Write a frame in one commit, with the options of `df.write`. `mode` is Spark's SaveMode as Java names it.

    A new table gets the properties. `partitions`, a row for each, are those that are replaced. `reads_table` says
    whether the frame reads the table at a path. Rows that replace those that they were computed from are in conflict
    with other changes of rows.

    Raises the errors of `BatchWriter`, and TableExistsError for a mode that makes a table.
    """
    options = parse_write(raw_options, overwrite=mode == _OVERWRITE)
    options = replace(options, is_new=mode in {_IF_NEW, _IGNORE, _NEW_NAME}, properties=properties or {})
    options = replace(options, partitions=partitions)
    options = replace(options, reads_table=options.overwrite and reads_table(options.path))
    if partition_by is not None:
        options = replace(options, partition_by=tuple(partition_by))
    if has_voids(data.schema):
        with suppress(TableNotFoundError):
            data = typed_voids(data, Table.open(options.path, storage_options=options.storage_options).schema)
    try:
        writer = BatchWriter(options, data.schema)
    except TableExistsError as error:
        if mode == _IGNORE:
            return
        if mode != _NEW_NAME:
            raise TableExistsError(
                f"there is already a table at {options.path}, and Spark's default mode makes a new one",
                advice='write with .mode("append") to add the rows, or .mode("overwrite") to replace the others',
                path=options.path,
            ) from error
        raise TableExistsError(
            f"there is already a table at {options.path}, and Spark would replace its rows",
            advice="give it a name with CREATE TABLE name USING tidelog LOCATION '...', then use INSERT; or write with "
            ".mode(...).save(path)",
            path=options.path,
        ) from error
    writer.commit(run_on_rows(data, _Task(writer)))


class _Task:
    """What each task of a write does. Picklable."""

    def __init__(self, writer: BatchWriter) -> None:
        self._writer = writer

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[TaskResult]:
        try:
            yield self._writer.write(batches)
        except RetryableError as error:
            # Not as a value, which would end the statement: Spark runs the task again.
            raise RuntimeError(str(error)) from error
