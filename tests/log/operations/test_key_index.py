"""Upserts by the key index: the rows are those of an upsert without it, whatever happens to the index."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tests.log.faults import Around
from tests.log.operations.changing_rows import FEED_ON, VECTORS_OFF, bag
from tests.log.row_tracking import TRACKING, tracked_table
from tests.log.support import live_files, memory_store, new_table, put_foreign
from tests.randomness import seed
from tidelog.log import Table
from tidelog.log.cleanup.pieces import finished
from tidelog.log.commit.result import committed
from tidelog.log.data import writer
from tidelog.log.data.indexed_key import IndexedKey
from tidelog.log.data.key_runs import (
    ENDING,
    KEYS_FOLDER,
    FileKeys,
    merge_runs,
    open_runs,
    write_run,
)
from tidelog.log.data.packed_order import NO_COLUMNS
from tidelog.log.data.reader import read_batches
from tidelog.log.data.tombstones import WRITTEN_MS, read_tombstones, tombstone_columns
from tidelog.log.errors import StoreUnavailableError
from tidelog.log.format.actions import Metadata, Protocol
from tidelog.log.format.schema import columns_of, physical_name
from tidelog.log.operations.tend_index import tend_index
from tidelog.log.state.files import to_adds
from tidelog.log.state.loader import load
from tidelog.log.state.tombstones import tombstones_of
from tidelog.log.storage import Store
from tidelog.log.system import REAL_SYSTEM

SCHEMA = pa.schema([("k", pa.int64()), ("part", pa.string()), ("v", pa.int32())])
BY_NUMBER, BY_BOTH = {"tidelog.primaryKey": "k"}, {"tidelog.primaryKey": "part, k"}
BY_ORDER = {"tidelog.orderBy": "v"}
TABLES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "one number": (BY_NUMBER, []),
    "two columns": (BY_BOTH, []),
    "a partition column": (BY_BOTH, ["part"]),
    "partitions": (BY_NUMBER, ["part"]),
    "feed": ({**BY_NUMBER, **FEED_ON}, []),
    "copies": ({**BY_NUMBER, **VECTORS_OFF}, []),
    "row ids": ({**BY_NUMBER, **TRACKING}, []),
    "mapped": (BY_BOTH, ["part"]),
    "an order": ({**BY_NUMBER, **BY_ORDER}, []),
    "an order by a partition": ({**BY_NUMBER, "tidelog.orderBy": "part, v"}, ["part"]),
    "an order, mapped": ({**BY_BOTH, **BY_ORDER}, ["part"]),
    "a decimal that is widened": ({**BY_NUMBER, "delta.enableTypeWidening": True}, []),
    "a decimal that is widened, and a text": ({**BY_BOTH, "delta.enableTypeWidening": True}, []),
}


MAIN = [
    ("one number", True),
    ("two columns", False),
    ("partitions", True),
    ("an order, mapped", True),
]
HISTORIES = [
    pytest.param(*case, marks=[] if case in MAIN else pytest.mark.full)
    for case in itertools.product(TABLES, (False, True))
]


def made(kind: str, *, is_indexed: bool) -> Table:
    properties, partition_by = TABLES[kind]
    properties = {**properties, "tidelog.keyIndex": str(is_indexed).lower()}
    if kind == "row ids":
        return tracked_table(schema=SCHEMA, properties=properties)
    schema = with_decimals(9, 0) if "decimal" in kind else SCHEMA
    table = new_table(memory_store(), schema, partition_by=partition_by, properties=properties)
    if "mapped" in kind:
        put_foreign(table, *mapped(load(table.store).head.metadata))
    return table.refresh()


def with_decimals(digits: int, scale: int) -> pa.Schema:
    """The schema with decimals as keys, whose hashes depend on their type."""
    return SCHEMA.set(0, pa.field("k", pa.decimal128(digits, scale)))


def mapped(old: Metadata) -> tuple[Metadata, Protocol]:
    """The metadata of a table whose columns have other names in the files, as another engine makes it."""
    fields = json.loads(old.schema_string)["fields"]
    for number, field in enumerate(fields, start=1):
        names = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
        field["metadata"] = names
    configuration = {**old.configuration, "delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    schema_string = json.dumps({"type": "struct", "fields": fields})
    features = ("columnMapping", "deletionVectors")
    protocol = Protocol(3, 7, reader_features=features, writer_features=(*features, "inCommitTimestamp"))
    return msgspec.structs.replace(old, schema_string=schema_string, configuration=configuration), protocol


def widen(table: Table, given: Sequence[Mapping[str, Any]]) -> None:
    """Upsert rows whose keys have one digit more behind the point than the table's have."""
    old = table.schema.field("k").type
    schema = with_decimals(old.precision + 1, old.scale + 1)
    transaction = table.begin()
    transaction.evolve(schema)
    rows = [{**row, "k": Decimal(row["k"])} for row in given]
    committed(transaction.upsert(pa.Table.from_pylist(rows, schema)).commit())


