"""Write rows to files of a given number of rows, encoded so that they do not outgrow the files that they replace.

One row group of a file is in memory at a time.

Encodings that made the inputs small can get lost when files are joined. The dictionary of a column can exceed its
bound, after which every repetition is written out; another codec or plain values can take more space. So there are
several layouts, and a rewrite takes the first one that is small enough, which `fits` says:

1. long row groups, and the usual dictionaries where values repeat, which suits readers best
2. long row groups and large dictionaries everywhere
3. in order only: the row groups of the inputs, each with its own dictionaries, their encodings and their codec

The codec is zstd: of 10,000,000 generated rows it left 80 MB, where snappy left 143 MB.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt
from pyroaring import BitMap64

from tidelog.compaction_daemon.planning.plan import PlannedGroup
from tidelog.compaction_daemon.rewriting.inputs import Inputs
from tidelog.log.arrays import Int64Array
from tidelog.log.data.layout import Layout, has_steps
from tidelog.log.data.writer import DataWriter
from tidelog.log.format import paths
from tidelog.log.format.actions import AddFile
from tidelog.log.format.schema import parquet_types, physical_fields, physical_name
from tidelog.log.format.statistics import num_records
from tidelog.log.format.type_widening import TYPE_CHANGES

# A row group ends with the first of these bounds. Readers skip whole row groups, so they should not be large; each
# costs a page header and a dictionary for each column, so they should not be small.
ROW_GROUP_ROWS = 2**20
ROW_GROUP_BYTES = 2**27
# A reader holds a column's dictionary in memory, and another one for each file that it reads at the same time.
LARGE_DICTIONARY_BYTES = 64 * 2**20
# What Spark, deltalake and other writers of Delta tables use by default or read everywhere.
CODEC = "zstd"
# Codecs that every reader of Delta tables knows, and how well they pack.
_CODECS = ("SNAPPY", "GZIP", "ZSTD", "BROTLI")
# Encodings that are smaller than plain values without a dictionary.
_COMPACT = ("DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT")
# How much larger than its inputs the output of a rewrite in order may be. Some growth is normal: page headers and
# partition columns. More would make a table larger each time that it is compacted.
MOST_GROWTH = 1.1
# What each output may take in addition, however small its inputs are: the headers of columns that they lack, because
# these were added to the table later.
FILE_BYTES = 512
# What each output beyond the number of inputs may take in addition: a header, a footer and page headers.
SPLIT_BYTES = 4096
# What the id and the commit version of a row may take when rows first move. They stay as large after that.
TRACKED_BYTES = 16


def write_files(
    writer: DataWriter,
    values: dict[str, str | None],
    batches: Iterable[pa.RecordBatch],
    length: int,
    layouts: Iterable[Layout],
) -> list[AddFile]:
    """Write rows to files of `length` rows, of which the last one may be shorter; each takes the next of `layouts`.

    There must be enough layouts. Text may have codes (Arrow dictionaries) in some of the batches. If a file cannot be
    written, all are deleted. The caller syncs the files.
    """
    new_file = partial(writer.new_file, values, data_change=False, durable=False)
    rows = _Rows(batches)
    written: list[AddFile] = []
    try:
        for layout in layouts:
            if not rows.left():
                return written
            with writer.indexing(), new_file(layout=layout) as file:
                rows.coded = coded = None
                for group in _row_groups(rows, layout, length):
                    rows.coded = coded = _coded(group) if coded is None else coded
                    file.append(_table(group, coded))
            written.append(file.add)
    except BaseException:
        delete_files(writer, written)
        raise
    raise AssertionError("there are fewer layouts than files")


def delete_files(writer: DataWriter, written: Iterable[AddFile]) -> None:
    """Delete files that nobody needs."""
    for add in written:
        writer.store.delete(paths.to_storage_path(add.path))


class _Rows:
    """Rows that are taken in other portions than they come in.

    `coded` are the columns that have codes in the file at hand; None until its first portion is taken.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.coded: frozenset[str] | None = None
        self._batches = iter(batches)
        self._next: deque[pa.RecordBatch] = deque()

    def left(self) -> bool:
        """Whether there are more."""
        while not self._next:
            batch = next(self._batches, None)
            if batch is None:
                return False
            if batch.num_rows:
                self._next.append(batch)
        return True

    def take(self, rows: int, size_bytes: int) -> list[pa.RecordBatch]:
        """The next rows: all that are wanted, or fewer as soon as they have `size_bytes`, as they are written."""
        taken = _Portion(self.coded)
        while rows and taken.size_bytes < size_bytes and self.left():
            batch = self._next.popleft()
            if batch.num_rows > rows:
                self._next.append(batch.slice(rows))
                batch = batch.slice(0, rows)
            if not taken.add(batch, size_bytes):
                self._next.appendleft(batch)
                break
            rows -= batch.num_rows
        return taken.batches


