"""Runs of the key index: what a lookup finds, and what a damaged file does."""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from threading import Barrier
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.log.faults import Around
from tests.randomness import seed
from tidelog.log.data import key_runs, run_entries, run_head
from tidelog.log.data.block_filter import line_bytes
from tidelog.log.data.indexed_key import IndexedKey
from tidelog.log.data.key_runs import FileKeys, KeyRun, UnusableRunError, open_runs, write_run
from tidelog.log.data.packed_order import PackedOrder
from tidelog.log.data.room import Room
from tidelog.log.data.row_hashes import HASH_NAME
from tidelog.log.format.actions import Format, Metadata
from tidelog.log.storage import Store
from tidelog.log.storage.memory import MemoryStore

STORES = itertools.count()
PATH = f"{key_runs.KEYS_FOLDER}/one{key_runs.ENDING}"
SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("small", pa.int16()),
        ("text", pa.string()),
        ("day", pa.date32()),
        ("price", pa.decimal128(9, 2)),
        ("is", pa.bool_()),
        ("bytes", pa.binary()),
        ("float", pa.float64()),
    ]
)
LONG = "é" * 40
VALUES: dict[str, Sequence[Any]] = {
    "number": [-(2**63), -7, 0, 3, 2**63 - 1],
    "small": [-(2**15), 0, 5],
    "text": ["", "a", "ab", "a\0b", LONG],
    "day": [date(1, 1, 1), date(2026, 1, 31)],
    "price": [Decimal("-1.50"), Decimal("0.00"), Decimal("9999999.99")],
    "is": [True, False],
    "bytes": [b"", b"\0", b"\0\0"],
}


def indexed(*names: str, table_id: str = "t", **properties: str) -> IndexedKey | None:
    configuration = {"tidelog.primaryKey": ", ".join(names), **properties}
    metadata = Metadata(table_id, Format(), (), configuration)
    return IndexedKey.of(metadata, SCHEMA)


def key_of(*names: str, table_id: str = "t") -> IndexedKey:
    found = indexed(*names, table_id=table_id)
    assert found is not None
    return found


def table(rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> pa.Table:
    """Rows, of which values behind those of `names` are left out."""
    columns = [pa.array([row[place] for row in rows], SCHEMA.field(name).type) for place, name in enumerate(names)]
    return pa.table(columns, names=list(names))


def new_store() -> MemoryStore:
    return MemoryStore(f"memory://key-runs-{next(STORES)}")


def by_order(*names: str, order: str = "day, text") -> IndexedKey:
    """A key whose runs have the columns of an order, too."""
    found = indexed(*names, **{"tidelog.orderBy": order})
    assert found is not None
    return found


def small_run(*, is_ordered: bool = False) -> tuple[MemoryStore, IndexedKey, pa.Table]:
    store, key = new_store(), by_order("number") if is_ordered else key_of("number")
    rows = table([(number * 2, date(2026, 1, 1 + number % 31), "x" * number) for number in range(40)], key.stored)
    write_run(store, PATH, key, [FileKeys("a", rows.slice(0, 30)), FileKeys("b", rows.slice(30))])
    return store, key, rows


@pytest.fixture(params=[512, 4])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_runs, "BLOCK", request.param)
    if request.param == 4:
        monkeypatch.setattr(key_runs, "_SMALL_BLOCKS", 2)
        monkeypatch.setattr(key_runs, "_MOST_BLOCKS", 3)
        monkeypatch.setattr(run_entries, "_WRITTEN_ENTRIES", 7)
        monkeypatch.setattr(key_runs, "_FILTERED_FROM", 0)
        monkeypatch.setattr(key_runs, "_CODES_PER_BLOCK", 100)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("names", [("number",), ("small",), ("day",), ("text",), ("price", "is"), ("bytes", "number")])
