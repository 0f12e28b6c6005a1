"""What is done for a key index beside its table's writers: runs are written, merged and deleted."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pyarrow as pa
import pytest

from tests.log.faults import Around
from tests.log.support import Clock, memory_store, new_table
from tidelog.log import Table
from tidelog.log.cleanup.pieces import finished
from tidelog.log.data import key_runs
from tidelog.log.data.indexed_key import IndexedKey
from tidelog.log.data.key_runs import KeyRun, open_runs, run_paths
from tidelog.log.data.room import Room
from tidelog.log.operations.tend_index import IndexReport, tend_index
from tidelog.log.state.loader import load

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
HOUR_MS = 3_600_000
PROPERTIES = {"tidelog.primaryKey": "k"}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(clock: Clock) -> Table:
    return new_table(memory_store(clock), SCHEMA, properties=PROPERTIES, system=clock)


def rows(*keys: int) -> list[dict[str, Any]]:
    return [{"k": key, "v": str(key)} for key in keys]


def tended(table: Table, clock: Clock) -> IndexReport:
    return finished(tend_index(table.store, load(table.store), clock))


def index(table: Table) -> list[KeyRun]:
    key = IndexedKey.of(load(table.store).head.metadata, SCHEMA)
    assert key is not None
    return open_runs(table.store, key)


def live_paths(table: Table) -> set[str]:
    return set(load(table.store).files().adds["path"].to_pylist())


def test_files_of_another_writer_are_covered(table: Table, clock: Clock) -> None:
    table.insert(rows(1, 2, 3))
    table.delete("k = 2")
    for path in run_paths(table.store):
        table.store.delete(path)
    assert tended(table, clock) == IndexReport(covered=1, runs=1)
    (run,) = index(table)
    assert set(run.paths.to_pylist()) == live_paths(table)
    assert run.rows.tolist() == [3]  # dead rows count: the index is of the file
    assert tended(table, clock) == IndexReport(runs=1)


def test_runs_of_the_same_size_are_merged(table: Table, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_runs, "BLOCK", 4)
    monkeypatch.setattr(key_runs, "_MERGED_ENTRIES", 8)
    for number in range(5):
        table.insert(rows(*range(number, 100, 5)))
    assert len(index(table)) == 5
    assert tended(table, clock) == IndexReport(merged=5, runs=1)
    (run,) = index(table)
    assert set(run.paths.to_pylist()) == live_paths(table)
    assert len(run) == 100
    found = run.find(table_codes(range(100)))
    assert sorted(found.places.tolist()) == list(range(100))
    files = load(table.store).files().adds
    for place, file, position in zip(found.places, found.files, found.positions, strict=True):
        number = int(place) % 5
        assert run.paths[int(file)].as_py() == files["path"][number].as_py()
        assert position == place // 5


def test_as_many_runs_are_merged_as_one_head_has_room_for(
    table: Table, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        table.insert(rows(*range(number, 70, 7)))
    most = max(run.head_bytes for run in index(table))
    monkeypatch.setattr("tidelog.log.operations.tend_index.MOST_HEAD_BYTES", 2 * most)
    assert tended(table, clock) == IndexReport(merged=6, runs=4)
    assert max(run.head_bytes for run in index(table)) <= 2 * most
    assert sorted(path for run in index(table) for path in run.paths.to_pylist()) == sorted(live_paths(table))
    monkeypatch.setattr("tidelog.log.operations.tend_index.MOST_HEAD_BYTES", most // 2)
    assert tended(table, clock) == IndexReport(runs=4), "no two of them fit"
    monkeypatch.setattr("tidelog.log.operations.tend_index.MOST_HEAD_BYTES", 2**26)
    assert tended(table, clock) == IndexReport(merged=4, runs=1)


def test_files_of_runs_without_room_are_not_covered_again(
    table: Table, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.insert(rows(1, 2))
    table.insert(rows(3))
    head = max(run.head_bytes for run in index(table)) + key_runs._HEAD_OBJECTS
    key_runs._open.of(table.store).clear()
    gc.collect()
    monkeypatch.setattr(key_runs, "_HEADS", Room(head))
    assert tended(table, clock) == IndexReport(runs=1)
    assert len(run_paths(table.store)) == 2
    monkeypatch.setattr(key_runs, "_HEADS", Room(2 * head))
    assert tended(table, clock) == IndexReport(runs=2)


def table_codes(keys: range) -> Any:
    key = IndexedKey("t", ("k",), "", 1)
    return key.codes(pa.table({"k": pa.array(keys, pa.int64())}))


def test_a_merge_keeps_the_orders_that_its_runs_have(
    table: Table, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts of several lengths, runs from before the order was declared, and a null."""
    monkeypatch.setattr(key_runs, "BLOCK", 4)
    monkeypatch.setattr(key_runs, "_MERGED_ENTRIES", 8)
    table.insert(rows(*range(10)))
    table.set_properties({"tidelog.orderBy": "v"})
    table.insert(rows(*range(1000, 1010)))
    table.insert([{"k": number, "v": None} for number in range(20, 30)])
    table.insert([{"k": number, "v": "x" * (number + 46)} for number in range(30, 40)])
    assert tended(table, clock) == IndexReport(merged=4, runs=1)
    (run,) = index(table)
    key = IndexedKey.of(load(table.store).head.metadata, SCHEMA)
    assert key is not None
    asked = [*range(10), *range(1000, 1010), *range(20, 40)]
    hits = run.find(key.codes(pa.table({"k": asked})))
    assert hits.order is not None
    order = hits.order.take(hits.order.is_known)
    known = [asked[place] for place in hits.places[hits.order.is_known]]
    assert dict(zip(known, key.order.unpacked(order)["v"].to_pylist(), strict=True)) == {
        **{number: str(number) for number in range(1000, 1010)},
        **{number: "x" * (number + 46) for number in range(30, 34)},
    }
    assert sorted(asked[place] for place in hits.places) == sorted(asked)