def some_rows(randomness: random.Random, count: int) -> list[dict[str, Any]]:
    """Rows with distinct keys."""
    values = [None, *range(20)] * 2 + [*range(100)]
    found = {(randomness.randrange(60), randomness.choice("ab")): randomness.choice(values) for _ in range(count)}
    one_part = {key: (part, value) for (key, part), value in found.items()}
    return [{"k": key, "part": part, "v": value} for key, (part, value) in one_part.items()]


def runs(store: Store) -> list[str]:
    return sorted(f"{KEYS_FOLDER}/{name}" for name in store.names(KEYS_FOLDER) if name.endswith(ENDING))


def lose_a_run(table: Table, randomness: random.Random) -> None:
    if found := runs(table.store):
        table.store.delete(randomness.choice(found))


def damage_a_run(table: Table, randomness: random.Random) -> None:
    if found := runs(table.store):
        path = randomness.choice(found)
        content = bytearray(table.store.read(path))
        content[randomness.randrange(len(content))] ^= 255
        table.store.delete(path)
        table.store.put_if_absent(f"{path.removesuffix(ENDING)}-damaged{ENDING}", bytes(content))


def write_without_a_commit(table: Table, randomness: random.Random) -> None:
    table.begin().insert(some_rows(randomness, 5))


def forget_an_order(table: Table, _: random.Random) -> None:
    """Write the runs again as an older tidelog did."""
    key = IndexedKey.of(load(table.store).head.metadata, SCHEMA)
    assert key is not None
    for run in open_runs(table.store, plain := replace(key, order=NO_COLUMNS)):
        every = np.ones(len(run.rows), dtype=bool)
        path = f"{run.path.removesuffix(ENDING)}-old{ENDING}"
        for _piece in merge_runs(table.store, path, plain, [run], [every]):
            pass
        table.store.delete(run.path)


def tend(table: Table, _: random.Random) -> None:
    finished(tend_index(table.store, load(table.store), REAL_SYSTEM))


MISCHIEF: list[Callable[[Table, random.Random], None]] = [
    lose_a_run,
    damage_a_run,
    write_without_a_commit,
    forget_an_order,
    tend,
    tend,
]


def step(table: Table, randomness: random.Random) -> None:
    """One operation, the same for the same state of `randomness`."""
    kind = randomness.choice(["upsert"] * 5 + ["delete", "update", "minor", "major", "restore", "insert", "order"])
    given = some_rows(randomness, randomness.choice([1, 5, 25]))
    if kind == "upsert":
        table.upsert(given, delete_where=randomness.choice([None, "v < 30"]))
    elif kind == "insert":
        table.insert([{**row, "k": row["k"] + 1000 * table.version} for row in given])
    elif kind == "delete":
        table.delete(f"v < {randomness.randrange(40)}")
    elif kind == "update":
        table.update(f"v > {randomness.randrange(100)}", {"v": "v + 1"})
    elif kind == "order" and "tidelog.orderBy" in table.properties:
        table.set_properties({"tidelog.orderBy": randomness.choice(["v", "part, v", "V, k"])})
    elif kind == "order" and "delta.enableTypeWidening" in table.properties:
        widen(table, given)
    elif kind in {"minor", "major"}:
        table.compact(kind)
    elif kind == "restore" and table.version > 3:
        table.restore(version=randomness.randrange(1, table.version))


def tombstones(table: Table) -> list[dict[str, Any]]:
    """The keys that were deleted, and the orders of the records that did it."""
    head = load(table.store).head
    metadata = head.metadata
    names = metadata.configuration["tidelog.primaryKey"].split(", ")
    name_of = {physical_name(field): field.name for field in columns_of(metadata, table.store.url)}
    found = []
    for file in tombstones_of(table.store, head, 0):
        columns = tombstone_columns(metadata, table.store.url, names, [name_of[name] for name in file.order])
        for rows in read_tombstones(table.store, file, columns):
            found += rows.drop_columns([WRITTEN_MS]).to_pylist()
    return sorted(found, key=repr)


