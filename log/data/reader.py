"""Reading one data file as the table sees it: its live rows, its constant columns, the table's types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tidelog.log.arrays import Int64Array
from tidelog.log.data.deletion_vectors import read_dead_rows
from tidelog.log.data.physical_schema import find_field, reshape
from tidelog.log.errors import CorruptLogError, DataFileMissingError
from tidelog.log.format import partition_values, paths
from tidelog.log.format.actions import AddFile, DeletionVectorDescriptor
from tidelog.log.format.schema import physical_name
from tidelog.log.storage import Store

BATCH_ROWS = 65_536
# What the decoder, a path that is none, and a value that its column cannot hold raise.
_READ_ERRORS = (pa.ArrowException, OSError, ValueError, OverflowError)


@dataclass(frozen=True, slots=True)
class DataFile:
    """What is needed to read a logical file; picklable."""

    path: str
    partition_values: Mapping[str, str | None]
    deletion_vector: DeletionVectorDescriptor | None

    @classmethod
    def of(cls, add: AddFile) -> DataFile:
        """The logical file that an add names."""
        return cls(add.path, add.partition_values, add.deletion_vector)


def read_batches(
    store: Store, file: DataFile, schema: pa.Schema, *, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The live rows of `file`, in their order, with exactly the columns and types of `schema`.

    Columns that the file lacks are null. Raises CorruptLogError where the file is missing or unreadable.
    """
    for _, batch in read_numbered_batches(store, file, schema, batch_rows=batch_rows):
        yield batch


def read_numbered_batches(
    store: Store,
    file: DataFile,
    schema: pa.Schema,
    *,
    only: BitMap64 | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[tuple[Int64Array, pa.RecordBatch]]:
    """As `read_batches`, each batch with the positions of its rows in the file (0-based, dead rows counted).

    With `only` exactly the rows at these positions, dead or not.
    """
    dead = read_dead_rows(store, file.deletion_vector) if file.deletion_vector and only is None else None
    try:
        source = store.open_input(paths.to_storage_path(file.path))
        # Spark's files have a checksum beside each page.
        with pq.ParquetFile(source, page_checksum_verification=True) as parquet:
            if dead and dead.max() >= parquet.metadata.num_rows:
                raise ValueError("its deletion vector names rows that it does not have")
            sources = _sources(file, parquet.schema_arrow, schema)
            present = sorted({name for name in sources.values() if name is not None})
            position = 0
            for rows, raw in _batches(parquet, present, batch_rows):
                wanted = _wanted(dead, only, position, rows)
                numbers = np.arange(position, position + rows) if wanted is None else wanted
                if len(numbers):
                    # Shaped first: not every type that a file may spell has a kernel to take rows by.
                    yield numbers, _narrowed(_shape(raw, rows, file, sources, schema), wanted, position)
                position += rows
    except FileNotFoundError as error:
        raise _corrupt(store, file, "is missing", DataFileMissingError) from error
    except _READ_ERRORS as error:
        raise _corrupt(store, file, f"cannot be read: {error}") from error


def physical_rows(store: Store, file: DataFile) -> int:
    """How many rows the file's footer counts, dead ones included."""
    try:
        with pq.ParquetFile(store.open_input(paths.to_storage_path(file.path))) as parquet:
            return int(parquet.metadata.num_rows)
    except FileNotFoundError as error:
        raise _corrupt(store, file, "is missing", DataFileMissingError) from error
    except _READ_ERRORS as error:
        raise _corrupt(store, file, f"cannot be read: {error}") from error


def _batches(parquet: pq.ParquetFile, columns: Sequence[str], size: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The file's batches with their row counts, which a batch without columns does not know."""
    if columns:
        for batch in parquet.iter_batches(batch_size=size, columns=list(columns)):
            yield batch.num_rows, batch
        return
    left = parquet.metadata.num_rows
    empty = pa.RecordBatch.from_arrays([], names=[])
    while left > 0:
        yield min(left, size), empty
        left -= size


def _wanted(dead: BitMap64 | None, only: BitMap64 | None, start: int, rows: int) -> Int64Array | None:
    """The positions from `start` on, `rows` of them, that are to be read; None for all of them."""
    if dead is None and only is None:
        return None
    here = BitMap64(range(start, start + rows))
    wanted = here & only if only is not None else here - (dead or BitMap64())
    # Its array is one copy; to iterate over it makes a Python integer of each position.
    return None if len(wanted) == rows else np.frombuffer(wanted.to_array(), dtype=np.uint64).astype(np.int64)


def _narrowed(batch: pa.RecordBatch, wanted: Int64Array | None, start: int) -> pa.RecordBatch:
    """Of a batch at `start` the rows at these positions, all of them for None."""
    if wanted is None:
        return batch
    return batch.take(pa.array(wanted - start)) if batch.num_columns else rows_without_columns(len(wanted))


def _sources(file: DataFile, found: pa.Schema, schema: pa.Schema) -> dict[str, str | None]:
    """Which of the file's columns holds each of the table's; None for one that it lacks or that is constant in it."""
    sources: dict[str, str | None] = {}
    for field in schema:
        index = None if physical_name(field) in file.partition_values else find_field(field, found)
        sources[field.name] = None if index is None else found.field(index).name
    return sources


def _shape(
    raw: pa.RecordBatch, rows: int, file: DataFile, sources: Mapping[str, str | None], schema: pa.Schema
) -> pa.RecordBatch:
    if not schema.names:
        return rows_without_columns(rows)
    columns = []
    for field in schema:
        source = sources[field.name]
        if source is not None:
            columns.append(reshape(raw.column(source), field))
            continue
        text = file.partition_values.get(physical_name(field))
        value = partition_values.from_text(text, field.type) if text is not None else None
        columns.append(pa.nulls(rows, field.type) if value is None else pa.repeat(pa.scalar(value, field.type), rows))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def rows_without_columns(count: int) -> pa.RecordBatch:
    """A batch that has no column and still knows its length, which counting needs."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


def _corrupt(store: Store, file: DataFile, what: str, kind: type[CorruptLogError] = CorruptLogError) -> CorruptLogError:
    return kind(
        f"the data file {file.path} of {store.url} {what}",
        advice="restore the file from a backup; if another engine vacuumed the table, refresh and read again",
        path=store.url,
    )
