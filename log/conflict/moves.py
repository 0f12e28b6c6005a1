"""Moves: where the rows of a compaction's inputs went, by the lineage that its commit records.

A worked example. Input `a` has 5 rows of which row 1 was dead when it was read, input `b` has 3 rows. The output `o`
holds, in order,

    a0 a2 a3 a4 b0 b1 b2
    at 0  1  2  3  4  5  6

so row `r` of an input lies at `base + rank(r)`: `rank` counts the live rows before it in its file, `base` those of the
files before. Going back is a select: the r-th live row. Where order does not tell, a row map names both addresses.
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
from tidelog.log.format.actions import DeletionVectorDescriptor
from tidelog.log.format.lineage import LineageGroup
from tidelog.log.format.paths import canonical

NOWHERE = -1
"""The number of a file for a row that is not part of a move."""


class Blobs(Protocol):
    """Small files beside the log that say more about a commit: the only thing that a rebase looks up."""

    def dead_rows(self, vector: DeletionVectorDescriptor | str) -> BitMap64:
        """The positions that a deletion vector holds, which may be given by its unique id alone."""

    def row_map(self, path: str) -> pa.Table:
        """The row map at a path below the table; see `tidelog.log.data.row_maps`."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Rows by the number of their file (NOWHERE for none) and their position in it."""

    files: Int64Array
    positions: Int64Array


class Move(Protocol):
    """A one-to-one map from rows of `inputs` to rows of `outputs` (canonical paths), which count `output_rows` each."""

    inputs: list[str]
    outputs: list[str]
    output_rows: list[int]

    def load(self) -> None:
        """Look up what is needed to follow rows. Raises DataFileMissingError where a clean-up took it."""

    def forward(self, path: str, positions: Int64Array) -> Addresses:
        """Where these rows of one input, in ascending order, lie among the outputs; NOWHERE for one not moved."""

    def backward(self, path: str, positions: Int64Array) -> Addresses:
        """Which rows of the inputs these of one output were."""


def move_of(group: LineageGroup, blobs: Blobs) -> Move:
    """The move that one group of a lineage records; looks deletion vectors and row maps up when they are needed."""
    return OrderedMove(group, blobs) if group.row_map is None else MappedMove(group, group.row_map, blobs)


class OrderedMove:
    """Every row that was live when the inputs were read, in order."""

    def __init__(self, group: LineageGroup, blobs: Blobs) -> None:
        self.inputs = [canonical(entry.path) for entry in group.inputs]
        self.outputs = [canonical(entry.path) for entry in group.outputs]
        self.output_rows = [entry.rows for entry in group.outputs]
        self._group = group
        self._blobs = blobs
        self._number = {path: number for number, path in enumerate(self.inputs)}
        self._dead: dict[int, Int64Array] = {}

    def load(self) -> None:
        """See Move."""
        _ = self._input_starts

    def forward(self, path: str, positions: Int64Array) -> Addresses:
        """See Move."""
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

    def backward(self, path: str, positions: Int64Array) -> Addresses:
        """See Move."""
        ranks = self._output_starts[self.outputs.index(path)] + positions
        found = located(ranks, self._input_starts)
        for number in np.unique(found.files):
            here = found.files == number
            dead = self._dead_of(int(number))
            inside = found.positions[here]
            # Before the j-th dead row there are dead[j] - j live ones.
            found.positions[here] = inside + np.searchsorted(dead - np.arange(len(dead)), inside, side="right")
        return found

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
    """The rows that a row map names."""

    def __init__(self, group: LineageGroup, path: str, blobs: Blobs) -> None:
        self.inputs = [canonical(entry.path) for entry in group.inputs]
        self.outputs = [canonical(entry.path) for entry in group.outputs]
        self.output_rows = [entry.rows for entry in group.outputs]
        self._path = path
        self._blobs = blobs

    def load(self) -> None:
        """See Move."""
        _ = self._from, self._to

    def forward(self, path: str, positions: Int64Array) -> Addresses:
        """See Move."""
        return _looked_up(self._from, self._to, self.inputs.index(path), positions)

    def backward(self, path: str, positions: Int64Array) -> Addresses:
        """See Move."""
        order = np.lexsort((self._to.positions, self._to.files))
        to = Addresses(self._to.files[order], self._to.positions[order])
        back = Addresses(self._from.files[order], self._from.positions[order])
        return _looked_up(to, back, self.outputs.index(path), positions)

    @cached_property
    def _from(self) -> Addresses:
        row_map = self._blobs.row_map(self._path)
        return Addresses(row_map["input"].to_numpy(), row_map["position"].to_numpy())

    @cached_property
    def _to(self) -> Addresses:
        row_map = self._blobs.row_map(self._path)
        return Addresses(row_map["output"].to_numpy(), row_map["output_position"].to_numpy())


_NONE: Int64Array = np.empty(0, np.int64)


def to_numbers(bitmap: BitMap64) -> Int64Array:
    """The positions of a bitmap, ascending."""
    return np.frombuffer(bitmap.to_array(), dtype=np.uint64).astype(np.int64) if bitmap else _NONE


def to_bitmap(positions: Int64Array) -> BitMap64:
    """The bitmap of some positions."""
    return BitMap64(positions.tolist())


def concatenated(parts: Sequence[Int64Array]) -> Int64Array:
    """Some arrays, none of them or more, as one."""
    return np.concatenate([_NONE, *parts])


def starts(lengths: Sequence[int]) -> Int64Array:
    """Where each of some consecutive stretches begins."""
    return np.cumsum([0, *lengths], dtype=np.int64)[:-1]


def located(ranks: Int64Array, begins: Int64Array) -> Addresses:
    """In which of some consecutive stretches each rank lies, and where in it. Empty stretches hold nothing."""
    if len(begins) == 1:
        return Addresses(np.zeros(len(ranks), np.int64), ranks)
    files = np.searchsorted(begins, ranks, side="right").astype(np.int64) - 1
    return Addresses(files, ranks - begins[files] if len(begins) else ranks)


def _looked_up(keys: Addresses, values: Addresses, file: int, positions: Int64Array) -> Addresses:
    """For rows of one file, what stands beside them; `keys` are sorted by file and position."""
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
    """Rows at their present addresses: for each path the positions, ascending, and each row's own number."""

    at: Mapping[str, tuple[Int64Array, Int64Array]]

    def follow(self, move: Move) -> Rows:
        """The same rows after a move: composition. Those that it does not name stay where they are."""
        touched = [path for path in move.inputs if path in self.at]
        if not touched:
            return self
        leaving = set(touched)
        after = {path: rows for path, rows in self.at.items() if path not in leaving}
        moved = [move.forward(path, self.at[path][0]) for path in touched]
        files = concatenated([to.files for to in moved])
        positions = concatenated([to.positions for to in moved])
        numbers = concatenated([self.at[path][1] for path in touched])
        # Many small files become few: the rows are taken together, and apart again by where they went.
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
