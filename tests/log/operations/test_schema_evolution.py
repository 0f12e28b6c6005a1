"""Schema evolution: new columns and fields are added in the same commit as the rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.log.operations.changing_rows import FEED_ON, KINDS, SCHEMA, bag, filled
from tests.log.support import memory_store, new_table
from tidelog.log import Committed, Table
from tidelog.log.errors import (
    ConfigurationError,
    MetadataChangedException,
    SchemaMismatchError,
    TidelogError,
    UnsupportedFeatureError,
)
from tidelog.log.format.actions import AddFile, Metadata
from tidelog.log.state.commits import read_commit

PLACE = pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.struct([("t", pa.string())])))])
WIDER_PLACE = pa.struct(
    [
        ("X", pa.float64()),
        ("y", pa.float64()),
        ("tags", pa.list_(pa.struct([("t", pa.string()), ("n", pa.int32())]))),
    ]
)


def places() -> Table:
    schema = pa.schema([("k", pa.int64()), ("place", PLACE), ("m", pa.map_(pa.string(), PLACE))])
    table = new_table(memory_store(), schema)
    place = {"x": 1.0, "tags": [{"t": "old"}]}
    table.insert([{"k": 1, "place": place, "m": {"a": place}}, {"k": 2}])
    return table


def evolve_and_insert(table: Table, rows: pa.Table) -> Committed:
    transaction = table.begin()
    assert transaction.evolve(rows.schema)
    committed = transaction.insert(rows).commit()
    assert isinstance(committed, Committed)
    return committed


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_new_column_is_added_with_the_rows(kind: str) -> None:
    table = filled(kind)
    before = bag(table.scan().to_arrow())
    rows = pa.table({"K": pa.array([50], pa.int64()), "part": ["a"], "Note": ["n"]})
    committed = evolve_and_insert(table, rows)
    assert table.schema.names == [*SCHEMA.names, "Note"]
    assert table.scan("Note IS NOT NULL", ["k", "Note"]).to_arrow().to_pylist() == [{"k": 50, "Note": "n"}]
    assert bag(table.scan("Note IS NULL", SCHEMA.names).to_arrow()) == before
    written = read_commit(table.store, committed.version)
    assert {AddFile, Metadata} <= {type(action) for action in written.actions}
    changes = table.changes(after=committed.version - 1, mode="append").to_arrow()
    assert changes["Note"].to_pylist() == ["n"]


@pytest.mark.parametrize("mode", ["upsert", "overwrite"])
def test_rows_can_change_in_the_same_commit(mode: str) -> None:
    table = new_table(memory_store(), SCHEMA, partition_by=["part"], properties=FEED_ON)
    table.insert([{"k": 1, "part": "a"}, {"k": 2, "part": "b"}])
    rows = pa.table({"k": pa.array([1], pa.int64()), "part": ["a"], "note": ["n"]})
    transaction = table.begin()
    assert transaction.evolve(rows.schema)
    if mode == "upsert":
        transaction.upsert(rows, keys=["k"])
    else:
        transaction.overwrite(rows, dynamic=True)
    transaction.commit()
    found = table.scan(columns=["k", "note"]).to_arrow().sort_by("k").to_pylist()
    assert found == [{"k": 1, "note": "n"}, {"k": 2, "note": None}]
    kinds = table.changes(after=1).to_arrow()["_change_type"].to_pylist()
    assert sorted(kinds) == (["update_postimage", "update_preimage"] if mode == "upsert" else ["delete", "insert"])


def test_fields_are_added_to_structs_in_lists_and_maps() -> None:
    table = places()
    place = {"X": 2.0, "y": 3.0, "tags": [{"t": "new", "n": 7}]}
    schema = pa.schema([("k", pa.int64()), ("Place", WIDER_PLACE), ("m", pa.map_(pa.string(), WIDER_PLACE))])
    evolve_and_insert(table, pa.Table.from_pylist([{"k": 3, "Place": place, "m": {"b": place}}], schema))
    new = {"x": 2.0, "tags": [{"t": "new", "n": 7}], "y": 3.0}
    old = {"x": 1.0, "tags": [{"t": "old", "n": None}], "y": None}
    assert table.schema.names == ["k", "place", "m"]
    assert table.scan().to_arrow().sort_by("k").to_pylist() == [
        {"k": 1, "place": old, "m": [("a", old)]},
        {"k": 2, "place": None, "m": None},
        {"k": 3, "place": new, "m": [("b", new)]},
    ]


def test_data_without_new_columns_changes_nothing() -> None:
    table = places()
    for schema in (table.schema, pa.schema([("K", pa.int32())]), pa.schema([("place", pa.string())])):
        assert not table.begin().evolve(schema)


@pytest.mark.parametrize(
    ("field", "kind", "message"),
    [
        (
            pa.field("v", pa.null()),
            SchemaMismatchError,
            "the data's new column 'v' has no type, because all of its values are null",
        ),
        (pa.field("v", pa.duration("s")), SchemaMismatchError, "'v'"),
        (
            pa.field("_commit_version", pa.int64()),
            ConfigurationError,
            "'_commit_version', a name that the change feed uses",
        ),
        (pa.field("_change_type", pa.string()), ConfigurationError, "'_change_type', a name that the change feed uses"),
        (pa.field("v", pa.timestamp("us")), UnsupportedFeatureError, "timestampNtz"),
        (pa.field("v", pa.large_list(pa.timestamp("ns"))), UnsupportedFeatureError, "timestampNtz"),
        (pa.field("place", pa.struct([("z", pa.timestamp("ms"))])), UnsupportedFeatureError, "timestampNtz"),
        (
            pa.field("place", pa.struct([("y", pa.float64()), ("Y", pa.float64())])),
            ConfigurationError,
            "the column 'place' has 'y' more than once",
        ),
    ],
)
def test_invalid_new_columns(field: pa.Field, kind: type[TidelogError], message: str) -> None:
    table = places()
    with pytest.raises(kind) as caught:
        table.begin().evolve(pa.schema([field]))
    assert message in str(caught.value)
    assert caught.value.advice


def test_new_columns_that_differ_in_case_only_are_an_error() -> None:
    with pytest.raises(ConfigurationError, match="more than once"):
        places().begin().evolve(pa.schema([("v", pa.int64()), ("V", pa.int64())]))


def test_concurrent_evolution_is_a_conflict_and_the_loser_leaves_no_file() -> None:
    table = places()
    rows = pa.table({"k": pa.array([9], pa.int64()), "note": ["n"]})
    loser = table.begin()
    loser.evolve(rows.schema)
    loser.insert(rows)
    evolve_and_insert(Table.open(table.path), rows)
    files = [path for path, _ in table.store.walk() if path.endswith(".parquet")]
    with pytest.raises(MetadataChangedException):
        loser.commit()
    assert len([path for path, _ in table.store.walk() if path.endswith(".parquet")]) == len(files) - 1


def test_a_concurrent_append_is_harmless() -> None:
    table = places()
    rows = pa.table({"k": pa.array([9], pa.int64()), "note": ["n"]})
    transaction = table.begin()
    transaction.evolve(rows.schema)
    transaction.insert(rows)
    Table.open(table.path).insert([{"k": 5}])
    outcome = transaction.commit()
    assert isinstance(outcome, Committed)
    assert outcome.rebased_over == (2,)
    assert sorted(table.refresh().scan(columns=["k"]).to_arrow()["k"].to_pylist()) == [1, 2, 5, 9]


def test_evolve_after_staging_is_an_error() -> None:
    table = places()
    transaction = table.begin().insert([{"k": 1}])
    with pytest.raises(ConfigurationError, match="an operation is already staged"):
        transaction.evolve(pa.schema([("note", pa.string())]))
