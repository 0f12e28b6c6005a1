"""Snapshots of a table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.log.support import NUMBERS, memory_store, new_table, numbers, read_numbers
from tidelog.log import Table


def test_later_commits_do_not_change_a_snapshot(path: str) -> None:
    table = Table.create(path, NUMBERS)
    table.insert(numbers([1, 2]))
    snapshot, scan = table.at(), table.scan()
    table.insert(numbers([3]))
    table.refresh()
    assert (snapshot.version, snapshot.num_files, snapshot.num_rows) == (1, 1, 2)
    assert read_numbers(snapshot) == read_numbers(scan) == [1, 2]
    assert (table.at().num_files, table.at().num_rows) == (2, 3)


def test_a_snapshot_lists_its_files() -> None:
    table = new_table(memory_store(), pa.schema([("n", pa.int64()), ("p", pa.string())]), partition_by=["p"])
    table.insert([{"n": 1, "p": "a"}, {"n": 2, "p": None}])
    files = table.at().files()
    assert {"path", "partitionValues", "size", "stats", "deletionVector"} <= set(files.column_names)
    assert sorted(map(str, files["partitionValues"].to_pylist())) == ["[('p', 'a')]", "[('p', None)]"]


def test_the_properties_of_a_snapshot_are_read_only() -> None:
    table = new_table(memory_store(), properties={"owner": "me"})
    with pytest.raises(TypeError):
        table.at().properties["owner"] = "you"  # type: ignore[index]
    dict(table.properties)["owner"] = "you"
    assert table.properties["owner"] == "me"