def test_files_are_covered_with_their_orders(table: Table, clock: Clock) -> None:
    table.insert(rows(1, 2, 3))
    table.set_properties({"tidelog.orderBy": "v"})
    for path in run_paths(table.store):
        table.store.delete(path)
    assert tended(table, clock) == IndexReport(covered=1, runs=1)
    (run,) = index(table)
    assert [column.width for column in run.layout] == [2]
    order = run.find(table_codes(range(4))).order
    assert order is not None
    assert order.is_known.tolist() == [True] * 3


def test_a_merge_leaves_out_files_that_are_not_live(table: Table, clock: Clock) -> None:
    for key in range(3):
        table.insert(rows(key))
    table.overwrite(rows(7))
    for key in range(8, 11):
        table.insert(rows(key))
    clock.ms += HOUR_MS
    assert tended(table, clock) == IndexReport(merged=4, deleted=3, runs=1), (
        "the files of three runs have left the table"
    )
    assert {path for run in index(table) for path in run.paths.to_pylist()} == live_paths(table)


def test_a_run_of_a_transaction_that_failed_goes_once_it_is_old(table: Table, clock: Clock) -> None:
    table.insert(rows(1))
    table.begin().insert(rows(2))
    clock.ms += 23 * HOUR_MS
    assert tended(table, clock) == IndexReport(runs=2)
    clock.ms += 2 * HOUR_MS
    assert tended(table, clock) == IndexReport(deleted=1, runs=1)


def test_a_store_that_does_not_answer_loses_no_run(table: Table, clock: Clock) -> None:
    table.insert(rows(1))
    clock.ms += 48 * HOUR_MS

    class Failing(Around):
        fails = True

        def open_input(self, path: str) -> Any:
            if self.fails and path.endswith(".run"):
                raise OSError("no answer")
            return super().open_input(path)

    store = Failing(table.store)
    assert finished(tend_index(store, load(store), clock, reads=False)) == IndexReport()
    store.fails = False
    assert finished(tend_index(store, load(store), clock)) == IndexReport(runs=1)


def test_the_runs_of_a_store_are_forgotten_with_it(table: Table) -> None:
    for key in range(3):
        table.insert(rows(key))
    runs = [weakref.ref(run) for run in index(table)]
    store = weakref.ref(table.store)
    again = Table(Around(table.store), load(table.store))
    again.upsert(rows(1))
    inner = weakref.ref(again.store)
    del again
    gc.collect()
    assert inner() is None
    assert store() is not None
    assert all(run() is not None for run in runs)


