"""Where an update's new images lie: the address of each, and that of the row that it was made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.log.changing_rows import SCHEMA, filled, rows
from tests.log.support import live_files, memory_store, new_table
from tidelog.log import Table
from tidelog.log.conflict.staged import Staged
from tidelog.log.datafile import DataFile, read_numbered_batches
from tidelog.log.row_changes import RowChange, joined

PREDICATE = "k NOT IN (1, 4, 7, 11)"
ASSIGNMENTS = {"v": "k + 1000", "part": "'c'"}


def rows_by_position(table: Table, file: DataFile) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for positions, batch in read_numbered_batches(table.store, file, table.schema):
        found |= dict(zip(positions.tolist(), batch.to_pylist(), strict=True))
    return found


def old_and_new(table: Table, staged: Staged) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each row that dies beside its image, by their addresses alone."""
    adds = [rows_by_position(table, DataFile.of(add)) for add in staged.adds]
    for delete in staged.deletes:
        assert delete.images is not None
        before = rows_by_position(table, DataFile.of(delete.file))
        places = zip(delete.images.adds, delete.images.positions, strict=True)
        for position, (add, row) in zip(delete.positions, places, strict=True):
            yield before[position], adds[add][row]


def by_parts(table: Table, assignments: dict[str, str], size: int) -> Staged:
    """An update whose files are shared out, `size` of them to a part."""
    transaction = table.begin()
    change = RowChange(transaction._state.head.protocol, transaction.writer, PREDICATE, assignments)
    adds = change.candidates(transaction._state)
    return change.staged(joined([change.apply(adds[at : at + size]) for at in range(0, len(adds), size)]))


@pytest.mark.parametrize("kind", ["vectors", "copies"])
@pytest.mark.parametrize("assignments", [ASSIGNMENTS, {"v": "k + 1000"}, {"v": "k + 1000", "part": "NULL"}])
@pytest.mark.parametrize("size", [1, 2, 9])
def test_each_image_is_found_by_its_address(kind: str, assignments: dict[str, str], size: int) -> None:
    table = filled(kind)
    table.delete("k IN (0, 8)")
    staged = by_parts(table, assignments, size)
    pairs = list(old_and_new(table, staged))
    assert sorted(old["k"] for old, _ in pairs) == [2, 3, 5, 6, 9, 10, 12]
    assert all(new["k"] == old["k"] and new["v"] == old["k"] + 1000 for old, new in pairs)


def test_images_in_several_files_of_a_partition() -> None:
    properties: dict[str, object] = {"tidelog.targetFileSize": 1024}
    table = new_table(memory_store(), SCHEMA, partition_by=["part"], properties=properties)
    table.insert([*rows(range(100)), *rows(range(100, 200), "b")])
    assert len(live_files(table)) > 4
    staged = by_parts(table, {"v": "k + 1000"}, 3)
    assert len(staged.adds) > 4
    pairs = list(old_and_new(table, staged))
    assert len(pairs) == 196
    assert all(new["k"] == old["k"] and new["part"] == old["part"] for old, new in pairs)