class _Portion:
    """Rows of a row group, and their bytes as they are written.

    Text keeps its codes in the columns `coded`, or without these, where it has codes in each batch. Elsewhere it takes
    as much as its values: a text of 100 kB that 20,000 rows share takes as many codes, or 2 GB.
    """

    def __init__(self, coded: frozenset[str] | None) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.size_bytes = 0
        self._coded = coded or frozenset()
        self._is_open = coded is None

    def add(self, batch: pa.RecordBatch, size_bytes: int) -> bool:
        """Add rows, but not if codes of rows before would be lost with them and all would exceed `size_bytes`."""
        coded, size = self._coded, self.size_bytes
        if self._is_open:
            coded = _coded([batch]) if not self.batches else coded & _coded([batch])
        for name in self._coded - coded:
            size += sum(_decoded_bytes(before[name]) - before[name].nbytes for before in self.batches)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            size += column.nbytes if name in coded else _decoded_bytes(column)
        if size > size_bytes and self._coded - coded and self.batches:
            return False
        self.batches.append(batch)
        self._coded, self.size_bytes = coded, size
        return True


def _decoded_bytes(values: pa.Array) -> int:
    """What values take without codes."""
    if not pt.is_dictionary(values.type):
        return int(values.nbytes)
    lengths = pc.binary_length(values.dictionary).take(values.indices)
    return int(pc.sum(lengths).as_py() or 0) + 4 * len(values)


def _row_groups(rows: _Rows, layout: Layout, length: int) -> Iterator[list[pa.RecordBatch]]:
    """The rows of the next file."""
    left = length
    for wanted in layout.row_groups or repeat(ROW_GROUP_ROWS):
        missing = min(wanted, left)
        while missing:
            group = rows.take(missing, ROW_GROUP_BYTES)
            if not group:
                return
            yield group
            taken = sum(batch.num_rows for batch in group)
            missing -= taken
            left -= taken
        if not left:
            return


def _coded(batches: Sequence[pa.RecordBatch]) -> frozenset[str]:
    """The columns that have codes in all batches."""
    names = batches[0].schema.names
    return frozenset(
        name for name in names if all(pt.is_dictionary(batch.schema.field(name).type) for batch in batches)
    )


def _table(batches: Sequence[pa.RecordBatch], coded: frozenset[str]) -> pa.Table:
    """The rows with one dictionary for each column in `coded`; the rest has none."""
    first = batches[0].schema
    columns, fields = [], []
    for index, field in enumerate(first):
        chunks = [_column(batch.column(index), coded=field.name in coded) for batch in batches]
        columns.append(pa.chunked_array(chunks))
        fields.append(field.with_type(chunks[0].type))
    return pa.table(columns, schema=pa.schema(fields)).unify_dictionaries()


def _column(values: pa.Array, *, coded: bool) -> pa.Array:
    if pt.is_dictionary(values.type):
        return values if coded else values.cast(values.type.value_type)
    return values.dictionary_encode() if coded else values


# --- how they are encoded


def usual_layouts() -> Iterator[Layout]:
    """The layouts to try in turn for rows in any order."""
    yield Layout(compression=CODEC, sampled=True)
    yield Layout(compression=CODEC, dictionary_bytes=LARGE_DICTIONARY_BYTES)


def layouts_of_inputs(
    footers: Sequence[pq.FileMetaData], dead: Sequence[BitMap64], length: int, schema: pa.Schema
) -> Iterator[Layout]:
    """The layouts of outputs of `length` rows in order, encoded as the inputs are; they never end.

    `footers` and `dead` are the inputs' footers and dead rows, and `schema` has the outputs' columns.
    """
    ends = _row_group_ends(footers, dead)
    codec = _codec(footers)
    encodings, dictionaries = _encodings(footers, {physical_name(field): field.type for field in schema})
    for start in range(0, int(ends[-1]) if len(ends) else 0, length):
        row_groups = _between(ends, start, start + length)
        yield Layout(codec, LARGE_DICTIONARY_BYTES, row_groups, encodings, dictionaries)
    yield from repeat(Layout(codec, LARGE_DICTIONARY_BYTES, (), encodings, dictionaries))


