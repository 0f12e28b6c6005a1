"""The rows of change files as a DataFrame.

Spark's own parquet reader reads them where its result is proven to be the same, tidelog's reader on the executors all
others.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyspark.sql import DataFrame, SparkSession

from tidelog.log.data.reader import DataFile, read_batches
from tidelog.log.data.writer import CHANGE_TYPE
from tidelog.log.errors import CorruptLogError, DataFileMissingError
from tidelog.log.format import partition_values, paths
from tidelog.log.format.schema import field_id, is_variant, physical_name
from tidelog.log.read.change_files import COMMIT_TIMESTAMP, COMMIT_VERSION, ChangeFile
from tidelog.log.read.changes import expired_changes
from tidelog.log.read.commit_changes import read_change_batches
from tidelog.log.read.inserted_files import InsertedFiles, to_change_files
from tidelog.log.read.scan import Selection
from tidelog.log.read.snapshot import Snapshot
from tidelog.log.state.files import to_adds
from tidelog.log.storage import Store
from tidelog.log.storage.local import LocalStore
from tidelog.streaming.executors import hadoop
from tidelog.streaming.executors.plain_frame import quoted
from tidelog.streaming.executors.session import is_connect
from tidelog.streaming.executors.tasks import in_tasks, read_parts, require_reachable
from tidelog.streaming.jvm_reading import dead_rows, file_scan
from tidelog.streaming.jvm_reading.file_scan import FileList, Step
from tidelog.streaming.jvm_reading.spark_conditions import condition

# No part is empty or begins with a dot, the last one not with an underscore either, and nothing is encoded.
_PLAIN_PATH = r"^(?:[^/.:%?#\\][^/:%?#\\]*/)*[^/._:%?#\\][^/:%?#\\]*$"
_PLAIN = re.compile(_PLAIN_PATH)
_OF_COMMIT = (COMMIT_VERSION, COMMIT_TIMESTAMP, CHANGE_TYPE)


def jvm_rows(
    spark: SparkSession,
    store: Store,
    changes: Sequence[Any],
    table_schema: pa.Schema,
    out_columns: Sequence[str],
    where: str | None,
    *,
    of_snapshot: bool = False,
    of_stream: bool = False,
) -> DataFrame:
    """The rows of `changes`, in no particular order, as a lazy frame that later commits do not affect.

    Args:
        spark: A Spark session; on Spark Connect tidelog's reader reads all files.
        store: The table's store.
        changes: Units of the change feed, also as InsertedFiles, or with `of_snapshot` the files of a snapshot.
        table_schema: All columns that a row has: the table's and, of changes, the change columns.
        out_columns: The columns of the frame, in this order.
        where: SQL text; only rows for which it is true are in the frame. It does not leave files out.
        of_snapshot: Whether the rows are a snapshot's, which have no change columns.
        of_stream: Whether the frame is a micro-batch of a streaming source.

    Raises:
        PredicateError, ConfigurationError: `where` or `out_columns` do not fit, or the store is in this process.
        HistoryExpiredError: A deletion vector was deleted; of a snapshot, DataFileMissingError.
    """
    require_reachable(store)
    selection = Selection(table_schema, where, out_columns)
    return _Reading(spark, store, selection, of_snapshot=of_snapshot, of_stream=of_stream).rows(changes)


def snapshot_rows(
    spark: SparkSession, store: Store, snapshot: Snapshot, columns: Sequence[str] | None, where: str | None
) -> DataFrame:
    """The rows of a snapshot, as `read` gives them. Files without a deletion vector cost no Python object each."""
    require_reachable(store)
    scan = snapshot.scan(where, columns)
    selection = Selection(snapshot.schema, where, scan.schema.names)
    reading = _Reading(spark, store, selection, of_snapshot=True, of_stream=False)
    return reading.rows_of_files(scan.files, snapshot)


class _Reading:
    """One frame. Files that need the same scan share one: those with the same constants, with or without positions."""

    def __init__(
        self, spark: SparkSession, store: Store, selection: Selection, *, of_snapshot: bool, of_stream: bool
    ) -> None:
        self._spark = spark
        self._store = store
        self._selection = selection
        self._of_snapshot = of_snapshot
        self._of_stream = of_stream
        tree = selection.tree
        self._condition = None if tree is None else condition(tree, selection.row_schema)

    def rows(self, changes: Sequence[Any]) -> DataFrame:
        inserted = [change.files for change in changes if isinstance(change, InsertedFiles)]
        units = [change for change in changes if not isinstance(change, InsertedFiles)]
        frames = []
        if inserted:
            frame, files = self._rows_of_columns(pa.concat_tables(inserted, promote_options="default"))
            if frame is not None:
                frames.append(frame)
            units += to_change_files(files)
        groups, rest = self._grouped(units)
        for (names, has_positions), group in groups.items():
            frame = self._scanned(group, names, has_positions=has_positions)
            if frame is None:
                rest += group
            else:
                frames.append(frame)
        if rest:
            frame = tidelog_rows(self._spark, self._store, rest, self._selection, of_snapshot=self._of_snapshot)
            frames.append(file_scan.as_stream(frame) if self._of_stream else frame)
        return reduce(DataFrame.unionAll, frames) if frames else self._empty()

    def rows_of_files(self, files: pa.Table, snapshot: Snapshot) -> DataFrame:
        """The rows of live files of the snapshot."""
        frame, files = self._rows_of_columns(files)
        if frame is not None and not files.num_rows:
            return frame
        version = snapshot.version
        rest = [ChangeFile(DataFile.of(add), version, 0, add.size, None, stats=add.stats) for add in to_adds(files)]
        return self.rows(rest) if frame is None else frame.unionAll(self.rows(rest))

    def _rows_of_columns(self, files: pa.Table) -> tuple[DataFrame | None, pa.Table]:
        """The rows of the files that need no object each, if there are any, and the other files."""
        if not self._uses_spark():
            return None, files
        values, is_known = constants_of(files, self._selection.read_schema, of_snapshot=self._of_snapshot)
        data = columns_in_files(self._selection.read_schema, list(values))
        is_listed = pc.and_(are_plain(files), is_known)
        if data is None or not pc.any(is_listed).as_py():
            return None, files
        fields = [self._selection.read_schema.field(name).with_metadata(None) for name in values]
        columns = list(values.values())
        # Statistics are most of a table of files, and copying them most of the memory.
        listed = files.select(["path", "size"])
        if not pc.all(is_listed).as_py():
            listed, columns = listed.filter(is_listed), [column.filter(is_listed) for column in columns]
        constants = pa.table(columns, schema=pa.schema(fields))
        file_list = FileList.of(listed["path"], listed["size"], constants)
        return self._scan(file_list, data, list(values)), files.filter(pc.invert(is_listed))

    def _grouped(
        self, changes: Sequence[Any]
    ) -> tuple[dict[tuple[tuple[str, ...], bool], list[ChangeFile]], list[Any]]:
        """The files that Spark's reader reads, by what their scan needs, and the units that it cannot read."""
        groups: dict[tuple[tuple[str, ...], bool], list[ChangeFile]] = defaultdict(list)
        if not changes or not self._uses_spark():
            return groups, list(changes)
        rest: list[Any] = []
        blocks = 0
        names_of = cache(partial(constant_names, self._selection.read_schema, of_snapshot=self._of_snapshot))
        for change in changes:
            if not is_file_readable(change):
                rest.append(change)
                continue
            has_positions = dead_rows.has_positions(change)
            if has_positions:
                of_file = dead_rows.max_blocks(change)
                if blocks + of_file > dead_rows.MAX_BLOCKS:
                    rest.append(change)
                    continue
                blocks += of_file
            names = names_of(tuple(change.partition_values), change.change_type is not None)
            groups[names, has_positions].append(change)
        return groups, rest

    def _uses_spark(self) -> bool:
        """Whether Spark's reader can read the table's files at all."""
        selection = self._selection
        return (
            not is_connect(self._spark)
            and (selection.where is None or self._condition is not None)
            and bool(selection.schema.names)
            and are_columns_readable(selection.read_schema)
            and is_store_readable(self._store)
            and hadoop.can_read(self._spark, self._store)
            and file_scan.is_available(self._spark)
        )

    def _scanned(self, group: list[ChangeFile], names: Sequence[str], *, has_positions: bool) -> DataFrame | None:
        schema = self._selection.read_schema
        data = columns_in_files(self._selection.read_schema, names)
        values = constant_columns(group, names, schema, of_snapshot=self._of_snapshot)
        if values is None or data is None:
            return None
        number, listed, position = _free_names(schema, data)
        fields = [schema.field(name).with_metadata(None) for name in names]
        if has_positions:
            fields += [pa.field(number, pa.int32()), pa.field(listed, pa.int8())]
            values += [
                pa.array(range(len(group)), pa.int32()),
                pa.array([int(change.difference is not None) for change in group], pa.int8()),
            ]
        files = FileList.of(
            pa.array([paths.to_storage_path(change.file.path) for change in group], pa.string()),
            pa.array([change.size_bytes for change in group], pa.int64()),
            pa.table(values, schema=pa.schema(fields)),
        )
        if not has_positions:
            return self._scan(files, data, names)
        # A column of its own, as a join in Spark 4.0 takes no metadata column.
        frame = self._scan(files, data)
        frame = frame.withColumn(position, frame.metadataColumn("_metadata")["row_index"])
        frame = dead_rows.counting(frame, self._bitmaps(group), frame[number], frame[listed], frame[position])
        for step in self._steps(names):
            frame = frame.where(step) if isinstance(step, str) else frame.selectExpr(*step)
        # Spark would count the bitmaps as rows of the stream.
        return file_scan.as_stream(frame) if self._of_stream else frame

    def _scan(self, files: FileList, data: pa.Schema, constants: Sequence[str] | None = None) -> DataFrame:
        """The rows of files that have `constants`; without these the scan as it is, of which more has to be made."""
        url = hadoop.hadoop_url(self._store.url, self._store.storage_options)
        options = hadoop.write_options(self._store.storage_options, url)
        is_whole = constants is not None
        steps = [] if constants is None or self._is_as_scanned(data, constants) else self._steps(constants)
        return file_scan.scan(self._spark, url, files, data, options, steps, of_stream=self._of_stream and is_whole)

    def _is_as_scanned(self, data: pa.Schema, constants: Sequence[str]) -> bool:
        """Whether a scan has the rows and columns of the selection. To select them takes Spark some milliseconds."""
        in_files = [field.name for field in self._selection.read_schema if field.name not in constants]
        has_names = data.names == in_files and [*in_files, *constants] == self._selection.schema.names
        return has_names and self._condition is None

    def _steps(self, constants: Sequence[str]) -> list[Step]:
        """From the columns of a scan to those of the selection, as texts: a Column takes a dozen calls into the JVM."""
        named = named_columns(self._selection.read_schema, constants)
        chosen = self._selection.schema.names
        if self._condition is None:
            return [[named[name] for name in chosen]]
        return [list(named.values()), self._condition, [quoted(name) for name in chosen]]

    def _bitmaps(self, group: Sequence[ChangeFile]) -> DataFrame:
        try:
            return dead_rows.bitmaps(self._spark, self._store, list(enumerate(group)))
        except DataFileMissingError as error:
            if self._of_snapshot:
                raise
            raise expired_changes(self._store, group[0].version, group[-1].version) from error

    def _empty(self) -> DataFrame:
        empty = file_scan.empty_stream if self._of_stream else file_scan.empty_frame
        return empty(self._spark, self._selection.schema)


