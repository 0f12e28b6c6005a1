"""Write rows to files of a given number of rows, of which one row group is in memory at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.data.writer import DataWriter, Layout
from tidelog.log.format import paths
from tidelog.log.format.actions import AddFile

# A row group ends with the first of these bounds. Readers skip whole row groups, so they should not be large; each
# costs a page header and a dictionary for each column, so they should not be small.
ROW_GROUP_ROWS = 2**20
ROW_GROUP_BYTES = 2**27


def write_files(
    writer: DataWriter,
    values: dict[str, str | None],
    batches: Iterable[pa.RecordBatch],
    length: int,
    layouts: Iterable[Layout],
) -> list[AddFile]:
    """Write rows to files of `length` rows, of which the last one may be shorter; each takes the next of `layouts`.

    There must be enough layouts. Text may have codes (Arrow dictionaries) in some of the batches. If a file cannot be
    written, all are deleted.
    """
    rows = _Rows(batches)
    written: list[AddFile] = []
    try:
        for layout in layouts:
            if not rows.left():
                return written
            with writer.new_file(values, data_change=False, layout=layout) as file:
                coded: frozenset[str] | None = None
                for group in _row_groups(rows, layout, length):
                    coded = _coded(group) if coded is None else coded
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
    """Rows that are taken in other portions than they come in."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
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
        """The next rows: all that are wanted, or fewer as soon as they have `size_bytes`."""
        taken = []
        while rows and size_bytes > 0 and self.left():
            batch = self._next.popleft()
            if batch.num_rows > rows:
                self._next.append(batch.slice(rows))
                batch = batch.slice(0, rows)
            taken.append(batch)
            rows -= batch.num_rows
            size_bytes -= batch.nbytes
        return taken


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
