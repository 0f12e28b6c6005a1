"""Tables with variant columns: values are written as they are given, and statistics count only their nulls."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.log.support import PROTOCOL, live_files, memory_store, metadata, put_commit, reopen
from tidelog.log import Table
from tidelog.log.errors import SchemaMismatchError
from tidelog.log.format.schema import VARIANT
from tidelog.log.state.loader import load
from tidelog.log.storage import Store

FIELDS: list[dict[str, Any]] = [
    {"name": "n", "type": "long", "nullable": True, "metadata": {}},
    {"name": "v", "type": "variant", "nullable": True, "metadata": {}},
    {
        "name": "s",
        "type": {"type": "struct", "fields": [{"name": "i", "type": "variant", "nullable": True, "metadata": {}}]},
        "nullable": True,
        "metadata": {},
    },
    {
        "name": "l",
        "type": {"type": "array", "elementType": "variant", "containsNull": True},
        "nullable": True,
        "metadata": {},
    },
    {
        "name": "m",
        "type": {"type": "map", "keyType": "string", "valueType": "variant", "valueContainsNull": True},
        "nullable": True,
        "metadata": {},
    },
]
# The variants 1 and "a" (Parquet's Variant encoding).
ONE = {"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}
TEXT = {"value": b"\x05a", "metadata": b"\x01\x00\x00"}
ROWS: list[dict[str, Any]] = [
    {"n": 0, "v": ONE, "s": {"i": TEXT}, "l": [ONE, None], "m": [("a", ONE), ("b", None)]},
    {"n": 1, "v": None, "s": {"i": None}, "l": [], "m": []},
    {"n": 2, "v": TEXT, "s": None, "l": None, "m": None},
]


def variant_table(store: Store, feature: str = "variantType") -> Table:
    """An empty table with variants in the columns `v`, `s`, `l` and `m`."""
    protocol = msgspec.structs.replace(
        PROTOCOL,
        reader_features=(*(PROTOCOL.reader_features or ()), feature),
        writer_features=(*(PROTOCOL.writer_features or ()), "changeDataFeed", feature),
    )
    text = msgspec.json.encode({"type": "struct", "fields": FIELDS}).decode()
    put_commit(store, 0, metadata(schema_string=text), protocol)
    return Table(store, load(store))


@pytest.fixture(params=["variantType", "variantType-preview"])
def table(request: pytest.FixtureRequest) -> Table:
    return variant_table(memory_store(), request.param)


def rows_of(table: Table) -> list[dict[str, Any]]:
    return sorted(reopen(table).scan().to_arrow().to_pylist(), key=lambda row: int(row["n"]))


def test_every_operation_keeps_variants(table: Table) -> None:
    table.insert(ROWS[:2])
    table.insert(pa.Table.from_pylist(ROWS[2:], table.schema))
    assert rows_of(table) == ROWS
    table.update("n = 1", {"n": "7"})
    changed = [ROWS[0], ROWS[2], {**ROWS[1], "n": 7}]
    assert rows_of(table) == changed
    table.upsert([{**ROWS[0], "v": TEXT}], keys=["n"])
    changed[0] = {**ROWS[0], "v": TEXT}
    assert rows_of(table) == changed
    clustered = {"level": "major", "cluster_by": ["n"]}
    options: list[dict[str, Any]] = [{"level": "minor"}, clustered, {"level": "major", "purge": True}]
    for each in options:
        table.compact(**each)
        assert rows_of(table) == changed
        table.insert([ROWS[1]])
        table.delete("n = 1")
    table.overwrite(ROWS)
    assert rows_of(table) == ROWS


def test_files_have_required_parts_and_null_counts_only(table: Table) -> None:
    table.insert(ROWS)
    [add] = live_files(table)
    footer = pq.read_metadata(io.BytesIO(table.store.read(add.path)))
    levels = {footer.schema.column(index).path: footer.schema.column(index) for index in range(footer.num_columns)}
    # A value that is not null adds no level below its variant, because its parts are required.
    assert levels["v.value"].max_definition_level == levels["v.metadata"].max_definition_level == 1
    assert levels["s.i.value"].max_definition_level == 2
    stats = msgspec.json.decode(add.stats or "")
    assert stats["nullCount"] == {"n": 0, "v": 1, "s": {"i": 2}, "l": 1, "m": 1}
    assert stats["minValues"] == {"n": 0}


@pytest.mark.parametrize(
    "value",
    [
        {"value": b"\x0c\x01", "metadata": None},
        {"value": None, "metadata": b"\x01\x00\x00"},
        {"value": b"\x0c\x01"},
        {**ONE, "typed_value": 1},
        "text",
    ],
)
def test_what_is_no_variant_is_refused(table: Table, value: object) -> None:
    with pytest.raises(SchemaMismatchError):
        table.insert([{"n": 1, "v": value}])
    assert table.refresh().version == 0


def test_other_columns_can_be_added_beside_variants(table: Table) -> None:
    table.insert(ROWS[:1])
    table.add_columns([pa.field("new", pa.int64())])
    kinds = [field["type"] for field in msgspec.json.decode(load(table.store).head.metadata.schema_string)["fields"]]
    assert kinds == [*(field["type"] for field in FIELDS), "long"]
    assert rows_of(table) == [{**ROWS[0], "new": None}]
    assert table.schema.field("v").type == VARIANT
