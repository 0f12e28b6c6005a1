"""Rows in blocks: an Arrow array holds at most 2 GiB of text, and a table can have more in one column.

Columns with the same value in each row share their memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tidelog.log.data import nested

BLOCK_BYTES = 2**30
"""Rows are taken out of blocks of at most this size, far below Arrow's limit for a single array."""

_REPEATED_ROWS = 2**16


def blocks(table: pa.Table) -> Iterator[pa.Table]:
    """The rows of `table` in slices of at most BLOCK_BYTES each, or of one row if that is larger. Copies nothing."""
    if table.nbytes <= BLOCK_BYTES or table.num_rows <= 1:
        yield table
        return
    middle = table.num_rows // 2
    yield from blocks(table.slice(0, middle))
    yield from blocks(table.slice(middle))


def repeated(value: pa.Scalar, count: int) -> pa.ChunkedArray:
    """A column with the same value in each row, of which only one chunk is in memory."""
    chunk = pa.repeat(value, min(count, _REPEATED_ROWS))
    whole, rest = divmod(count, max(1, len(chunk)))
    return pa.chunked_array([*[chunk] * whole, chunk.slice(0, rest)], value.type)


class Constant:
    """A value that each row of some batches has. Their arrays share the memory of the longest one."""

    def __init__(self, value: pa.Scalar) -> None:
        self._value = value
        self._longest: pa.Array = pa.nulls(0, value.type)

    def rows(self, count: int) -> pa.Array:
        """An array of `count` values."""
        if count > len(self._longest):
            value = self._value
            self._longest = pa.repeat(value, count) if value.is_valid else nested.nulls(count, value.type)
        return self._longest.slice(0, count)
