"""The columns of a change come with whatever columns are chosen, so that deleted rows do not look like others."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.support import memory_store, new_table
from tests.randomness import EXAMPLES
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError
from tidelog.log.read.commit_changes import CHANGE_MODES, Mode

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


@pytest.fixture(scope="module")
def changed() -> Table:
    table = new_table(memory_store(), SCHEMA, properties={"tidelog.primaryKey": "k"})
    table.insert([{"k": number, "v": number % 3} for number in range(6)])
    table.update("k = 1", {"v": "v + 10"})
    table.delete("k > 3")
    table.insert([{"k": 9, "v": None}])
    return table


@settings(max_examples=EXAMPLES // 2)
@given(st.data(), st.sampled_from(CHANGE_MODES))
def test_any_columns_are_those_of_the_whole_changes(changed: Table, data: st.DataObject, mode: Mode) -> None:
    after = changed.version - 1 if mode == "append" else 0  # the newest commit only inserts
    whole = changed.changes(after=after, mode=mode).to_arrow()
    own = [name for name in whole.column_names if name in OWN]
    named = data.draw(st.lists(st.sampled_from(whole.column_names), unique=True))
    without = data.draw(st.lists(st.sampled_from(OWN), unique=True))
    without = [name for name in without if name not in named]
    columns = data.draw(st.permutations([*named, *(f"-{name}" for name in without)]))
    chosen = [name for name in columns if name in named] or (SCHEMA.names if without else [])
    expected = [*chosen, *(name for name in own if name not in chosen and name not in without)]
    found = changed.changes(after=after, mode=mode, columns=columns).to_arrow()
    assert found.column_names == expected
    assert found.to_pylist() == whole.select(expected).to_pylist()
