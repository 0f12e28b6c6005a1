"""Read the live rows of one data file in the table's schema, with its partition columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt
from pyroaring import BitMap64

from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.data import nested, variants
from tidelog.log.data.blocks import Constant
from tidelog.log.data.deletion_vectors import read_dead_rows
from tidelog.log.errors import (
    CorruptLogError,
    DataFileDamagedError,
    DataFileMissingError,
    UnsupportedFeatureError,
)
from tidelog.log.format import partition_values, paths, row_tracking
from tidelog.log.format.actions import AddFile, DeletionVectorDescriptor
from tidelog.log.format.schema import PARQUET_ID, field_id, is_variant, physical_name
from tidelog.log.storage import Store, arrow_input

BATCH_ROWS = 2**17
# From so many rows on, a file is worth a second opening with the codes of its text, and threads for its columns.
_MANY_ROWS = 2**16
# Arrow reads no batch with more than 2 GB of text within lists, maps or structs, so a batch of these has fewer rows.
_NESTED_ROWS = 2**16
# A batch of long rows has fewer of them, so that it takes about this much memory. It is an estimate from the footer: a
# text that repeats counts once there.
_BATCH_BYTES = 2**27
MAX_ROWS_PER_BYTE = 2**14
"""A data file holds no more. A column of nulls, as Arrow or Spark write it, has about 500 rows per byte."""
# A text takes at least four bytes for its length, and a code at most three.
_MAX_CODE_BYTES = 3
# A few bytes of a file can name a long text 131,072 times.
_DECODED_BYTES = 2**27
# Writers cut bounds of texts to this many bytes (arrow-rs) or leave longer ones out.
_CUT_BYTES = 64
# Row groups with fewer bytes for each value are mostly codes, and those that become so much smaller have few values.
_FEW_BYTES, _REPEATED = 4, 16
# Writers give up the dictionary of a column once it has about this many bytes, and write further values plainly.
_DICTIONARY_BYTES = 2**20
# A row group up to this size is fetched at once from a store in which a reader mostly waits; writers make them 128 MB.
_GATHERED_BYTES = 2**27
# A request takes about as long as transferring some MB. Several such files can be in memory at once.
_WHOLE_BYTES = 2**23
# Raised by the decoder.
_READ_ERRORS = (pa.ArrowException, OSError, ValueError, OverflowError)


class DataFile(msgspec.Struct, frozen=True, gc=False):
    """The parts of an `add` action that are needed to read its rows; picklable.

    If its size is given, a small file is fetched whole from a store in which a reader mostly waits. `base_row_id` and
    `commit_version` count only for the columns of row tracking (`row_tracking.tracked_fields`).
    """

    path: str
    partition_values: Mapping[str, str | None]
    deletion_vector: DeletionVectorDescriptor | None
    size_bytes: int | None = None
    base_row_id: int | None = None
    commit_version: int | None = None

    @classmethod
    def of(cls, add: AddFile) -> DataFile:
        """The file that an `add` action names."""
        rows = add.base_row_id, add.default_row_commit_version
        return cls(add.path, add.partition_values, add.deletion_vector, add.size, *rows)


def read_batches(
    store: Store, file: DataFile, schema: pa.Schema, *, only: BitMap64 | None = None, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The live rows of `file`, in file order, with exactly the columns and types of `schema`.

    With `only`, read exactly the rows at these positions (0-based, dead rows counted), dead or not. Columns that the
    file lacks are null. Raises DataFileMissingError, DataFileDamagedError, and CorruptLogError if what
    the log says of the file is wrong.
    """
    for _, _, batch in _read(store, file, schema, only, batch_rows):
        yield batch


def read_numbered_batches(
    store: Store,
    file: DataFile,
    schema: pa.Schema,
    *,
    only: BitMap64 | None = None,
    batch_rows: int = BATCH_ROWS,
    on_footer: Callable[[pq.FileMetaData], None] | None = None,
) -> Iterator[tuple[Int64Array, pa.RecordBatch]]:
    """Like `read_batches`, but each batch comes with its rows' positions in the file.

    `on_footer` is called with the file's footer before the first batch.
    """
    for start, wanted, batch in _read(store, file, schema, only, batch_rows, on_footer=on_footer):
        yield start + (np.arange(batch.num_rows) if wanted is None else np.flatnonzero(wanted)), batch