def columns_in_files(schema: pa.Schema, constants: Sequence[str]) -> pa.Schema | None:
    """The columns that Spark reads from files, under their names in the files.

    None if one of them differs only in case from a name among `constants`: Spark could not tell them apart.
    """
    fields = [field for field in schema if field.name not in constants]
    names = {physical_name(field).lower() for field in fields}
    if names.intersection(name.lower() for name in constants):
        return None
    return pa.schema([pa.field(physical_name(field), field.type, field.nullable) for field in fields])


def named_columns(schema: pa.Schema, constants: Sequence[str]) -> dict[str, str]:
    """For each column, the SQL that gives a column of a scan the table's name for it."""
    return {
        field.name: f"{quoted(field.name if field.name in constants else physical_name(field))} AS {quoted(field.name)}"
        for field in schema
    }


def constants_of(
    files: pa.Table, schema: pa.Schema, *, of_snapshot: bool
) -> tuple[dict[str, pa.ChunkedArray], pa.ChunkedArray]:
    """The columns whose values the log has (see `constant_names`), and whether it has all of them for a file."""
    maps = files["partitionValues"]
    of_partitions = tuple({name for chunk in maps.chunks for name in chunk.keys.unique().to_pylist()})
    are_known = pa.chunked_array([pa.repeat(pa.scalar(value=True), files.num_rows)])
    values = {}
    for name in constant_names(schema, of_partitions, not of_snapshot, of_snapshot=of_snapshot):
        if not of_snapshot and name in _OF_COMMIT:
            values[name] = files[name]
            continue
        field = schema.field(name)
        values[name], is_known = partition_values.decode_column(maps, physical_name(field), field.type)
        are_known = pc.and_(are_known, is_known)
    return values, are_known


