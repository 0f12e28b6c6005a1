"""Columns that get another name, or go, in tables that map their columns."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.randomness import seed
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, MetadataChangedException, UnsupportedFeatureError
from tidelog.log.operations.alter_table import AddConstraint

INNER = pa.struct([("a", pa.int64()), ("b", pa.string())])
SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string()), ("st", INNER), ("p", pa.string())])
MAPS = {"delta.columnMapping.mode": "name"}
ROWS = [{"id": 1, "s": "x", "st": {"a": 1, "b": "y"}, "p": "k"}, {"id": 2, "s": None, "st": None, "p": None}]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path / "table"), SCHEMA, partition_by=["p"], properties=MAPS)
    made.insert(ROWS)
    return made


def by_content(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


def content(table: Table) -> list[dict[str, Any]]:
    return sorted(Table.open(table.path).scan().to_arrow().to_pylist(), key=repr)


@pytest.mark.parametrize("upgraded", [False, True])
def test_names_change_and_rows_stay(tmp_path: Path, *, upgraded: bool) -> None:
    properties = {"delta.enableChangeDataFeed": "true"}
    table = Table.create(
        str(tmp_path / "table"), SCHEMA, partition_by=["p"], properties=properties if upgraded else properties | MAPS
    )
    table.insert(ROWS)
    if upgraded:
        table.set_properties(MAPS)
    start = table.version
    table.rename_column("P", "q")
    table.rename_column(("ST", "a"), "A.x")
    table.drop_columns(["s", ("st", "b")])
    table.add_columns([pa.field("s", pa.int32())])
    table.insert([{"id": 3, "st": {"A.x": 3}, "q": "k", "s": 7}])
    assert (table.schema.names, table.partition_by, table.version) == (["id", "st", "q", "s"], ("q",), start + 5)
    assert content(table) == [
        {"id": 1, "st": {"A.x": 1}, "q": "k", "s": None},
        {"id": 2, "st": None, "q": None, "s": None},
        {"id": 3, "st": {"A.x": 3}, "q": "k", "s": 7},
    ]
    assert table.scan(where="q = 'k' AND id < 3").to_arrow()["id"].to_pylist() == [1]
    assert table.at(version=start).scan().to_arrow().column_names == SCHEMA.names
    table.update("id = 1", {"s": "5"})
    table.delete("q IS NULL")
    changes = table.changes(mode="cdc").to_arrow().select(["id", "s", "_change_type"]).to_pylist()
    assert [tuple(row.values()) for row in changes if row["_change_type"] != "insert"] == [
        (1, None, "update_preimage"), (1, 5, "update_postimage"), (2, None, "delete")
    ]  # fmt: skip
    table.restore(version=start)
    assert content(table) == sorted(ROWS, key=repr)


def test_what_the_table_names_takes_the_new_name(tmp_path: Path) -> None:
    properties = {
        "tidelog.primaryKey": "id, s", "tidelog.clusterBy": "S", "delta.dataSkippingStatsColumns": "st.a,id", **MAPS
    }  # fmt: skip
    table = Table.create(str(tmp_path / "table"), SCHEMA, properties=properties)
    table.rename_column("s", "t")
    table.rename_column(("st", "a"), "x`y")
    assert table.properties["tidelog.primaryKey"] == "id, t"
    assert table.properties["tidelog.clusterBy"] == "t"
    assert table.properties["delta.dataSkippingStatsColumns"] == "`st`.`x``y`, `id`"
    with pytest.raises(ConfigurationError, match=r"'tidelog\.primaryKey' names the column, and cannot have the name"):
        table.rename_column("t", "a,b")
    for column, what in (
        ("id", r"the table property 'delta\.dataSkippingStatsColumns'"),
        ("t", r"the table property 'tidelog\.primaryKey'"),
        ("st", r"the table property 'delta\.dataSkippingStatsColumns'"),
    ):
        with pytest.raises(ConfigurationError, match=f"cannot be dropped: it is named by {what}; change the property"):
            table.drop_columns([column])
    assert table.version == 2


def test_a_table_without_mapping_says_which_property(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA, properties={"delta.enableDeletionVectors": "false"})
    with pytest.raises(UnsupportedFeatureError, match=r"set the table property 'delta\.columnMapping\.mode' to"):
        table.rename_column("s", "t")
    with pytest.raises(UnsupportedFeatureError, match=r"set the table property 'delta\.columnMapping\.mode' to"):
        table.drop_columns(["s"])
    with pytest.raises(UnsupportedFeatureError, match="pass allow_protocol_upgrade=True to raise the protocol"):
        table.set_properties(MAPS)
    with pytest.raises(ConfigurationError, match="maps columns by their names only; set it to name"):
        table.set_properties({"delta.columnMapping.mode": "id"}, allow_protocol_upgrade=True)
    table.set_properties({"delta.columnMapping.mode": "Name"}, allow_protocol_upgrade=True)
    table.rename_column("s", "t")
    with pytest.raises(ConfigurationError, match=r"'delta\.columnMapping\.mode' cannot be changed"):
        table.set_properties({"delta.columnMapping.mode": "none"})
    assert table.properties["delta.columnMapping.mode"] == "name"
    assert table.properties["delta.columnMapping.maxColumnId"] == "6"


@pytest.mark.parametrize(
    ("column", "name", "message"),
    [
        ("no", "x", "there is no column 'no'"),
        ("s", "ID", "already has a column 'id'"),
        (("st", "a"), "B", r"already has a column 'st\.b'"),
        ("s", "", "cannot be empty"),
        (("s", "a"), "x", "s is not a struct"),
        ("id", "x", r"the constraint 'positive' reads it \(id > 0\); drop the constraint first"),
    ],
)
def test_what_cannot_be_renamed(table: Table, column: str | tuple[str, ...], name: str, message: str) -> None:
    table.statement(lambda transaction: transaction.alter([AddConstraint("positive", "id > 0")], lambda _: False))
    with pytest.raises(ConfigurationError, match=message):
        table.rename_column(column, name)
    assert table.version == 2


def test_what_cannot_be_dropped(table: Table) -> None:
    with pytest.raises(ConfigurationError, match="cannot be dropped: it is a partition column"):
        table.drop_columns(["p"])
    with pytest.raises(ConfigurationError, match=r"it is the last one; drop the struct that it is in"):
        table.drop_columns([("st", "a"), ("st", "b")])
    with pytest.raises(ConfigurationError, match=r"must be a list of column names, not a string; pass \['s'\]"):
        table.drop_columns("s")
    with pytest.raises(Exception, match="every column is a partition column or void"):
        table.drop_columns(["id", "s", "st"])
    assert table.version == 1
    table.rename_column("S", "S")
    assert table.schema.names == ["id", "S", "st", "p"]


def test_a_write_that_knows_the_old_name_is_a_conflict(table: Table) -> None:
    staged = table.begin().insert([{"id": 3, "s": "z", "st": None, "p": None}])
    Table.open(table.path).rename_column("s", "t")
    with pytest.raises(MetadataChangedException):
        staged.commit()


@pytest.mark.parametrize("rounds", [12, pytest.param(1000, marks=pytest.mark.nightly)])
def test_any_history(tmp_path: Path, rounds: int) -> None:
    """Upserts, deletes, new, renamed and dropped columns of a keyed table, against rows that are kept here by place."""
    draw = random.Random(seed())
    path = str(tmp_path / "table")
    properties = MAPS | {"tidelog.primaryKey": "k", "tidelog.orderBy": "o"}
    table = Table.create(path, pa.schema([("k", pa.int64()), ("o", pa.int64())]), properties=properties)
    # The names of the columns; and of each key, the values of its row by the numbers of the columns.
    names, rows = {0: "k", 1: "o"}, dict[int, dict[int, Any]]()
    for number in range(2, rounds + 2):
        # The first rows come at once, so that all else meets some.
        what, free = draw.random() if rows else 1.0, sorted({*"abcdefgh", "ü", "x.y"} - {*names.values()})
        if what < 0.15 and free:
            names[number] = draw.choice(free)
            table.add_columns([pa.field(names[number], pa.int64())])
        elif what < 0.35 and free:
            chosen, new = draw.choice(list(names)), draw.choice(free)
            table.rename_column(names[chosen].upper(), new)
            names[chosen] = new
        elif what < 0.45 and len(names) > 2:
            chosen = draw.choice([column for column in names if column > 1])
            table.drop_columns([names.pop(chosen)])
        elif what < 0.6 and rows:
            key = draw.choice(list(rows))
            table.upsert(
                [dict.fromkeys(names.values()) | {names[0]: key, names[1]: number}],
                delete_where=f"`{names[0]}` = {key}",
            )
            del rows[key]
        else:
            keys = draw.sample(range(9), 3)
            made = {key: {column: draw.choice([None, number]) for column in names} for key in keys}
            made = {key: row | {0: key, 1: number} for key, row in made.items()}
            table.upsert([{names[column]: value for column, value in row.items()} for row in made.values()])
            rows |= made
        wanted = [{name: row.get(column) for column, name in names.items()} for row in rows.values()]
        found = Table.open(path)
        assert set(found.schema.names) == set(names.values())
        assert sorted(found.scan().to_arrow().to_pylist(), key=by_content) == sorted(wanted, key=by_content)