def read_coded_batches(
    store: Store,
    file: DataFile,
    schema: pa.Schema,
    *,
    groups: Sequence[int] | None = None,
    on_footer: Callable[[pq.FileMetaData], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Like `read_batches`, but text that has codes in the file keeps them, as Arrow dictionaries.

    With `groups`, read only the row groups with these numbers. `on_footer` is called with the file's footer before the
    first batch.
    """
    for _, _, batch in _read(store, file, schema, None, BATCH_ROWS, coded=True, groups=groups, on_footer=on_footer):
        yield batch


def _read(
    store: Store,
    file: DataFile,
    schema: pa.Schema,
    only: BitMap64 | None,
    batch_rows: int,
    *,
    coded: bool = False,
    groups: Sequence[int] | None = None,
    on_footer: Callable[[pq.FileMetaData], None] | None = None,
) -> Iterator[tuple[int, BoolArray | None, pa.RecordBatch]]:
    """Batches with the position of the first row that was read for them, and which rows they have; None for all."""
    dead = read_dead_rows(store, file.deletion_vector) if file.deletion_vector and only is None else None
    source = _open(store, file)
    try:
        shape_of = partial(
            Shape,
            schema=schema,
            values=file.partition_values,
            base_row_id=file.base_row_id,
            commit_version=file.commit_version,
            coded=coded,
        )
        parquet, together, shape = _parquet_file(source, store, groups, shape_of, coded=coded)
        with source, parquet:
            claimed = _plausible_rows(parquet.metadata, source.size())
            if on_footer is not None:
                on_footer(parquet.metadata)
            if dead and dead.max() >= claimed:
                raise _corrupt(store, file, "has a deletion vector with positions beyond its last row")
            if only is not None and only and only.max() >= claimed:
                raise ValueError("it has fewer rows than the log says")
            # Arrow's threads decode columns side by side. They would only wait in turn for a file that Python reads,
            # and handing over the columns of a small file takes longer than decoding them.
            threads = not isinstance(source, pa.PythonFile) and claimed > _MANY_ROWS
            batch_rows = min(batch_rows, _rows_of_a_batch(parquet, shape.present))
            for numbers, start, end in _spans(parquet.metadata, together, only):
                position, size = start, (end - start, batch_rows)
                for rows, raw in _batches(parquet, numbers, shape.present, size, threads=threads):
                    wanted = _wanted(dead, only, position, rows)
                    if wanted is None or wanted.any():
                        # Cast first, because Arrow cannot filter rows of every type that a file can have.
                        yield position, wanted, _narrowed(shape.shaped(raw, position, rows), wanted)
                    position += rows
                    if only is not None and position > only.max():
                        return
                if position != end:
                    raise ValueError(f"its rows end at {position}, but by its footer at {end}")
    except UnsupportedFeatureError as error:
        message = f"{error.message} (in {file.path} of {store.url})"
        raise UnsupportedFeatureError(message, advice=error.advice, path=store.url, **error.fields) from error
    except _READ_ERRORS as error:
        raise _damaged(store, file, error) from error


def read_footer(store: Store, file: DataFile) -> pq.FileMetaData:
    """The file's footer. Raises DataFileDamagedError if it is damaged or claims rows that it cannot hold."""
    source = _open(store, file)
    try:
        with pq.ParquetFile(source) as parquet:
            _plausible_rows(parquet.metadata, source.size())
            return parquet.metadata
    except _READ_ERRORS as error:
        raise _damaged(store, file, error) from error


def _spans(
    metadata: pq.FileMetaData, together: Sequence[list[int]], only: BitMap64 | None
) -> Iterator[tuple[Sequence[list[int]], int, int]]:
    """Row groups, and where they start and end in the file's rows: all of them, or each with a row at these positions.

    Without `only` the groups are consecutive.
    """
    ends = np.cumsum([0, *(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))]).tolist()
    if only is None:
        groups = [number for numbers in together for number in numbers]
        yield together, ends[groups[0]] if groups else 0, ends[groups[-1] + 1] if groups else 0
        return
    for numbers in together:
        for number in numbers:
            if only.range_cardinality(ends[number], ends[number + 1]):
                yield [[number]], ends[number], ends[number + 1]


def _open(store: Store, file: DataFile) -> Any:
    try:
        if file.size_bytes is not None and file.size_bytes <= _WHOLE_BYTES and store.small_reads_at_once > 1:
            return arrow_input(store.read(paths.to_storage_path(file.path)))
        return store.open_input(paths.to_storage_path(file.path))
    except FileNotFoundError as error:
        raise _corrupt(store, file, "is missing", DataFileMissingError) from error
    except (OSError, ValueError) as error:  # no file can have such a path
        raise _corrupt(store, file, f"cannot be opened: {error}") from error


def _plausible_rows(metadata: pq.FileMetaData, size_bytes: int) -> int:
    """The footer's row count. Raises ValueError if a file of that size cannot hold so many rows."""
    rows = int(metadata.num_rows)
    if not 0 <= rows <= MAX_ROWS_PER_BYTE * size_bytes:
        raise ValueError(f"its footer claims {rows} rows in {size_bytes} bytes")
    if rows != sum(metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)):
        raise ValueError(f"its footer claims {rows} rows, but its row groups hold other numbers")
    return rows