def are_plain(files: pa.Table) -> pa.ChunkedArray:
    """Which live files have all the rows that they ever had, and a path that is the same in a store and in a URL.

    So `is_file_readable` is true for them.
    """
    is_whole = pc.and_(pc.is_null(files["deletionVector"]), pc.greater(files["size"], 0))
    return pc.and_(is_whole, pc.match_substring_regex(files["path"], _PLAIN_PATH))


def _free_names(*schemas: pa.Schema) -> list[str]:
    """Names for the columns that decide which rows count, which no other column has."""
    taken = {name.lower() for schema in schemas for name in schema.names}
    names = [dead_rows.FILE_NUMBER, dead_rows.COUNTS_LISTED, dead_rows.ROW_POSITION]
    while taken.intersection(names):
        names = [f"{name}_" for name in names]
    return names


def are_columns_readable(schema: pa.Schema) -> bool:
    """Whether Spark's reader reads columns of these names and types as tidelog's does."""
    names = [physical_name(field) for field in schema]
    return _distinct(schema.names) and _distinct(names) and all(map(_is_readable, schema))


def is_store_readable(store: Store) -> bool:
    """Whether Spark's reader may follow the paths below the table's root."""
    # A confined store resolves each path before it opens it, since links can leave the folder.
    return not (isinstance(store, LocalStore) and store.is_confined)


