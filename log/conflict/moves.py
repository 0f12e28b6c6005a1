"""Moves: where the rows of a compaction's inputs went, according to the lineage in its commit.

A worked example. Input `a` has 5 rows, of which row 1 was dead when it was read. Input `b` has 3 rows. The output `o`
holds, in order,

    a0 a2 a3 a4 b0 b1 b2
    at 0  1  2  3  4  5  6

so row `r` of an input is at `base + rank(r)`: `rank` counts the live rows before it in its file, `base` those of the
inputs before. The inverse is a select: the r-th live row. If order alone does not determine the addresses, a row map
lists both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tidelog.log.arrays import Int64Array
from tidelog.log.errors import CorruptLogError
from tidelog.log.format.actions import DeletionVectorDescriptor
from tidelog.log.format.lineage import LineageGroup
from tidelog.log.format.paths import canonical

NOWHERE = -1
"""The file number of a row that is not part of a move."""


class Blobs(Protocol):
    """Small files that the log names: deletion vectors and row maps. A rebase reads nothing else."""

    def dead_rows(self, vector: DeletionVectorDescriptor | str) -> BitMap64:
        """The positions in a deletion vector, given by its descriptor or its unique id."""

    def row_map(self, path: str) -> pa.Table:
        """The row map at a path relative to the table; see `tidelog.log.data.row_maps`."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Row addresses: the number of each row's file (NOWHERE for none) and its position in the file."""

    files: Int64Array
    positions: Int64Array


class Move(Protocol):
    """A one-to-one map from rows of `inputs` to rows of `outputs`, both canonical paths.

    `output_rows` holds the row count of each output.
    """

    inputs: list[str]
    outputs: list[str]
    output_rows: list[int]

    def load(self) -> None:
        """Read what is needed to follow rows. Raises DataFileMissingError if a clean-up has deleted it."""

    def forward(self, path: str, positions: Int64Array) -> Addresses:
        """The addresses in the outputs of these rows of one input, in ascending order; NOWHERE for a row not moved."""


def move_of(group: LineageGroup, blobs: Blobs) -> Move:
    """The move that one group of a lineage records. Reads deletion vectors and row maps only when needed."""
    return OrderedMove(group, blobs) if group.row_map is None else MappedMove(group, group.row_map, blobs)


class OrderedMove:
    """A move of every row that was live when the inputs were read, in order."""

    def __init__(self, group: LineageGroup, blobs: Blobs) -> None:
        self.inputs = [canonical(entry.path) for entry in group.inputs]
        self.outputs = [canonical(entry.path) for entry in group.outputs]
        self.output_rows = [entry.rows for entry in group.outputs]
        self._group = group
        self._blobs = blobs
        self._number = {path: number for number, path in enumerate(self.inputs)}
        self._dead: dict[int, Int64Array] = {}

    def load(self) -> None:
        _ = self._input_starts

    def forward(self, path: str, positions: Int64Array) -> Addresses:
        number = self._number[path]
        dead = self._dead_of(number)
        start = self._input_starts[number]
        if not len(dead):
            return located(start + positions, self._output_starts)
        before = np.searchsorted(dead, positions)
        addresses = located(start + positions - before, self._output_starts)
        was_dead = dead[np.minimum(before, len(dead) - 1)] == positions
        addresses.files[was_dead] = NOWHERE
        return addresses

    @cached_property
    def _input_starts(self) -> Int64Array:
        live = [entry.rows - len(self._dead_of(number)) for number, entry in enumerate(self._group.inputs)]
        return starts(live)

    @cached_property
    def _output_starts(self) -> Int64Array:
        return starts(self.output_rows)

    def _dead_of(self, number: int) -> Int64Array:
        if number not in self._dead:
            dv_id = self._group.inputs[number].dv_id
            self._dead[number] = _NONE if dv_id is None else to_numbers(self._blobs.dead_rows(dv_id))
        return self._dead[number]


