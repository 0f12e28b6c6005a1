"""Operations staged in parts: joined, they equal the operation staged at once."""

from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np
import pytest
from pyroaring import BitMap64

from tests.log.operations.changing_rows import KINDS, bag, filled, keys
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import RowDelete, Staged, UpdateImages
from tidelog.log.data.writer import DataWriter
from tidelog.log.format.actions import AddFile
from tidelog.log.operations.delete_update import stage_delete, stage_update
from tidelog.log.operations.staged_parts import Stage, join_parts, stage_part, without_progress
from tidelog.log.state.loader import LogState

DELETE = partial(stage_delete, where="k IN (2, 8, 11) OR v = 90")
UPDATE = partial(stage_update, where="k > 3", assignments={"part": "'c'", "v": "k + 1"})


def in_parts(stage: Stage, size: int, state: LogState, writer: DataWriter) -> Staged:
    """Stage the operation in parts of `size` files each."""
    adds, head = state.files().adds, without_progress(state.head)
    parts = [stage_part(head, writer, stage, adds.slice(at, size)) for at in range(0, len(adds), size)]
    return join_parts(writer, stage_part(head, writer, stage), parts)


@pytest.mark.parametrize("size", [1, 2, 9])
@pytest.mark.parametrize("stage", [DELETE, UPDATE])
@pytest.mark.parametrize("kind", list(KINDS))
def test_joined_parts_equal_the_whole_operation(kind: str, stage: Stage, size: int) -> None:
    expected, found = filled(kind), filled(kind)
    before = found.version
    one, other = expected.begin(), found.begin()
    whole = one.stage(stage(one.state, one.writer)).commit()
    shared = other.stage(in_parts(stage, size, other.state, other.writer)).commit()
    ours, theirs = (
        Counter({name: count for name, count in outcome.metrics.items() if name != "numAddedFiles"})  # type: ignore[union-attr]
        for outcome in (shared, whole)
    )
    assert ours == theirs
    assert keys(found.refresh()) == keys(expected.refresh())
    assert bag(found.scan().to_arrow()) == bag(expected.scan().to_arrow())
    changes, wanted = (one.changes(after=before).to_arrow() for one in (found, expected))
    assert Counter(changes["_change_type"].to_pylist()) == Counter(wanted["_change_type"].to_pylist())
    assert bag(changes) == bag(wanted)


def part(name: str, *adds: str, images: list[tuple[int, int]] | None = None) -> Staged:
    """A part that deletes rows of one file; `images` are (index of the part's file, row) of their new rows."""
    places = np.array(images or [], dtype=np.int64).reshape(-1, 2)
    delete = RowDelete(
        file_named(name),
        positions_of(len(places)),
        9,
        images=UpdateImages(places[:, 0], places[:, 1]) if images else None,
    )
    return Staged(
        "UPDATE", OperationClass.UPDATE_DELETE, deletes=(delete,), adds=tuple(map(file_named, adds)), metrics={"n": 1}
    )


def test_image_addresses_are_shifted_when_parts_are_joined() -> None:
    nothing = Staged("UPDATE", OperationClass.UPDATE_DELETE, metrics={"n": 0})
    parts = [
        part("a", "a0", "a1", images=[(0, 7), (1, 8)]),
        part("b"),
        part("c", "c0", images=[(0, 9)]),
        part("d", "d0", "d1", images=[(1, 1), (0, 2), (1, 3)]),
    ]
    writer = filled("vectors").begin().writer
    whole = join_parts(writer, nothing, parts)
    assert [add.path for add in whole.adds] == ["a0", "a1", "c0", "d0", "d1"]
    images = [delete.images for delete in whole.deletes]
    assert [found and (found.adds.tolist(), found.positions.tolist()) for found in images] == [
        ([0, 1], [7, 8]),
        None,
        ([2], [9]),
        ([4, 3, 4], [1, 2, 3]),
    ]
    assert whole.metrics == {"n": 4}
    assert join_parts(writer, nothing, []) == nothing


def file_named(path: str) -> AddFile:
    return AddFile(path=path, partition_values={}, size=1, modification_time=0, data_change=True)


def positions_of(count: int) -> BitMap64:
    return BitMap64(range(count))