def physical_rows(store: Store, file: DataFile) -> int:
    """The row count in the file's footer, dead rows included."""
    return int(read_footer(store, file).num_rows)


def _parquet_file(
    source: Any, store: Store, wanted: Sequence[int] | None, shape_of: Callable[[pa.Schema], Shape], *, coded: bool
) -> tuple[pq.ParquetFile, list[list[int]], Shape]:
    """The open file, its row groups as they should be read, in each list together, and what becomes of its columns.

    In memory there is a buffer for each column, whatever the size of the file. Where a reader mostly waits, and the row
    groups are not too large, there is one row group, whose columns are fetched at the same time.
    """
    buffer_bytes, waits = store.buffer_bytes, store.small_reads_at_once > 1
    options = {
        "page_checksum_verification": True,  # Spark and tidelog write one for each page
        "buffer_size": buffer_bytes,
        "pre_buffer": False,
        # In nanoseconds, a time outside the years 1678 to 2261 would silently become another one.
        "coerce_int96_timestamp_unit": "us",
    }
    parquet = pq.ParquetFile(source, **options)
    metadata = parquet.metadata
    groups = [*range(metadata.num_row_groups)] if wanted is None else [*wanted]
    special: dict[str, Any] = {}
    shape = shape_of(parquet.schema_arrow)

    def longest_code(name: str, group: int) -> int:
        with pq.ParquetFile(source, metadata=metadata, **options, read_dictionary=[name]) as other:
            batch = next(other.iter_batches(batch_size=1, row_groups=[group], columns=[name], use_threads=False))
            return _longest(batch.column(0))

    if texts := _coded_columns(parquet, shape.present, groups, 0 if coded else _MANY_ROWS, longest_code):
        special["read_dictionary"] = texts
    if waits and all(_size_bytes(metadata.row_group(group)) <= _GATHERED_BYTES for group in groups):
        special["pre_buffer"] = True
    if special:
        parquet = pq.ParquetFile(source, metadata=metadata, **{**options, **special})
    return parquet, [[group] for group in groups] if "pre_buffer" in special else [groups], shape


def _rows_of_a_batch(parquet: pq.ParquetFile, columns: Sequence[str]) -> int:
    """How many rows of these columns a batch should have at most."""
    nested = {field.name for field in parquet.schema_arrow if pt.is_nested(field.type)}
    most = BATCH_ROWS if nested.isdisjoint(columns) else _NESTED_ROWS
    metadata = parquet.metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    if sum(group.total_byte_size for group in groups) <= _BATCH_BYTES:
        return most
    starts = tuple(f"{name}." for name in columns)
    leaves = [f"{parquet.schema.column(number).path}.".startswith(starts) for number in range(metadata.num_columns)]
    read = [number for number, is_read in enumerate(leaves) if is_read]
    size = sum(group.column(number).total_uncompressed_size for group in groups for number in read)
    return max(1, min(most, int(metadata.num_rows * _BATCH_BYTES / max(size, 1))))


def _size_bytes(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(index).total_compressed_size for index in range(group.num_columns))


