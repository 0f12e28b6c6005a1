"""Moves against a brute-force model that rewrites a list of rows."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from tests.log.support import bitmap
from tidelog.log.conflict.moves import NOWHERE, Addresses, Move, Rows, located, move_of, starts, to_numbers
from tidelog.log.data.row_maps import ROW_MAP_COLUMNS, row_map_schema
from tidelog.log.format import deletion_vector
from tidelog.log.format.actions import DeletionVectorDescriptor
from tidelog.log.format.lineage import LineageGroup, LineageInput, LineageOutput

Address = tuple[str, int]


class KnownBlobs:
    """Deletion vectors and row maps in memory, by name."""

    def __init__(self) -> None:
        self.vectors: dict[str, BitMap64] = {}
        self.row_maps: dict[str, pa.Table] = {}

    def dead_rows(self, vector: DeletionVectorDescriptor | str) -> BitMap64:
        assert isinstance(vector, str)
        return self.vectors[vector]

    def row_map(self, path: str) -> pa.Table:
        return self.row_maps[path]


@st.composite
def rewrites(draw: st.DrawFn) -> tuple[LineageGroup, KnownBlobs, dict[Address, Address]]:
    """A compaction, in order or with a row map, and the true new address of each row."""
    blobs = KnownBlobs()
    inputs, live = [], []
    for number in range(draw(st.integers(1, 4))):
        rows = draw(st.integers(0, 9))
        dead = draw(st.sets(st.integers(0, rows - 1))) if rows else set()
        name = f"in{number}"
        dv_id = f"dv{number}" if dead else None
        blobs.vectors[f"dv{number}"] = BitMap64(dead)
        inputs.append(LineageInput(name, dv_id, rows))
        live += [(name, row) for row in range(rows) if row not in dead]
    cuts = sorted(draw(st.lists(st.integers(0, len(live)), max_size=3)))
    lengths = np.diff([0, *cuts, len(live)]).tolist()
    outputs = tuple(LineageOutput(f"out{number}", length) for number, length in enumerate(lengths))
    slots = [(output.path, row) for output in outputs for row in range(output.rows)]
    if draw(st.booleans()):
        return LineageGroup(tuple(inputs), outputs), blobs, dict(zip(live, slots, strict=True))
    order = draw(st.permutations(range(len(live))))
    truth = {row: slots[order[index]] for index, row in enumerate(live)}
    moved = sorted(truth) if draw(st.booleans()) else sorted(truth)[::2]
    names = [entry.path for entry in inputs]
    mapped = [(names.index(a), p, int(truth[a, p][0].removeprefix("out")), truth[a, p][1]) for a, p in moved]
    blobs.row_maps["map"] = pa.table(
        [[row[column] for row in mapped] for column in range(len(ROW_MAP_COLUMNS))], schema=row_map_schema()
    )
    return LineageGroup(tuple(inputs), outputs, "map"), blobs, {row: truth[row] for row in moved}


def addresses(found: Addresses, names: Sequence[str]) -> list[Address | None]:
    return [
        None if file == NOWHERE else (names[file], position)
        for file, position in zip(found.files.tolist(), found.positions.tolist(), strict=True)
    ]


@given(rewrites())
def test_each_row_is_where_the_rewrite_put_it(
    rewrite: tuple[LineageGroup, KnownBlobs, dict[Address, Address]],
) -> None:
    group, blobs, truth = rewrite
    move: Move = move_of(group, blobs)
    for entry in group.inputs:
        rows = np.arange(entry.rows)
        assert addresses(move.forward(entry.path, rows), move.outputs) == [
            truth.get((entry.path, row)) for row in range(entry.rows)
        ]


@given(rewrites(), st.randoms(use_true_random=False))
def test_rows_keep_their_numbers_through_a_move(
    rewrite: tuple[LineageGroup, KnownBlobs, dict[Address, Address]], seeded: random.Random
) -> None:
    group, blobs, truth = rewrite
    all_rows = [(entry.path, row) for entry in group.inputs for row in range(entry.rows)] + [("other", 3)]
    chosen = sorted(seeded.sample(all_rows, seeded.randint(0, len(all_rows))))
    numbers = {row: number for number, row in enumerate(seeded.sample(chosen, len(chosen)))}
    at = {}
    for path in {path for path, _ in chosen}:
        here = [row for row in chosen if row[0] == path]
        at[path] = np.array([row for _, row in here]), np.array([numbers[row] for row in here])
    after = Rows(at).follow(move_of(group, blobs))
    found = {
        number: (path, position)
        for path, (positions, own) in after.at.items()
        for position, number in zip(positions.tolist(), own.tolist(), strict=True)
    }
    assert found == {numbers[row]: truth.get(row, row) for row in chosen}
    assert all((np.diff(positions) > 0).all() for positions, _ in after.at.values())


def test_the_worked_example() -> None:
    blobs = KnownBlobs()
    blobs.vectors["d"] = BitMap64([1])
    group = LineageGroup((LineageInput("a", "d", 5), LineageInput("b", None, 3)), (LineageOutput("o", 7),))
    move = move_of(group, blobs)
    assert addresses(move.forward("a", np.array([1, 3])), move.outputs) == [None, ("o", 2)]
    assert addresses(move.forward("b", np.array([1])), move.outputs) == [("o", 5)]


def test_empty_stretches_hold_no_rank() -> None:
    found = located(np.array([0, 1, 2]), starts([0, 2, 0, 1]))
    assert found.files.tolist() == [1, 1, 3]
    assert found.positions.tolist() == [0, 1, 0]


@pytest.mark.parametrize("positions", [[], [0], [5, 2**33, 2**40]])
def test_bitmaps_convert_to_numbers(positions: list[int]) -> None:
    assert to_numbers(BitMap64(positions)).tolist() == positions


def test_an_inline_vector_that_ends_like_an_offset_is_found_by_its_id() -> None:
    """The encoding can contain @ and digits, and lineage refers to a vector by its id only."""
    blob = bitmap([322, 599, 70046])
    text = deletion_vector._z85_encode(blob + bytes(-len(blob) % 4))
    assert text.endswith("@5")
    vector = DeletionVectorDescriptor(storage_type="i", path_or_inline_dv=text, size_in_bytes=len(blob), cardinality=3)
    found = deletion_vector.of_id(vector.unique_id)
    assert isinstance(found, bytes)
    assert list(deletion_vector.decode_bitmap(found)) == [322, 599, 70046]
