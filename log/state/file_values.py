"""Partition values and statistics of many files, decoded column by column on first use and cached."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.format import partition_values, statistics_reader
from tidelog.log.format.statistics_reader import Bounds, Path

Leaf: TypeAlias = tuple[Path, pa.DataType]


class FileValues:
    """Partition values and statistics of `files`, a table with the columns `partitionValues` and `stats`.

    Columns are named by their physical names. Safe to share between threads: at worst, two decode the same column.
    """

    def __init__(self, files: pa.Table) -> None:
        self.files = files
        self._partitions: dict[tuple[str, pa.DataType], tuple[pa.ChunkedArray, pa.ChunkedArray]] = {}
        self._bounds: dict[Leaf, Bounds] = {}
        self._rows: pa.ChunkedArray | None = None

    def partition(self, name: str, kind: pa.DataType) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        """A partition column's value in each file, and whether it is known."""
        key = (name, kind)
        if key not in self._partitions:
            self._partitions[key] = partition_values.decode_column(self.files["partitionValues"], name, kind)
        return self._partitions[key]

    def rows(self) -> pa.ChunkedArray:
        """The physical row count of each file, including dead rows; null if its statistics lack it."""
        if self._rows is None:
            self._rows = statistics_reader.read_row_counts(self.files["stats"])
        return self._rows

    def live_rows(self) -> pa.ChunkedArray:
        """The number of live rows in each file; null if its statistics lack the row count."""
        dead = pc.fill_null(pc.struct_field(self.files["deletionVector"], "cardinality"), 0)
        live = pc.subtract(self.rows(), dead)
        return pc.if_else(pc.greater_equal(live, 0), live, pa.scalar(None, pa.int64()))

    def bounds(self, leaf: Leaf) -> Bounds:
        """The bounds of a leaf column in each file."""
        self.load([leaf])
        return self._bounds[leaf]

    def load(self, leaves: Iterable[Leaf]) -> None:
        """Decode the bounds of several leaf columns in one pass over the statistics."""
        missing = {path: kind for path, kind in leaves if (path, kind) not in self._bounds}
        if missing:
            self._rows, found = statistics_reader.read_bounds(self.files["stats"], missing)
            self._bounds |= {(path, missing[path]): bounds for path, bounds in found.items()}

    def has(self, leaves: Iterable[Leaf]) -> bool:
        """Whether the bounds of all these leaf columns are already decoded."""
        return all(leaf in self._bounds for leaf in leaves)
