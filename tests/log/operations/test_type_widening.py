"""Type widening: data of a wider type gives its column this type, if the table has the property."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.log.support import memory_store, metadata, new_table, put_commit
from tests.randomness import seed
from tidelog.compaction_daemon import compact, stage
from tidelog.log import Committed, Superseded, Table
from tidelog.log.cleanup.pieces import finished
from tidelog.log.errors import (
    ConflictError,
    MetadataChangedException,
    ProtocolChangedException,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from tidelog.log.format.actions import Protocol
from tidelog.log.format.protocol import allows
from tidelog.log.operations.schema_evolution import wider_types
from tidelog.log.operations.tend_index import tend_index
from tidelog.log.state.loader import load
from tidelog.log.system import REAL_SYSTEM

WIDENING = {"delta.enableTypeWidening": True}
KEYED = {**WIDENING, "tidelog.primaryKey": "k"}
BIG = 2**40


def decimal(digits: int, scale: int) -> pa.DataType:
    return pa.decimal128(digits, scale)


def table_of(
    kind: pa.DataType, values: Sequence[Any], properties: Mapping[str, object] = WIDENING, **options: Any
) -> Table:
    """A table with a column `k` of int32, and `v` of a type."""
    schema = pa.schema([("k", pa.int32()), ("v", kind)])
    table = new_table(memory_store(), schema, properties=properties, **options)
    table.insert(rows_of(kind, values, pa.int32()))
    return table


def rows_of(kind: pa.DataType, values: Sequence[Any], of_key: pa.DataType, first: int = 0) -> pa.Table:
    return pa.table({"k": pa.array(range(first, first + len(values)), of_key), "v": pa.array(values, kind)})


def widen(table: Table, rows: pa.Table, **upsert: Any) -> Committed:
    transaction = table.begin()
    assert transaction.evolve(rows.schema)
    staged = transaction.upsert(rows, **upsert) if upsert else transaction.insert(rows)
    committed = staged.commit()
    assert isinstance(committed, Committed)
    return committed


def values_of(table: Table, where: str | None = None, column: str = "v") -> list[Any]:
    return list(table.scan(where, ["k", column]).to_arrow().sort_by("k")[column].to_pylist())


def indexed(table: Table) -> None:
    """Cover all live files by the key index."""
    finished(tend_index(table.store, load(table.store), REAL_SYSTEM))


def changes_of(table: Table, column: str = "v") -> Any:
    fields = msgspec.json.decode(load(table.store).head.metadata.schema_string)["fields"]
    (field,) = [field for field in fields if field["name"] == column]
    return field["metadata"].get("delta.typeChanges")


PAIRS: list[tuple[pa.DataType, Any, pa.DataType, Any, pa.DataType]] = [
    (pa.int8(), -128, pa.int16(), 2**14, pa.int16()),
    (pa.int8(), -128, pa.int32(), 2**30, pa.int32()),
    (pa.int8(), -128, pa.int64(), BIG, pa.int64()),
    (pa.int16(), -7, pa.int32(), 2**30, pa.int32()),
    (pa.int16(), -7, pa.int64(), BIG, pa.int64()),
    (pa.int32(), -7, pa.int64(), BIG, pa.int64()),
    (pa.float32(), 1.5, pa.float64(), 0.1, pa.float64()),
    (decimal(10, 2), Decimal("1.25"), decimal(12, 2), Decimal("1234567890.25"), decimal(12, 2)),
    (decimal(10, 2), Decimal("1.25"), decimal(12, 4), Decimal("1.2345"), decimal(12, 4)),
    # The type of the data has fewer digits before the point, so the column's is that of both.
    (decimal(10, 2), Decimal("12345678.25"), decimal(10, 4), Decimal("1.2345"), decimal(12, 4)),
    (decimal(9, 2), Decimal("1234567.25"), decimal(38, 2), Decimal(f"{10**30}.25"), decimal(38, 2)),
]


@pytest.mark.parametrize(("before", "old", "data", "new", "after"), PAIRS, ids=str)
def test_a_column_gets_the_wider_type_of_the_data(
    before: pa.DataType, old: Any, data: pa.DataType, new: Any, after: pa.DataType
) -> None:
    table = table_of(before, [old, None])
    committed = widen(table, rows_of(data, [new], pa.int32(), first=2))
    assert table.schema.field("v").type == after
    assert values_of(table) == [old, None, new]
    assert values_of(table, f"v = {old}") == [old]
    assert values_of(table, f"v = {new}") == [new]
    names = {str(before): before, str(after): after}
    assert len(names) == 2
    (change,) = changes_of(table)
    assert set(change) == {"fromType", "toType"}
    # The version before has the type that it had, and the feed that of now.
    assert table.at(version=1).schema.field("v").type == before
    assert table.at(version=1).scan(columns=["v"]).to_arrow()["v"].to_pylist() == [old, None]
    found = table.changes(after=0, until=committed.version).to_arrow()
    assert found.schema.field("v").type == after
    assert found["v"].to_pylist() == [old, None, new]
    # So does a reader that begins with a checkpoint.
    table.checkpoint()
    assert values_of(Table(table.store, load(table.store)), f"v = {old}") == [old]


REFUSED: list[tuple[pa.DataType, Any, pa.DataType, Any]] = [
    (pa.int32(), 7, pa.float64(), 1.5),
    (pa.int32(), 7, decimal(12, 2), Decimal("1.25")),
    (pa.int64(), 7, decimal(20, 0), Decimal(10**19)),
    (pa.int32(), 7, pa.string(), "8"),
    (pa.string(), "7", pa.int64(), 8),
    (pa.float64(), 0.1, decimal(30, 20), Decimal("0.1")),
    # Together these have more digits than a decimal can.
    (decimal(38, 0), Decimal(7), decimal(38, 2), Decimal("0.25")),
]


@pytest.mark.parametrize(("before", "old", "data", "new"), REFUSED, ids=str)
def test_another_type_is_no_wider_one(before: pa.DataType, old: Any, data: pa.DataType, new: Any) -> None:
    table = table_of(before, [old])
    transaction = table.begin()
    assert not transaction.evolve(pa.schema([("v", data)]))
    with pytest.raises(SchemaMismatchError, match="column 'v'"):
        transaction.insert(rows_of(data, [new], pa.int32()))
    assert table.schema.field("v").type == before


@pytest.mark.parametrize("data", [pa.int16(), pa.float32(), decimal(5, 2), decimal(9, 1)], ids=str)
def test_a_narrower_type_changes_nothing(data: pa.DataType) -> None:
    wide = {pa.int16(): pa.int32(), pa.float32(): pa.float64()}.get(data, decimal(10, 2))
    assert not table_of(wide, [None]).begin().evolve(pa.schema([("v", data)]))


def test_without_the_property_types_stay() -> None:
    table = table_of(pa.int32(), [1], {})
    assert not table.begin().evolve(pa.schema([("v", pa.int64())]))
    with pytest.raises(SchemaMismatchError):
        table.insert(rows_of(pa.int64(), [BIG], pa.int32()))
    table.insert(rows_of(pa.int64(), [5], pa.int32(), first=1))
    assert values_of(table) == [1, 5]
    assert not allows(load(table.store).head.protocol, "typeWidening")


def test_setting_the_property_adds_the_feature() -> None:
    table = table_of(pa.int32(), [1], {})
    table.set_properties(WIDENING)
    protocol = load(table.store).head.protocol
    assert "typeWidening" in (protocol.reader_features or ())
    assert "typeWidening" in (protocol.writer_features or ())
    widen(table, rows_of(pa.int64(), [BIG], pa.int32(), first=1))
    table.set_properties({"delta.enableTypeWidening": None})
    assert not table.begin().evolve(pa.schema([("k", pa.int64())]))
    assert values_of(table) == [1, BIG]


def test_a_protocol_without_feature_lists_is_raised_only_if_asked() -> None:
    store = memory_store()
    put_commit(store, 0, Protocol(min_reader_version=1, min_writer_version=2), metadata(pa.schema([("v", pa.int32())])))
    table = Table(store, load(store))
    with pytest.raises(UnsupportedFeatureError, match="enableTypeWidening"):
        table.set_properties(WIDENING)
    table.set_properties(WIDENING, allow_protocol_upgrade=True)
    protocol = load(store).head.protocol
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert allows(protocol, "typeWidening")


INNER = pa.struct([("n", pa.int16()), ("s", pa.string())])
WIDER_INNER = pa.struct([("N", pa.int64()), ("more", pa.string())])


def test_types_within_structs_lists_and_maps_are_widened() -> None:
    kind = pa.struct(
        [
            ("inner", INNER),
            ("list", pa.list_(pa.list_(pa.int32()))),
            ("map", pa.map_(pa.int32(), pa.float32())),
            ("items", pa.list_(INNER)),
        ]
    )
    wider = pa.struct(
        [
            ("inner", WIDER_INNER),
            ("list", pa.list_(pa.list_(pa.int64()))),
            ("map", pa.map_(pa.int64(), pa.float64())),
            ("items", pa.list_(WIDER_INNER)),
        ]
    )
    old = {"inner": {"n": 1, "s": "a"}, "list": [[1], None], "map": [(1, 1.5)], "items": [{"n": 2, "s": "b"}]}
    new = {"inner": {"N": BIG}, "list": [[BIG]], "map": [(BIG, 0.1)], "items": [{"N": BIG, "more": "c"}]}
    table = table_of(kind, [old])
    widen(table, rows_of(wider, [new], pa.int32(), first=1))
    assert values_of(table) == [
        {
            **old,
            "inner": {"n": 1, "s": "a", "more": None},
            "items": [{"n": 2, "s": "b", "more": None}],
        },
        {
            **new,
            "inner": {"n": BIG, "s": None, "more": None},
            "items": [{"n": BIG, "s": None, "more": "c"}],
        },
    ]
    (column,) = [
        field
        for field in msgspec.json.decode(load(table.store).head.metadata.schema_string)["fields"]
        if field["name"] == "v"
    ]
    fields = {field["name"]: field for field in column["type"]["fields"]}
    long = {"fromType": "short", "toType": "long"}
    assert "delta.typeChanges" not in column["metadata"]
    assert fields["inner"]["type"]["fields"][0]["metadata"]["delta.typeChanges"] == [long]
    assert fields["items"]["type"]["elementType"]["fields"][0]["metadata"]["delta.typeChanges"] == [long]
    assert fields["list"]["metadata"]["delta.typeChanges"] == [
        {"fromType": "integer", "toType": "long", "fieldPath": "element.element"}
    ]
    by_path = {change["fieldPath"]: change["toType"] for change in fields["map"]["metadata"]["delta.typeChanges"]}
    assert by_path == {"key": "long", "value": "double"}


def test_each_change_is_recorded_after_those_before_it() -> None:
    table = table_of(pa.int8(), [1])
    for kind in (pa.int16(), pa.int32(), pa.int64()):
        widen(table, rows_of(kind, [2], pa.int32()))
    assert [(change["fromType"], change["toType"]) for change in changes_of(table)] == [
        ("byte", "short"),
        ("short", "integer"),
        ("integer", "long"),
    ]


# --- keys, orders, partitions and rules -------------------------------------------------------------------------------


def test_rows_are_found_by_a_key_that_was_widened() -> None:
    table = table_of(pa.string(), ["a", "b"], KEYED)
    indexed(table)
    rows = pa.table({"k": pa.array([1, BIG], pa.int64()), "v": ["B", "c"]})
    widen(table, rows, keys=["k"])
    assert values_of(table) == ["a", "B", "c"]
    assert table.get([{"k": 0}, {"k": BIG}], ["v"])["v"].to_pylist() == ["a", "c"]
    indexed(table)
    table.upsert([{"k": 0, "v": "A"}])
    assert values_of(table) == ["A", "B", "c"]


WIDER_KEYS = [
    (pa.int8(), pa.int64(), 1),
    (decimal(9, 0), decimal(12, 1), Decimal("1.5")),
    (decimal(10, 2), decimal(14, 4), Decimal("1.0025")),
]


@pytest.mark.parametrize("has_text", [False, True])
@pytest.mark.parametrize(("narrow", "wide", "scale"), WIDER_KEYS)
def test_runs_from_before_a_key_was_widened_are_not_asked(
    narrow: pa.DataType, wide: pa.DataType, scale: Any, *, has_text: bool
) -> None:
    """The hash of a decimal depends on its type. Any step may come with runs of the old type, the new one, or both."""
    randomness = random.Random(f"{seed()}{narrow}{wide}{has_text}")
    for _ in range(4):
        names = ["t", "k"] if has_text else ["k"]
        properties = {**WIDENING, "tidelog.primaryKey": ", ".join(names)}
        schema = pa.schema([("k", narrow), ("t", pa.string()), ("v", pa.int64())])
        table = new_table(memory_store(), schema, properties=properties)
        expected: dict[Any, int] = {}

        def upserted(
            kind: pa.DataType, keys: Sequence[Any], value: int, expected: dict[Any, int] = expected
        ) -> pa.Table:
            own = {Decimal(key): value for key in keys}
            expected.update(own)
            columns = {"k": pa.array(keys, kind), "t": ["x"] * len(keys), "v": [value] * len(keys)}
            return pa.table(columns, schema=pa.schema([("k", kind), ("t", pa.string()), ("v", pa.int64())]))

        old = randomness.sample(range(20), 8)
        table.insert(upserted(narrow, old[:4], 1))
        table.upsert(upserted(narrow, old[2:], 2))
        if randomness.random() < 0.5:
            indexed(table)
        widen(table, upserted(wide, [randomness.choice(old), *(scale * number for number in (20, 21))], 3), keys=names)
        if randomness.random() < 0.5:
            indexed(table)
        asked = sorted(expected) if pa.types.is_decimal(wide) else sorted(map(int, expected))
        got = table.refresh().get([{"k": key, "t": "x"} if has_text else {"k": key} for key in asked])
        assert list(zip(got["k"].to_pylist(), got["v"].to_pylist(), strict=True)) == sorted(expected.items())
        table.upsert(upserted(wide, old[3:6], 4))
        rows = table.scan(columns=["k", "v"]).to_arrow().to_pylist()
        assert sorted((row["k"], row["v"]) for row in rows) == sorted(expected.items())


@pytest.mark.parametrize("column", ["k", "at"])
def test_tombstones_count_after_their_key_or_order_was_widened(column: str) -> None:
    schema = pa.schema([("k", pa.int32()), ("at", pa.int32()), ("op", pa.string())])
    table = new_table(memory_store(), schema, properties={**KEYED, "tidelog.orderBy": "at"})
    put: dict[str, Any] = {"delete_where": "op = 'd'"}
    table.upsert([{"k": 1, "at": 5, "op": "d"}, {"k": 2, "at": 5, "op": "u"}], **put)
    wide = schema.set(schema.names.index(column), pa.field(column, pa.int64()))
    rows = [{"k": 1, "at": 4, "op": "u"}, {"k": 2, "at": 4, "op": "d"}, {"k": 3, "at": 1, "op": "d"}]
    widen(table, pa.Table.from_pylist(rows, wide), **put)
    assert values_of(table, column="at") == [5]
    # One that was written with the wide type, and then the first one again.
    outcome = table.upsert([{"k": 3, "at": 0, "op": "u"}, {"k": 1, "at": 3, "op": "u"}], **put)
    assert outcome.metrics["numSourceRowsOutdated"] == 2
    table.upsert([{"k": 1, "at": 6, "op": "u"}], **put)
    assert values_of(table, column="at") == [6, 5]


def test_tombstones_of_both_types_are_merged() -> None:
    schema = pa.schema([("k", pa.int32()), ("at", pa.int32()), ("op", pa.string())])
    table = new_table(memory_store(), schema, properties={**KEYED, "tidelog.orderBy": "at"})
    put: dict[str, Any] = {"delete_where": "op = 'd'"}
    for key in range(4):
        table.upsert([{"k": key, "at": 5, "op": "d"}], **put)
    wide = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("op", pa.string())])
    widen(table, pa.Table.from_pylist([{"k": 4, "at": 5, "op": "d"}], wide), **put)
    for key in range(5, 12):
        table.upsert([{"k": key, "at": 5, "op": "d"}], **put)
    late = table.upsert([{"k": key, "at": 4, "op": "u"} for key in range(12)], **put)
    assert late.metrics["numSourceRowsOutdated"] == 12
    assert table.scan().count() == 0


def test_a_partition_column_is_widened_and_its_texts_stay() -> None:
    table = table_of(pa.int32(), [1, 2], partition_by=["v"])
    widen(table, rows_of(pa.int64(), [2, BIG], pa.int32(), first=2))
    assert values_of(table) == [1, 2, 2, BIG]
    assert values_of(table, f"v = {BIG}") == [BIG]
    assert values_of(table, "v = 1") == [1]
    table.overwrite(rows_of(pa.int64(), [2], pa.int32(), first=9), dynamic=True)
    assert values_of(table) == [1, BIG, 2]


def test_an_overwrite_of_partitions_that_widens_their_column() -> None:
    table = table_of(pa.int32(), [1, 2], partition_by=["v"])
    rows = rows_of(pa.int64(), [2, BIG], pa.int32(), first=2)
    transaction = table.begin()
    transaction.evolve(rows.schema)
    transaction.overwrite(rows, dynamic=True)
    Table.open(table.path).insert(rows_of(pa.int32(), [1, 2], pa.int32(), first=7))
    transaction.commit()
    assert values_of(table.refresh()) == [1, 2, BIG, 1]


def test_a_float_partition_column_stays() -> None:
    table = table_of(pa.float32(), [0.5], partition_by=["v"])
    assert not table.begin().evolve(pa.schema([("v", pa.float64())]))


def test_columns_that_rules_read_or_compute_stay() -> None:
    table = new_table(memory_store(), pa.schema([("a", pa.int32())]), properties=WIDENING)
    head = load(table.store).head
    generated = {"delta.generationExpression": "a * 2"}
    fields = [
        {"name": "a", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "twice", "type": "integer", "nullable": True, "metadata": generated},
        {"name": "b.c", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "d`e", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "ab", "type": "integer", "nullable": True, "metadata": {}},
    ]
    own = msgspec.structs.replace(
        head.metadata,
        schema_string=msgspec.json.encode({"type": "struct", "fields": fields}).decode(),
        configuration={**head.metadata.configuration, "delta.constraints.small": "`B.c` < 100 OR `d``e` < 100"},
    )
    put_commit(table.store, 1, own, info={"inCommitTimestamp": head.timestamp_ms + 1})
    table.refresh()
    wide = pa.schema([(name, pa.int64()) for name in ("a", "twice", "b.c", "d`e", "ab")])
    stay = dict.fromkeys(("a", "twice", "b.c", "d`e"))
    assert wider_types(own, "", REAL_SYSTEM, wide) == {**stay, "ab": pa.int64()}
    transaction = table.begin()
    assert transaction.evolve(wide)
    assert {field.name: field.type for field in transaction.schema} == {
        "a": pa.int32(),
        "twice": pa.int32(),
        "b.c": pa.int32(),
        "d`e": pa.int32(),
        "ab": pa.int64(),
    }


# --- races ------------------------------------------------------------------------------------------------------------


def test_of_two_writers_that_widen_one_has_to_run_again() -> None:
    table = table_of(pa.int32(), [1])
    rows = rows_of(pa.int64(), [BIG], pa.int32(), first=1)
    loser = table.begin()
    loser.evolve(rows.schema)
    loser.insert(rows)
    widen(Table.open(table.path), rows)
    files = sum(path.endswith(".parquet") for path, _ in table.store.walk())
    with pytest.raises(MetadataChangedException):
        loser.commit()
    assert sum(path.endswith(".parquet") for path, _ in table.store.walk()) == files - 1
    # Again, it finds the type that it needs.
    again = table.refresh().begin()
    assert not again.evolve(rows.schema)
    again.insert(rows).commit()
    assert values_of(table.refresh()) == [1, BIG, BIG]
    assert len(changes_of(table)) == 1


def test_an_append_of_the_narrow_type_and_a_widening() -> None:
    table = table_of(pa.int32(), [1])
    narrow, wide = (rows_of(kind, [2], pa.int32(), first=1) for kind in (pa.int32(), pa.int64()))
    appended = Table.open(table.path).begin().insert(narrow)
    widening = table.begin()
    widening.evolve(wide.schema)
    widening.insert(wide)
    # The append first: the widening follows it.
    other = Table.open(table.path)
    other.insert(narrow)
    outcome = widening.commit()
    assert isinstance(outcome, Committed)
    assert outcome.rebased_over == (2,)
    # The widening first: what was staged under the narrow type has to run again.
    with pytest.raises(ConflictError):
        appended.commit()
    other.refresh().insert(narrow)
    assert values_of(table.refresh()) == [1, 2, 2, 2]
    assert table.schema.field("v").type == pa.int64()


def test_an_upsert_that_widens_its_key_sees_rows_that_were_added_meanwhile() -> None:
    for has_index in (True, False):
        table = table_of(pa.string(), ["a"], {**KEYED, "tidelog.keyIndex": has_index})
        rows = pa.table({"k": pa.array([BIG, 7], pa.int64()), "v": ["new", "seven"]})
        transaction = table.begin()
        transaction.evolve(rows.schema)
        transaction.upsert(rows, keys=["k"])
        Table.open(table.path).insert([{"k": 7, "v": "old"}])
        outcome = transaction.commit()
        assert isinstance(outcome, Committed)
        assert outcome.rebased_over == (2,)
        assert values_of(table.refresh()) == ["a", "seven", "new"]


def test_a_compaction_beside_a_widening_runs_again() -> None:
    table = table_of(pa.int32(), [1])
    table.insert(rows_of(pa.int32(), [2], pa.int32(), first=1))
    staged = stage(Table.open(table.path))
    widen(table, rows_of(pa.int64(), [BIG], pa.int32(), first=2))
    with pytest.raises(ConflictError):
        staged.commit()
    compact(table, "major")
    assert values_of(table.refresh()) == [1, 2, BIG]
    assert table.at().num_files == 1


# --- what follows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["minor", "major"])
@pytest.mark.parametrize(("before", "old", "data", "new", "after"), PAIRS, ids=str)
def test_compaction_writes_the_wide_type(
    level: str, before: pa.DataType, old: Any, data: pa.DataType, new: Any, after: pa.DataType
) -> None:
    table = table_of(before, [old] * 3, {**WIDENING, "delta.enableChangeDataFeed": True})
    table.delete("k = 1")
    widen(table, rows_of(data, [new], pa.int32(), first=3))
    report = compact(table, level)
    assert not isinstance(report, Superseded)
    assert values_of(table.refresh()) == [old, old, new]
    (path,) = table.at().files()["path"].to_pylist()
    with table.store.open_input(path) as source:
        assert pq.read_schema(source).field("v").type == after
    found = table.changes(after=0, mode="cdc").to_arrow()
    assert sorted(found["_change_type"].to_pylist()) == ["delete", *["insert"] * 4]


@pytest.mark.parametrize("nested", [False, True])
def test_compaction_may_write_larger_files_of_a_wider_type(nested: bool) -> None:
    """Of numbers at random, which pack badly; once they have the type, the files may not grow any more."""
    numbers = np.random.default_rng(7).random((2, 20_000))

    def column(values: Any, kind: pa.DataType) -> pa.Array:
        plain = pa.array(values.astype(np.float32), pa.float32()).cast(kind)
        return pa.ListArray.from_arrays(pa.array(range(len(plain) + 1), pa.int32()), plain) if nested else plain

    kind: pa.DataType = pa.list_(pa.float32()) if nested else pa.float32()
    table = new_table(memory_store(), pa.schema([("v", kind)]), properties=WIDENING)
    for part in numbers:
        table.insert(pa.table({"v": column(part, pa.float32())}))
    before = sum(table.at().files()["size"].to_pylist())
    assert table.begin().evolve(pa.schema([("v", pa.list_(pa.float64()) if nested else pa.float64())]))
    widen(table, pa.table({"v": column(numbers[0][:1], pa.float64())}))
    compact(table, "major")
    (size,) = table.refresh().at().files()["size"].to_pylist()
    assert 1.1 * before < size < 2.2 * before
    expected = [column(part, pa.float64()) for part in (*numbers, numbers[0][:1])]
    assert table.scan().to_arrow()["v"].combine_chunks().equals(pa.concat_arrays(expected).cast(table.schema.types[0]))


def test_rows_of_the_narrow_type_are_updated_and_deleted() -> None:
    table = table_of(pa.int32(), [1, 2, 3], {**WIDENING, "delta.enableChangeDataFeed": True})
    widen(table, rows_of(pa.int64(), [BIG], pa.int32(), first=3))
    table.update("v = 1", {"v": f"v + {BIG}"})
    table.delete("v = 3")
    assert values_of(table) == [BIG + 1, 2, BIG]
    net = table.changes(after=1, mode="net", keys=["k"]).to_arrow().sort_by("k")
    assert net["v"].to_pylist() == [BIG + 1, 3, BIG]


def test_a_restore_keeps_the_wide_type() -> None:
    inner = pa.list_(pa.struct([("n", pa.int16())]))
    schema = pa.schema([("k", pa.int32()), ("v", pa.int32()), ("s", inner)])
    table = new_table(memory_store(), schema, properties=WIDENING)
    table.insert([{"k": 0, "v": 1, "s": [{"n": 1}]}])
    wide = pa.schema([("k", pa.int32()), ("v", pa.int64()), ("s", pa.list_(pa.struct([("n", pa.int64())])))])
    widen(table, pa.Table.from_pylist([{"k": 1, "v": BIG, "s": [{"n": BIG}]}], wide))
    table.restore(version=1)
    assert table.scan().to_arrow().to_pylist() == [{"k": 0, "v": 1, "s": [{"n": 1}]}]
    assert table.schema.types == wide.types
    # So a reader of the history has a type for all of it.
    found = table.changes(after=0, mode="cdc").to_arrow()
    assert found["v"].to_pylist() == [1, BIG, BIG]
    assert len(changes_of(table)) == 1
    # A column of another type that had the name before is no narrower one.
    assert table.at(version=1).schema.types == schema.types


def test_the_names_of_mapped_columns_stay() -> None:
    table = table_of(pa.int32(), [1])
    head = load(table.store).head
    mapping = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    field = {"name": "v", "type": "integer", "nullable": True, "metadata": {**mapping, "comment": "c"}}
    own = msgspec.structs.replace(
        head.metadata,
        id="mapped",
        schema_string=msgspec.json.encode({"type": "struct", "fields": [field]}).decode(),
        configuration={
            "delta.enableTypeWidening": "true",
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": "1",
        },
    )
    features = ("columnMapping", "typeWidening")
    protocol = Protocol(3, 7, reader_features=features, writer_features=features)
    store = memory_store()
    put_commit(store, 0, protocol, own, info={})
    mapped = Table(store, load(store))
    mapped.insert([{"v": 1}])
    transaction = mapped.begin()
    rows = pa.table({"v": pa.array([BIG], pa.int64())})
    assert transaction.evolve(rows.schema)
    transaction.insert(rows).commit()
    assert sorted(mapped.refresh().scan().to_arrow()["v"].to_pylist()) == [1, BIG]
    (found,) = msgspec.json.decode(load(store).head.metadata.schema_string)["fields"]
    changes = [{"fromType": "integer", "toType": "long"}]
    assert found["metadata"] == {**mapping, "comment": "c", "delta.typeChanges": changes}


def test_a_change_of_the_protocol_is_a_conflict() -> None:
    table = table_of(pa.int32(), [1], {})
    transaction = table.begin().insert(rows_of(pa.int32(), [2], pa.int32(), first=1))
    Table.open(table.path).set_properties(WIDENING)
    with pytest.raises(ProtocolChangedException):
        transaction.commit()
