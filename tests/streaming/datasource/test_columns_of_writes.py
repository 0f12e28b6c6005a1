"""`mergeSchema` and `overwriteSchema` of `df.write`: the columns of the table change in the commit of the rows."""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.randomness import seed
from tidelog.log import Table
from tidelog.log.errors import (
    ConfigurationError,
    DataFileDamagedError,
    MetadataChangedException,
    SchemaMismatchError,
)
from tidelog.log.operations.alter_table import AddConstraint
from tidelog.streaming.datasource.batch_writer import BatchWriter
from tidelog.streaming.datasource.write_options import parse_write
from tidelog.streaming.spark_versions import columns_from_arrow

SCHEMA = pa.schema([("n", pa.int64()), ("part", pa.string())])
MERGE, REPLACE = {"mergeSchema": "true"}, {"overwriteSchema": "true"}
NO_OPTIONS: Mapping[str, str] = {}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path / "table"), SCHEMA, partition_by=["part"])
    made.insert([{"n": 1, "part": "a"}])
    return made


def planned(path: str, schema: pa.Schema, options: Mapping[str, str] = NO_OPTIONS, *, overwrite: bool = False) -> bytes:
    writer = BatchWriter(parse_write({"path": path, **options}, overwrite=overwrite), columns_from_arrow(schema))
    return pickle.dumps(writer)


def finish(plan: bytes, *batches: pa.RecordBatch) -> None:
    """One task for all rows, and the commit, each in a process of its own as with Spark."""
    pickle.loads(plan).commit([pickle.loads(pickle.dumps(pickle.loads(plan).write(iter(batches))))])


def write(path: str, rows: pa.Table, options: Mapping[str, str] = NO_OPTIONS, *, overwrite: bool = False) -> None:
    finish(planned(path, rows.schema, options, overwrite=overwrite), *rows.to_batches())


def one(**values: Any) -> pa.Table:
    return pa.Table.from_pylist([values])


def content(table: Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.refresh().scan().to_arrow().to_pylist()
    return found


def test_new_columns_come_last_and_can_be_null(table: Table) -> None:
    inner = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    new = pa.schema([pa.field("st", inner, nullable=False), pa.field("N", pa.int64()), pa.field("part", pa.string())])
    write(table.path, pa.Table.from_pylist([{"st": {"a": 5}, "N": 2, "part": "a"}], new), MERGE)
    assert table.refresh().version == 2
    assert table.schema.names == ["n", "part", "st"]
    assert table.schema.field("st").nullable
    write(table.path, one(n=3, part="b", st={"b": "x"}), MERGE)
    assert sorted(content(table), key=lambda row: row["n"]) == [
        {"n": 1, "part": "a", "st": None},
        {"n": 2, "part": "a", "st": {"a": 5, "b": None}},
        {"n": 3, "part": "b", "st": {"a": None, "b": "x"}},
    ]
    assert table.partition_by == ("part",)
    write(table.path, one(n=4, part="b"), MERGE | {"where": "part = 'b'"}, overwrite=True)
    assert (len(content(table)), table.schema.names) == (3, ["n", "part", "st"])


def test_a_wider_type_needs_the_property(table: Table) -> None:
    rows = pa.table({"n": pa.array([1.5]), "part": ["a"]})
    with pytest.raises(SchemaMismatchError, match="column 'n' is int64 in the table but double"):
        write(table.path, rows, MERGE)
    narrow = Table.create(
        f"{table.path}2", pa.schema([("n", pa.int32())]), properties={"delta.enableTypeWidening": True}
    )
    write(narrow.path, one(n=2**40), MERGE)
    assert content(narrow) == [{"n": 2**40}]


def test_columns_change_even_without_rows(table: Table) -> None:
    new = pa.schema([*SCHEMA, ("more", pa.int32())])
    write(table.path, new.empty_table(), MERGE)
    assert (table.refresh().version, table.schema.names) == (2, new.names)
    write(table.path, new.empty_table(), MERGE)
    assert table.refresh().version == 2
    write(table.path, pa.schema([("x", pa.int32())]).empty_table(), REPLACE, overwrite=True)
    assert (content(table), table.schema.names, table.partition_by) == ([], ["x"], ())
    write(table.path, pa.schema([("y", pa.int32())]).empty_table(), REPLACE, overwrite=True)
    assert (table.refresh().version, table.schema.names) == (4, ["y"])


def test_a_write_that_was_done_changes_no_columns(table: Table) -> None:
    key = {"txnAppId": "job", "txnVersion": "1"}
    write(table.path, one(n=2, part="a"), key)
    write(table.path, one(n=2, part="a", more=1), key | MERGE)
    assert (table.refresh().version, table.schema.names) == (2, ["n", "part"])


def test_other_columns_take_the_place_of_the_old_ones(table: Table) -> None:
    write(table.path, one(n="7", x="y"), REPLACE | MERGE, overwrite=True)
    assert (content(table), table.partition_by, table.version) == ([{"n": "7", "x": "y"}], (), 2)
    assert table.at(version=1).scan().to_arrow().to_pylist() == [{"n": 1, "part": "a"}]
    write(table.path, one(n="8", x="z"), REPLACE | {"partitionBy": "x"}, overwrite=True)
    assert (content(table), table.partition_by) == ([{"n": "8", "x": "z"}], ("x",))
    # The same columns: the partitions stay.
    write(table.path, one(n="9", x="z"), REPLACE, overwrite=True)
    assert (content(table), table.partition_by) == ([{"n": "9", "x": "z"}], ("x",))
    with pytest.raises(DataFileDamagedError, match=r"column 'n' is int64 in the file but string .*; if the columns of"):
        table.changes(mode="cdc").to_arrow()
    assert table.changes(after=2, mode="cdc").count() == 4


def test_an_append_does_not_replace_columns(table: Table) -> None:
    with pytest.raises(SchemaMismatchError, match="the data has a column 'more'"):
        write(table.path, one(n=2, part="a", more=1), REPLACE)
    write(table.path, one(n=2, part="a"), REPLACE | {"mergeSchema": "false"})
    assert len(content(table)) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": "n = 1"}, "'overwriteSchema' does not go with 'where': rows that stay need their columns"),
        ({"partitionOverwriteMode": "dynamic"}, "'overwriteSchema' does not go with 'partitionOverwriteMode'"),
        ({"partitionBy": "gone"}, "cannot partition by 'gone': the schema has no such column"),
    ],
)
def test_what_does_not_fit(table: Table, options: dict[str, str], message: str) -> None:
    with pytest.raises((ConfigurationError, SchemaMismatchError), match=message):
        write(table.path, one(x=1, y=2), options | REPLACE, overwrite=True)
    assert table.refresh().version == 1