def test_a_lookup_finds_all_rows_of_a_key_and_no_other(names: tuple[str, ...]) -> None:
    randomness = random.Random(seed())
    key = key_of(*names)
    for _ in range(30):
        rows = [
            [tuple(randomness.choice([*VALUES[name], None]) for name in names) for _ in range(count)]
            for count in (randomness.randrange(40), 1, randomness.randrange(3))
        ]
        store = new_store()
        write_run(store, PATH, key, [FileKeys(f"f{place}", table(own, names)) for place, own in enumerate(rows)])
        (run,) = open_runs(store, key)
        assert run.paths.to_pylist() == ["f0", "f1", "f2"]
        assert run.rows.tolist() == [len(own) for own in rows]
        asked = list({tuple(randomness.choice(VALUES[name]) for name in names) for _ in range(6)})
        expected = sorted(
            (place, file, position)
            for file, own in enumerate(rows)
            for position, row in enumerate(own)
            for place, wanted in enumerate(asked)
            if row == wanted
        )
        for mostly_absent in (False, True):
            hits = run.find(key.codes(table(asked, names)), mostly_absent=mostly_absent)
            assert expected == sorted(
                zip(hits.places.tolist(), hits.files.tolist(), hits.positions.tolist(), strict=True)
            )


def test_codes_are_the_same_for_all_writers_of_a_table_and_differ_between_tables() -> None:
    rows = table([("a",), ("b",)], ["text"])
    codes = key_of("text").codes(rows)
    assert codes.tolist() == key_of("text").codes(rows.slice(0)).tolist()
    assert codes.tolist() == key_of("text").codes(pa.table({"text": rows["text"].dictionary_encode()})).tolist()
    assert not np.isin(codes, key_of("text", table_id="other").codes(rows)).any()


def test_codes_that_were_stored_stay_what_they_are() -> None:
    """If this fails, HASH_NAME has to be another one, so that runs with the old codes are not used."""
    rows = table([("a text of three words", 1), ("b", 2)], ("text", "number"))
    codes = key_of("text", "number", table_id="t").codes(rows)
    assert HASH_NAME == "hash 2"
    assert codes.tolist() == [[-4461337830982977618, 643295977061592894], [4265151949833498547, 1327362317242587277]]


def test_which_keys_have_an_index() -> None:
    assert indexed("float") is None  # -0.0 is 0.0, and there are many NaNs
    assert indexed("number", "missing") is None
    assert indexed("number", **{"tidelog.keyIndex": "false"}) is None
    assert key_of("number").words == 1
    assert key_of("number", "small").words == 2


def test_a_run_of_another_table_or_key_is_not_used() -> None:
    store, key, _ = small_run()
    assert len(open_runs(store, key)) == 1
    assert open_runs(store, key_of("number", table_id="other")) == []
    assert open_runs(store, key_of("small")) == []
    assert len(open_runs(store, key)) == 1


@pytest.mark.parametrize("is_ordered", [False, True])
def test_damage_anywhere_is_noticed(monkeypatch: pytest.MonkeyPatch, *, is_ordered: bool) -> None:
    monkeypatch.setattr(key_runs, "BLOCK", 16)
    monkeypatch.setattr(key_runs, "_SMALL_BLOCKS", 0)
    monkeypatch.setattr(key_runs, "_CODES_PER_BLOCK", 16)
    store, key, rows = small_run(is_ordered=is_ordered)
    content = store.read(PATH)
    codes = key.codes(rows)
    for place in range(len(content)):
        damaged = new_store()
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        damaged.put_if_absent(PATH, bytes(changed))
        with pytest.raises(UnusableRunError):
            KeyRun(damaged, PATH, key).find(codes, mostly_absent=True)
    for length in range(len(content)):
        torn = new_store()
        torn.put_if_absent(PATH, content[:length])
        with pytest.raises(UnusableRunError):
            KeyRun(torn, PATH, key).find(codes)


class _Far(Around):
    """A store whose readers mostly wait. It counts their requests."""

    small_reads_at_once = 8

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.requests = 0
        self.bytes = 0
        # Readers that wait for each other, if there is one.
        self.meeting: Barrier | None = None

    def open_input(self, path: str) -> Any:
        return _FarFile(self, super().open_input(path))


class _FarFile:
    def __init__(self, store: _Far, inner: Any) -> None:
        self._store = store
        self._inner = inner
        self.size = inner.size

    def read_at(self, size: int, start: int) -> Any:
        self._store.requests += 1
        self._store.bytes += size
        if self._store.meeting is not None:
            self._store.meeting.wait()
        return self._inner.read_at(size, start)


