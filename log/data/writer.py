"""Write data files: rows split by partition, as parquet that engines of today read, with statistics for the log.

Files are named `<2 hex>/part-<uuid>.parquet`; paths do not depend on partition values. In a table that has partition
folders, as other engines make them, they are named `day=2026-01-31/part-<uuid>.parquet`: some readers take the values
from there. A file is durable once its `AddFile` is returned, unless the caller asked for several and syncs them. Until
a commit names it, no reader sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from tidelog.log.data.blocks import blocks, repeated
from tidelog.log.data.grouping import group_numbers
from tidelog.log.data.indexed_key import IndexedKey
from tidelog.log.data.key_runs import MOST_KEY_BYTES, MOST_KEYS, FileKeys, new_run_path, write_run
from tidelog.log.data.layout import USUAL_LAYOUT, Layout, parquet_writer, with_steps
from tidelog.log.errors import ConfigurationError, SchemaMismatchError, TidelogError
from tidelog.log.format import hive_paths, partition_values, paths, properties, statistics
from tidelog.log.format.actions import AddCDCFile, AddFile, Metadata
from tidelog.log.format.row_tracking import tracked_fields
from tidelog.log.format.schema import (
    columns_of,
    physical_fields,
    physical_name,
    physical_path,
)
from tidelog.log.presentable import did_you_mean
from tidelog.log.storage import Store
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)

# --- one file ---------------------------------------------------------------------------------------------------------


class NewFile:
    """A data file that is being written; see DataWriter.new_file."""

    def __init__(
        self,
        metadata: Metadata,
        schema: pa.Schema,
        tracked: Sequence[pa.Field],
        values: dict[str, str | None],
        layout: Layout,
        key: IndexedKey | None,
    ) -> None:
        self._key = key
        self._keys: list[pa.Table] = []
        self._num_rows = 0
        self._partition_columns = metadata.partition_columns
        self._tracked = [field.name for field in tracked]
        self._schema = pa.schema([*schema, *tracked])
        self._values = values
        self._layout = layout
        named = properties.statistics_columns(metadata.configuration)
        indexed_columns = properties.indexed_columns(metadata.configuration)
        self._statistics = statistics.Collector(
            indexed_columns=indexed_columns,
            only=None if named is None else [physical_path(name, schema) for name in named],
        )
        self._size_bytes = 0
        self._sink: BinaryIO | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._add: AddFile | None = None

    @property
    def add(self) -> AddFile:
        """The action for the written file."""
        assert self._add is not None, "the file is still being written"
        return self._add

    def append(self, rows: pa.Table) -> None:
        """Write rows (without the partition columns) as a row group, or as several if they are very many.

        Text may have codes (an Arrow dictionary) if it has codes in each table.
        """
        assert self._sink is not None, "the file has ended"
        if self._key is not None:
            self._keys.append(rows.select([name for name in self._key.stored if name in rows.column_names]))
            self._num_rows += rows.num_rows
        physical = to_physical(without_void(rows), self._schema)
        tracked = [name for name in self._tracked if name in physical.column_names]
        # The columns of row tracking are not the table's, so readers know no statistics of them.
        self._statistics.add(physical.drop_columns(tracked))
        stored = self._with_partition(physical)
        if self._parquet is None:
            layout = self._layout.of(stored)
            if tracked:
                layout = with_steps(layout, stored.schema, tracked)
            self._parquet = parquet_writer(self._sink, stored.schema, layout)
        self._parquet.write_table(stored)

    @contextmanager
    def written_to(self, sink: BinaryIO) -> Iterator[None]:
        """Write to `sink`, and complete the file when the block ends."""
        self._sink = sink
        try:
            yield
            assert self._parquet is not None, "nothing was appended"
            self._parquet.close()
            self._size_bytes = sink.tell()
        except BaseException:
            with suppress(Exception):  # of a file that is going to be removed
                if self._parquet is not None:
                    self._parquet.close()
            raise
        finally:
            self._sink = self._parquet = None

    def end(self, path: str, modification_time: int, *, data_change: bool) -> None:
        """Note that the file is complete, at `path` below the table."""
        self._add = AddFile(
            path=paths.to_uri(path),
            partition_values=self._values,
            size=self._size_bytes,
            modification_time=modification_time,
            data_change=data_change,
            stats=self._statistics.text(),
        )

    def keys(self) -> FileKeys:
        """What a run needs of the rows, in a table that has an index of their keys."""
        assert self._key is not None, "there is no index"
        inside = pa.concat_tables(self._keys)
        columns = {name: inside[name] for name in inside.column_names}
        for name in self._key.stored:
            if name in self._partition_columns:
                field = self._schema.field(name)
                value = partition_values.from_text(self._values.get(physical_name(field)), field.type)
                columns[name] = repeated(pa.scalar(value, field.type), self._num_rows)
        return FileKeys(self.add.path, pa.table(columns))

    def _with_partition(self, physical: pa.Table) -> pa.Table:
        """The file's columns plus the partition columns, in the table's order.

        Partition values count only as the log has them, but Polars reads them from the files if they are not in the
        folders' names.
        """
        if not self._partition_columns:
            return physical
        columns = {name: physical[name] for name in physical.column_names}
        fields = {field.name: field for field in physical.schema}
        for own in physical_fields([self._schema.field(name) for name in self._partition_columns]):
            value = partition_values.from_text(self._values.get(own.name), own.type)
            columns[own.name] = repeated(pa.scalar(value, own.type), physical.num_rows)
            fields[own.name] = own
        order = [name for name in map(physical_name, self._schema) if name in fields]
        return pa.table([columns[name] for name in order], schema=pa.schema([fields[name] for name in order]))


def to_physical(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """`rows` under the names and ids that data files use; their columns are some of those in `schema`.

    Columns with codes (Arrow dictionaries) keep them.
    """
    own = physical_fields([schema.field(name) for name in rows.column_names])
    fields = [_coded_like(field, kind) for field, kind in zip(own, rows.schema.types, strict=True)]
    if pa.schema(fields).equals(rows.schema, check_metadata=True):
        return rows
    columns = [
        column
        if pt.is_dictionary(field.type)
        else pa.chunked_array([chunk.view(field.type) for chunk in column.chunks], field.type)
        for column, field in zip(rows.columns, fields, strict=True)
    ]
    return pa.table(columns, schema=pa.schema(fields))


def _coded_like(field: pa.Field, kind: pa.DataType) -> pa.Field:
    return field.with_type(kind) if pt.is_dictionary(kind) else field


def without_void(rows: pa.Table) -> pa.Table:
    """`rows` without void columns, which parquet cannot hold; readers see a missing column as null."""
    return rows.select([field.name for field in rows.schema if not pt.is_null(field.type)])


# --- the files of a table ---------------------------------------------------------------------------------------------

# The Delta protocol prescribes both names.
CHANGE_FOLDER = "_change_data"
CHANGE_TYPE = "_change_type"
# The key of an object has at most 1,024 bytes. This leaves room for `_change_data/` and the file's own name.
_LONGEST_FOLDER = 940


@dataclass
class _WaitingKeys:
    """The keys of the files that a statement has written, and that have no run yet. Thread-safe.

    A copy in another process starts empty, because a Spark task runs statements of its own.
    """

    _lock: Lock = field(default_factory=Lock)
    _files: list[FileKeys] = field(default_factory=list)
    _rows: int = 0
    _bytes: int = 0
    _open: int = 0

    def __reduce__(self) -> tuple[type[_WaitingKeys], tuple[()]]:
        return _WaitingKeys, ()

    def begin(self) -> None:
        """Begin a block. Of blocks within each other the outermost counts."""
        with self._lock:
            self._open += 1

    def add(self, file: FileKeys) -> list[FileKeys]:
        """Add a file. Returns those for which it is time to write a run, because their keys are many."""
        with self._lock:
            self._files.append(file)
            self._rows += file.rows.num_rows
            self._bytes += file.rows.nbytes
            return self._taken() if self._rows >= MOST_KEYS or self._bytes >= MOST_KEY_BYTES else []

    def end(self, *, failed: bool = False) -> list[FileKeys]:
        """End a block. Returns the files for which it is time to write a run; a block that failed needs none."""
        with self._lock:
            self._open -= 1
            taken = self._taken() if failed or not self._open else []
            return [] if failed else taken

    def _taken(self) -> list[FileKeys]:
        taken, self._files, self._rows, self._bytes = self._files, [], 0, 0
        return taken


@dataclass(frozen=True)
class DataWriter:
    """Writes data files for one version of a table's metadata, and lists them in `written`.

    With `in_folders`, a partition's files are in its folder (see `LogState.uses_partition_folders`).
    """

    store: Store
    metadata: Metadata
    system: System
    in_folders: bool = False
    # Paths below the table, in the order of writing, including files whose write failed.
    written: list[str] = field(default_factory=list, compare=False)
    _waiting: _WaitingKeys = field(default_factory=_WaitingKeys, init=False, compare=False, repr=False)

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return columns_of(self.metadata, self.store.url)

    @cached_property
    def tracked(self) -> tuple[pa.Field, ...]:
        """The columns in which rows keep their ids, which follow the table's columns in rows that are to be written.

        Rows without them are new ones.
        """
        return tracked_fields(self.metadata)

    @cached_property
    def indexed_key(self) -> IndexedKey | None:
        """The key whose index is kept; None without an index."""
        return IndexedKey.of(self.metadata, self.schema)

    @contextmanager
    def indexing(self) -> Iterator[None]:
        """Write a run of the key index for the files that are written within the block, if the table has an index.

        Until then their keys are in memory, or until they are many. Of blocks within each other the outermost counts. A
        file without a run is read when a key is looked up, which is only slower.
        """
        self._waiting.begin()
        try:
            yield
        except BaseException:
            self._waiting.end(failed=True)
            raise
        self._write_run(self._waiting.end())

    def _write_run(self, keys: Sequence[FileKeys]) -> None:
        if not keys or self.indexed_key is None:
            return
        path = new_run_path(self.system)
        self.written.append(path)
        try:
            write_run(self.store, path, self.indexed_key, keys)
        except (TidelogError, OSError, pa.ArrowException, MemoryError) as error:
            _LOGGER.warning("the key index of %s has no run for %d new files: %s", self.store.url, len(keys), error)

    def write(self, table: pa.Table, *, data_change: bool = True) -> list[AddFile]:
        """Write `table`, which has the table's schema: one file or more per partition, none if there are no rows.

        It can have the columns `tracked` in addition.
        The files of several partitions are made durable together, which on a disk is faster than one by one.
        """
        parts = list(self._by_partition(table))
        durable = len(parts) < 2  # noqa: PLR2004 - one part
        with self.indexing():
            adds = [
                add
                for values, rows in parts
                for add in self.write_partition(rows, values, data_change=data_change, durable=durable)
            ]
            if not durable:
                self.store.sync([paths.to_storage_path(add.path) for add in adds])
        return adds

    def write_partition(
        self, rows: pa.Table, values: dict[str, str | None], *, data_change: bool, durable: bool = True
    ) -> Iterator[AddFile]:
        """Write one partition's rows (without the partition columns) in files of about the target size.

        `values` are the partition values as the `add` action holds them. If not `durable`, the caller syncs the files.
        """
        target = properties.size_bytes(self.metadata.configuration, properties.TARGET_FILE_SIZE)
        # Columns are rarely smaller in memory than in a compressed file, so files stay below the target.
        pieces = max(1, -(-rows.nbytes // target))
        length = max(1, -(-rows.num_rows // pieces))
        for start in range(0, rows.num_rows, length):
            yield self.write_file(rows.slice(start, length), values, data_change=data_change, durable=durable)

    def write_file(
        self,
        rows: pa.Table,
        values: dict[str, str | None],
        *,
        data_change: bool,
        durable: bool = True,
        layout: Layout = USUAL_LAYOUT,
    ) -> AddFile:
        """Write one partition's rows (without the partition columns) as a single file of any size.

        If not `durable`, the caller syncs the file.
        """
        with self.new_file(values, data_change=data_change, durable=durable, layout=layout) as file:
            start = 0
            for length in layout.row_groups or (rows.num_rows,):
                file.append(rows.slice(start, length))
                start += length
        return file.add

    @contextmanager
    def new_file(
        self,
        values: dict[str, str | None],
        *,
        data_change: bool,
        durable: bool = True,
        layout: Layout = USUAL_LAYOUT,
    ) -> Iterator[NewFile]:
        """Write one partition's rows as a single file, of which one row group is in memory at a time, and the keys.

        Append at least once. The file has its `add` once the block has ended. If not `durable`, the caller syncs it.
        """
        path = self.new_path(values)
        file = NewFile(self.metadata, self.schema, self.tracked, values, layout, self.indexed_key)
        with self._created(path, durable=durable) as sink, file.written_to(sink):
            yield file
        file.end(path, self.system.now_ms(), data_change=data_change)
        if self.indexed_key is not None:
            self._write_run(self._waiting.add(file.keys()))

    def new_path(self, values: Mapping[str, str | None]) -> str:
        """A path below the table for a new file of a partition."""
        name = self.system.uuid()
        return f"{self._folder(values) or name[:2]}/part-{name}.parquet"

    def _folder(self, values: Mapping[str, str | None]) -> str | None:
        """The partition's folder; None if its files do not belong into one, or no folder can have its name."""
        if not self.in_folders:
            return None
        columns = self.metadata.partition_columns
        texts = {name: partition_values.folder_text(values.get(name), self.schema.field(name).type) for name in columns}
        folder = hive_paths.folder_of(columns, texts)
        is_short = folder is not None and len(f"{self.store.url}{folder}".encode()) <= _LONGEST_FOLDER
        return folder if is_short else None

    def write_changes(self, changes: Iterable[tuple[str, pa.Table]]) -> list[AddCDCFile]:
        """Write change rows: for each type and its rows one file per partition, none if there are no rows.

        The rows have the table's schema. All files are made durable together.
        """
        written = []
        names = []
        parts = [(kind, values, rows) for kind, found in changes for values, rows in self._by_partition(found)]
        for change_type, values, rows in parts:
            folders = [name for name in (CHANGE_FOLDER, self._folder(values)) if name is not None]
            path = f"{'/'.join(folders)}/cdc-{self.system.uuid()}.parquet"
            types = pa.repeat(pa.scalar(change_type), rows.num_rows)
            physical = to_physical(without_void(rows), self.schema).append_column(CHANGE_TYPE, types)
            size = self._write_parquet(path, physical, USUAL_LAYOUT, durable=False)
            written.append(AddCDCFile(path=paths.to_uri(path), partition_values=values, size=size))
            names.append(path)
        if names:
            self.store.sync(names)
        return written

    def prepared(self, table: pa.Table) -> pa.Table:
        """`table` with the partition values that a reader of the table will see.

        An empty string becomes null, because the Delta log cannot tell them apart. -0.0 becomes 0.0: they are equal, so
        they are one partition, like the one group that Spark's `groupBy` and `repartition` make of them. (Spark's own
        `partitionBy` makes two folders, and can fail if one task has both values.) NaN is a partition, too.

        `table` can lack columns. Raises SchemaMismatchError if an empty string becomes null in a column that cannot be
        null.
        """
        for name in self.metadata.partition_columns:
            if name not in table.column_names:
                continue
            index, field = table.schema.get_field_index(name), self.schema.field(name)
            values = table[name]
            if pt.is_string(field.type) or pt.is_binary(field.type):
                values = pc.if_else(pc.equal(pc.binary_length(values), 0), pa.scalar(None, field.type), values)
            elif pt.is_floating(field.type):
                values = pc.add(values, pa.scalar(0, field.type))
            if values.null_count and not field.nullable:
                raise SchemaMismatchError(
                    f"partition column {name!r} cannot be null, and an empty string in it counts as null",
                    advice="fill or drop those rows",
                    column=name,
                )
            table = table.set_column(index, table.schema.field(index), values)
        return table

    def _by_partition(self, table: pa.Table) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
        """Each partition's values, under the physical column names that the log uses, and its rows."""
        names = {name: physical_name(self.schema.field(name)) for name in self.metadata.partition_columns}
        for values, rows in split_by_partition(self.prepared(table), self.metadata.partition_columns):
            yield {names[name]: text for name, text in values.items()}, rows

    def _write_parquet(self, path: str, rows: pa.Table, layout: Layout, *, durable: bool = True) -> int:
        """Write one file. Returns its size in bytes."""
        with self._created(path, durable=durable) as file:
            with parquet_writer(file, rows.schema, layout.of(rows)) as parquet:
                parquet.write_table(rows)
            return file.tell()

    def _created(self, path: str, *, durable: bool) -> AbstractContextManager[BinaryIO]:
        self.written.append(path)
        return self.store.create(path) if durable else self.store.create_unsynced(path)