def is_file_readable(change: Any) -> bool:
    """Whether the unit is one file, of known size, at a plain path below the table's root."""
    if not isinstance(change, ChangeFile) or change.size_bytes <= 0:
        return False
    if _PLAIN.match(change.file.path):
        return True
    if paths.is_absolute(change.file.path):
        return False
    parts = paths.to_storage_path(change.file.path).split("/")
    # Spark's scan leaves out files whose names begin in this way. Hadoop resolves parts such as `..`, which object
    # stores do not.
    return not parts[-1].startswith(("_", ".")) and not {"", ".", ".."}.intersection(parts)


def _distinct(names: Iterable[str]) -> bool:
    """Whether the names differ by more than case, which Spark ignores unless it is told otherwise."""
    lowered = [name.lower() for name in names]
    return len(set(lowered)) == len(lowered)


def _is_readable(field: pa.Field) -> bool:
    kind = field.type
    if is_variant(field) or pt.is_null(kind) or field_id(field) is not None:
        return False
    if pt.is_struct(kind):
        fields = list(kind)
        same = all(physical_name(inner) == inner.name for inner in fields)
        return same and _distinct(inner.name for inner in fields) and all(map(_is_readable, fields))
    if pt.is_map(kind):
        return _is_readable(kind.key_field) and _is_readable(kind.item_field)
    return _is_readable(kind.value_field) if pt.is_list(kind) else True