@pytest.mark.parametrize(("kind", "mischief"), HISTORIES)
def test_an_index_changes_no_rows(kind: str, *, mischief: bool) -> None:
    for number in range(4):
        chosen = f"{seed()}/{kind}/{number}"
        tables = [made(kind, is_indexed=is_indexed) for is_indexed in (True, False)]
        mischievous = random.Random(chosen)
        for place in range(14):
            for table in tables:
                table.refresh()
                step(table, random.Random(f"{chosen}/{place}"))
            if mischief:
                mischievous.choice(MISCHIEF)(tables[0], mischievous)
            indexed, plain = (bag(table.refresh().scan().to_arrow()) for table in tables)
            assert indexed == plain, (chosen, place)
            asked = [{"part": part, "k": key} for key in range(0, 60, 7) for part in "ab"]
            by_key = [{name: row[name] for name in table.properties["tidelog.primaryKey"].split(", ")} for row in asked]
            with_index, without = (bag(table.get(by_key)) for table in tables)
            assert with_index == without, (chosen, place)
            buried = [tombstones(table) for table in tables]
            assert buried[0] == buried[1], (chosen, place)
        with_index, without = (bag(table.changes(mode="cdc").to_arrow()) for table in tables)
        assert with_index == without, chosen
        assert not runs(tables[1].store)