def _row_group_ends(footers: Sequence[pq.FileMetaData], dead: Sequence[BitMap64]) -> Int64Array:
    """Where each row group of the inputs ends, counted in the live rows of all inputs."""
    lengths: list[int] = []
    for footer, vector in zip(footers, dead, strict=True):
        rows = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
        bounds = np.cumsum([0, *rows]).tolist()
        lengths += [end - start - vector.range_cardinality(start, end) for start, end in pairwise(bounds)]
    return np.cumsum(lengths, dtype=np.int64)


def _between(ends: Int64Array, start: int, end: int) -> tuple[int, ...]:
    """The lengths of the row groups of an output with the rows from `start` to `end`."""
    inside = ends[(ends > start) & (ends < end)].tolist()
    last = min(end, int(ends[-1])) if len(ends) else start
    return tuple(high - low for low, high in pairwise([start, *inside, last]) if high > low)


def _codec(footers: Sequence[pq.FileMetaData]) -> str:
    found = {column.compression for column in _columns(footers)}
    return max((codec for codec in _CODECS if codec in found), key=_CODECS.index, default="SNAPPY").lower()


def _encodings(
    footers: Sequence[pq.FileMetaData], types: Mapping[str, pa.DataType]
) -> tuple[dict[str, str], tuple[str, ...] | None]:
    """The compact encodings of top-level columns of these types, and the other leaf columns; None for all."""
    found: dict[str, str] = {}
    leaves: dict[str, None] = {}
    nested = {
        leaf.path
        for footer in footers
        for leaf in (footer.schema.column(number) for number in range(footer.num_columns))
        if leaf.path != leaf.name
    }
    for column in _columns(footers):
        path = column.path_in_schema
        leaves[path] = None
        chosen = next((encoding for encoding in _COMPACT if encoding in column.encodings), None)
        if chosen is not None and path not in nested and path in types and _takes(types[path], chosen):
            found[path] = chosen
    return found, tuple(path for path in leaves if path not in found) if found else None


def _takes(kind: pa.DataType, encoding: str) -> bool:
    """Whether values of a type can have an encoding: a column may have been widened since a file was written."""
    if encoding == "DELTA_BINARY_PACKED":
        return has_steps(kind)
    if encoding == "BYTE_STREAM_SPLIT":
        return bool(pt.is_floating(kind))
    return bool(pt.is_string(kind) or pt.is_binary(kind))


def _columns(footers: Sequence[pq.FileMetaData]) -> Iterator[pq.ColumnChunkMetaData]:
    for footer in footers:
        if footer.num_row_groups:
            group = footer.row_group(0)
            yield from (group.column(number) for number in range(group.num_columns))


def fits(group: PlannedGroup, written: Sequence[AddFile], writer: DataWriter, inputs: Inputs) -> bool:
    """Whether files are small enough to replace the group, of which `inputs` are the files."""
    most = group.size_bytes * MOST_GROWTH + FILE_BYTES * len(written)
    most += SPLIT_BYTES * max(0, len(written) - len(group.inputs))
    if writer.tracked:
        most += TRACKED_BYTES * sum(num_records(add.stats) or 0 for add in written)
    if TYPE_CHANGES in writer.metadata.schema_string and size_of(written) > most:
        most += _widening_bytes(inputs.footers, inputs.schema)
    return size_of(written) <= most


def _widening_bytes(footers: Sequence[pq.FileMetaData], schema: pa.Schema) -> int:
    """What the values of files can take once they have the wider types that their columns have by now."""
    types = dict(parquet_types(physical_fields(schema)))
    total = 0
    for footer in footers:
        widths = {
            path: types[path].bit_width // 8
            for path, kind in parquet_types(footer.schema.to_arrow_schema())
            if _is_number(kind) and path in types and types[path] != kind
        }
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            for place in range(group.num_columns):
                column = group.column(place)
                total += widths.get(column.path_in_schema, 0) * column.num_values
    return total


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))


def size_of(files: Iterable[AddFile]) -> int:
    """The bytes of files on disk."""
    return sum(add.size for add in files)
