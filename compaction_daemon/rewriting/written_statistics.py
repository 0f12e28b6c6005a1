"""Compare the statistics of written files with the values that are read back from them.

Readers skip files by their statistics, so a bound that does not hold hides rows. The statistics are decoded as readers
do it, which makes bounds a little wider where writers round.

The least and the greatest value come from the rows that are read back, with nothing of the code that collected the
statistics. For text, decimals and floating numbers, where that takes long, the bounds in the file's footer are enough
if they confirm the statistics: Arrow's writer found them by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from tidelog.log.format.actions import AddFile
from tidelog.log.format.footer_statistics import footer_bounds
from tidelog.log.format.schema import is_variant, physical_name
from tidelog.log.format.statistics_reader import Bounds, read_bounds


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column, or a field of a struct, with what the statistics of each file say of it.

    `path` are its physical names, and `places` its numbers among its siblings.
    """

    path: tuple[str, ...]
    places: tuple[int, ...]
    kind: pa.DataType
    known: Bounds

    @property
    def is_known(self) -> bool:
        """Whether the statistics of any file say something."""
        parts = (self.known.low, self.known.high, self.known.nulls)
        return any(part.null_count < len(part) for part in parts)

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """The values in some rows. In a struct, they are null where the struct is."""
        first, *inner = self.places
        return pc.struct_field(batch.column(first), inner) if inner else batch.column(first)

    def has_bounds(self, file: int) -> bool:
        """Whether the statistics of a file have a bound."""
        return bool(self.known.low[file].is_valid or self.known.high[file].is_valid)

    def hold(self, file: int, lows: list[pa.Scalar], highs: list[pa.Scalar]) -> bool:
        """Whether the bounds of a file hold for values between any of `lows` and `highs`."""
        if not lows:
            return True
        low, high = self.known.low[file], self.known.high[file]
        least, greatest = pc.min(pa.array(lows, self.kind)), pc.max(pa.array(highs, self.kind))
        # A comparison with NaN is false, and one with an unknown bound is null.
        outside = pc.greater(low, least.cast(low.type)), pc.less(high, greatest.cast(high.type))
        return not any(each.as_py() for each in outside)


class _Values:
    """The values of a leaf: how many are null, and the least and the greatest of each batch if that is of interest."""

    def __init__(self) -> None:
        self.nulls = 0
        self.lows: list[pa.Scalar] = []
        self.highs: list[pa.Scalar] = []

    def add(self, values: pa.Array, *, bounded: bool) -> None:
        """Take in the values of a batch."""
        self.nulls += values.null_count
        if bounded and values.null_count < len(values):
            low, high = _bounds(values)
            self.lows.append(low)
            self.highs.append(high)

    def __iadd__(self, other: _Values) -> Self:
        """Take in those of another part."""
        self.nulls += other.nulls
        self.lows += other.lows
        self.highs += other.highs
        return self


class RowsRead:
    """The rows that are read back of a file, or of a part of it."""

    def __init__(self, leaves: Sequence[_Leaf], bounded: Sequence[bool]) -> None:
        self.rows = 0
        self.values = [_Values() for _ in leaves]
        self._leaves = leaves
        self._bounded = bounded

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the next rows. Text may have codes."""
        self.rows += batch.num_rows
        for leaf, bounded, values in zip(self._leaves, self._bounded, self.values, strict=True):
            values.add(leaf.values(batch), bounded=bounded)


class WrittenStatistics:
    """The statistics of written files, and what is read back of each file."""

    def __init__(self, written: Sequence[AddFile], footers: Sequence[pq.FileMetaData], schema: pa.Schema) -> None:
        """`schema` has the columns of the files, under the table's names."""
        fields = [*_plain_fields(schema)]
        texts = pa.chunked_array([pa.array([add.stats for add in written], pa.string())])
        self._counts, bounds = read_bounds(texts, {path: kind for path, _, kind in fields})
        leaves = [_Leaf(path, places, kind, bounds[path]) for path, places, kind in fields]
        self._leaves = [leaf for leaf in leaves if leaf.is_known]
        self._bounded = [[*self._unconfirmed(file, footer)] for file, footer in enumerate(footers)]
        self._paths = [add.path for add in written]
        self._parts: list[list[RowsRead]] = [[] for _ in written]

    def part(self, file: int) -> RowsRead:
        """A part of a file, which takes in the rows that are read of it. Each thread needs one of its own."""
        self._parts[file].append(RowsRead(self._leaves, self._bounded[file]))
        return self._parts[file][-1]

    def differences(self) -> Iterator[str]:
        """What is wrong with the statistics, once all rows of the files were read."""
        for file, path in enumerate(self._paths):
            rows, counted = sum(part.rows for part in self._parts[file]), self._counts[file].as_py()
            if rows != counted:
                yield f"the statistics of {path} count {counted} rows, but it has {rows}"
            nulls, bounds = [], []
            for number, leaf in enumerate(self._leaves):
                values = _Values()
                for part in self._parts[file]:
                    values += part.values[number]
                if leaf.known.nulls[file].as_py() not in {None, values.nulls}:
                    nulls.append(repr(".".join(leaf.path)))
                if not leaf.hold(file, values.lows, values.highs):
                    bounds.append(repr(".".join(leaf.path)))
            if nulls:
                yield f"the statistics of {path} count other nulls than it has in the columns {', '.join(nulls)}"
            if bounds:
                yield f"the statistics of {path} have wrong bounds for the columns {', '.join(bounds)}"

    def _unconfirmed(self, file: int, footer: pq.FileMetaData) -> Iterator[bool]:
        """Whether the bounds of each leaf are compared with its values: not if the footer confirms them."""
        slow = {leaf.path: leaf.kind for leaf in self._leaves if _is_slow(leaf.kind)}
        found = footer_bounds(footer, slow)
        for leaf in self._leaves:
            least, greatest = ([pa.scalar(bound, leaf.kind)] for bound in found.get(leaf.path, (None, None)))
            confirmed = leaf.path in found and leaf.hold(file, least, greatest)
            yield leaf.has_bounds(file) and not confirmed


def _plain_fields(
    fields: Iterable[pa.Field], above: tuple[str, ...] = (), places_above: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[str, ...], tuple[int, ...], pa.DataType]]:
    """The path, the places and the type of each leaf."""
    for place, field in enumerate(fields):
        path, places = (*above, physical_name(field)), (*places_above, place)
        if is_variant(field):  # its statistics are not of its parts
            continue
        if pt.is_struct(field.type):
            yield from _plain_fields(field.type, path, places)
        else:
            yield path, places, field.type


def _is_slow(kind: pa.DataType) -> bool:
    """Whether the bounds of such values take ten times as long as those of integers, or longer."""
    return bool(pt.is_string(kind) or pt.is_decimal(kind) or pt.is_floating(kind))


def _bounds(values: pa.Array) -> tuple[pa.Scalar, pa.Scalar]:
    """The least and the greatest of values that are not all null; NaN if there is nothing else."""
    # A dictionary can have values that no row has.
    both = pc.min_max(values.cast(values.type.value_type) if pt.is_dictionary(values.type) else values)
    return both["min"], both["max"]
