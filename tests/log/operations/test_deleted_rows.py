"""What was deleted from a table with an order stays deleted: its records may come again, late or replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.operations.changing_rows import KINDS
from tests.log.operations.test_upsert_order import KEYED, SCHEMA, held, ordered, put, record
from tests.log.support import Clock, memory_store, new_table, reopen
from tests.randomness import EXAMPLES
from tidelog.log import Table
from tidelog.log.commit.result import committed
from tidelog.log.data import tombstones
from tidelog.log.errors import ConflictError
from tidelog.log.state.loader import load
from tidelog.log.state.tombstones import tombstones_of

DAY_MS = 86_400_000

DELETES: dict[str, Callable[[Table], Any]] = {
    "statement": lambda table: table.delete("k = 1"),
    "rule": lambda table: table.upsert([{"k": 1}], when_matched=[(None, "delete")]),
    "rule by source": lambda table: table.upsert([{"k": 9}], when_not_matched_by_source=[("target.k = 1", "delete")]),
    "without an order": lambda table: put(table, record(1, 0, op="d"), order_by=()),
    "some columns": lambda table: put(table, {"k": 1, "op": "d"}, order_by=(), columns="partial"),
    "another key": lambda table: table.update("k = 1", {"k": "77"}),
    "rule for another key": lambda table: table.upsert([{"k": 1}], when_matched=[(None, {"k": "77"})]),
}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("way", list(DELETES))
def test_no_record_that_is_older_or_the_same_brings_a_deleted_row_back(way: str, kind: str) -> None:
    table = ordered(**KINDS[kind])
    put(table, record(1, 10), record(2, 10))
    DELETES[way](table)
    assert put(table, record(1, 5))["numSourceRowsOutdated"] == 1
    assert put(table, record(1, 10))["numSourceRowsOutdated"] == 1
    assert put(table, record(1, 10, op="d"))["numSourceRowsOutdated"] == 1
    assert held(table).keys() - {77} == {2}
    put(table, record(1, 11))
    assert held(table)[1] == (11, "v11")


@pytest.mark.parametrize(
    "replaced",
    [
        lambda table: table.truncate(),
        lambda table: table.overwrite([record_of(2, 10)]),
        lambda table: table.overwrite([], where="k = 1"),
    ],
)
def test_truncate_and_overwrite_leave_no_tombstones(replaced: Callable[[Table], Any]) -> None:
    table = ordered()
    put(table, record(1, 10))
    replaced(table)
    put(table, record(1, 5))
    assert held(table)[1] == (5, "v5")


def record_of(k: int, at: int) -> dict[str, Any]:
    return {"k": k, "at": at, "v": f"v{at}"}


WHOLE: list[Callable[[Table], Any]] = [
    lambda table: table.truncate(),
    lambda table: table.overwrite([]),
    lambda table: table.overwrite([record_of(2, 10)]),
]


@pytest.mark.parametrize("replaced", WHOLE)
@pytest.mark.parametrize("is_empty", [True, False])
def test_replacing_the_whole_table_lets_deleted_rows_be_loaded_again(
    replaced: Callable[[Table], Any], *, is_empty: bool
) -> None:
    table = ordered()
    put(table, record(1, 10), record(3, 10))
    table.delete("true" if is_empty else "k = 1")
    version = table.version
    assert replaced(table).version == version + 1
    assert graves(table) == set()
    put(table, record(1, 10), record(3, 5))
    assert held(table).keys() >= {1, 3}
    table.delete("k = 3")
    assert graves(table) == {(3, 5)}
    table.restore(version=version)
    assert graves(table) == ({(1, 10), (3, 10)} if is_empty else {(1, 10)})


PARTS: list[Callable[[Table], Any]] = [
    lambda table: table.overwrite([record_of(1, 3)], where="k = 1"),
    lambda table: table.overwrite([record_of(1, 3)], dynamic=True),
    lambda table: table.truncate(where="k = 1"),
]


@pytest.mark.parametrize("replaced", PARTS)
def test_replacing_a_part_of_the_table_keeps_all_tombstones(replaced: Callable[[Table], Any]) -> None:
    """A tombstone has no partition."""
    table = new_table(memory_store(), SCHEMA, partition_by=["k"], properties=KEYED)
    put(table, record(1, 10), record(3, 10))
    table.delete("k = 1")
    replaced(table)
    assert graves(table) == {(1, 10)}


def test_without_tombstones_that_count_an_empty_truncate_is_no_commit() -> None:
    clock = Clock()
    table = new_table(memory_store(clock), SCHEMA, properties=KEYED, system=clock)
    put(table, record(1, 10))
    table.delete("k = 1")
    clock.ms += 8 * DAY_MS
    version = table.version
    assert table.truncate().version == table.overwrite([]).version == version


def test_a_record_that_saw_tombstones_runs_again_after_a_truncate() -> None:
    table = ordered()
    put(table, record(1, 10))
    table.delete("k = 1")
    transaction = table.begin().upsert([record(1, 10)], delete_where="op = 'd'", order_by="at")
    assert committed(transaction.commit()).version == table.version  # it has no effect
    transaction = table.begin().upsert([record(1, 10), record(2, 1)], delete_where="op = 'd'", order_by="at")
    reopen(table).truncate()
    with pytest.raises(ConflictError, match="took back tombstones"):
        transaction.commit()


@pytest.mark.parametrize("properties", [{"tidelog.primaryKey": "k"}, {"tidelog.orderBy": "at"}, {}])
def test_tables_without_a_key_or_an_order_pay_nothing(properties: dict[str, object]) -> None:
    table = new_table(memory_store(), SCHEMA, properties=properties)
    table.insert([record_of(1, 10)])
    table.delete("k = 1")
    assert [*table.store.walk(tombstones.TOMBSTONE_FOLDER)] == []


def graves(table: Table) -> set[tuple[int, int | None]]:
    """The key and the order of each tombstone."""
    head = load(table.store).head
    columns = tombstones.tombstone_columns(head.metadata, table.path, ["k"], ["at"])
    files = tombstones_of(table.store, head, 0)
    found = [rows for file in files for rows in tombstones.read_tombstones(table.store, file, columns)]
    names = ["k", "at", "written_ms", "wins_ties"]
    return {(row["k"], row["at"]) for rows in found for row in rows.rename_columns(names).to_pylist()}


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_rebased_delete_leaves_tombstones_of_the_rows_that_die(kind: str) -> None:
    """Moved rows, rows that joined, rows that a winner deleted, and rows that a winner replaced."""
    table = ordered(**KINDS[kind], **{"tidelog.conflictPolicy": "delta-table"})
    put(table, *(record(k, 10) for k in range(1, 7)))
    transaction = table.begin().delete("k <= 5")
    other = reopen(table)
    other.overwrite([record_of(2, 3)], where="k = 2")
    other.insert([record_of(4, 12)])
    try:
        transaction.commit()
    except Exception:  # noqa: BLE001 - a table without deletion vectors: the statement runs again
        reopen(table).delete("k <= 5")
    assert graves(table) == {(1, 10), (2, 3), (3, 10), (4, 10), (4, 12), (5, 10)}
    assert set(held(table)) == {6}


def test_a_delete_that_finds_nothing_left_leaves_no_tombstones() -> None:
    table = ordered()
    put(table, record(1, 10))
    transaction = table.begin().delete("k = 1")
    reopen(table).truncate()
    transaction.commit()
    assert graves(table) == set()
    assert len([*table.store.walk(tombstones.TOMBSTONE_FOLDER)]) == 0


def test_many_rows_leave_several_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.log.commit.burial.MERGED_ROWS", 10)
    table = ordered()
    table.insert(pa.table({"k": range(35), "at": [1] * 35, "v": ["v"] * 35}))
    table.insert([record_of(35, 1)])
    table.delete("true")
    assert {k for k, _ in graves(table)} == set(range(36))
    assert put(table, *(record(k, 1) for k in range(36)))["numSourceRowsOutdated"] == 36


def test_rows_without_a_key_leave_none() -> None:
    table = ordered()
    table.insert([{"k": None, "at": 1, "v": "v"}, {"k": 1, "at": None, "v": "v"}])
    table.delete("true")
    assert graves(table) == {(1, None)}
    put(table, record(1, None))
    assert held(table) == {}


class Model:
    """The serial model: live rows by key, and tombstones (key, order, whether it wins ties, when)."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.buried: list[tuple[int, int, bool, int]] = []

    def put(self, k: int, at: int, now_ms: int, *, is_delete: bool) -> None:
        graves = [(order, wins) for key, order, wins, ms in self.buried if key == k and ms >= now_ms - 4 * DAY_MS]
        grave, wins = max(graves, default=(-1, False))
        known = self.rows.get(k)
        if at < (grave if known is None else known) or (known is None and wins and at == grave):
            return
        if not is_delete:
            self.rows[k] = at
        elif known is not None or at > grave:
            self.buried.append((k, at, False, now_ms))
            self.rows.pop(k, None)

    def delete(self, k: int, now_ms: int) -> None:
        if k in self.rows:
            self.buried.append((k, self.rows.pop(k), True, now_ms))

    def move(self, k: int, now_ms: int) -> None:
        if k in self.rows:
            self.rows[k + 10] = self.rows[k]
            self.delete(k, now_ms)