def test_a_run_in_an_object_store_is_copied_for_a_lookup_of_many_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_runs, "BLOCK", 4)
    monkeypatch.setattr(key_runs, "_SMALL_BLOCKS", 2)
    monkeypatch.setattr(key_runs, "_COPIED_FROM", 1000)
    monkeypatch.setattr(key_runs, "_COPIED_AT_ONCE", 700)
    store, key = _Far(new_store()), key_of("number")
    write_run(store, PATH, key, [FileKeys("a", table([(number * 2,) for number in range(1000)], ["number"]))])
    (run,) = open_runs(store, key)
    few = key.codes(table([(number,) for number in range(0, 2000, 400)], ["number"]))
    store.requests = 0
    store.meeting = Barrier(5, timeout=20)  # it breaks unless five ranges are asked for at once
    assert sorted(run.find(few).positions.tolist()) == [0, 200, 400, 600, 800]
    assert store.requests == 5
    store.meeting = None
    many = key.codes(table([(number,) for number in range(0, 2000, 20)], ["number"]))
    assert sorted(run.find(many).positions.tolist()) == list(range(0, 1000, 10))
    copied = store.requests
    assert sorted(run.find(many).positions.tolist()) == list(range(0, 1000, 10))
    assert store.requests == copied
    monkeypatch.setattr(key_runs, "_MOST_COPIED", 1000)
    again = KeyRun(store, PATH, key)
    assert sorted(again.find(many).positions.tolist()) == list(range(0, 1000, 10))
    assert sorted(again.find(many).positions.tolist()) == list(range(0, 1000, 10))
    assert store.requests > copied + 100, "there is no room for another copy"


@pytest.mark.parametrize("names", [("number",), ("text",), ("text", "number")])
def test_a_lookup_in_many_runs_reads_few_more_blocks_than_in_one(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_runs, "BLOCK", 16)
    monkeypatch.setattr(key_runs, "_COPIED_FROM", 2**30)
    randomness = np.random.default_rng(seed())
    key, store, alone = key_of(*names), _Far(new_store()), _Far(new_store())
    numbers = randomness.permutation(40_000)
    every = pa.table({"number": numbers, "text": pa.array(numbers).cast(pa.string())}).select(names)
    parts = [FileKeys(f"f{place}", every.slice(4_000 * place, 4_000)) for place in range(10)]
    for part in parts:
        write_run(store, f"{key_runs.KEYS_FOLDER}/{part.path}.run", key, [part])
    write_run(alone, PATH, key, parts)
    runs, (single,) = open_runs(store, key), open_runs(alone, key)
    # The first lookup reads the filters.
    for _ in range(2):
        asked = key.codes(every.take(randomness.choice(40_000, 100, replace=False)))
        store.bytes = store.requests = alone.bytes = 0
        hits = [run.find(asked, mostly_absent=True) for run in runs]
        assert sum(map(len, hits)) == len(single.find(asked)) == 100
    assert store.bytes <= 1.5 * alone.bytes
    store.requests = 0
    KeyRun(store, runs[0].path, key)._filter()
    assert store.requests == 3, "the trailer, the head and the filters of all blocks"


def test_a_large_run_has_no_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_runs, "BLOCK", 4)
    monkeypatch.setattr(key_runs, "_SMALL_BLOCKS", 0)
    monkeypatch.setattr(key_runs, "MOST_FILTERED_BLOCKS", 24)
    key = key_of("number")
    for rows, has_filters in ((96, True), (97, False)):
        store = new_store()
        write_run(store, PATH, key, [FileKeys("a", table([(number,) for number in range(rows)], ["number"]))])
        run = KeyRun(store, PATH, key)
        codes = key.codes(table([(number,) for number in range(0, 2 * rows, 2)], ["number"]))
        assert run.find(codes, mostly_absent=True).positions.tolist() == list(range(0, rows, 2))
        assert (run._filter() is not None) is has_filters