def test_columns_that_the_table_needs_stay(tmp_path: Path) -> None:
    path = str(tmp_path / "keyed")
    table = Table.create(path, SCHEMA, properties={"tidelog.primaryKey": "n"})
    short = AddConstraint("short", "length(part) < 9")
    table.statement(lambda transaction: transaction.alter([short], lambda _: False))
    with pytest.raises(ConfigurationError, match=r"the constraint 'short' reads it \(length\(part\) < 9\); drop the"):
        write(path, one(n=1, x=1), REPLACE, overwrite=True)
    with pytest.raises(ConfigurationError, match="there is no key column 'n'"):
        write(path, one(part="a", x=1), REPLACE, overwrite=True)
    write(path, one(n=1, part="a", x=1), REPLACE, overwrite=True)
    assert content(table) == [{"n": 1, "part": "a", "x": 1}]


def test_writes_at_the_same_time(table: Table) -> None:
    """Rows that came meanwhile are replaced; columns that changed meanwhile are a conflict."""
    plan = planned(table.path, one(x=1).schema, REPLACE, overwrite=True)
    old = planned(table.path, SCHEMA)
    table.insert([{"n": 2, "part": "b"}])
    finish(plan, *one(x=1).to_batches())
    assert content(table) == [{"x": 1}]
    with pytest.raises(MetadataChangedException):
        finish(old, *one(n=9, part="a").to_batches())
    both = [planned(table.path, one(x=1, **{name: 1}).schema, MERGE) for name in "ab"]
    finish(both[0], *one(x=2, a=1).to_batches())
    with pytest.raises(MetadataChangedException):
        finish(both[1], *one(x=2, b=1).to_batches())


@pytest.mark.parametrize("rounds", [20, pytest.param(600, marks=pytest.mark.nightly)])
def test_any_columns_in_any_order(tmp_path: Path, rounds: int) -> None:
    """Random appends and overwrites with other columns each, against rows and columns that are kept here."""
    draw = random.Random(seed())
    kinds = {"a": pa.int64(), "b": pa.string(), "c": pa.float64(), "d": pa.list_(pa.int32()), "e": pa.bool_()}
    values: dict[str, list[Any]] = {"a": [1, None], "b": ["x", None], "c": [0.5], "d": [[1], []], "e": [True, None]}
    path = str(tmp_path / "table")
    names: list[str] = []
    rows: list[dict[str, Any]] = []
    for number in range(rounds):
        chosen = ["n", *draw.sample(list(kinds), draw.randint(0, 4))]
        draw.shuffle(chosen)
        schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in chosen])
        new = [
            {name: number if name == "n" else draw.choice(values[name]) for name in chosen}
            for _ in range(draw.randint(0, 3))
        ]
        overwrite = draw.random() < 0.4
        replaces = overwrite and draw.random() < 0.5
        options = REPLACE if replaces else MERGE
        write(path, pa.Table.from_pylist(new, schema), options, overwrite=overwrite)
        if replaces:
            names = chosen
        names = [*names, *(name for name in chosen if name not in names)]
        rows = new if overwrite else [*rows, *new]
        found = Table.open(path).scan().to_arrow()
        wanted = [{name: row.get(name) for name in names} for row in rows]
        assert found.column_names == names
        assert sorted(found.to_pylist(), key=repr) == sorted(wanted, key=repr)
