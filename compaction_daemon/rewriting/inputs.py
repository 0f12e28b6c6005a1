"""The live rows of a group's files, in order. Threads read ahead of the consumer, and hash the rows if asked to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tidelog.compaction_daemon.rewriting.digests import hashes_of
from tidelog.log.arrays import Int64Array, UInt64Array
from tidelog.log.data.deletion_vectors import read_dead_rows
from tidelog.log.data.reader import DataFile, read_batches, read_coded_batches, read_footer
from tidelog.log.format.actions import AddFile
from tidelog.log.format.statistics import num_records
from tidelog.log.read.read_ahead import SharedThreads, read_ahead
from tidelog.log.storage import Store

NarrowArray: TypeAlias = npt.NDArray[np.signedinteger[Any]]

HASHED_BYTES = 2**25
"""Rows that wait to be sorted or compared. To hash them takes longer than to read them, so a few files are enough."""


@dataclass(frozen=True, slots=True)
class HashedRows:
    """Some rows with their hashes."""

    batch: pa.RecordBatch
    hashes: UInt64Array

    @property
    def nbytes(self) -> int:
        """What they take in memory."""
        return int(self.batch.nbytes) + self.hashes.nbytes


def hashed(batch: pa.RecordBatch) -> HashedRows:
    """The rows of a batch with their hashes."""
    return HashedRows(batch, hashes_of(batch))


class Inputs:
    """The files of a group. A file without live rows is not read; nor is one whose footer is not needed yet."""

    def __init__(
        self, store: Store, adds: Sequence[AddFile], schema: pa.Schema, threads: SharedThreads | None = None
    ) -> None:
        """`schema` has the table's columns but for the partition columns.

        `threads` are those that read, by default as many as the store is worth.
        """
        self.store = store
        self.threads = threads or store.reads_at_once
        self.adds = adds
        self.schema = schema
        self._footers: list[pq.FileMetaData | None] = [None] * len(adds)
        counted = [num_records(add.stats) for add in adds]
        self._live = [self._live_of(number, rows) for number, rows in enumerate(counted)]
        self._with_rows = [number for number, rows in enumerate(self._live) if rows]

    @property
    def physical_rows(self) -> list[int]:
        """The rows of each file, dead ones included, from the footers."""
        return [int(self.footer(number).num_rows) for number in range(len(self.adds))]

    @property
    def live_rows(self) -> int:
        """The number of live rows, from the footers."""
        return sum(self.physical_rows) - sum(map(_dead, self.adds))

    @property
    def expected_rows(self) -> int:
        """The number of live rows, from statistics where a file has them. They can be wrong in a foreign file."""
        return sum(self._live)

    @property
    def footers(self) -> list[pq.FileMetaData]:
        """The footers of the files with live rows."""
        return [self.footer(number) for number in self._with_rows]

    @property
    def files(self) -> list[DataFile]:
        """The files with live rows."""
        return [self._file(number) for number in self._with_rows]

    def footer(self, number: int) -> pq.FileMetaData:
        """The footer of a file; it is read if the file's rows were not."""
        found = self._footers[number]
        if found is None:
            found = self._footers[number] = read_footer(self.store, self._file(number))
        return found

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All live rows, in order. Text that has codes in a file keeps them. Raises what `rows` raises."""
        readings = [partial(self._batches_of, number) for number in self._with_rows]
        return read_ahead(readings, self.threads)

    def rows(self) -> Iterator[HashedRows]:
        """All live rows with their hashes, in order.

        Raises DataFileMissingError, DataFileDamagedError, CorruptLogError.
        """
        readings: list[Callable[[], Iterator[HashedRows]]] = [
            partial(self._rows_of, number) for number in self._with_rows
        ]
        return read_ahead(readings, self.threads, queued_bytes=HASHED_BYTES)

    def columns(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all live rows, in order."""
        schema = pa.schema([self.schema.field(name) for name in names])
        readings = [partial(read_batches, self.store, file, schema) for file in self.files]
        return read_ahead(readings, self.threads, queued_bytes=HASHED_BYTES)

    def _rows_of(self, number: int) -> Iterator[HashedRows]:
        for batch in self._batches_of(number):
            yield hashed(_decoded(batch, self.schema))

    def _batches_of(self, number: int) -> Iterator[pa.RecordBatch]:
        def keep(footer: pq.FileMetaData) -> None:
            self._footers[number] = footer

        return read_coded_batches(self.store, self._file(number), self.schema, on_footer=keep)

    def _file(self, number: int) -> DataFile:
        add = self.adds[number]
        return DataFile.of(add)

    def _live_of(self, number: int, rows: int | None) -> int:
        """The live rows of a file for which its statistics count `rows`."""
        dead = _dead(self.adds[number])
        if rows is None or rows <= dead:
            # Statistics that count too few rows must not cost any.
            rows = int(self.footer(number).num_rows)
        return rows - dead


def _dead(add: AddFile) -> int:
    return add.deletion_vector.cardinality if add.deletion_vector else 0


def _decoded(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def live_positions(store: Store, add: AddFile, physical: int) -> Int64Array:
    """The positions of the live rows of a file with so many rows."""
    if add.deletion_vector is None:
        return np.arange(physical)
    live = np.ones(physical, dtype=bool)
    dead: BitMap64 = read_dead_rows(store, add.deletion_vector)
    live[np.fromiter(dead, dtype=np.int64, count=len(dead))] = False
    return np.flatnonzero(live)


def narrowest(largest: int) -> type[np.int16 | np.int32 | np.int64]:
    """The type for numbers from -1 to `largest`: those of rows are as narrow as they can be, for there are many."""
    for kind in (np.int16, np.int32):
        if largest <= np.iinfo(kind).max:
            return kind
    return np.int64