def split_by_partition(
    table: pa.Table, partition_columns: Sequence[str]
) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """Each partition's values, and its rows in their order, without the partition columns."""
    if not table.num_rows:
        return
    if not partition_columns:
        yield {}, table
        return
    names = list(partition_columns)
    numbers = np.asarray(group_numbers(table, names), dtype=np.int64)
    data, keys = table.drop_columns(names), table.select(names)
    # Groups are numbered in the order of their first rows.
    firsts = np.unique(numbers, return_index=True)[1].tolist()
    if len(firsts) == 1:
        yield _texts(keys, 0), data
        return
    pieces: list[list[pa.Table]] = [[] for _ in firsts]
    start = 0
    for block in blocks(data):
        own = numbers[start : start + block.num_rows]
        start += block.num_rows
        order = np.argsort(own, kind="stable")
        ordered = block.take(pa.array(order))
        found, places = np.unique(own[order], return_index=True)
        for number, first, end in zip(found, places, [*places[1:], len(own)], strict=True):
            pieces[number].append(ordered.slice(first, end - first))
    for first, parts in zip(firsts, pieces, strict=True):
        yield _texts(keys, first), pa.concat_tables(parts)


def _texts(groups: pa.Table, row: int) -> dict[str, str | None]:
    return {name: partition_text(groups[name][row], groups.schema.field(name)) for name in groups.column_names}