def test_runs_of_transactions_that_failed_are_not_tended_with_each_upsert(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in range(70):
        table.begin().insert(rows(key))

    def fails(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("tidelog.log.operations.upsert.tend_index", fails)
    for key in range(3):
        table.upsert(rows(key))


def test_a_key_of_partition_columns_only(clock: Clock) -> None:
    properties = {"tidelog.primaryKey": "v"}
    table = new_table(memory_store(clock), SCHEMA, partition_by=["v"], properties=properties, system=clock)
    table.insert([{"k": 1, "v": "a"}, {"k": 2, "v": "b"}])
    (path,) = run_paths(table.store)
    key = IndexedKey.of(load(table.store).head.metadata, SCHEMA)
    assert key is not None
    assert len(KeyRun(table.store, path, key)) == 2
    table.upsert([{"k": 3, "v": "a"}])
    assert sorted((row["k"], row["v"]) for row in table.scan().to_arrow().to_pylist()) == [(2, "b"), (3, "a")]


def test_an_index_that_is_off_is_deleted(table: Table, clock: Clock) -> None:
    table.insert(rows(1))
    table.set_properties({"tidelog.keyIndex": False})
    assert tended(table, clock) == IndexReport(deleted=1)
    assert run_paths(table.store) == []


def test_upserts_without_a_daemon_keep_the_number_of_runs_small(table: Table) -> None:
    for key in range(150):
        table.upsert(rows(key, 1000 + key // 2))
    assert len(index(table)) <= 70
    assert table.scan().count() == 225


def test_a_compaction_by_hand_merges_runs_and_deletes_dead_ones(table: Table) -> None:
    for key in range(10):
        table.insert(rows(key))
    table.compact()
    (run,) = index(table)
    assert set(run.paths.to_pylist()) == live_paths(table)


def test_a_file_whose_keys_do_not_fit_into_memory_does_not_stop_the_rest(
    table: Table, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in range(4):
        table.insert(rows(key))
    path = min(run_paths(table.store))
    table.store.delete(path)

    def fails(*_: Any) -> None:
        raise pa.ArrowInvalid("offset overflow")

    monkeypatch.setattr("tidelog.log.operations.tend_index.write_run", fails)
    table.insert(rows(5))
    assert tended(table, clock) == IndexReport(merged=4, runs=1)


def test_a_statement_over_many_files_writes_one_run(clock: Clock) -> None:
    properties = {**PROPERTIES, "delta.enableDeletionVectors": False}
    copies = new_table(memory_store(clock), SCHEMA, properties=properties, system=clock)
    for key in range(6):
        copies.insert(rows(key, key + 10))
    before = len(run_paths(copies.store))
    copies.update("k < 10", {"v": "'new'"})
    assert len(run_paths(copies.store)) == before + 1
    assert any(set(run.paths.to_pylist()) == live_paths(copies) for run in index(copies))


def test_a_run_that_cannot_be_written_costs_no_commit(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise pa.ArrowInvalid("offset overflow")

    monkeypatch.setattr("tidelog.log.data.writer.write_run", fails)
    table.insert(rows(1, 2))
    table.upsert(rows(2, 3))
    assert table.scan().count() == 3
    assert run_paths(table.store) == []


def test_a_run_of_a_transaction_in_flight_stays(table: Table, clock: Clock) -> None:
    table.insert(rows(1))
    in_flight = table.begin().insert(rows(2))
    clock.ms += 23 * HOUR_MS
    assert tended(table, clock) == IndexReport(runs=2)
    in_flight.commit()
    assert {path for run in index(table) for path in run.paths.to_pylist()} == live_paths(table)


def test_what_is_no_run_goes_once_it_is_old(table: Table, clock: Clock) -> None:
    table.insert(rows(1))
    table.store.put_if_absent(f"{key_runs.KEYS_FOLDER}/torn.run", b"torn")
    table.store.put_if_absent(f"{key_runs.KEYS_FOLDER}/note.txt", b"mine")
    assert tended(table, clock).deleted == 0
    clock.ms += 48 * HOUR_MS
    assert tended(table, clock) == IndexReport(deleted=1, runs=1)
    assert "note.txt" in table.store.names(key_runs.KEYS_FOLDER)


def test_a_merge_that_is_stopped_leaves_nothing(table: Table, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_runs, "BLOCK", 4)
    monkeypatch.setattr(key_runs, "_MERGED_ENTRIES", 8)
    for number in range(4):
        table.insert(rows(*range(number, 40, 4)))
    before = sorted(run_paths(table.store))
    work = tend_index(table.store, load(table.store), clock)
    for _ in range(3):
        next(work)
    work.close()
    assert sorted(run_paths(table.store)) == before


@pytest.mark.parametrize("is_small", [True, False])
def test_a_damaged_run_is_written_again(
    table: Table, clock: Clock, monkeypatch: pytest.MonkeyPatch, *, is_small: bool
) -> None:
    """The damage of a small run shows when it is opened, that of a large one when it is merged."""
    monkeypatch.setattr(key_runs, "_SMALL_BLOCKS", 16 if is_small else 0)
    for key in range(4):
        table.insert(rows(key))
    path = min(run_paths(table.store))
    content = bytearray(table.store.read(path))
    content[0] ^= 1
    table.store.delete(path)
    table.store.put_if_absent(path, bytes(content))
    assert is_small or tended(table, clock).merged == 0
    assert tended(table, clock) == IndexReport(covered=1, merged=4, runs=1)
    assert {name for run in index(table) for name in run.paths.to_pylist()} == live_paths(table)


def test_a_table_without_an_index_is_left_alone(clock: Clock) -> None:
    plain = new_table(memory_store(clock), SCHEMA, system=clock)
    plain.insert(rows(1))
    assert tended(plain, clock) == IndexReport()
    assert run_paths(plain.store) == []
