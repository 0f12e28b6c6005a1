"""The columns of a change come with whatever columns are chosen, so that deleted rows do not look like others."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.log.support import memory_store, new_table
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError
from tidelog.log.read.commit_changes import CHANGE_MODES

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
OWN = ["_change_type", "_commit_version", "_commit_timestamp"]


@pytest.fixture(scope="module")
def table() -> Table:
    table = new_table(memory_store(), SCHEMA, properties={"tidelog.primaryKey": "k"})
    table.insert([{"k": 1, "v": 1}, {"k": 2, "v": 2}])
    return table


@pytest.mark.parametrize("mode", CHANGE_MODES)
@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (["v"], ["v", *OWN]),
        (["_commit_version", "v"], ["_commit_version", "v", "_change_type", "_commit_timestamp"]),
        ([], OWN),
        (["v", "-_change_type"], ["v", *OWN[1:]]),
        (["v", *(f"-{name}" for name in OWN)], ["v"]),
        (["-_commit_timestamp"], ["k", "v", *OWN[:2]]),
    ],
)
def test_they_come_unless_they_are_left_out(table: Table, mode: str, columns: list[str], found: list[str]) -> None:
    changes = table.changes(mode=mode, columns=columns)
    expected = [name for name in found if mode != "append" or name != "_change_type"]
    assert changes.schema.names == expected
    rows = changes.to_arrow()
    assert (rows.column_names, rows.num_rows, changes.count()) == (expected, 2, 2)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["k", "_change_type", "-_change_type"], "name '_change_type' and leave it out"),
        (["k", "-v"], "there is no column '-v'"),
    ],
)
def test_what_is_no_choice_is_refused(table: Table, columns: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        table.changes(columns=columns)


def test_a_deleted_row_does_not_look_like_a_live_one(table: Table) -> None:
    before = table.version
    table.delete("k = 2")
    (row,) = table.changes(after=before, columns=["k"]).to_arrow().to_pylist()
    assert (row["k"], row["_change_type"]) == (2, "delete")