def _coded_columns(
    parquet: pq.ParquetFile,
    columns: Sequence[str],
    wanted: Sequence[int],
    rows: int,
    longest_code: Callable[[str, int], int],
) -> list[str]:
    """The columns to decode by their distinct values, of those that are read of the row groups that are wanted.

    In a file with at least so many rows, these are the texts that have a code for each value and few distinct values.
    Decoding these once takes half the time. For other columns it takes several times as long, and the footer does not
    say which ones have codes only. But a code takes fewer bytes than a text with its length.

    In any file, these are the texts and bytes that could be too large for memory as a batch of values.
    `longest_code` looks up the longest value that has a code in a row group.
    """
    metadata, schema = parquet.metadata, parquet.schema
    read = set(columns)
    kinds = {field.name: field.type for field in parquet.schema_arrow if field.name in read}
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    found = []
    for number in range(metadata.num_columns):
        name = schema.column(number).path  # that of a nested field is no column's name, or not of text
        kind = kinds.get(name)
        if kind is None or not _is_text_or_bytes(kind):
            continue
        chunks = [group.column(number) for group in groups]
        has_few = metadata.num_rows >= rows and pt.is_string(kind) and all(map(_has_few_texts, chunks))
        if has_few or any(_may_be_long(chunks[group], partial(longest_code, name, group)) for group in wanted):
            found.append(name)
    return found


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    tests = (pt.is_string, pt.is_large_string, pt.is_string_view, pt.is_binary, pt.is_large_binary, pt.is_binary_view)
    return any(test(kind) for test in tests)


def _has_few_texts(chunk: pq.ColumnChunkMetaData) -> bool:
    is_small = chunk.total_uncompressed_size <= _MAX_CODE_BYTES * chunk.num_values
    return bool(chunk.has_dictionary_page and is_small)


def _may_be_long(chunk: pq.ColumnChunkMetaData, longest_code: Callable[[], int]) -> bool:
    """Whether a batch of the values of a row group may take more than `_DECODED_BYTES`, since codes repeat long values.

    Bounds do not say how long the longest value is, but a column of long values mostly has long ones, or none, since
    writers leave long ones out or cut them. Short bounds are believed only of a row group that has more bytes than
    codes take, and that compression makes little smaller: looking up its longest value takes as long as reading it.
    """
    rows, size = min(chunk.num_values, BATCH_ROWS), chunk.total_uncompressed_size
    if not chunk.has_dictionary_page or rows * size <= _DECODED_BYTES:
        return False
    statistics = chunk.statistics
    bounds = (statistics.min_raw, statistics.max_raw) if statistics and statistics.has_min_max else None
    has_many = size > _FEW_BYTES * chunk.num_values and size < _REPEATED * chunk.total_compressed_size
    if bounds and has_many and max(map(len, bounds)) < _CUT_BYTES:
        return False
    return bool(size <= _DICTIONARY_BYTES or rows * longest_code() > _DECODED_BYTES)


def _longest(values: pa.DictionaryArray) -> int:
    return int(pc.max(pc.binary_length(values.dictionary)).as_py() or 1)


