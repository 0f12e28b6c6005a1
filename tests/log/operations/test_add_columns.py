"""Adding columns: no file changes, old rows have null in them, and mapped columns get ids."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.log.operations.changing_rows import FEED_ON, KINDS, SCHEMA, bag, filled, lose_once, rows, table_of
from tests.log.support import live_files, memory_store, metadata, new_table, put_commit, reopen, stage_compaction
from tidelog.log import OperationClass, Table
from tidelog.log.commit.result import committed
from tidelog.log.errors import (
    ConfigurationError,
    MetadataChangedException,
    SchemaMismatchError,
    TidelogError,
    UnsupportedFeatureError,
)
from tidelog.log.format.actions import Protocol
from tidelog.log.format.schema import physical_name, table_schema
from tidelog.log.state.commits import read_commit
from tidelog.log.state.loader import load

NEW = pa.schema(
    [("note", pa.large_string()), ("place", pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.string()))]))]
)


@pytest.fixture(params=list(KINDS))
def table(request: pytest.FixtureRequest) -> Table:
    return filled(request.param)


def test_old_rows_have_null_and_new_rows_values(table: Table) -> None:
    before, files = bag(table.scan().to_arrow()), live_files(table)
    committed = table.add_columns(NEW)
    assert table.schema.names == [*SCHEMA.names, "note", "place"]
    assert table.schema.field("note") == pa.field("note", pa.string())
    assert live_files(table) == files
    assert bag(table.scan(columns=SCHEMA.names).to_arrow()) == before
    assert table.scan("note IS NULL AND place.x IS NULL").count() == 13
    table.insert([{"k": 50, "part": "a", "note": "n", "place": {"x": 1.5, "tags": ["t"]}}])
    table.update("k = 1", {"note": "'changed'"})
    table.upsert([{"k": 2, "note": "upserted"}], keys=["k"])
    assert dict(zip(*table.scan("note IS NOT NULL", ["k", "note"]).to_arrow().to_pydict().values(), strict=True)) == {
        50: "n",
        1: "changed",
        2: "upserted",
    }
    (record,) = [record for record in table.history() if record.version == committed.version]
    assert (record.operation_class, record.time_version) == (OperationClass.NONE, None)
    info = read_commit(table.store, committed.version).info
    assert (info["operation"], info["isBlindAppend"]) == ("ADD COLUMNS", False)
    assert [entry["column"]["name"] for entry in json.loads(info["operationParameters"]["columns"])] == [
        "note",
        "place",
    ]
    assert table.at(version=committed.version - 1).schema.names == SCHEMA.names
    assert table.changes(until=committed.version).to_arrow()["note"].null_count == 13
    table.checkpoint()
    assert bag(reopen(table).scan().to_arrow()) == bag(table.scan().to_arrow())


def test_files_with_and_without_the_column_are_compacted_together() -> None:
    table = new_table(memory_store(), SCHEMA)
    table.insert(rows(range(3)))
    table.add_columns([pa.field("n", pa.int64())])
    table.insert([{"k": 3, "n": 3}])
    stage_compaction(table).commit()
    assert table.refresh().scan(columns=["k", "n"]).to_arrow().sort_by("k")["n"].to_pylist() == [None, None, None, 3]


def test_without_columns_there_is_no_commit(table: Table) -> None:
    version = table.version
    assert table.add_columns([]).version == version == table.add_columns(pa.schema([])).version


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        (
            [pa.field("n", pa.int64(), nullable=False)],
            ConfigurationError,
            "the new column 'n' must allow nulls",
        ),
        ([pa.field("K", pa.int64())], ConfigurationError, "the table already has a column 'k'"),
        ([pa.field("n", pa.int64()), pa.field("N", pa.int64())], ConfigurationError, "'n' more than once"),
        ([pa.field("n", pa.struct([("a", pa.int64()), ("A", pa.int64())]))], ConfigurationError, "'a' more than once"),
        ([pa.field("n", pa.duration("s"))], SchemaMismatchError, "column 'n' has the Arrow type"),
        ([pa.field("s.y", pa.int64())], ConfigurationError, "cannot add 's.y' to the struct 's'"),
        (
            [pa.field("S", pa.struct([("x", pa.int64()), ("y", pa.int64())]))],
            ConfigurationError,
            "cannot add 'S' to the struct 's'",
        ),
        ([pa.field("_change_type", pa.string())], ConfigurationError, "a name that the change feed uses"),
        (pa.field("n", pa.int64()), ConfigurationError, r"a list of pyarrow fields \(got Field\)"),
        ({"n": pa.int64()}, ConfigurationError, r"fields \(got str\)"),
        ("n", ConfigurationError, r"fields \(got str\)"),
        (None, ConfigurationError, r"fields \(got NoneType\)"),
    ],
)
def test_invalid_columns(fields: Any, kind: type[TidelogError], message: str) -> None:
    schema = pa.schema([*SCHEMA, ("s", pa.struct([("x", pa.int64())]))])
    table = new_table(memory_store(), schema, properties=FEED_ON)
    with pytest.raises(kind, match=message):
        table.add_columns(fields)
    assert table.refresh().version == 0


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
        pa.list_(pa.timestamp("us")),
        pa.large_list(pa.timestamp("ns")),
        pa.struct([("t", pa.timestamp("s"))]),
        pa.dictionary(pa.int32(), pa.timestamp("ms")),
        pa.map_(pa.string(), pa.timestamp("ns")),
    ],
    ids=str,
)
def test_a_timestamp_without_zone_needs_the_feature(kind: pa.DataType) -> None:
    new = [pa.field("n", kind)]
    table = new_table(memory_store(), SCHEMA)
    with pytest.raises(UnsupportedFeatureError, match=r"the table feature timestampNtz.*allow_protocol_upgrade=True"):
        table.add_columns(new)
    assert table.refresh().version == 0
    table.add_columns(new, allow_protocol_upgrade=True)
    protocol = load(table.store).head.protocol
    assert "timestampNtz" in (protocol.reader_features or ())
    assert "timestampNtz" in (protocol.writer_features or ())
    assert table.schema.field("n").type == table_schema(pa.schema(new)).field("n").type
    for listed in (table_of(3, 7, "timestampNtz"), table_of(1, 2)):
        listed.add_columns((field for field in new), allow_protocol_upgrade=True)
        assert load(listed.store).head.protocol.min_writer_version == 7


def test_metadata_of_fields_is_kept_and_conflicts_with_nothing() -> None:
    table = new_table(memory_store(), SCHEMA)
    staged = table.begin().insert([{"k": 1}])
    inner = pa.field("x", pa.int64(), metadata={"comment": "inside"})
    added = pa.field("n", pa.struct([inner]), metadata={"comment": "new", "delta.invariants": "{}"})
    table.add_columns([added])
    assert committed(staged.commit()).rebased_over
    found = table.refresh().schema.field("n")
    assert (found.metadata, found.type.field("x").metadata) == ({b"comment": b"new"}, {b"comment": b"inside"})
    table.insert([{"k": 2, "n": {"x": 3}}])
    assert table.scan("n.x = 3").to_arrow().num_rows == 1


def test_the_protocol_and_the_json_of_old_columns_do_not_change() -> None:
    store = memory_store()
    text = (
        '{"fields":[{"nullable":true,"metadata":{"comment":"c","big":12345678901234567890},"type":"long","name":"k"}],'
        '"type":"struct"}'
    )
    old = msgspec.structs.replace(metadata(configuration={}), schema_string=text)
    put_commit(store, 0, Protocol(min_reader_version=1, min_writer_version=2), old, info={"inCommitTimestamp": None})
    table = Table(store, load(store))
    table.insert([{"k": 1}])
    table.add_columns([pa.field("n", pa.int8())])
    after = load(store).head
    assert (after.protocol.min_reader_version, after.protocol.min_writer_version) == (1, 2)
    fields = json.loads(after.metadata.schema_string)["fields"]
    assert fields == [*json.loads(text)["fields"], {"name": "n", "type": "byte", "nullable": True, "metadata": {}}]
    assert table.scan().to_arrow().to_pylist() == [{"k": 1, "n": None}]


# --- column mapping --------------------------------------------------------------------------------------------------

_MAPPED_FIELDS = [
    {
        "name": "k",
        "type": "long",
        "nullable": True,
        "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"},
    },
    {
        "name": "s",
        "type": {
            "type": "array",
            "elementType": {
                "type": "struct",
                "fields": [
                    {
                        "name": "x",
                        "type": "long",
                        "nullable": True,
                        "metadata": {"delta.columnMapping.id": 7, "delta.columnMapping.physicalName": "col-7"},
                    }
                ],
            },
            "containsNull": True,
        },
        "nullable": True,
        "metadata": {"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "col-2"},
    },
]


@pytest.mark.parametrize("highest", ["9", None, "3"])
@pytest.mark.parametrize("mode", ["name", "id"])
def test_new_columns_of_a_mapped_table_get_ids_and_physical_names(mode: str, highest: str | None) -> None:
    store = memory_store()
    configuration = {"delta.columnMapping.mode": mode}
    if highest is not None:
        configuration["delta.columnMapping.maxColumnId"] = highest
    text = json.dumps({"type": "struct", "fields": _MAPPED_FIELDS})
    old = msgspec.structs.replace(metadata(configuration=configuration), schema_string=text)
    put_commit(store, 0, Protocol(min_reader_version=2, min_writer_version=5), old, info={"inCommitTimestamp": None})
    table = Table(store, load(store))
    table.insert([{"k": 1, "s": [{"x": 5}]}])
    inner = pa.struct([("y", pa.int64())])
    table.add_columns(
        [pa.field("n", pa.int64()), pa.field("m", pa.map_(pa.string(), inner)), pa.field("l", pa.list_(inner))]
    )
    last = 9 if highest == "9" else 7
    ids = list(_ids(json.loads(load(store).head.metadata.schema_string)["fields"]))
    assert ids == [1, 2, 7, *range(last + 1, last + 6)]
    assert table.properties["delta.columnMapping.maxColumnId"] == str(last + 5)
    assert len({physical_name(field) for field in table.schema}) == 5
    assert physical_name(table.schema.field("n")).startswith("col-")
    table.insert([{"k": 2, "n": 3, "m": {"a": {"y": 4}}, "l": [{"y": 6}]}])
    assert reopen(table).scan().to_arrow().sort_by("k").to_pylist() == [
        {"k": 1, "s": [{"x": 5}], "n": None, "m": None, "l": None},
        {"k": 2, "s": None, "n": 3, "m": [("a", {"y": 4})], "l": [{"y": 6}]},
    ]
    assert table.scan("n = 3").count() == 1


def _ids(node: Any) -> Any:
    if isinstance(node, dict):
        if "delta.columnMapping.id" in node.get("metadata", {}):
            yield node["metadata"]["delta.columnMapping.id"]
        for key, value in node.items():
            if key != "metadata":
                yield from _ids(value)
    if isinstance(node, list):
        for value in node:
            yield from _ids(value)


# --- concurrent writers ----------------------------------------------------------------------------------------------


def test_a_concurrent_add_is_a_conflict_and_the_statement_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(memory_store(), SCHEMA)
    staged = table.begin().add_columns([pa.field("mine", pa.int64())])
    reopen(table).add_columns([pa.field("yours", pa.int64())])
    with pytest.raises(MetadataChangedException):
        staged.commit()
    lose_once(table, lambda other: other.add_columns([pa.field("theirs", pa.int64())]), monkeypatch)
    table.add_columns(field for field in [pa.field("mine", pa.int64())])
    assert table.schema.names == [*SCHEMA.names, "yours", "theirs", "mine"]


def test_transactions_with_the_old_columns_commit() -> None:
    table = new_table(memory_store(), SCHEMA)
    table.insert(rows(range(3)))
    inserting, deleting = table.begin().insert(rows(range(3, 4))), table.begin().delete("k = 0")
    compacting = stage_compaction(table)
    table.add_columns([pa.field("n", pa.int64())])
    inserting.commit()
    compacting.commit()
    adding = reopen(table).begin().add_columns([pa.field("m", pa.int64())])
    table.refresh().insert([{"k": 9, "n": 9}])
    adding.commit()
    deleting.abort()
    found = table.refresh().scan(columns=["k", "n", "m"]).to_arrow().sort_by("k").to_pylist()
    assert found == [
        *({"k": key, "n": None, "m": None} for key in range(4)),
        {"k": 9, "n": 9, "m": None},
    ]
