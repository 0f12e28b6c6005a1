"""Read the live rows of one data file in the table's schema, with its partition columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tidelog.log.arrays import Int64Array
from tidelog.log.data.deletion_vectors import read_dead_rows
from tidelog.log.data.physical_schema import find_fields, reshape
from tidelog.log.errors import CorruptLogError, DataFileMissingError, UnsupportedFeatureError
from tidelog.log.format import partition_values, paths
from tidelog.log.format.actions import AddFile, DeletionVectorDescriptor
from tidelog.log.format.schema import physical_name
from tidelog.log.storage import Store

BATCH_ROWS = 65_536
# Raised by the decoder, for an invalid path, and for a partition value that does not fit its column.
_READ_ERRORS = (pa.ArrowException, OSError, ValueError, OverflowError)


@dataclass(frozen=True, slots=True)
class DataFile:
    """The parts of an `add` action that are needed to read its rows; picklable."""

    path: str
    partition_values: Mapping[str, str | None]
    deletion_vector: DeletionVectorDescriptor | None

    @classmethod
    def of(cls, add: AddFile) -> DataFile:
        """The file that an `add` action names."""
        return cls(add.path, add.partition_values, add.deletion_vector)


def read_batches(
    store: Store, file: DataFile, schema: pa.Schema, *, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The live rows of `file`, in file order, with exactly the columns and types of `schema`.

    Columns that the file lacks are null. Raises CorruptLogError if the file is missing or unreadable.
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
    """Like `read_batches`, but each batch comes with its rows' positions in the file (0-based, dead rows counted).

    With `only`, read exactly the rows at these positions, dead or not.
    """
    dead = read_dead_rows(store, file.deletion_vector) if file.deletion_vector and only is None else None
    try:
        source = store.open_input(paths.to_storage_path(file.path))
        # Spark and tidelog write a checksum for each page.
        with pq.ParquetFile(source, page_checksum_verification=True) as parquet:
            if dead and dead.max() >= parquet.metadata.num_rows:
                raise ValueError("its deletion vector has positions beyond its last row")
            sources = _sources(file, parquet.schema_arrow, schema)
            present = sorted({name for name in sources.values() if name is not None})
            position = 0
            for rows, raw in _batches(parquet, present, batch_rows):
                wanted = _wanted(dead, only, position, rows)
                numbers = np.arange(position, position + rows) if wanted is None else wanted
                if len(numbers):
                    # Cast first, because Arrow cannot take rows of every type that a file can have.
                    yield numbers, _narrowed(_shape(raw, rows, file, sources, schema), wanted, position)
                position += rows
    except FileNotFoundError as error:
        raise _corrupt(store, file, "is missing", DataFileMissingError) from error
    except UnsupportedFeatureError as error:
        message = f"{error.message} (in {file.path} of {store.url})"
        raise UnsupportedFeatureError(message, advice=error.advice, path=store.url, **error.fields) from error
    except _READ_ERRORS as error:
        raise _corrupt(store, file, f"cannot be read: {error}") from error


def read_footer(store: Store, file: DataFile) -> pq.FileMetaData:
    """The file's footer. Raises CorruptLogError."""
    try:
        with pq.ParquetFile(store.open_input(paths.to_storage_path(file.path))) as parquet:
            return parquet.metadata
    except FileNotFoundError as error:
        raise _corrupt(store, file, "is missing", DataFileMissingError) from error
    except _READ_ERRORS as error:
        raise _corrupt(store, file, f"cannot be read: {error}") from error


def physical_rows(store: Store, file: DataFile) -> int:
    """The row count in the file's footer, dead rows included."""
    return int(read_footer(store, file).num_rows)


def _batches(parquet: pq.ParquetFile, columns: Sequence[str], size: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The file's batches with their row counts, because a batch without columns has none."""
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
    """Which of the `rows` positions from `start` on to read; None for all of them."""
    if dead is None and only is None:
        return None
    here = BitMap64(range(start, start + rows))
    wanted = here & only if only is not None else here - (dead or BitMap64())
    # One copy; iterating would make a Python integer for each position.
    return None if len(wanted) == rows else np.frombuffer(wanted.to_array(), dtype=np.uint64).astype(np.int64)


def _narrowed(batch: pa.RecordBatch, wanted: Int64Array | None, start: int) -> pa.RecordBatch:
    """The rows at the positions `wanted` of a batch that begins at `start`; None for all of them."""
    if wanted is None:
        return batch
    return batch.take(pa.array(wanted - start)) if batch.num_columns else rows_without_columns(len(wanted))


def _sources(file: DataFile, found: pa.Schema, schema: pa.Schema) -> dict[str, str | None]:
    """The file's column for each of the table's; None for one that the file lacks and for a partition column."""
    own = [field for field in schema if physical_name(field) not in file.partition_values]
    names = found.names
    sources: dict[str, str | None] = dict.fromkeys(schema.names)
    for field, index in zip(own, find_fields(own, list(found)), strict=True):
        sources[field.name] = None if index is None else names[index]
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
    """A batch without columns that still has a row count."""
    return pa.RecordBatch.from_arrays([pa.nulls(count)], names=["none"]).select([])


def _corrupt(store: Store, file: DataFile, what: str, kind: type[CorruptLogError] = CorruptLogError) -> CorruptLogError:
    return kind(
        f"the data file {file.path} of {store.url} {what}",
        advice="if a vacuum removed it, refresh the table and read again; otherwise restore it from a backup",
        path=store.url,
    )
