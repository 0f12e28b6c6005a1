"""Upserts with rules, and those of some of the columns."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.log.operations.changing_rows import KINDS, SCHEMA, filled, keys, lose_once, rows
from tests.log.row_tracking import TRACKING, ids, tracked_table
from tests.log.rules.support import default, generated, rows_of, ruled_table
from tests.log.support import live_files, memory_store, new_table, stage_compaction
from tidelog.log import Committed, Table
from tidelog.log.errors import (
    AppendOnlyError,
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConfigurationError,
    ConstraintViolationError,
    DuplicateKeyError,
    PredicateError,
    SchemaMismatchError,
    TidelogError,
)
from tidelog.log.operations import upsert
from tidelog.log.state.commits import read_commit

BY_K: dict[str, Any] = {"keys": ["k"]}
UPDATE, INSERT, DELETE = (None, "update"), (None, "insert"), (None, "delete")


@pytest.fixture(params=list(KINDS))
def table(request: pytest.FixtureRequest) -> Table:
    return filled(request.param)


def found(table: Table, *ks: int) -> list[tuple[object, ...]]:
    data = table.refresh().get([{"k": k} for k in ks], ["k", "part", "v", "price"])
    return [tuple(row.values()) for row in data.to_pylist()]


def changes_of(table: Table) -> list[tuple[object, ...]]:
    data = table.changes(after=table.refresh().version - 1).to_arrow()
    return sorted((row["_change_type"], row["k"], row["part"], row["v"], row["price"]) for row in data.to_pylist())


# --- some of the columns ----------------------------------------------------------------------------------------------


def test_rows_keep_what_the_data_does_not_have(table: Table) -> None:
    data = [{"k": 1, "v": -1}, {"k": 2, "price": None}, {"k": 3, "part": "b"}, {"k": 20, "v": 7}, {"k": 4, "v": None}]
    committed = table.upsert(data, columns="partial", **BY_K)
    assert found(table, 1, 2, 3, 4, 20) == [
        (1, "a", -1, Decimal(1)),
        (2, "a", 20, None),
        (3, "b", 30, Decimal(3)),
        (4, "a", None, Decimal(4)),
        (20, None, 7, None),
    ]
    assert keys(table) == [*range(13), 20]
    assert set(committed.metrics) == set(upsert.UPSERT_METRICS)
    assert [committed.metrics[f"numTargetRows{name}"] for name in ("Inserted", "Updated", "Deleted")] == [1, 4, 0]


def test_the_feed_has_whole_rows(table: Table) -> None:
    table.upsert(pa.table({"k": [1, 30], "v": pa.array([-1, -30], pa.int32())}), columns="partial", **BY_K)
    assert changes_of(table) == [
        ("insert", 30, None, -30, None),
        ("update_postimage", 1, "a", -1, Decimal(1)),
        ("update_preimage", 1, "a", 10, Decimal(1)),
    ]


def test_keys_are_deleted_beside_partial_rows(table: Table) -> None:
    data = [{"k": 1, "v": -1, "op": "u"}, {"k": 2, "op": "d"}, {"k": 40, "op": "d"}, {"k": 41, "op": "c"}]
    committed = table.upsert(data, columns="partial", delete_where="op = 'd'", **BY_K)
    assert found(table, 1, 2, 40, 41) == [(1, "a", -1, Decimal(1)), (41, None, None, None)]
    assert committed.metrics["numTargetRowsDeleted"] == 1
    version = table.version
    assert table.upsert([{"k": 40, "op": "d"}], columns="partial", delete_where="op = 'd'", **BY_K).version == version
    assert table.upsert([], columns="partial", **BY_K).version == version


def test_each_row_of_a_key_keeps_its_own_values() -> None:
    table = new_table(memory_store(), SCHEMA)
    table.insert([*rows([1], "a"), *rows([1], "b")])
    table.upsert([{"k": 1, "v": 0}], columns="partial", **BY_K)
    assert sorted(found(table, 1)) == [(1, "a", 0, Decimal(1)), (1, "b", 0, Decimal(1))]


def test_partial_rows_follow_the_rules_of_the_table() -> None:
    schema = pa.schema([("n", pa.int64()), ("m", pa.int64()), ("twice", pa.int64()), ("state", pa.string())])
    table = ruled_table(
        schema, fields={"twice": generated("n * 2 + m"), "state": default("'new'")}, constraints={"small": "m < 100"}
    )
    table.insert([{"n": 1, "m": 1, "state": "old"}, {"n": 2, "m": 2}])
    table.upsert([{"n": 1, "m": 5}, {"n": 3, "m": 3}, {"n": 2, "state": None}], keys=["n"], columns="partial")
    assert sorted(tuple(row.values()) for row in rows_of(table)) == [
        (1, 5, 7, "old"),
        (2, 2, 6, None),
        (3, 3, 9, "new"),
    ]
    with pytest.raises(ConstraintViolationError, match="small"):
        table.upsert([{"n": 1, "m": 100}], keys=["n"], columns="partial")
    table.upsert([{"n": 1, "twice": 7}, {"n": 2, "m": 9}], keys=["n"], columns="partial")
    assert sorted(row["twice"] for row in rows_of(table)) == [7, 9, 13]
    strict = new_table(memory_store(), pa.schema([("n", pa.int64()), pa.field("v", pa.int64(), nullable=False)]))
    strict.insert([{"n": 1, "v": 1}])
    for wrong in ([{"n": 1, "v": None}], [{"n": 2}]):
        with pytest.raises(SchemaMismatchError, match="'v'"):
            strict.upsert(wrong, keys=["n"], columns="partial")


def test_changed_rows_keep_their_ids() -> None:
    table = tracked_table(properties=TRACKING)
    table.insert([{"n": n, "v": n} for n in range(4)])
    before = ids(table)
    table.upsert([{"n": 1}, {"n": 9, "v": 9}], keys=["n"], columns="partial")
    table.upsert([{"n": 2, "v": 0}], keys=["n"], when_matched=[(None, {"v": "source.v + target.v"})])
    after = ids(table)
    assert {n: after[n][0] for n in before} == {n: before[n][0] for n in before}
    assert [after[n][1] for n in (0, 1, 2, 9)] == [1, 2, 3, 2]


# --- rules ------------------------------------------------------------------------------------------------------------


def test_the_first_rule_that_is_true_counts(table: Table) -> None:
    data = [{**row, "op": op} for row, op in zip(rows([1, 2, 3, 50, 51, 52], "c"), "uduiix", strict=True)]
    committed = table.upsert(
        data,
        when_matched=[
            ("source.op = 'd'", "delete"),
            ("target.v >= 30", {"v": "target.v + source.v", "Price": "target.price + 1"}),
            (None, "update"),
        ],
        when_not_matched=[("op = 'i' AND source.k = 50", "insert"), ("source.op = 'i'", {"k": "source.k", "v": "1"})],
        when_not_matched_by_source=[("target.part IS NULL", "delete"), ("target.k = 9", {"v": "-1"})],
        **BY_K,
    )
    assert found(table, 1, 2, 3, 50, 51, 52, 9) == [
        (1, "c", 10, Decimal(1)),
        (3, "a", 60, Decimal(4)),
        (50, "c", 500, Decimal(50)),
        (51, None, 1, None),
        (9, "b", -1, Decimal(9)),
    ]
    assert keys(table) == [0, 1, *range(3, 10), 50, 51]
    assert {name: count for name, count in committed.metrics.items() if "Target" in name or "Source" in name} == {
        "numSourceRows": 6,
        "numTargetRowsInserted": 2,
        "numTargetRowsUpdated": 3,
        "numTargetRowsDeleted": 4,
        "numTargetRowsMatchedUpdated": 2,
        "numTargetRowsMatchedDeleted": 1,
        "numTargetRowsNotMatchedBySourceUpdated": 1,
        "numTargetRowsNotMatchedBySourceDeleted": 3,
    }
    kinds = [change[0] for change in changes_of(table)]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "delete": 4,
        "insert": 2,
        "update_preimage": 3,
        "update_postimage": 3,
    }
    parameters = read_commit(table.store, table.version).info["operationParameters"]
    assert parameters["predicate"] == '["target.`k` = source.`k`"]'
    assert parameters["matchedPredicates"].startswith('[{"predicate":"source.op = \'d\'","actionType":"delete"}')


def test_what_no_rule_selects_stays(table: Table) -> None:
    version = table.version
    nothing: list[dict[str, Any]] = [
        {"when_matched": [("false", "delete")]},
        {"when_not_matched": [("source.k < 0", "insert")]},
        {"when_not_matched_by_source": [("target.k > 99", "delete")]},
    ]
    for rules in nothing:
        assert table.upsert(rows([1, 70]), **BY_K, **rules).version == version
    table.upsert(rows([1, 70], "z"), when_not_matched=[INSERT], **BY_K)
    assert found(table, 1, 70) == [(1, "a", 10, Decimal(1)), (70, "z", 700, Decimal(70))]
    table.upsert([], when_not_matched_by_source=[DELETE], **BY_K)
    assert keys(table) == []


def test_null_keys_match_nothing(table: Table) -> None:
    data = [{"k": None, "part": "n", "v": 1, "price": None}, *rows([1], "z")]
    table.upsert(data, when_matched=[UPDATE], when_not_matched=[INSERT], **BY_K)
    assert table.refresh().scan("k IS NULL").count() == 1
    table.upsert(data[:1], when_matched=[DELETE], when_not_matched_by_source=[("k IS NULL", "delete")], **BY_K)
    assert table.refresh().scan("k IS NULL").count() == 0


def test_a_column_that_both_sides_have_needs_a_side(table: Table) -> None:
    with pytest.raises(PredicateError, match="there is no column 'v'"):
        table.upsert(rows([1]), when_matched=[("v > 1", "delete")], **BY_K)
    odd = new_table(memory_store(), pa.schema([("source", pa.int64()), ("target", pa.int64())]))
    odd.insert([{"source": 1, "target": 1}])
    odd.upsert(
        [{"source": 1, "target": 5}],
        keys=["source"],
        when_matched=[("source.target > target.target", {"target": "source.target + target.source"})],
    )
    assert odd.refresh().scan().to_arrow().to_pylist() == [{"source": 1, "target": 6}]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"columns": "some"}, ConfigurationError, "columns cannot be 'some'; use 'all' or 'partial'"),
        ({"columns": "partial", "when_matched": [UPDATE]}, ConfigurationError, "columns='partial' and rules such as"),
        ({"delete_where": "v = 1", "when_matched": [UPDATE]}, ConfigurationError, "delete_where and rules such as"),
        ({"when_matched": "update"}, ConfigurationError, r"when_matched must be a list of rules \(got 'update'\)"),
        ({"when_matched": ["update"]}, ConfigurationError, "must be a pair of a condition and an action"),
        ({"when_matched": [(None, "insert")]}, ConfigurationError, "cannot be 'insert'; use 'update' or 'delete' or"),
        ({"when_not_matched": [(None, "update")]}, ConfigurationError, "cannot be 'update'; use 'insert' or a dict"),
        ({"when_matched": [(None, None)]}, ConfigurationError, "an action of when_matched cannot be None"),
        ({"when_matched": [(1, "delete")]}, ConfigurationError, "must be SQL text or None"),
        ({"when_matched": [(None, {})]}, ConfigurationError, "sets no column"),
        ({"when_matched": [(None, {"v": 1})]}, ConfigurationError, "the new value of 'v' must be SQL text"),
        (
            {"when_matched": [(None, {"w": "1"})]},
            ConfigurationError,
            "no column 'w' to set; the columns are k",
        ),
        ({"when_matched": [(None, {"v": "1", "V": "2"})]}, ConfigurationError, "the column 'v' is set twice"),
        ({"when_matched": [("source.w = 1", "delete")]}, PredicateError, "w"),
        ({"when_matched": [("source.v", "delete")]}, PredicateError, "is not a condition"),
        ({"when_matched": [(None, {"v": "source.part"})]}, SchemaMismatchError, "the new value of 'v' is"),
        ({"when_not_matched_by_source": [("source.v = 1", "delete")]}, PredicateError, "there is no column 'source"),
        ({"when_not_matched": [("target.v = 1", "insert")]}, PredicateError, "there is no column 'target"),
    ],
)
def test_wrong_rules_change_nothing(arguments: dict[str, Any], error: type[TidelogError], message: str) -> None:
    table = filled("vectors")
    with pytest.raises(error, match=message):
        table.upsert(rows([1, 99]), **BY_K, **arguments)
    assert table.refresh().version == 2


def test_wrong_data_changes_nothing() -> None:
    table = filled("vectors")
    with pytest.raises(SchemaMismatchError, match="the data lacks price"):
        table.upsert([{"k": 1, "part": "a", "v": 1}], when_matched=[UPDATE], **BY_K)
    with pytest.raises(SchemaMismatchError, match="the data lacks the key column 'k'"):
        table.upsert([{"v": 1}], columns="partial", **BY_K)
    with pytest.raises(SchemaMismatchError, match="'k' is null in 1 rows"):
        table.upsert([{"k": None, "v": 1}], columns="partial", **BY_K)
    for arguments in ({"columns": "partial"}, {"when_not_matched": [INSERT]}):
        with pytest.raises(SchemaMismatchError, match="'w' that the table does not have"):
            table.upsert([{"k": 1, "w": 1}], **BY_K, **arguments)
    for arguments in ({"columns": "partial"}, {"when_matched": [DELETE]}):
        with pytest.raises(DuplicateKeyError, match="several rows for 1 key, such as k=1"):
            table.upsert(rows([1, 1]), **BY_K, **arguments)
    table.set_properties({"delta.appendOnly": True})
    with pytest.raises(AppendOnlyError):
        table.upsert(rows([1]), columns="partial", **BY_K)
    assert table.refresh().version == 3


# --- races ------------------------------------------------------------------------------------------------------------


def test_partial_rows_of_one_key_that_race_are_both_kept(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(same: Table) -> None:
        same.upsert([{"k": 1, "price": Decimal(100)}], columns="partial", **BY_K)

    lose_once(table, other, monkeypatch)
    table.upsert([{"k": 1, "v": 0}], columns="partial", **BY_K)
    assert found(table, 1) == [(1, "a", 0, Decimal(100))]


def test_values_are_never_computed_from_rows_that_a_winner_changed(table: Table) -> None:
    mine = table.begin().upsert(rows([1, 2]), when_matched=[(None, {"v": "target.v + 1"})], **BY_K)
    table.update("k = 1", {"v": "100"})
    with pytest.raises((ConcurrentDeleteDeleteException, ConcurrentAppendException)):
        mine.commit()
    assert found(table, 1) == [(1, "a", 100, Decimal(1))]


def test_a_row_that_a_winner_adds_under_a_key_is_a_conflict(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = table.begin().upsert([{"k": 60, "v": 1}], columns="partial", **BY_K)
    table.insert(rows([60], "z"))
    with pytest.raises(ConcurrentAppendException, match="new rows match what the operation read"):
        mine.commit()
    lose_once(table, lambda same: same.insert(rows([61], "z")), monkeypatch)
    table.upsert([{"k": 61, "v": 1}], columns="partial", **BY_K)
    assert found(table, 61) == [(61, "z", 1, Decimal(61))]


def test_new_rows_of_winners_are_judged_by_rules_for_the_rest(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_once(table, lambda same: same.insert(rows([61], "z")), monkeypatch)
    table.upsert(rows([1]), when_not_matched_by_source=[("target.k > 10", "delete")], **BY_K)
    assert keys(table.refresh()) == [*range(11)]


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize(
    "winner",
    [
        lambda table: table.delete("k = 1"),
        lambda table: table.truncate(),
        lambda table: table.update("k = 1", {"k": "900"}),
        lambda table: table.upsert([{"k": 1, "op": "d"}], delete_where="op = 'd'", **BY_K),
    ],
    ids=["delete", "truncate", "update", "upsert"],
)
@pytest.mark.parametrize("when_matched", [[], [("source.v > target.v", "update")]], ids=["insert only", "both"])
def test_a_row_that_kept_another_from_being_inserted_is_watched(
    kind: str, winner: Any, when_matched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(kind)
    lose_once(table, winner, monkeypatch)
    data = [{**row, "v": 0} for row in rows([1, 70], "z")]
    table.upsert(data, when_matched=when_matched, when_not_matched=[INSERT], **BY_K)
    assert found(table, 1, 70) == [(1, "z", 0, Decimal(1)), (70, "z", 0, Decimal(70))]


def test_rows_that_are_found_are_followed_through_a_compaction() -> None:
    table = filled("vectors")
    mine = table.begin().upsert(rows([1, 70], "z"), when_not_matched=[INSERT], **BY_K)
    group = [add for add in live_files(table) if add.partition_values["part"] == "a"]
    assert isinstance(stage_compaction(table, group).commit(), Committed)
    mine.commit()
    assert keys(table.refresh()) == [*range(13), 70]
    again = table.begin().upsert(rows([1, 71], "z"), when_not_matched=[INSERT], **BY_K)
    group = [add for add in live_files(table) if add.partition_values["part"] == "a"]
    stage_compaction(table, group).commit()
    table.refresh().delete("k = 1")
    with pytest.raises(ConcurrentDeleteDeleteException, match="rows whose keys this transaction found"):
        again.commit()


def test_an_empty_string_in_a_partition_column_is_a_null_key() -> None:
    table = new_table(memory_store(), pa.schema([("p", pa.string()), ("v", pa.int64())]), partition_by=["p"])
    with pytest.raises(SchemaMismatchError, match="'p' is null in 1 rows"):
        table.upsert([{"p": "", "v": 1}], keys=["p"], columns="partial")
    table.upsert([{"p": "", "v": 1}], keys=["p"], when_matched=[DELETE], when_not_matched=[INSERT])
    table.upsert([{"p": "", "v": 2}], keys=["p"], when_matched=[DELETE], when_not_matched=[INSERT])
    assert table.refresh().scan().to_arrow()["v"].to_pylist() == [1, 2]


def test_a_compaction_that_wins_is_followed() -> None:
    table = filled("vectors")
    mine = table.begin().upsert([{"k": 1, "v": -1}, {"k": 12, "v": -12}], columns="partial", **BY_K)
    group = [add for add in live_files(table) if add.partition_values["part"] == "a"]
    assert isinstance(stage_compaction(table, group).commit(), Committed)
    mine.commit()
    assert found(table, 1, 12) == [(1, "a", -1, Decimal(1)), (12, None, -12, Decimal(12))]
    assert keys(table) == [*range(13)]