def partition_text(value: pa.Scalar, field: pa.Field) -> str | None:
    """A partition column's value as text for the log. Raises SchemaMismatchError if the log cannot hold it.

    The protocol writes a year with four digits, so a date or time outside the years 1 to 9999 is refused.
    """
    try:
        return partition_values.to_text(value.as_py(), field.type)
    except UnicodeDecodeError as error:
        raise SchemaMismatchError(
            f"the binary partition column {field.name!r} has a value that is not UTF-8, which the log cannot hold",
            advice="partition by a string or number column instead",
            column=field.name,
        ) from error
    except (ValueError, OverflowError) as error:
        raise SchemaMismatchError(
            f"the partition column {field.name!r} has the value {value.cast(pa.string())}, which the log cannot hold",
            advice="keep dates and times in partition columns within the years 1 to 9999",
            column=field.name,
        ) from error


def check_partition_columns(table_schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Raise SchemaMismatchError unless `partition_by` names distinct columns of plain types, and not all of them."""
    for name in partition_by:
        if name not in table_schema.names or partition_by.count(name) > 1:
            fault = "it is named twice" if name in table_schema.names else "the schema has no such column"
            raise SchemaMismatchError(
                f"cannot partition by {name!r}: {fault}",
                advice=f"{did_you_mean(name, table_schema.names)}choose from {', '.join(table_schema.names)}",
                column=name,
            )
        if not partition_values.is_partitionable(table_schema.field(name).type):
            raise SchemaMismatchError(
                f"cannot partition by {name!r}: its type is {table_schema.field(name).type}",
                advice="partition by a column that is not nested and not void",
                column=name,
            )
    if all(field.name in partition_by or pt.is_null(field.type) for field in table_schema):
        raise SchemaMismatchError(
            "every column is a partition column or void, so data files would have no columns",
            advice="leave at least one column that is not void out of partition_by",
        )


def check_statistics_columns(
    table_schema: pa.Schema, partition_by: Sequence[str], configuration: Mapping[str, str]
) -> None:
    """Raise ConfigurationError unless the columns chosen for statistics are distinct columns that can have them."""
    chosen = properties.statistics_columns(configuration) or ()
    for column in chosen:
        fault = _statistics_fault(table_schema, partition_by, column)
        if sum(_lowered(other) == _lowered(column) for other in chosen) > 1:
            fault = "is named twice"
        if fault:
            raise ConfigurationError(
                f"the table property {properties.STATISTICS_COLUMNS!r} cannot name {'.'.join(column)!r}, which {fault}",
                advice="name columns of numbers, strings, dates or timestamps, or structs of them",
            )


def _lowered(column: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.lower() for name in column)


def _statistics_fault(table_schema: pa.Schema, partition_by: Sequence[str], column: tuple[str, ...]) -> str | None:
    if _lowered(column)[0] in {name.lower() for name in partition_by}:
        return "is a partition column"
    kind: pa.DataType = pa.struct(list(table_schema))
    for name in column:
        fields = [kind.field(index) for index in range(kind.num_fields)] if pt.is_struct(kind) else []
        found = next((field for field in fields if field.name.lower() == name.lower()), None)
        if found is None:
            return "is not in the schema"
        kind = found.type
    has_statistics = pt.is_struct(kind) or statistics.is_ordered(kind)
    return None if has_statistics else f"is {kind}, a type that has no bounds in statistics"