def test_open_runs_take_no_more_memory_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room for filters and small blocks, all blocks are read; without room for its head a run is not used."""
    store, key, rows = small_run()
    monkeypatch.setattr(key_runs, "_CONTENT", Room(100))
    run = KeyRun(store, PATH, key)
    assert len(run.find(key.codes(rows), mostly_absent=True)) == 40
    assert run._filter() is None
    room = Room(2 * (run.head_bytes + key_runs._HEAD_OBJECTS))
    monkeypatch.setattr(key_runs, "_HEADS", room)
    open_ones = [KeyRun(store, PATH, key) for _ in range(2)]
    assert open_runs(store, key) == []
    assert key_runs.useless_runs(store, key) == [], "it is not to be deleted"
    del open_ones[0]
    assert len(open_runs(store, key)) == 1


def test_a_run_without_room_is_not_read_again_until_there_is_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the runs of the store that was asked for longest ago make room for those of another one."""
    key = key_of("number")
    stores = [_Far(new_store()) for _ in range(4)]
    for store in stores:
        for name in ("a", "b"):
            rows = table([(number,) for number in range(40)], ["number"])
            write_run(store, f"{key_runs.KEYS_FOLDER}/{name}{key_runs.ENDING}", key, [FileKeys(name, rows)])
    head = KeyRun(stores[0], key_runs.run_paths(stores[0])[0], key).head_bytes + key_runs._HEAD_OBJECTS
    monkeypatch.setattr(key_runs, "_HEADS", Room(3 * head))
    kept = [len(open_runs(store, key)) for store in stores[:2]]
    assert kept == [2, 2], "those of the first store made room"
    assert len(open_runs(stores[1], key)) == 2
    third = KeyRun(stores[3], key_runs.run_paths(stores[3])[0], key)
    fourth = KeyRun(stores[3], key_runs.run_paths(stores[3])[0], key)
    assert len(open_runs(stores[2], key)) == 1
    stores[2].requests = 0
    assert len(open_runs(stores[2], key)) == 1
    assert not stores[2].requests, "there is no room for the other one"
    del third
    assert len(open_runs(stores[2], key)) == 2
    assert len(fourth) == 40


def head_of(content: bytes) -> tuple[int, pa.Table, bytes]:
    """How large the blocks of a run are, its head, and the magic."""
    blocks, head_size, _, magic = run_head.TRAILER.unpack(content[-run_head.TRAILER.size :])
    return blocks, pa.ipc.open_stream(content[blocks : blocks + head_size]).read_all(), magic


def with_head(blocks: bytes, head: pa.Table, metadata: dict[bytes, bytes], magic: bytes) -> MemoryStore:
    """A store with a run of these blocks and this head."""
    changed = pa.BufferOutputStream()
    with pa.ipc.new_stream(changed, head.schema.with_metadata(metadata)) as stream:
        stream.write_table(head.replace_schema_metadata(metadata))
    text = changed.getvalue().to_pybytes()
    store = new_store()
    trailer = run_head.TRAILER.pack(len(blocks), len(text), zlib.crc32(text), magic)
    store.put_if_absent(PATH, blocks + text + trailer)
    return store


@pytest.mark.parametrize("is_ordered", [False, True])
@pytest.mark.parametrize("lacks", ["paths", "rows", "fences", "sums", "tail", "lists", "types"])
def test_a_head_that_another_program_wrote_is_not_believed(lacks: str, *, is_ordered: bool) -> None:
    store, key, _ = small_run(is_ordered=is_ordered)
    content = store.read(PATH)
    blocks, head, magic = head_of(content)
    metadata = {name: text for name, text in head.schema.metadata.items() if name != lacks.encode()}
    if lacks == "types":  # large codes of floating point are not those that were written
        fences = head["fences"].cast(pa.list_(pa.float64()))
        head = head.set_column(head.column_names.index("fences"), "fences", fences)
    elif lacks == "lists":
        head = pa.table({name: [1] for name in head.column_names})
    elif lacks != "tail":
        head = head.drop_columns([lacks])
    other = with_head(content[:blocks], head, metadata, magic)
    with pytest.raises(UnusableRunError):
        KeyRun(other, PATH, key)
    assert open_runs(other, key) == []


@pytest.mark.parametrize("is_ordered", [False, True])
@pytest.mark.parametrize("entry", [(2, 0), (-4, 0), (0, -1), (0, 30), (1, 10)])
def test_places_that_no_file_has_are_not_believed(entry: tuple[int, int], *, is_ordered: bool) -> None:
    """Checksums say nothing about what another program wrote."""
    store, key, rows = small_run(is_ordered=is_ordered)
    content = store.read(PATH)
    end, head, magic = head_of(content)
    size = end - line_bytes(key_runs.BLOCK)
    blocks = np.frombuffer(content[:size], dtype=np.uint8).copy()
    # There is one block of 40 entries: codes, files, positions.
    for start, number in zip((40 * 8, 40 * 12), entry, strict=True):
        blocks[start : start + 4] = np.frombuffer(np.int32(number).tobytes(), dtype=np.uint8)
    sums = pa.array([[zlib.crc32(blocks.tobytes())]], pa.list_(pa.uint32()))
    head = head.set_column(head.column_names.index("sums"), "sums", sums)
    other = with_head(blocks.tobytes() + content[size:end], head, head.schema.metadata, magic)
    run = KeyRun(other, PATH, key)
    with pytest.raises(UnusableRunError, match="files do not have"):
        run.find(key.codes(rows))
    with pytest.raises(UnusableRunError, match="files do not have"):
        run.between(None, None)


