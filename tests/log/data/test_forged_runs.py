"""Runs that were made up, or changed with checksums that are right: rows are those of a scan, in bounded memory."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tests.log.support import memory_store, new_table
from tests.peak_memory import grown_mb, needs_proc
from tests.randomness import EXAMPLES, seed
from tidelog.log import Table
from tidelog.log.data import key_runs
from tidelog.log.data.indexed_key import IndexedKey
from tidelog.log.data.key_runs import FileKeys, KeyRun, UnusableRunError, open_runs, run_paths, useless_runs, write_run
from tidelog.log.data.run_head import TRAILER
from tidelog.log.format.actions import Format, Metadata
from tidelog.log.state.loader import load
from tidelog.log.storage.local import LocalStore
from tidelog.log.storage.memory import MemoryStore

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.string()), ("v", pa.int64())])
PATH = f"{key_runs.KEYS_FOLDER}/one{key_runs.ENDING}"
NAMES = ("paths", "rows", "fences", "sums")
FLAT = pa.schema([("paths", pa.string()), ("rows", pa.int64()), ("fences", pa.int64()), ("sums", pa.uint32())])


def sealed(before: Any, head: bytes, magic: bytes = b"tidekey3") -> bytes:
    """A run with this head, and the checksum that it needs."""
    return b"".join([before, head, TRAILER.pack(len(before), len(head), zlib.crc32(head), magic)])


def head_bytes(columns: dict[str, Any], metadata: dict[bytes, bytes], **options: Any) -> bytes:
    """A head with a row of these lists."""
    lists = [
        pa.ListArray.from_arrays(pa.array([0, len(columns[name])], pa.int32()), pa.array(columns[name], kind))
        for name, kind in zip(FLAT.names, FLAT.types, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(lists, names=list(NAMES)).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def parts_of(content: bytes) -> tuple[bytes, bytes, dict[str, Any], dict[bytes, bytes]]:
    """What is before the head of a run, the head, its columns and its metadata."""
    start, size, _, _ = TRAILER.unpack(content[-TRAILER.size :])
    head = content[start : start + size]
    table = pa.ipc.open_stream(head).read_all()
    return content[:start], head, {name: table[name].to_pylist()[0] for name in NAMES}, table.schema.metadata


# --- memory -----------------------------------------------------------------------------------------------------------


def key_of(**properties: str) -> IndexedKey:
    found = IndexedKey.of(Metadata("t", Format(), (), {"tidelog.primaryKey": "k", **properties}), SCHEMA)
    assert found is not None
    return found


def metadata_of(key: IndexedKey, **more: str) -> dict[bytes, bytes]:
    texts = {"table": key.table_id, "key": key.columns, "block": str(key_runs.BLOCK), "tail": "0", **more}
    return {name.encode(): text.encode() for name, text in texts.items()}


def sparse(path: Path, size: int, end: bytes) -> None:
    """A file of so many zeros before its end."""
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(size)
        file.write(end)


def trailer(start: int, head: bytes, magic: bytes = b"tidekey3") -> bytes:
    return head + TRAILER.pack(start, len(head), zlib.crc32(head), magic)


def a_sparse_head(path: Path, _: IndexedKey) -> None:
    size = 2**40
    sparse(path, size, TRAILER.pack(0, size, 0, b"tidekey1"))


def a_head_of_another_size(path: Path, _: IndexedKey) -> None:
    sparse(path, 2**30, TRAILER.pack(0, 2**30 - 1, 0, b"tidekey3"))


def a_compressed_head(path: Path, key: IndexedKey) -> None:
    count = 2**23
    size = count * 8192
    numbers = {"fences": np.zeros(count, np.int64), "sums": np.zeros(count, np.uint32)}
    head = head_bytes({"paths": ["a"], "rows": [2**31 - 1], **numbers}, metadata_of(key), compression="zstd")
    assert len(head) < 2**20
    sparse(path, size, trailer(size, head))


def a_dictionary(path: Path, key: IndexedKey) -> None:
    count = 2**18
    long = pa.DictionaryArray.from_arrays(np.zeros(count, np.int8), ["x" * 2**12])
    paths = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), long)
    rest = [pa.array([[0] * count], pa.list_(kind)) for kind in (pa.int64(), pa.int64(), pa.uint32())]
    batch = pa.RecordBatch.from_arrays([paths, *rest], names=list(NAMES)).replace_schema_metadata(metadata_of(key))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    path.write_bytes(trailer(0, sink.getvalue().to_pybytes()))


def a_wide_order(path: Path, key: IndexedKey) -> None:
    order = msgspec.json.encode([["x string", [10**9, "", []]]]).decode()
    head = head_bytes({"paths": [], "rows": [], "fences": [], "sums": []}, metadata_of(key, order=order))
    path.write_bytes(trailer(0, head))


def an_order_of_many_columns(path: Path, key: IndexedKey) -> None:
    order = msgspec.json.encode([["x string", [80, "A" * 106 + "==", [*range(80)]]]] * 2000).decode()
    head = head_bytes({"paths": [], "rows": [], "fences": [], "sums": []}, metadata_of(key, order=order))
    path.write_bytes(trailer(0, head))


def many_blocks_of_one_code(path: Path, key: IndexedKey) -> None:
    """All entries are zeros: one row, again and again."""
    count = 2**20
    size, total = count * 8192, zlib.crc32(bytes(8192))
    columns = {"paths": ["a"], "rows": [2**31 - 1], "fences": np.zeros(count), "sums": np.full(count, total)}
    sparse(path, size, trailer(size, head_bytes(columns, metadata_of(key))))


HUNGRY = [
    (a_sparse_head, "more than 67,108,864"),
    (a_head_of_another_size, "no run"),
    (a_compressed_head, "compressed"),
    (a_dictionary, "other parts"),
    (a_wide_order, "order"),
    (an_order_of_many_columns, "order"),
    (many_blocks_of_one_code, "a row twice"),
]


@needs_proc
@pytest.mark.parametrize(("make", "reason"), HUNGRY)
def test_a_run_that_asks_for_memory_does_not_get_it(
    make: Callable[[Path, IndexedKey], None], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_runs, "_MOST_BLOCKS", 1024)
    key, store = key_of(), LocalStore(str(tmp_path))
    path = tmp_path / PATH
    path.parent.mkdir(parents=True)
    make(path, key)
    codes = np.zeros((1, 1), dtype=np.int64)

    def read() -> None:
        with pytest.raises(UnusableRunError, match=reason):
            KeyRun(store, PATH, key).find(codes)

    assert grown_mb(read) < 100
    assert path.stat().st_blocks * 512 < 2**25


# --- rows -------------------------------------------------------------------------------------------------------------


def change_bytes(randomness: random.Random, content: bytes) -> bytes:
    """Bytes of the head, which gets another checksum."""
    before, head, _, _ = parts_of(content)
    changed = bytearray(head)
    for _ in range(randomness.choice((1, 1, 2, 8))):
        changed[randomness.randrange(len(changed))] = randomness.choice((0, 255, 127, 128, randomness.randrange(256)))
    return sealed(before, bytes(changed))


def change_head(randomness: random.Random, content: bytes) -> bytes:
    """Values of the head, which gets another checksum."""
    before, _, columns, metadata = parts_of(content)
    name = randomness.choice([*NAMES, "fences", "fences"])
    values = columns[name]
    place = randomness.randrange(len(values))
    other = values[randomness.randrange(len(values))]
    # Not only some number: one that still is in order, too.
    near = 0 if name == "paths" else randomness.choice([-1, 1, 40]) + values[place]
    wild = {"paths": "other", "rows": -1, "fences": randomness.choice([-(2**63), 2**63 - 1]), "sums": 0}[name]
    match randomness.randrange(4):
        case 0:
            del values[place]
        case 1:
            values.insert(place, other)
        case 2:
            values[place] = near if near and (name == "fences" or near > 0) else wild
        case _:
            values[place] = wild
    if randomness.random() < 0.2:
        metadata = {**metadata, b"tail": str(randomness.randrange(-20, 20)).encode()}
    return sealed(before, head_bytes(columns, metadata))


def change_blocks(randomness: random.Random, content: bytes) -> bytes:
    """Blocks change places, or are turned around, and get their checksums."""
    before, _, columns, metadata = parts_of(content)
    width = 16 * key_runs.BLOCK
    blocks = [before[width * place : width * (place + 1)] for place in range(len(columns["fences"]) - 1)]
    end = before[width * len(blocks) :]
    one, two = randomness.sample(range(len(blocks)), 2)
    if randomness.random() < 0.5:
        blocks[one], blocks[two] = blocks[two], blocks[one]
    else:
        codes = np.frombuffer(blocks[one][: 8 * key_runs.BLOCK], dtype=np.int64)[::-1]
        blocks[one] = codes.tobytes() + blocks[one][8 * key_runs.BLOCK :]
    columns["sums"] = [zlib.crc32(block) for block in blocks] + columns["sums"][-1:]
    return sealed(b"".join(blocks) + end, head_bytes(columns, metadata))


CHANGES = [change_bytes, change_head, change_blocks]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_runs, "BLOCK", 16)
    monkeypatch.setattr(key_runs, "_SMALL_BLOCKS", 0)


def forged(table: Table, change: Callable[[random.Random, bytes], bytes], randomness: random.Random, seq: int) -> None:
    """Change a run of the table, which gets another name, as open runs are known by it."""
    path = randomness.choice(sorted(run_paths(table.store)))
    content = change(randomness, table.store.read(path))
    table.store.delete(path)
    table.store.put_if_absent(f"{key_runs.KEYS_FOLDER}/forged-{seq}{key_runs.ENDING}", content)


def require_all_rows(table: Table, randomness: random.Random, rows: int) -> None:
    """A lookup finds what a scan does: of few keys, and of so many that filters are read."""
    every = {row["k"]: row["v"] for row in table.scan(columns=["k", "v"]).to_arrow().to_pylist()}
    for count in (3, 60):
        asked = randomness.sample(range(-40, 2 * rows + 40), count)
        found = table.get(pa.table({"k": pa.array(asked, pa.int64())}), columns=["k", "v"]).to_pylist()
        assert [(row["k"], row["v"]) for row in found] == [(key, every[key]) for key in asked if key in every]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("inserts", [1, 4])
def test_a_run_that_was_changed_hides_no_row(change: Callable[[random.Random, bytes], bytes], inserts: int) -> None:
    forging(change, inserts, EXAMPLES // 4)


@pytest.mark.nightly
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("inserts", [1, 4])
def test_many_runs_that_were_changed_hide_no_row(change: Callable[[random.Random, bytes], bytes], inserts: int) -> None:
    forging(change, inserts, 200)


def forging(change: Callable[[random.Random, bytes], bytes], inserts: int, count: int) -> None:
    randomness = random.Random(f"{seed()}{change.__name__}{inserts}")
    rows = 800
    table = new_table(memory_store(), SCHEMA, properties={"tidelog.primaryKey": "k"})
    numbers = [2 * number for number in range(rows)]
    randomness.shuffle(numbers)
    for start in range(0, rows, rows // inserts):
        own = numbers[start : start + rows // inserts]
        table.insert([{"k": number, "t": f"{number}", "v": number + 1} for number in own])
    whole = {path: table.store.read(path) for path in run_paths(table.store)}
    for seq in range(count):
        forged(table, change, randomness, seq)
        require_all_rows(table, randomness, rows)
        if seq % 5 == 4:  # an upsert replaces rows, and upkeep merges the others' runs
            before = table.scan().to_arrow().num_rows
            asked = randomness.sample(range(2 * rows), 5)
            fresh = {number for number in asked if not table.get([{"k": number}]).num_rows}
            table.upsert([{"k": number, "t": "", "v": seq} for number in asked])
            assert table.scan().to_arrow().num_rows == before + len(fresh)
        for path in run_paths(table.store):
            table.store.delete(path)
        for path, content in whole.items():
            table.store.put_if_absent(path.replace(".run", f"-{seq}.run"), content)


def without_order(columns: dict[str, Any]) -> None:
    columns["fences"][3] = columns["fences"][5]


def without_a_path_of_its_own(columns: dict[str, Any]) -> None:
    columns["paths"][1] = columns["paths"][0]


def with_negative_rows(columns: dict[str, Any]) -> None:
    columns["rows"] = [-1, 401]


def with_too_many_rows(columns: dict[str, Any]) -> None:
    columns["rows"] = [2**31, 200]


def with_few_rows(columns: dict[str, Any]) -> None:
    columns["rows"] = [200, 100]


def without_a_sum(columns: dict[str, Any]) -> None:
    columns["sums"].pop()


FALSE_HEADS = [
    (without_order, "out of order"),
    (without_a_path_of_its_own, "wrong paths"),
    (with_negative_rows, "counts of rows"),
    (with_too_many_rows, "counts of rows"),
    (with_few_rows, "more entries"),
    (without_a_sum, "wrong counts"),
]


def run_of_two_files(change: Callable[[dict[str, Any]], None]) -> tuple[MemoryStore, IndexedKey]:
    """A run of the keys 0, 2, ... 798, 16 in a block, whose head says something else."""
    key, store = key_of(), memory_store()
    rows = pa.table({"k": range(0, 800, 2)})
    write_run(store, PATH, key, [FileKeys("a", rows.slice(0, 200)), FileKeys("b", rows.slice(200))])
    before, _, columns, metadata = parts_of(store.read(PATH))
    change(columns)
    store.delete(PATH)
    store.put_if_absent(PATH, sealed(before, head_bytes(columns, metadata)))
    return store, key


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("change", "reason"), FALSE_HEADS)
def test_a_head_that_contradicts_itself_is_not_used(change: Callable[[dict[str, Any]], None], reason: str) -> None:
    store, key = run_of_two_files(change)
    with pytest.raises(UnusableRunError, match=reason):
        KeyRun(store, PATH, key)
    assert open_runs(store, key) == []
    assert useless_runs(store, key) == [PATH]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("by", [-4, 4])
@pytest.mark.parametrize("block", [0, 1, 10, 24])
@pytest.mark.parametrize("has_filters", [False, True])
def test_a_wrong_first_code_of_a_block_hides_no_row(by: int, block: int, *, has_filters: bool) -> None:
    """Also of keys that another block would have by it, which is the only one that is read."""

    def change(columns: dict[str, Any]) -> None:
        columns["fences"][block] += by

    store, key = run_of_two_files(change)
    first = 32 * block
    asked = {number for number in (first - 2, first, first + 2) if number >= 0}
    run = KeyRun(store, PATH, key)
    if has_filters:
        with pytest.raises(UnusableRunError, match="filter"):
            run.find(np.arange(0, 80, 2).reshape(1, -1), mostly_absent=True)
        return
    for number in asked:
        try:
            hits = KeyRun(store, PATH, key).find(np.array([[number]]))
        except UnusableRunError:
            continue
        assert len(hits) == 1, number


@pytest.mark.usefixtures("small_blocks")
def test_a_row_that_a_run_has_twice_is_found_once() -> None:
    """Also by two keys, of which one is not the row's."""
    table = new_table(memory_store(), SCHEMA, properties={"tidelog.primaryKey": "k"})
    table.insert([{"k": number, "t": "", "v": number} for number in range(40)])
    key = IndexedKey.of(load(table.store).head.metadata, SCHEMA)
    assert key is not None
    (run,) = open_runs(table.store, key)
    (path,) = run_paths(table.store)
    before, _, columns, metadata = parts_of(table.store.read(path))
    blocks = bytearray(before)
    # The positions of the first block: row 1 instead of row 0.
    blocks[12 * 16 : 12 * 16 + 4] = (1).to_bytes(4, "little")
    columns["sums"][0] = zlib.crc32(bytes(blocks[: 16 * 16]))
    table.store.delete(path)
    table.store.put_if_absent(PATH, sealed(bytes(blocks), head_bytes(columns, metadata)))
    with pytest.raises(UnusableRunError, match="a row twice"):
        KeyRun(table.store, PATH, key).find(np.array([[0, 1]]))
    assert table.get([{"k": 0}, {"k": 1}])["v"].to_pylist() == [0, 1]
    assert len(run) == 40


def test_a_filter_has_every_code_of_its_block_and_few_others() -> None:
    key, store = key_of(), memory_store()
    numbers = np.random.default_rng(seed()).choice(2**40, 20_000, replace=False)
    write_run(store, PATH, key, [FileKeys("a", pa.table({"k": numbers}))])
    run = KeyRun(store, PATH, key)
    assert run._passes(np.sort(numbers)).all()
    others = np.setdiff1d(np.sort(np.random.default_rng(5).choice(2**40, 300)), numbers)
    assert run._passes(others).mean() < 0.05