def test_a_scan_by_keys_reads_the_rows_that_the_index_has(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made("one number", is_indexed=True)
    for first in (0, 50):
        table.insert([{"k": key, "part": "a", "v": key % 2} for key in range(first, first + 50)])
    table.delete("k = 3")
    read: list[int] = []

    def counted(*args: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        for batch in read_batches(*args, **named):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr("tidelog.log.read.scan.read_batches", counted)
    for where, found, rows in [("k IN (2, 3, 4, 70, 1000)", [2, 4, 70], 3), ("k IN (2, 3, 55) AND v = 1", [55], 2)]:
        read.clear()
        scan = table.scan(where, ["k"])
        assert (sorted(scan.to_arrow()["k"].to_pylist()), sum(read)) == (found, rows), where
        assert scan.count() == len(found)


@pytest.mark.parametrize("kind", ["one number", "a text"])
def test_a_scan_by_keys_leaves_files_out(kind: str) -> None:
    table = made("one number" if kind == "a text" else kind, is_indexed=True)
    if kind == "a text":
        table.set_properties({"tidelog.primaryKey": "part"})
    for number in range(8):
        table.insert([{"k": key * 10 + number, "part": f"{key * 10 + number}", "v": number} for key in range(5)])
    table.delete("k = 21")
    tend(table, random.Random(0))
    column = "part" if kind == "a text" else "k"
    quote = "'" if kind == "a text" else ""
    for where, rows, files in [
        (f"{column} = {quote}12{quote}", 1, 1),
        (f"{quote}12{quote} = {column} AND v < 7", 1, 1),
        (f"v < 2 AND {column} IN ({quote}10{quote}, {quote}32{quote}, {quote}21{quote}, NULL)", 1, 1),
        (f"{column} IN ({quote}10{quote}, {quote}30{quote}, {quote}32{quote})", 3, 2),
        (f"{column} = {quote}77777{quote}", 0, 0),
        (f"{column} > {quote}12{quote} AND {column} < {quote}14{quote}", 1, None),
        (f"{column} = {quote}12{quote} OR v = 1", 5, None),
        (f"NOT {column} = {quote}12{quote}", 38, None),
    ]:
        scan = table.scan(where)
        assert scan.to_arrow().num_rows == scan.count() == rows, where
        assert files is None or scan.files.num_rows == files, where
    assert "dropped by the key index: " in table.scan(f"{column} = {quote}14{quote}").explain()
    for path in runs(table.store)[::2]:
        table.store.delete(path)
    assert table.scan(f"{column} = {quote}12{quote}").count() == 1


def test_values_that_are_no_keys_leave_no_file_out() -> None:
    table = made("one number", is_indexed=True)
    for number in range(5):
        table.insert([{"k": key * 10 + number, "part": "a", "v": number} for key in range(5)])
    assert table.scan("k = 12.0").count() == 1
    assert table.scan("k = 99999999999999999999").count() == 0
    assert table.scan("k IN (NULL)").count() == 0


class _Watched(Around):
    """Records which files are opened. With `refuses_runs` it stores no runs of the key index."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.opened: list[str] = []
        self.refuses_runs = False

    def open_input(self, path: str) -> Any:
        self.opened.append(path)
        return super().open_input(path)

    def create(self, path: str) -> Any:
        if self.refuses_runs and path.endswith(ENDING):
            raise StoreUnavailableError("no", advice="none", path=path)
        return super().create(path)


@pytest.fixture
def watched() -> tuple[Table, _Watched]:
    made = new_table(memory_store(), SCHEMA, properties=BY_NUMBER)
    made.insert([{"k": key, "part": "a", "v": 0} for key in range(0, 100, 2)])
    made.delete("k = 10")
    store = _Watched(made.store)
    return Table(store, load(store)), store


def test_an_upsert_opens_no_data_file(watched: tuple[Table, _Watched]) -> None:
    table, store = watched
    for _ in range(3):
        table.upsert([{"k": key, "part": "b", "v": key} for key in (2, 3, 10)])
    assert [path for path in store.opened if path.endswith(".parquet")] == []
    assert sorted(table.scan(where="k IN (2, 3, 10)").to_arrow()["v"].to_pylist()) == [2, 3, 10]
    assert table.scan().count() == 51


# --- the order --------------------------------------------------------------------------------------------------------

ASCENDING: dict[pa.DataType, list[Any]] = {
    pa.int64(): [-(2**63), -1, 2**63 - 1],
    pa.int16(): [-(2**15), 0, 2**15 - 1],
    pa.date32(): [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)],
    pa.timestamp("us", "UTC"): [datetime(year, 1, 1, 5, 7, 9, 11, UTC) for year in (1, 1969, 9999)],
    pa.timestamp("us"): [datetime(year, 1, 1, 5, 7, 9, 11) for year in (1, 1969, 9999)],  # noqa: DTZ001
    pa.float64(): [-math.inf, 0.0, math.nan],
    pa.decimal128(9, 2): [Decimal("-9999999.99"), Decimal("0.01"), Decimal("0.10")],
    pa.string(): ["", "10", "9é"],
    pa.binary(): [b"", b"\0", b"\xff"],
}


def test_an_upsert_replaces_no_row_with_another_key() -> None:
    """The hashes of these two keys were equal."""
    table = new_table(memory_store(), SCHEMA, properties={"tidelog.primaryKey": "k, part"})
    rows = [{"k": k, "part": part, "v": 0} for k, part in [(0, ""), (49, "2"), (99, "z")]]
    table.upsert(rows)
    table.upsert([{"k": 50, "part": "1", "v": 1}])
    assert bag(table.scan().to_arrow()) == bag(pa.Table.from_pylist([*rows, {"k": 50, "part": "1", "v": 1}], SCHEMA))


def opened(store: _Watched) -> list[str]:
    """The data files that were opened since the last call."""
    found = [path for path in store.opened if path.endswith(".parquet") and not path.startswith("_tidelog")]
    store.opened.clear()
    return found


def of_kind(kind: pa.DataType, order: str = "at", *partitions: str) -> tuple[Table, _Watched]:
    schema = pa.schema([("k", pa.int64()), ("at", kind), ("n", pa.int32()), ("v", pa.string())])
    properties = {**BY_NUMBER, "tidelog.orderBy": order}
    made = new_table(memory_store(), schema, partition_by=partitions, properties=properties)
    store = _Watched(made.store)
    return Table(store, load(store)), store


def outdated(table: Table, *rows: dict[str, Any], **more: Any) -> int:
    done = table.upsert(list(rows), **{"delete_where": "v = 'gone'", **more})
    return int(done.metrics["numSourceRowsOutdated"])


@pytest.mark.parametrize("limit", ["MOST_KEYS", "MOST_KEY_BYTES"])
def test_many_keys_or_long_ones_are_in_several_runs(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(memory_store(), SCHEMA, partition_by=["part"], properties=BY_NUMBER)
    rows = [{"k": key, "part": str(key // 8), "v": 0} for key in range(32)]
    table.insert(rows[:16])
    assert len(runs(table.store)) == 1
    monkeypatch.setattr(writer, limit, {"MOST_KEYS": 16, "MOST_KEY_BYTES": 16 * 8}[limit])
    table.insert(rows[16:])
    assert len(runs(table.store)) == 2
    table.overwrite(rows)
    assert len(runs(table.store)) == 4
    table.upsert([{"k": key, "part": "a", "v": 1} for key in range(32)])
    assert table.scan("v = 1").count() == table.scan().count() == 32


@pytest.mark.parametrize("kind", ASCENDING, ids=str)
def test_an_upsert_by_an_order_opens_no_data_file(kind: pa.DataType) -> None:
    table, store = of_kind(kind)
    low, middle, high = ASCENDING[kind]
    table.insert([{"k": key, "at": middle, "v": "old"} for key in range(5)])
    late = {"at": low, "v": "late"}
    assert outdated(table, {"k": 0, **late}, {"k": 1, "at": high, "v": "new"}, {"k": 2, **late}) == 2
    assert outdated(table, {"k": 3, "at": middle, "v": "same"}, {"k": 4, "at": high, "v": "gone"}) == 0
    assert outdated(table, {"k": 1, "at": middle, "v": "late"}, {"k": 4, **late}) == 2
    tend(table, random.Random(0))
    assert outdated(table, {"k": 1, "at": middle, "v": "late"}, {"k": 3, **late}) == 2
    assert opened(store) == []
    found = {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    assert found == {0: "old", 1: "new", 2: "old", 3: "same"}


@pytest.mark.parametrize("partitions", [[], ["at"]])
def test_an_order_of_two_columns_is_in_the_index(partitions: list[str]) -> None:
    table, store = of_kind(pa.date32(), "at, N", *partitions)
    day, next_day = date(2026, 1, 1), date(2026, 1, 2)
    table.insert([{"k": key, "at": day, "n": 5, "v": ""} for key in range(4)])
    given = [(day, 4), (day, 6), (next_day, -9), (date(2025, 1, 1), 9)]
    assert outdated(table, *({"k": key, "at": at, "n": n, "v": ""} for key, (at, n) in enumerate(given))) == 2
    assert outdated(table, {"k": 1, "at": day, "n": 5, "v": ""}, order_by="n") == 1
    assert outdated(table, {"k": 2, "at": day, "n": 5, "v": ""}, order_by=["n", "at"]) == 0
    assert opened(store) == []
    assert outdated(table, {"k": 1, "at": day, "n": 5, "v": "a"}, order_by=["v", "at"]) == 0
    assert opened(store), "v is not in the index"


def test_orders_that_the_index_does_not_know_are_read() -> None:
    table, store = of_kind(pa.string())
    table.insert([{"k": 0, "at": None, "v": ""}, {"k": 1, "at": "b", "v": ""}, {"k": 2, "at": "b" * 99, "v": ""}])
    (first,) = live_files(table)
    table.insert([{"k": 3, "at": "b", "v": ""}])
    assert outdated(table, *({"k": key, "at": "a", "v": ""} for key in (1, 3))) == 2
    assert opened(store) == []
    assert outdated(table, *({"k": key, "at": "b", "v": ""} for key in range(4))) == 1
    assert opened(store) == [first.path]


def test_an_order_that_is_declared_later_is_in_the_runs_that_come_then() -> None:
    table, store = of_kind(pa.int64(), "n")
    table.insert([{"k": key, "at": 5, "n": 5, "v": ""} for key in range(4)])
    table.set_properties({"tidelog.orderBy": "at"})
    assert outdated(table, {"k": 0, "at": 4, "v": ""}, {"k": 1, "at": 6, "v": ""}) == 1
    assert len(opened(store)) == 1
    assert outdated(table, {"k": 1, "at": 5, "v": ""}) == 1
    assert opened(store) == []
    for path in runs(store):
        store.delete(path)
    tend(table, random.Random(0))
    opened(store)
    assert outdated(table, {"k": 0, "at": 4, "v": ""}, {"k": 3, "at": 6, "v": ""}) == 1
    assert opened(store) == []


def test_partial_columns_read_only_the_rows_that_they_change() -> None:
    table, store = of_kind(pa.int64())
    table.insert([{"k": key, "at": 5, "v": "old"} for key in range(3)])
    partial = {"columns": "partial", "delete_where": None}
    assert outdated(table, {"k": 0, "at": 4}, **partial) == 1
    assert opened(store) == []
    assert outdated(table, {"k": 0, "at": 6}, {"k": 1, "at": 4}, **partial) == 1
    assert len(opened(store)) == 1
    assert table.get([{"k": 0}], ["at", "v"]).to_pylist() == [{"at": 6, "v": "old"}]


def test_a_change_by_a_key_opens_the_file_of_the_key(watched: tuple[Table, _Watched]) -> None:
    table, store = watched
    for start in (1, 3, 5):
        table.insert([{"k": key, "part": "a", "v": 0} for key in range(start, 400, 8)])
    tend(table, random.Random(0))
    store.opened.clear()
    assert table.delete("k = 22").version == 6
    assert table.update("k = 2 AND v = 0", {"v": "5"}).version == 7
    assert len({path for path in store.opened if path.endswith(".parquet")}) <= 1
    assert table.scan("k IN (2, 22)").to_arrow()["v"].to_pylist() == [5]


def test_a_file_without_a_run_is_read(watched: tuple[Table, _Watched]) -> None:
    table, store = watched
    store.refuses_runs = True
    table.insert([{"k": 3, "part": "b", "v": 3}])
    store.refuses_runs = False
    table.upsert([{"k": 2, "part": "b", "v": 2}, {"k": 3, "part": "b", "v": 4}])
    opened = [path for path in store.opened if path.endswith(".parquet")]
    assert len(opened) == 1
    assert sorted(table.scan(where="k < 4").to_arrow()["v"].to_pylist()) == [0, 2, 4]


def test_a_run_that_lacks_rows_of_a_file_does_not_cover_it(watched: tuple[Table, _Watched]) -> None:
    table, store = watched
    key = IndexedKey.of(load(store).head.metadata, SCHEMA)
    assert key is not None
    for path in runs(store):
        store.delete(path)
    (live,) = to_adds(load(store).files().adds)
    write_run(store, f"{KEYS_FOLDER}/short{ENDING}", key, [FileKeys(live.path, pa.table({"k": [0, 2]}))])
    table.upsert([{"k": 4, "part": "b", "v": 4}])
    assert table.scan(where="k = 4").to_arrow()["v"].to_pylist() == [4]
    assert [path for path in store.opened if path.endswith(".parquet")]


def test_a_table_made_again_believes_no_run_of_the_old_one() -> None:
    store = memory_store()
    old = new_table(store, SCHEMA, properties=BY_NUMBER)
    old.insert([{"k": 1, "part": "a", "v": 1}])
    (kept,) = runs(store)
    content = store.read(kept)
    Table.drop(store.url)
    again = Table.create(store.url, SCHEMA, properties=BY_NUMBER)
    again.store.put_if_absent(kept, content)
    again.insert([{"k": 1, "part": "b", "v": 2}])
    again.upsert([{"k": 1, "part": "c", "v": 3}])
    assert again.scan().to_arrow().to_pylist() == [{"k": 1, "part": "c", "v": 3}]


def test_an_upsert_by_other_keys_reads_the_files(watched: tuple[Table, _Watched]) -> None:
    table, store = watched
    table.upsert([{"k": 4, "part": "a", "v": 7}], keys=["k", "part"], other_keys=True)
    assert [path for path in store.opened if path.endswith(".parquet")]
    assert table.scan(where="k = 4").to_arrow()["v"].to_pylist() == [7]


@pytest.mark.parametrize("has_runs", [True, False])
def test_a_rebase_finds_the_keys_of_winners_by_their_runs(watched: tuple[Table, _Watched], *, has_runs: bool) -> None:
    made, store = watched
    staged = made.begin().upsert([{"k": key, "part": "a", "v": 1} for key in (2, 1000, 2000)])
    winner = Table(store, load(store))
    store.refuses_runs = not has_runs
    winner.upsert([{"k": key, "part": "a", "v": 2} for key in (2, 4, 1000)])
    winner.insert([{"k": key, "part": "a", "v": 2} for key in (1500, 2000, 2000)])
    winner.delete("k = 1000")
    store.opened.clear()
    assert committed(staged.commit()).rebased_over
    assert any(path.endswith(".parquet") for path in store.opened) is not has_runs
    found = made.refresh().scan("v > 0", columns=["k", "v"]).to_arrow().to_pylist()
    assert {(row["k"], row["v"]) for row in found} == {(2, 1), (1000, 1), (2000, 1), (4, 2), (1500, 2)}
    assert len(found) == 5
