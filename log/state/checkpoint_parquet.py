"""Read columns of a checkpoint's parquet file, which can be damaged and can have a million rows.

The rows are decoded in slices, straight from a local file. So the memory holds what was decoded and little more: not
the file, and no column twice, as when a whole row group is decoded at once. Other engines write one row group.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from tidelog.log.format import seal
from tidelog.log.storage import MAX_WHOLE_BYTES, read_whole

# A file may unpack to at most this many times its size (statistics repeat) plus this many bytes.
_MAX_PACKING = 1000
_MIN_UNPACKED_BOUND = 2**26
# Few enough rows that a slice stays in the processor's cache, many enough that a million rows are few chunks.
_SLICE_ROWS = 2**16
# A larger local file is not read whole but a piece of each column at a time. The decoder then believes what a page says
# of its size, up to 2 GiB; of a whole file it takes what is there. So a small damaged file costs little memory.
_WHOLE_BYTES = 2**26
_PIECE_BYTES = 2**20


def read_structs(
    source: Any, version: int, names: Sequence[str], *, size: int | None = None
) -> dict[str, pa.ChunkedArray]:
    """Read the structs of the columns `names` of an open file of `version`, in order and without nulls.

    The result lacks a column that the file does not have. From a sealed file, columns and row groups without any value
    are skipped: reading a column costs time for every row even if all are null, and a large checkpoint has a million
    rows. Raises ValueError, OSError and Arrow's errors for damage, and ValueError if the file is not of `size` bytes.
    """
    _require_size(source.size(), size)
    # A file of Python's is on an object store: one request reads it whole.
    whole = isinstance(source, pa.PythonFile) or source.size() <= _WHOLE_BYTES
    if whole:
        source = pa.BufferReader(read_whole(source))  # noqa: TID251 - the buffer is Arrow's
    sealed = _require_intact(source, version)
    # Spark's pages have checksums. `pre_buffer` would keep the whole file in memory.
    options = {"pre_buffer": False, "page_checksum_verification": True, "buffer_size": 0 if whole else _PIECE_BYTES}
    with pq.ParquetFile(source, **options) as parquet:
        _require_plausible(parquet.metadata, source.size())
        kinds = {name: _struct(parquet.schema_arrow, name) for name in names if name in parquet.schema_arrow.names}
        groups = list(range(parquet.num_row_groups))
        if sealed:
            held = [_held(parquet.metadata, group, kinds) for group in groups]
            groups = [group for group, found in zip(groups, held, strict=True) if found]
            kinds = {name: kind for name, kind in kinds.items() if any(name in found for found in held)}
        chunks: dict[str, list[pa.StructArray]] = {name: [] for name in kinds}
        for rows in parquet.iter_batches(_SLICE_ROWS, groups, list(kinds), use_threads=False) if kinds else ():
            for name, found in chunks.items():
                values = _present(rows.column(name))
                if not sealed:
                    _validate(values)
                found.append(values)
    return {name: pa.chunked_array(found, kinds[name]) for name, found in chunks.items()}


def _struct(schema: pa.Schema, name: str) -> pa.StructType:
    kind = schema.field(name).type
    if not pt.is_struct(kind):
        raise ValueError(f"{name} is not a struct")
    return kind


def _present(values: pa.StructArray) -> pa.StructArray:
    """The values that are not null, in order; no copy if they are contiguous, as in most writers' checkpoints."""
    if not values.null_count:
        return values
    count = len(values) - values.null_count
    if not count:
        # Not a slice, which would keep the nulls in memory.
        return pa.array([], values.type)
    valid = values.is_valid()
    run = values.slice(pc.index(valid, True).as_py(), count)
    return run if not run.null_count else values.filter(valid)


def _validate(values: pa.StructArray) -> None:
    """Detect damage that neither page checksums nor the decoder catch: invalid UTF-8, overlapping lists.

    Statistics are skipped: they are most of a large checkpoint and are checked when they are used.
    """
    for index, field in enumerate(values.type):
        if not field.name.startswith("stats"):
            values.field(index).validate(full=True)


def _require_size(found: int, expected: int | None) -> None:
    """Raise ValueError if the file does not have the expected size, or is too large to be read whole."""
    if expected is not None and found != expected:
        raise ValueError(f"it has {found} bytes instead of {expected}")
    if found > MAX_WHOLE_BYTES:
        raise ValueError(f"it has {found} bytes, which are too many to read at once")


def _require_intact(source: Any, version: int) -> bool:
    """Whether the file is sealed. Raises ValueError if its seal is broken."""
    intact = seal.is_intact_parquet(source, version)
    if intact is False:
        raise ValueError("its checksum is wrong")
    return intact is True


def _require_plausible(metadata: pq.FileMetaData, size: int) -> None:
    """Refuse a footer that would make the decoder allocate more than such a small file can hold."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    rows, unpacked = sum(group.num_rows for group in groups), sum(group.total_byte_size for group in groups)
    # A row is an action, usually with a unique path, which takes more than a byte even when compressed.
    if rows != metadata.num_rows or not 0 <= rows <= size:
        raise ValueError(f"its footer claims {metadata.num_rows} rows")
    if not 0 <= unpacked <= _MIN_UNPACKED_BOUND + _MAX_PACKING * size:
        raise ValueError(f"its footer claims {unpacked} bytes")


def _held(metadata: pq.FileMetaData, group: int, names: Container[str]) -> set[str]:
    """The columns among `names` that may have a value in a row group, judging by its statistics."""
    held = set()
    columns = metadata.row_group(group)
    for index in range(columns.num_columns):
        column = columns.column(index)
        name = column.path_in_schema.split(".", 1)[0]
        if name in names and name not in held:
            found = column.statistics
            if found is None or not found.has_null_count or found.null_count < column.num_values:
                held.add(name)
    return held