# --- the columns of an order ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("names", [("number",), ("text", "small")])
@pytest.mark.parametrize("order", ["small", "day, price", "text", "number, text"])
def test_a_lookup_knows_the_order_of_rows(names: tuple[str, ...], order: str) -> None:
    randomness = random.Random(f"{seed()}{names}{order}")
    key = by_order(*names, order=order)
    for _ in range(10):
        rows = [
            [tuple(randomness.choice([*VALUES[name], None]) for name in key.stored) for _ in range(count)]
            for count in (randomness.randrange(40), 1, randomness.randrange(3))
        ]
        store = new_store()
        write_run(store, PATH, key, [FileKeys(f"f{place}", table(own, key.stored)) for place, own in enumerate(rows)])
        (run,) = open_runs(store, key)
        asked = list({tuple(randomness.choice(VALUES[name]) for name in names) for _ in range(6)})
        hits = run.find(key.codes(table(asked, names)), mostly_absent=randomness.random() < 0.5)
        found = [rows[file][position] for file, position in zip(hits.files, hits.positions, strict=True)]
        of_order = [tuple(row[key.stored.index(name)] for name in key.order.names) for row in found]
        is_known = [all(value not in {None, LONG} for value in values) for values in of_order]
        packed = hits.order or PackedOrder.unknown(len(hits))
        assert packed.is_known.tolist() == is_known
        unpacked = key.order.unpacked(packed.take(packed.is_known)).to_pylist()
        assert [tuple(row.values()) for row in unpacked] == [
            values for values, known in zip(of_order, is_known, strict=True) if known
        ]
        assert [asked[place] for place in hits.places] == [row[: len(names)] for row in found]


def test_a_run_without_an_order_is_that_of_an_older_tidelog() -> None:
    """Codes, numbers of files, positions; nothing else, and the magic of before."""
    codes, positions = np.arange(0, 20, 2, dtype=np.int64), np.arange(10, dtype=np.int32)
    blocks = codes.tobytes() + np.zeros(10, dtype=np.int32).tobytes() + positions.tobytes()
    columns = {"paths": [["a"]], "rows": [[10]], "fences": [[0]], "sums": [[zlib.crc32(blocks)]]}
    kinds = [pa.string(), pa.int64(), pa.int64(), pa.uint32()]
    lists = pa.schema([(name, pa.list_(kind)) for name, kind in zip(columns, kinds, strict=True)])
    metadata = {b"table": b"t", b"key": b'[["number","int64"]]', b"block": b"512", b"tail": b"10"}
    old = with_head(blocks, pa.table(columns, schema=lists), metadata, b"tidekey1")
    rows = table([(number, None, None) for number in codes.tolist()], ["number", "day", "text"])
    for key in (key_of("number"), by_order("number")):
        hits = KeyRun(old, PATH, key).find(key.codes(rows))
        assert sorted(hits.positions.tolist()) == list(range(10))
        assert hits.order is None
        store = new_store()
        write_run(store, PATH, key, [FileKeys("a", rows)])  # all of its orders are null
        assert store.read(PATH).startswith(blocks)


def test_a_run_of_the_hashes_of_an_older_tidelog_is_not_used() -> None:
    key = key_of("text", "number")
    assert key.columns == '[["text","string"],["number","int64"],"hash 2"]'
    store = new_store()
    old = replace(key, columns='[["text","string"],["number","int64"]]')
    write_run(store, PATH, old, [FileKeys("a", table([("x", 1)], key.names))])
    assert open_runs(store, key) == []
    assert key_runs.useless_runs(store, key) == [PATH]


def test_an_older_tidelog_does_not_use_a_run_with_filters() -> None:
    store, _, _ = small_run(is_ordered=True)
    assert head_of(store.read(PATH))[2] == b"tidekey3"  # it wants 1 or 2


