"""Temporary files: rows in numbered parts, if they are more than fit into the memory, and copies of distant files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from tidelog.log.arrays import Int64Array
from tidelog.log.data.reader import BATCH_ROWS
from tidelog.log.errors import StoreUnavailableError

BUFFER_BYTES = 2**24
"""The rows of all parts that wait to be written. Fewer would make many small batches."""


def divided(rows: pa.Table, parts: Int64Array) -> dict[int, pa.Table]:
    """The rows of each part whose number is in `parts`, in order."""
    if not rows.num_rows:
        return {}
    order = np.argsort(parts, kind="stable")
    numbers, starts = np.unique(parts[order], return_index=True)
    grouped = rows.take(pa.array(order))
    ends = [*starts[1:], len(order)]
    return {
        int(number): grouped.slice(start, end - start) for number, start, end in zip(numbers, starts, ends, strict=True)
    }


class Spill:
    """Rows of `schema` in `count` parts. The file has no name, so nothing is left of a process that was killed.

    Raises StoreUnavailableError if the folder for temporary files has no space.
    """

    def __init__(self, schema: pa.Schema, count: int) -> None:
        self._schema = schema
        self._waiting: list[list[pa.Table]] = [[] for _ in range(count)]
        self._waiting_bytes = 0
        # Where each part's batches are in the file: their first byte and their length.
        self._written: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        self._end = 0
        self._file = tempfile.TemporaryFile(prefix="tidelog-")  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, rows: pa.Table, parts: Int64Array) -> None:
        """Add each row to the part whose number is in `parts`, after the rows that are there."""
        self.add_divided(divided(rows, parts))

    def add_divided(self, rows: Mapping[int, pa.Table]) -> None:
        """Add rows by the number of their part, as `divided` returns them."""
        for number, part in rows.items():
            self._waiting[number].append(part)
            self._waiting_bytes += part.nbytes
        if self._waiting_bytes >= BUFFER_BYTES:
            self._write()

    def parts(self) -> Iterator[Iterator[pa.Table]]:
        """The rows of each part that has any, in order. Call it after all rows were added."""
        self._write()
        for places in self._written:
            if places:
                yield self._read(places)

    def sizes(self) -> dict[int, int]:
        """The bytes of each part that has any rows, by its number. Call it after all rows were added."""
        self._write()
        return {number: sum(length for _, length in places) for number, places in enumerate(self._written) if places}

    def part(self, number: int) -> Iterator[pa.Table]:
        """The rows of one part. Threads can read several parts at once, after `sizes` was called."""
        return self._read(self._written[number])

    def _write(self) -> None:
        try:
            for tables, places in zip(self._waiting, self._written, strict=True):
                if tables:
                    for batch in pa.concat_tables(tables).combine_chunks().to_batches(BATCH_ROWS):
                        content = batch.serialize()
                        self._file.write(content)
                        places.append((self._end, content.size))
                        self._end += content.size
                    tables.clear()
            self._file.flush()
        except OSError as error:
            folder = tempfile.gettempdir()
            raise StoreUnavailableError(
                f"cannot write temporary rows: {error.strerror or error}",
                advice=f"free up space in {folder}, or set TMPDIR to a folder with more",
                path=folder,
            ) from error
        self._waiting_bytes = 0

    def _read(self, places: list[tuple[int, int]]) -> Iterator[pa.Table]:
        for start, length in places:
            # Without a position in the file, so that threads can read several parts at once.
            content = os.pread(self._file.fileno(), length, start)
            batch = pa.ipc.read_record_batch(pa.py_buffer(content), self._schema)
            yield pa.Table.from_batches([batch])


class LocalCopy:
    """A temporary file without a name, which is gone once nobody uses it. `total` are the bytes of all of them."""

    total = 0

    def __init__(self, size: int) -> None:
        self._size = size
        self._file = tempfile.TemporaryFile(prefix="tidelog-")  # noqa: SIM115 - closed with the object
        LocalCopy.total += size

    def __del__(self) -> None:
        LocalCopy.total -= self._size
        self._file.close()

    def write(self, content: bytes) -> None:
        """Append to it."""
        self._file.write(content)
        self._file.flush()

    def size(self) -> int:
        """How many bytes it is made for."""
        return self._size

    def read_at(self, size: int, start: int) -> bytes:
        """A part of it."""
        return os.pread(self._file.fileno(), size, start)