def _decodable(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in slices with so few rows that the text of their codes is at most _DECODED_BYTES in each column."""
    rows = batch.num_rows
    for column in batch.columns:
        if pt.is_dictionary(column.type) and len(column.dictionary):
            rows = min(rows, max(1, _DECODED_BYTES // _longest(column)))
    for start in range(0, batch.num_rows, max(1, rows)):
        yield batch.slice(start, rows)


def _batches(
    parquet: pq.ParquetFile,
    groups: Sequence[list[int]],
    columns: Sequence[str],
    rows: tuple[int, int],
    *,
    threads: bool,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The file's batches with their row counts, because a batch without columns has none.

    `rows` are the number of rows in `groups`, and of those in a batch.
    """
    left, size = rows
    if columns:
        for numbers in groups:
            for batch in _decoded(parquet, numbers, columns, size, threads=threads):
                for piece in _decodable(batch):
                    yield piece.num_rows, piece
        return
    empty = pa.RecordBatch.from_arrays([], names=[])
    while left > 0:
        yield min(left, size), empty
        left -= size


def _decoded(
    parquet: pq.ParquetFile, groups: list[int], columns: Sequence[str], size: int, *, threads: bool
) -> Iterator[pa.RecordBatch]:
    """Batches of up to `size` rows. They become smaller if one has nested text that Arrow refuses for its length."""
    done = 0
    while True:
        skipped = done
        try:
            for batch in parquet.iter_batches(
                batch_size=size, row_groups=groups, columns=list(columns), use_threads=threads
            ):
                new = batch.slice(skipped)
                skipped -= batch.num_rows - new.num_rows
                yield new
                done += new.num_rows
        except pa.ArrowNotImplementedError:
            if size == 1:
                raise
            size = max(1, size // 16)
        else:
            return


def _wanted(dead: BitMap64 | None, only: BitMap64 | None, start: int, rows: int) -> BoolArray | None:
    """Which of the `rows` rows from the position `start` on to read; None for all of them."""
    named = dead if only is None else only
    if named is None:
        return None
    here = BitMap64(range(start, start + rows)) & named
    if len(here) == (0 if only is None else rows):
        return None
    wanted = np.full(rows, only is None)
    # One copy; iterating would make a Python integer for each position.
    wanted[np.frombuffer(here.to_array(), dtype=np.uint64).astype(np.int64) - start] = only is not None
    return wanted


def _narrowed(batch: pa.RecordBatch, wanted: BoolArray | None) -> pa.RecordBatch:
    """The `wanted` rows of a batch; None for all of them."""
    if wanted is None:
        return batch
    return batch.filter(pa.array(wanted)) if batch.num_columns else rows_without_columns(int(wanted.sum()))


def _corrupt(store: Store, file: DataFile, what: str, kind: type[CorruptLogError] = CorruptLogError) -> CorruptLogError:
    return kind(
        f"the data file {file.path} of {store.url} {what}",
        advice="if a vacuum removed it, refresh the table and read again; otherwise restore it from a backup",
        path=store.url,
    )


def _damaged(store: Store, file: DataFile, error: Exception) -> DataFileDamagedError:
    advice = "restore it from a backup, or restore the table to a version without it"
    if isinstance(error, pa.ArrowTypeError):
        advice = (
            "if the columns of the table were replaced since, read the changes after that version, or the rows as of a "
            f"version before it; otherwise {advice}"
        )
    return DataFileDamagedError(
        f"the data file {file.path} of {store.url} cannot be read: {error}",
        advice=advice,
        path=store.url,
        file=file.path,
    )


# --- the columns of a file as those of the table ----------------------------------------------------------------------
#
# A file can lack columns and nested fields that were added later (they are null), have a narrower type than the table
# has now, use physical names or ids for columns (column mapping), and use an older form of a type (int96 timestamps).


class Shape:
    """How the columns `found` in a file become those of the table's `schema`.

    Columns that the file has no values of are constant. `base_row_id` and `commit_version` are what the log says of the
    file's rows. With `coded`, texts that come as a dictionary stay one.
    """

    def __init__(
        self,
        found: pa.Schema,
        schema: pa.Schema,
        values: Mapping[str, str | None],
        *,
        base_row_id: int | None,
        commit_version: int | None,
        coded: bool,
    ) -> None:
        self._values = values
        self._base_row_id = base_row_id
        self._commit_version = commit_version
        self._coded = coded
        self._schema = schema
        own = [field for field in schema if physical_name(field) not in values]
        self._kinds = [row_tracking.kind_of(field) for field in schema]
        indices = zip(own, find_fields(own, list(found)), strict=True)
        self._sources = {field.name: found.names[index] for field, index in indices if index is not None}
        self._constants: dict[str, Constant] = {}
        self.present = sorted(set(self._sources.values()))

    def shaped(self, raw: pa.RecordBatch, start: int, rows: int) -> pa.RecordBatch:
        """The columns `present` of the rows from the position `start` on as the table's."""
        if not self._schema.names:
            return rows_without_columns(rows)
        columns = []
        for field, kind in zip(self._schema, self._kinds, strict=True):
            source = self._sources.get(field.name)
            if kind is not None:
                columns.append(self._tracked(kind, None if source is None else raw.column(source), start, rows))
            elif source is None:
                columns.append(self._constant(field).rows(rows))
            elif self._coded and pt.is_string(field.type) and pt.is_dictionary((values := raw.column(source)).type):
                columns.append(values)
            else:
                columns.append(reshape(raw.column(source), field))
        if not self._coded:
            return pa.RecordBatch.from_arrays(columns, schema=self._schema)
        fields = [field.with_type(column.type) for field, column in zip(self._schema, columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _tracked(self, kind: bytes, stored: pa.Array | None, start: int, rows: int) -> pa.Array:
        """The ids or commit versions of rows: those that the file stores and, where it stores none, its own."""
        if stored is not None and not stored.null_count:
            return stored.cast(pa.int64())
        is_id = kind == row_tracking.ROW_ID
        first = self._base_row_id if is_id else self._commit_version
        if is_id and first is not None:
            own = pa.array(np.arange(first + start, first + start + rows), pa.int64())
        else:
            own = pa.repeat(pa.scalar(first, pa.int64()), rows)
        return own if stored is None else pc.coalesce(stored.cast(pa.int64()), own)

    def _constant(self, field: pa.Field) -> Constant:
        """A partition column, or nulls for a column that the file lacks."""
        found = self._constants.get(field.name)
        if found is None:
            text = self._values.get(physical_name(field))
            found = self._constants[field.name] = Constant(_partition_value(text, field))
        return found


def _partition_value(text: str | None, field: pa.Field) -> pa.Scalar:
    value = partition_values.from_text(text, field.type)
    try:
        return pa.scalar(value, field.type)
    except (pa.ArrowException, OverflowError) as error:
        raise CorruptLogError(
            f"the partition value {text!r} does not fit {field.type}", advice="copy _delta_log back from a backup"
        ) from error


def rows_without_columns(count: int) -> pa.RecordBatch:
    """A batch without columns that still has a row count."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), count, [None]))


def find_fields(wanted: Sequence[pa.Field], found: Sequence[pa.Field]) -> list[int | None]:
    """For each of the table's fields, the index of the file's field that holds it, or None.

    Fields match by id if the table maps columns by id, else by physical name. The cost is linear in the fields.
    """
    by_name: dict[str, int] = {}
    by_id: dict[int, int] = {}
    for index, candidate in enumerate(found):
        by_name.setdefault(candidate.name, index)
        number = _parquet_id(candidate)
        if number is not None:
            by_id.setdefault(number, index)
    ids = [field_id(field) for field in wanted]
    names = [physical_name(field) for field in wanted]
    return [by_name.get(name) if number is None else by_id.get(number) for name, number in zip(names, ids, strict=True)]


def reshape(values: pa.Array, field: pa.Field) -> pa.Array:
    """Cast a file's `values` to the type of the table's `field`; nested fields are matched one by one."""
    kind = field.type
    if not pt.is_nested(kind):
        return _cast(values, field)
    if is_variant(field) and variants.is_shredded(values.type):
        return variants.whole(values, kind)
    if pt.is_struct(kind) and pt.is_struct(values.type):
        return nested.build_struct(_children(values, kind), kind, np.asarray(values.is_null()))
    if pt.is_map(kind) and pt.is_map(values.type):
        parts = [kind.key_field, kind.item_field]
    elif pt.is_list(kind) and nested.is_any_list(values.type):
        parts = [kind.value_field]
    else:
        raise _other_type(values, field)
    return nested.convert_lists(values, kind, [_reshaper(own) for own in parts])


def _reshaper(field: pa.Field) -> nested.Convert:
    return lambda values, _: reshape(values, field)


def _children(values: pa.StructArray, kind: pa.StructType) -> list[pa.Array]:
    fields = list(kind)
    return [
        nested.nulls(len(values), field.type) if index is None else reshape(values.field(index), field)
        for field, index in zip(fields, find_fields(fields, list(values.type)), strict=True)
    ]


def _cast(values: pa.Array, field: pa.Field) -> pa.Array:
    kind = field.type
    if values.type.equals(kind):
        return values
    if (_is_text(kind) and _is_number(values.type)) or (_is_number(kind) and _is_text(values.type)):
        # Arrow would parse and print values: the columns of the table were replaced by others.
        raise _other_type(values, field)
    if pt.is_timestamp(values.type) and pt.is_timestamp(kind):
        # int96 timestamps are in nanoseconds; Spark keeps microseconds.
        return values.cast(kind, safe=False)
    return values.cast(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind) or pt.is_binary(kind))


def _is_number(kind: pa.DataType) -> bool:
    """Whether values are numbers, times or truth values."""
    return bool(pt.is_primitive(kind) or pt.is_decimal(kind))


def _other_type(values: pa.Array, field: pa.Field) -> pa.ArrowTypeError:
    return pa.ArrowTypeError(f"column {field.name!r} is {values.type} in the file but {field.type} in the table")


def _parquet_id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(PARQUET_ID)
    return None if text is None else int(text)