@pytest.mark.parametrize(
    ("order", "is_known"),
    [("text, day", True), ("day", True), ("text", True), ("day, text, small", False), ("small", False), ("", False)],
)
def test_a_run_of_another_order_has_its_rows(order: str, *, is_known: bool) -> None:
    """After a change of the property."""
    store, _, rows = small_run(is_ordered=True)
    key = by_order("number", order=order) if order else key_of("number")
    hits = KeyRun(store, PATH, key).find(key.codes(rows))
    assert sorted(zip(hits.places, hits.files, hits.positions, strict=True)) == [
        (place, place // 30, place % 30) for place in range(40)
    ]
    assert (hits.order is not None) is is_known
    if hits.order is not None:
        assert hits.order.is_known.all()
        found = key.order.unpacked(hits.order.take(np.argsort(hits.places)))
        assert found.to_pylist() == rows.select(key.order.names).to_pylist()


DAY, TEXT = '["day date32[day]",[4,"AAAAAA==",[0,1]]]', f'["text string",[40,"{"A" * 54}==",{[*range(40)]}]]'


@pytest.mark.parametrize(
    "order",
    [
        "{",
        "{}",
        "[1]",
        f"[{DAY}]",
        f'["day date32[day]",{TEXT}]',
        f'[["day date32[day]",[4,"AAAAAA==",[]]],{TEXT}]',
        f'[["day date32[day]",[4,"AAAAAA==",[0,0]]],{TEXT}]',
        f'[["day date32[day]",[4,"AAAAAA==",[1,0]]],{TEXT}]',
        f'[["day date32[day]",[4,"AAAAAA==",[0,4]]],{TEXT}]',
        f'[["day date32[day]",[4,"AAAAAA==",[-1,0]]],{TEXT}]',
        f'[["day date32[day]",["4","AAAAAA==",[0,1]]],{TEXT}]',
        f'[["day date32[day]",[5,"AAAAAA==",[0,1]]],{TEXT}]',
        f'[["day date32[day]",[5,"AAAAAAA=",[0,1]]],{TEXT}]',
        f'[["day date32[day]",[0,"",[]]],{TEXT}]',
        f'[["other",[0,"",[]]],{DAY},{TEXT}]',
        f'[["other",[1,"AA==",[0]]],{DAY},{TEXT}]',
        f"[{DAY},{TEXT.replace('[40', '[41')}]",
    ],
)
def test_an_order_that_another_program_wrote_is_not_believed(order: str) -> None:
    store, key, _ = small_run(is_ordered=True)
    content = store.read(PATH)
    blocks, head, magic = head_of(content)
    metadata = dict(head.schema.metadata)
    assert metadata[b"order"].decode() == f"[{DAY},{TEXT}]".replace(", ", ",")
    with pytest.raises(UnusableRunError):
        KeyRun(with_head(content[:blocks], head, {**metadata, b"order": order.encode()}, magic), PATH, key)


@pytest.mark.parametrize("least", [-(2**63), -5, 0, 2**62])
@pytest.mark.parametrize("width", [0, 1, 58, 59, 60, 61])
def test_entries_are_in_order_however_far_apart_the_codes_are(
    least: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 30 of them, those that are at most 59 bits apart fit into a number with their places."""
    monkeypatch.setattr(run_entries, "_WRITTEN_ENTRIES", 8)
    randomness = random.Random(seed())
    numbers = [least, *(least + randomness.randrange(2**width) for _ in range(28)), least + 2**width - 1]
    randomness.shuffle(numbers)
    files = [FileKeys("a", pa.table({"number": numbers[:20]})), FileKeys("b", pa.table({"number": numbers[20:]}))]
    store, key = new_store(), key_of("number")
    write_run(store, PATH, key, files)
    run = KeyRun(store, PATH, key)
    found = run.between(None, None)
    assert run.fences.tolist() == [least]
    assert found.codes[0].tolist() == sorted(numbers)
    places = [(0, row) for row in range(20)] + [(1, row) for row in range(10)]
    assert sorted(zip(found.files.tolist(), found.positions.tolist(), strict=True)) == places
    rows = [numbers[20 * file + row] for file, row in zip(found.files, found.positions, strict=True)]
    assert rows == sorted(numbers)