def constant_names(
    schema: pa.Schema,
    partition_columns: Sequence[str],
    has_change_type: bool,  # noqa: FBT001 - `cache` takes it by position
    *,
    of_snapshot: bool,
) -> tuple[str, ...]:
    """The columns of `schema` whose values the log has, in its order. All other columns are in the file.

    The log has the partition columns, by their names in files, and perhaps the type of all changes of a file.
    """
    own = set() if of_snapshot else {COMMIT_VERSION, COMMIT_TIMESTAMP}
    if not of_snapshot and has_change_type:
        own.add(CHANGE_TYPE)
    return tuple(field.name for field in schema if field.name in own or physical_name(field) in partition_columns)


def constant_columns(
    changes: Sequence[ChangeFile], names: Sequence[str], schema: pa.Schema, *, of_snapshot: bool
) -> list[pa.Array] | None:
    """The columns `names`, with a value for each file; None if the log has a text that is not a value of its column."""
    found = []
    for name in names:
        field = schema.field(name)
        if not of_snapshot and name in _OF_COMMIT:
            found.append(_change_column(changes, field))
            continue
        physical = physical_name(field)
        values = _partition_column([change.file.partition_values[physical] for change in changes], field.type)
        if values is None:
            return None
        found.append(values)
    return found


def _change_column(changes: Sequence[ChangeFile], field: pa.Field) -> pa.Array:
    if field.name == COMMIT_VERSION:
        return pa.array([change.version for change in changes], field.type)
    if field.name == COMMIT_TIMESTAMP:
        return pa.array([change.timestamp_ms * 1000 for change in changes], field.type)
    return pa.array([change.change_type for change in changes], field.type)


def _partition_column(texts: Sequence[str | None], kind: pa.DataType) -> pa.Array | None:
    encoded = pa.array(texts, pa.string()).dictionary_encode()
    try:
        values = [partition_values.from_text(text, kind) for text in encoded.dictionary.to_pylist()]
        return pa.array(values, kind).take(encoded.indices)
    except (CorruptLogError, pa.ArrowException, OverflowError):
        return None


def tidelog_rows(
    spark: SparkSession, store: Store, changes: Sequence[Any], selection: Selection, *, of_snapshot: bool
) -> DataFrame:
    """The selected rows of the units, with the columns of the selection.

    While it is computed it raises, as Spark's error with the text of ours: HistoryExpiredError (of a snapshot:
    DataFileMissingError) if a file is missing, CorruptLogError if one is damaged, and PredicateError.
    """
    work = partial(_read_all, store, selection.row_schema, selection.where, selection.schema.names, of_snapshot)
    return in_tasks(spark, read_parts(changes), work, selection.schema)


def _read_all(
    store: Store,
    schema: pa.Schema,
    where: str | None,
    columns: Sequence[str],
    of_snapshot: bool,  # noqa: FBT001 - partial passes it by position
    changes: Sequence[Any],
) -> Iterator[pa.RecordBatch]:
    selection = Selection(schema, where, columns)
    for change in changes:
        if of_snapshot:
            batches = read_batches(store, change.file, selection.read_schema)
        else:
            batches = _of_history(store, change, selection.read_schema)
        for batch in batches:
            yield from selection.apply(batch)


def _of_history(store: Store, change: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        yield from read_change_batches(store, change, schema)
    except DataFileMissingError as error:
        raise expired_changes(store, change.version, change.version) from error