class MappedMove:
    """A move of the rows that a row map lists."""

    def __init__(self, group: LineageGroup, path: str, blobs: Blobs) -> None:
        self.inputs = [canonical(entry.path) for entry in group.inputs]
        self.outputs = [canonical(entry.path) for entry in group.outputs]
        self.output_rows = [entry.rows for entry in group.outputs]
        self._path = path
        self._blobs = blobs

    def load(self) -> None:
        _ = self._from, self._to

    def forward(self, path: str, positions: Int64Array) -> Addresses:
        return _looked_up(self._from, self._to, self.inputs.index(path), positions)

    @cached_property
    def _from(self) -> Addresses:
        row_map = self._blobs.row_map(self._path)
        return Addresses(row_map["input"].to_numpy(), row_map["position"].to_numpy())

    @cached_property
    def _to(self) -> Addresses:
        row_map = self._blobs.row_map(self._path)
        return Addresses(row_map["output"].to_numpy(), row_map["output_position"].to_numpy())


_NONE: Int64Array = np.empty(0, np.int64)
MAX_LISTED_ROWS = 2**27
"""Rows are listed in 8 bytes each. A bitmap needs a few bytes to claim four billion."""


def to_numbers(bitmap: BitMap64) -> Int64Array:
    """The positions of a bitmap, ascending."""
    if len(bitmap) > MAX_LISTED_ROWS:
        raise CorruptLogError(
            f"a deletion vector claims {len(bitmap)} rows, which are too many to follow",
            advice="run the operation again",
        )
    return np.frombuffer(bitmap.to_array(), dtype=np.uint64).astype(np.int64) if bitmap else _NONE


def to_bitmap(positions: Int64Array) -> BitMap64:
    """A bitmap of these positions."""
    return BitMap64(positions.tolist())


def concatenated(parts: Sequence[Int64Array]) -> Int64Array:
    """Concatenate any number of arrays, even none."""
    return np.concatenate([_NONE, *parts])


def starts(lengths: Sequence[int]) -> Int64Array:
    """The start of each of several consecutive stretches with these lengths."""
    return np.cumsum([0, *lengths], dtype=np.int64)[:-1]


def located(ranks: Int64Array, begins: Int64Array) -> Addresses:
    """For each rank, the number of the consecutive stretch that holds it and the place in it. Skips empty ones."""
    if len(begins) == 1:
        return Addresses(np.zeros(len(ranks), np.int64), ranks)
    files = np.searchsorted(begins, ranks, side="right").astype(np.int64) - 1
    return Addresses(files, ranks - begins[files] if len(begins) else ranks)


def _looked_up(keys: Addresses, values: Addresses, file: int, positions: Int64Array) -> Addresses:
    """Look up rows of one file in `keys`, which are sorted by file and position, and return their `values`."""
    low, high = np.searchsorted(keys.files, [file, file + 1])
    known = keys.positions[low:high]
    found = Addresses(np.full(len(positions), NOWHERE), np.zeros(len(positions), np.int64))
    if not len(known):
        return found
    at = np.minimum(np.searchsorted(known, positions), len(known) - 1)
    same = known[at] == positions
    found.files[same] = values.files[low:high][at[same]]
    found.positions[same] = values.positions[low:high][at[same]]
    return found


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows at their current addresses: for each path the positions, ascending, and the numbers of the rows."""

    at: Mapping[str, tuple[Int64Array, Int64Array]]

    def follow(self, move: Move) -> Rows:
        """The same rows after a move. Rows that the move does not name stay where they are."""
        touched = [path for path in move.inputs if path in self.at]
        if not touched:
            return self
        leaving = set(touched)
        after = {path: rows for path, rows in self.at.items() if path not in leaving}
        moved = [move.forward(path, self.at[path][0]) for path in touched]
        files = concatenated([to.files for to in moved])
        positions = concatenated([to.positions for to in moved])
        numbers = concatenated([self.at[path][1] for path in touched])
        # A move usually turns many files into few, so handle all rows at once and split them by target.
        for file in np.unique(files).tolist():
            if file != NOWHERE:
                here = files == file
                after[move.outputs[file]] = _sorted(positions[here], numbers[here])
        if NOWHERE in files:
            for path, to in zip(touched, moved, strict=True):
                here = to.files == NOWHERE
                if here.any():
                    after[path] = self.at[path][0][here], self.at[path][1][here]
        return Rows(after)


def _sorted(positions: Int64Array, numbers: Int64Array) -> tuple[Int64Array, Int64Array]:
    if np.all(positions[1:] > positions[:-1]):
        return positions, numbers
    order = np.argsort(positions, kind="stable")
    return positions[order], numbers[order]