def put_some(table: Table, model: Model, now_ms: int, data: st.DataObject) -> None:
    of_key = data.draw(st.dictionaries(st.integers(0, 3), st.integers(0, 9), min_size=1))
    batch = [record(key, at, op=data.draw(st.sampled_from("uud"))) for key, at in of_key.items()]
    put(table, *batch)
    for entry in batch:
        model.put(entry["k"], entry["at"], now_ms, is_delete=entry["op"] == "d")


def change_one(table: Table, model: Model, now_ms: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, 3))
    match data.draw(st.sampled_from(("delete", "rule", "move", "insert", "truncate"))):
        case "delete":
            table.delete(f"k = {k}")
            model.delete(k, now_ms)
        case "rule":
            table.upsert([{"k": k}], when_matched=[(None, "delete")])
            model.delete(k, now_ms)
        case "truncate":
            table.truncate()
            model.rows, model.buried = {}, []
        case "move" if k + 10 not in model.rows:
            table.update(f"k = {k}", {"k": "k + 10"})
            model.move(k, now_ms)
        case "insert" if k not in model.rows:
            model.rows[k] = data.draw(st.integers(0, 9))
            table.insert([record_of(k, model.rows[k])])
        case _:
            table.compact("major")


@settings(max_examples=EXAMPLES * 3 // 2)
@given(st.data(), st.sampled_from(list(KINDS)), st.booleans())
def test_deletes_among_records_end_as_in_a_serial_model(data: st.DataObject, kind: str, is_indexed: bool) -> None:
    """Records and deletes in any order, any split into batches, other commits, and time that passes."""
    clock, model = Clock(), Model()
    properties = {**KEYED, **KINDS[kind], "tidelog.keyIndex": is_indexed, "tidelog.tombstoneRetention": "4 days"}
    table = new_table(memory_store(clock), SCHEMA, properties=properties, system=clock)
    for _ in range(data.draw(st.integers(1, 14))):
        now_ms = max(clock.ms, load(table.store).head.timestamp_ms + 1)
        step = data.draw(st.sampled_from((put_some, put_some, change_one, change_one, None, None)))
        if step is None:
            clock.ms += data.draw(st.sampled_from((1, 3 * DAY_MS, 5 * DAY_MS)))
        else:
            step(table, model, now_ms, data)
        assert {key: at for key, (at, _) in held(table).items()} == model.rows
