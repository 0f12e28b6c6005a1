"""UPSERT with an order: an older record has no effect, whichever batch it comes in."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.operations.changing_rows import KINDS
from tests.log.rules.support import generated, ruled_table
from tests.log.support import live_files, memory_store, new_table, reopen, stage_compaction
from tidelog.log import Table
from tidelog.log.commit.result import committed
from tidelog.log.errors import ConfigurationError, ConflictError, DuplicateKeyError, SchemaMismatchError

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("v", pa.string())])
KEYED: dict[str, object] = {"tidelog.primaryKey": "k", "tidelog.orderBy": "at"}


def ordered(**properties: object) -> Table:
    return new_table(memory_store(), SCHEMA, properties={**KEYED, **properties})


def record(k: int, at: int | None, v: str = "", op: str = "u") -> dict[str, Any]:
    return {"k": k, "at": at, "v": v or f"v{at}", "op": op}


def put(table: Table, *records: dict[str, Any], **more: Any) -> dict[str, int]:
    return dict(table.upsert(list(records), delete_where="op = 'd'", **more).metrics)


def held(table: Table) -> dict[int, tuple[int | None, str]]:
    found = reopen(table).scan().to_arrow().to_pylist()
    assert len({row["k"] for row in found}) == len(found)
    return {row["k"]: (row["at"], row["v"]) for row in found}


def expected(records: Sequence[dict[str, Any]]) -> dict[int, tuple[int | None, str]]:
    newest: dict[int, dict[str, Any]] = {}
    for entry in sorted(records, key=lambda entry: entry["at"]):
        newest[entry["k"]] = entry
    return {k: (entry["at"], entry["v"]) for k, entry in newest.items() if entry["op"] == "u"}


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(list(KINDS)), st.booleans(), st.booleans(), st.booleans())
def test_any_split_and_any_order_of_a_stream_end_in_the_same_rows(
    data: st.DataObject,
    kind: str,
    is_indexed: bool,
    is_partial: bool,
    as_arrow: bool,
) -> None:
    """Records come in any order, in batches of any size, some twice; compactions run between them."""
    table = ordered(**KINDS[kind], **{"tidelog.keyIndex": is_indexed})
    times = data.draw(st.lists(st.integers(0, 99), unique=True, min_size=1, max_size=20))
    records = [record(data.draw(st.integers(0, 4)), at, op=data.draw(st.sampled_from("uud"))) for at in times]
    stream = data.draw(st.permutations([*records, *data.draw(st.lists(st.sampled_from(records), max_size=5))]))
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        batch, stream = stream[:size], stream[size:]
        rows = pa.Table.from_pylist(batch) if as_arrow else batch
        table.upsert(rows, delete_where="op = 'd'", columns="partial" if is_partial else "all")
        if data.draw(st.booleans()):
            table.compact("major")
    assert held(table) == expected(records)


def test_an_older_record_has_no_effect() -> None:
    table = ordered()
    put(table, record(1, 10))
    before = table.version
    assert put(table, record(1, 5))["numSourceRowsOutdated"] == 1
    assert (held(table), table.version) == ({1: (10, "v10")}, before)
    assert put(table, record(1, 11), record(2, 1))["numSourceRowsOutdated"] == 0
    assert held(table) == {1: (11, "v11"), 2: (1, "v1")}


def test_a_deletion_outlives_its_row() -> None:
    table = ordered()
    put(table, record(1, 10))
    put(table, record(1, 20, op="d"))
    put(table, record(1, 15))
    assert held(table) == {}
    put(table, record(1, 21))
    assert held(table) == {1: (21, "v21")}


def test_the_deletion_of_a_row_that_is_not_there_yet_is_a_version_without_a_time() -> None:
    table = ordered()
    put(table, record(1, 5))
    time_version = table.time_version
    put(table, record(2, 20, op="d"))
    assert (table.version, table.time_version) == (2, time_version)
    assert table.changes(after=1).count() == 0
    put(table, record(2, 15))
    assert held(table) == {1: (5, "v5")}


def test_an_older_deletion_has_no_effect() -> None:
    table = ordered()
    put(table, record(1, 10))
    assert put(table, record(1, 9, op="d"))["numSourceRowsOutdated"] == 1
    assert held(table) == {1: (10, "v10")}


def test_the_change_feed_shows_what_had_an_effect() -> None:
    table = ordered(**{"delta.enableChangeDataFeed": True})
    put(table, record(1, 10), record(2, 10))
    before = table.version
    put(table, record(1, 9, "old"), record(2, 11, "new"), record(3, 1, op="d"))
    found = table.changes(after=before, mode="cdc", columns=["k", "v", "_change_type"]).to_arrow().to_pylist()
    assert sorted((row["_change_type"], row["k"], row["v"]) for row in found) == [
        ("update_postimage", 2, "new"),
        ("update_preimage", 2, "v10"),
    ]


def test_equal_orders_take_what_came_last() -> None:
    table = ordered()
    put(table, record(1, 10, "first"))
    put(table, record(1, 10, "second"))
    assert held(table) == {1: (10, "second")}
    put(table, record(1, 10, op="d"))
    assert held(table) == {}
    put(table, record(1, 10, "third"))
    assert held(table) == {1: (10, "third")}


def test_null_is_less_than_every_value() -> None:
    table = ordered()
    put(table, record(1, None, "none"))
    put(table, record(1, -(2**63), "least"))
    put(table, record(1, None, "none"))
    assert held(table) == {1: (-(2**63), "least")}
    put(table, record(2, None, op="d"))
    put(table, record(2, None, "again"))
    assert held(table)[2] == (None, "again")


def test_nan_is_greater_than_every_number() -> None:
    schema = pa.schema([("k", pa.int64()), ("at", pa.float64())])
    table = new_table(memory_store(), schema, properties=KEYED)
    for at in (math.nan, math.inf, -0.0):
        table.upsert([{"k": 1, "at": at}])
    (row,) = table.scan().to_arrow().to_pylist()
    assert math.isnan(row["at"])
    table.upsert([{"k": 2, "at": 0.0}])
    assert table.upsert([{"k": 2, "at": -0.0}]).metrics["numTargetRowsUpdated"] == 1


def test_several_columns_are_compared_one_after_another() -> None:
    schema = pa.schema([("k", pa.string()), ("day", pa.date32()), ("n", pa.int32())])
    table = new_table(memory_store(), schema, partition_by=["day"])
    days = pa.array([1, 2], pa.date32()).to_pylist()
    for day, n in ((days[1], 1), (days[0], 9), (days[1], 0), (days[1], 2)):
        table.upsert([{"k": "a", "day": day, "n": n}], keys=["k"], order_by=["day", "n"])
    assert table.scan().to_arrow().to_pylist() == [{"k": "a", "day": days[1], "n": 2}]


def test_of_several_rows_of_a_key_the_greatest_counts() -> None:
    table = ordered()
    table.insert([{"k": 1, "at": at, "v": ""} for at in (3, 8)])
    put(table, record(1, 5))
    assert sorted(row["at"] for row in table.scan().to_arrow().to_pylist()) == [3, 8]
    put(table, record(1, 9))
    assert held(table) == {1: (9, "v9")}


def test_a_live_row_counts_more_than_a_tombstone() -> None:
    table = ordered()
    put(table, record(1, 20, op="d"))
    table.insert([{"k": 1, "at": 3, "v": "inserted"}])
    put(table, record(1, 5))
    assert held(table) == {1: (5, "v5")}
    table.delete("k = 1")
    put(table, record(1, 6))
    assert held(table) == {}


def test_rows_that_come_twice_are_one_and_others_are_an_error() -> None:
    for rows in ([record(1, 5), record(1, 5), record(1, 4)], pa.Table.from_pylist([record(1, 5), record(1, 5)])):
        table = ordered()
        table.upsert(rows, delete_where="op = 'd'")
        assert held(table) == {1: (5, "v5")}
        with pytest.raises(DuplicateKeyError):
            put(table, record(1, 7, "a"), record(1, 7, "b"))
        with pytest.raises(DuplicateKeyError):
            put(table, record(1, 7), record(1, 7, op="d"))
        assert held(table) == {1: (5, "v5")}


def test_an_upsert_can_do_without_the_order_of_the_table() -> None:
    table = ordered()
    put(table, record(1, 10))
    put(table, record(1, 5), order_by=())
    assert held(table) == {1: (5, "v5")}
    put(table, record(1, 20, op="d"), order_by=())
    put(table, record(1, 6))
    assert held(table) == {1: (6, "v6")}


def test_what_cannot_be_an_order_is_refused() -> None:
    nested = pa.schema([*SCHEMA, ("s", pa.struct([("x", pa.int64())]))])
    for order, schema in (("other", SCHEMA), ("s", nested)):
        with pytest.raises(ConfigurationError, match=order):
            new_table(memory_store(), schema, properties={"tidelog.orderBy": order})
        table = new_table(memory_store(), schema, properties={"tidelog.primaryKey": "k"})
        with pytest.raises(ConfigurationError, match=order):
            table.set_properties({"tidelog.orderBy": order})
        with pytest.raises(ConfigurationError, match=order):
            table.upsert([{"k": 1, "at": 1}], order_by=order)
    with pytest.raises(ConfigurationError, match="order_by and rules"):
        ordered().upsert([{"k": 1}], order_by="at", when_matched=[(None, "update")])
    for data in ([{"k": 1, "v": ""}], pa.table({"k": [1]})):
        with pytest.raises(SchemaMismatchError, match="at"):
            ordered().upsert(data)


def test_columns_that_cannot_be_null_can_be_the_key_and_the_order() -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("at", pa.int64(), nullable=False)])
    for columns in ("all", "partial"):
        table = new_table(memory_store(), schema, properties=KEYED)
        for at in (5, 4, 6):
            rows = [{"k": 1, "at": at, "op": "u"}, {"k": 2, "at": at, "op": "d"}]
            table.upsert(rows, delete_where="op = 'd'", columns=columns)
        assert table.scan().to_arrow().to_pylist() == [{"k": 1, "at": 6}]


def test_deletions_of_one_key_with_one_order_are_one() -> None:
    table = ordered()
    put(table, record(1, 5))
    put(table, record(1, 7, "a", "d"), record(1, 7, "b", "d"))
    assert held(table) == {}


@pytest.mark.parametrize("columns", ["all", "partial"])
def test_frames_of_polars(columns: str) -> None:
    table = ordered()
    for at in (5, 4, 6):
        frame = pl.DataFrame([record(1, at, "new"), record(1, at - 1, "old"), record(2, 10 - at, "other")])
        table.upsert(frame, delete_where="op = 'd'", columns=columns)
    assert held(table) == {1: (6, "new"), 2: (6, "other")}
    alone = table.upsert(pl.DataFrame([record(1, 1, "late"), record(3, 1)]), delete_where="op = 'd'", columns=columns)
    assert alone.metrics["numSourceRowsOutdated"] == 1
    assert held(table) == {1: (6, "new"), 2: (6, "other"), 3: (1, "v1")}


def test_a_row_of_some_columns_must_not_take_another_ones_values_along() -> None:
    table = ordered()
    put(table, record(1, 5))
    with pytest.raises(DuplicateKeyError, match="the newest lacks the column 'v'"):
        table.upsert([{"k": 1, "at": 7}, {"k": 1, "at": 6, "v": "lost"}], columns="partial")
    table.upsert([{"k": 1, "at": 7, "v": "kept"}, {"k": 1, "at": 6}], columns="partial")
    assert held(table) == {1: (7, "kept")}


def test_changes_of_some_columns_and_deletions_in_one_batch() -> None:
    table = ordered()
    changed = [{"k": 1, "at": 10, "v": "x"}, {"k": 1, "at": 20, "op": "d"}]
    changed += [{"k": 2, "at": 10, "op": "d"}, {"k": 2, "at": 20, "v": "y"}]
    table.upsert(changed, delete_where="op = 'd'", columns="partial")
    assert held(table) == {2: (20, "y")}


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"k": [1, 1, 1], "at": [2, 2, 1], "l": [["a"], ["a"], ["b"]], "t": ["x", "x", "y"]}),
        pa.table(
            {
                "k": [1, 1, 1],
                "at": [2, 2, 1],
                "l": pa.array([["a"], ["a"], ["b"]], pa.large_list(pa.large_string())),
                "t": pa.array(["x", "x", "y"], pa.large_string()),
            }
        ),
    ],
    ids=["polars", "large"],
)
def test_rows_of_any_types_that_come_twice_are_one(frame: Any) -> None:
    schema = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("l", pa.list_(pa.string())), ("t", pa.string())])
    table = new_table(memory_store(), schema, properties=KEYED)
    for columns in ("all", "partial"):
        table.upsert(frame, columns=columns)
        assert table.scan().to_arrow().to_pylist() == [{"k": 1, "at": 2, "l": ["a"], "t": "x"}]


def test_an_empty_batch_with_a_column_that_only_delete_where_reads() -> None:
    table = ordered()
    empty = pa.table(
        {name: pa.array([], kind) for name, kind in (("k", pa.int64()), ("at", pa.int64()), ("op", pa.string()))}
    )
    for order in (None, ()):
        assert table.upsert(empty, delete_where="op = 'd'", order_by=order).version == 0


def test_a_key_that_the_table_generates() -> None:
    columns = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("twice", pa.int64())])
    made = ruled_table(columns, fields={"twice": generated("k * 2")})
    made.upsert([{"k": 1, "at": 5}], keys=["twice"], order_by="at")
    made.upsert([{"k": 1, "at": 4}], keys=["twice"], order_by="at")
    assert made.scan().to_arrow().to_pylist() == [{"k": 1, "at": 5, "twice": 2}]
    with pytest.raises(DuplicateKeyError):
        made.upsert([{"k": 1, "at": 6}, {"k": 1, "at": 7}], keys=["twice"], order_by="at")


# --- races ------------------------------------------------------------------------------------------------------------

_RACING = {
    "older": [record(1, 5, "older")],
    "newer": [record(1, 15, "newer")],
    "older deletion": [record(1, 6, op="d")],
    "newer deletion": [record(1, 16, op="d")],
    "absent deletion": [record(2, 16, op="d")],
    "absent": [record(2, 5, "absent")],
    "other key": [record(3, 5, "other")],
}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(_RACING, 2)])
def test_two_upserts_that_race_end_as_if_one_followed_the_other(kind: str, first: str, second: str) -> None:
    table, serial = ordered(**KINDS[kind]), ordered(**KINDS[kind])
    for each in (table, serial):
        put(each, record(1, 10))
    staged = [table.begin().upsert(_RACING[name], delete_where="op = 'd'") for name in (first, second)]
    staged[0].commit()
    shares_key = _RACING[first][0]["k"] == _RACING[second][0]["k"]
    try:
        staged[1].commit()
    except ConflictError:
        assert shares_key
        put(table, *_RACING[second])
    put(serial, *_RACING[first])
    put(serial, *_RACING[second])
    assert held(table) == held(serial)
    for late in (record(1, 12), record(2, 12)):
        put(table, late)
        put(serial, late)
    assert held(table) == held(serial)


@pytest.mark.parametrize(
    "winner",
    [
        lambda table: table.delete("k = 1"),
        lambda table: table.update("k = 1", {"at": "30"}),
        lambda table: table.insert([{"k": 2, "at": 30, "v": ""}]),
        lambda table: table.overwrite([{"k": 1, "at": 30, "v": ""}]),
        lambda table: table.restore(version=1),
    ],
    ids=["delete", "update", "insert", "overwrite", "restore"],
)
@pytest.mark.parametrize("at", [5, 15])
def test_an_upsert_that_others_overtake_ends_as_if_it_had_come_later(winner: Any, at: int) -> None:
    table, serial = ordered(), ordered()
    records = [record(1, at), record(2, at), record(3, at)]
    for each in (table, serial):
        put(each, record(1, 10))
        put(each, record(2, 10, op="d"))
    staged = table.begin().upsert(records, delete_where="op = 'd'")
    for each in (reopen(table), serial):
        winner(each)
    try:
        staged.commit()
    except ConflictError:
        put(table, *records)
    put(serial, *records)
    assert held(table) == held(serial)


def test_a_compaction_is_followed() -> None:
    table = ordered()
    put(table, record(1, 10))
    put(table, record(2, 10))
    staged = table.begin().upsert([record(1, 5), record(2, 15)], delete_where="op = 'd'")
    stage_compaction(reopen(table), live_files(table)).commit()
    assert committed(staged.commit()).rebased_over
    assert held(table) == {1: (10, "v10"), 2: (15, "v15")}
