"""Runs that were made up, or changed with checksums that are right: rows are those of a scan, in bounded memory."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tests.log.support import memory_store, new_table
from tests.peak_memory import grown_mb, needs_proc
from tests.randomness import EXAMPLES, seed
from tidelog.log.cleanup.pieces import finished
from tidelog.log.data import key_runs
from tidelog.log.data.block_filter import filter_lines, line_bytes, may_have
from tidelog.log.data.indexed_key import IndexedKey
from tidelog.log.data.key_runs import FileKeys, KeyRun, UnusableRunError, open_runs, run_paths, useless_runs, write_run
from tidelog.log.data.run_head import TRAILER
from tidelog.log.format.actions import Format, Metadata
from tidelog.log.operations.tend_index import tend_index
from tidelog.log.state.loader import load
from tidelog.log.storage.local import LocalStore
from tidelog.log.storage.memory import MemoryStore
from tidelog.log.system import REAL_SYSTEM

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
        pa.ListArray.from_arrays(
            pa.array([0, len(values)], pa.int32()), values if isinstance(values, pa.Array) else pa.array(values, kind)
        )
        for values, kind in ((columns[name], kind) for name, kind in zip(FLAT.names, FLAT.types, strict=True))
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


class Forgery:
    """A table, whose runs are changed one at a time. It stays as it is, so its rows are those of one scan."""

    rows = 800

    def __init__(self, inserts: int, randomness: random.Random) -> None:
        self._randomness = randomness
        self._table = new_table(memory_store(), SCHEMA, properties={"tidelog.primaryKey": "k"})
        numbers = [2 * number for number in range(self.rows)]
        randomness.shuffle(numbers)
        step = self.rows // inserts
        for start in range(0, self.rows, step):
            own = numbers[start : start + step]
            self._table.insert([{"k": number, "t": f"{number}", "v": number + 1} for number in own])
        self._store = self._table.store
        self._whole = {path: self._store.read(path) for path in run_paths(self._store)}
        found = self._table.scan(columns=["k", "v"]).to_arrow().to_pylist()
        self._every = {row["k"]: row["v"] for row in found}

    def attempt(self, change: Callable[[random.Random, bytes], bytes], number: int) -> None:
        """Change a run, and look rows up. Now and then the runs are merged first."""
        path = self._randomness.choice(sorted(self._whole))
        # Open runs are known by their names.
        name = f"{key_runs.KEYS_FOLDER}/forged-{number}{key_runs.ENDING}"
        self._store.put_if_absent(name, change(self._randomness, self._whole[path]))
        self._store.delete(path)
        if self._randomness.random() < 0.1:
            finished(tend_index(self._store, load(self._store), REAL_SYSTEM))
        for count in (3, 60):  # of few keys, and of so many that filters are read
            asked = self._randomness.sample(range(-40, 2 * self.rows + 40), count)
            found = self._table.get(pa.table({"k": pa.array(asked, pa.int64())}), columns=["k", "v"]).to_pylist()
            expected = [(key, self._every[key]) for key in asked if key in self._every]
            assert [(row["k"], row["v"]) for row in found] == expected
        self._restore()

    def _restore(self) -> None:
        paths = set(run_paths(self._store))
        for path in paths - self._whole.keys():
            self._store.delete(path)
        for path in self._whole.keys() - paths:
            self._store.put_if_absent(path, self._whole[path])


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    "count", [pytest.param(EXAMPLES // 4, id="few"), pytest.param(250, id="many", marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("inserts", [1, 4])
def test_a_run_that_was_changed_hides_no_row(
    change: Callable[[random.Random, bytes], bytes], inserts: int, count: int
) -> None:
    randomness = random.Random(f"{seed()}{change.__name__}{inserts}")
    forgery = Forgery(inserts, randomness)
    for number in range(count):
        forgery.attempt(change, number)


# --- runs of two files ------------------------------------------------------------------------------------------------

FENCES = [*range(0, 800, 32)]


def run_of_two_files(
    codes: Mapping[int, Sequence[int]] | None = None, **changes: Any
) -> tuple[MemoryStore, IndexedKey, bytes]:
    """A run of the keys 0, 2, ... 798, 16 in a block, and the bytes before its head.

    Some blocks have other `codes`, and the head says something else. Checksums are right.
    """
    key, store = key_of(), memory_store()
    rows = pa.table({"k": range(0, 800, 2)})
    write_run(store, PATH, key, [FileKeys("a", rows.slice(0, 200)), FileKeys("b", rows.slice(200))])
    content, _, columns, metadata = parts_of(store.read(PATH))
    before = bytearray(content)
    for block, numbers in (codes or {}).items():
        before[256 * block : 256 * block + 128] = np.array(numbers, dtype=np.int64).tobytes()
        columns["sums"][block] = zlib.crc32(before[256 * block : 256 * (block + 1)])
    for name, value in changes.items():
        if name in columns:
            columns[name] = value
        else:
            metadata = {**metadata, name.encode(): value.encode()}
    replace_run(store, sealed(before, head_bytes(columns, metadata)))
    return store, key, bytes(before)


def replace_run(store: MemoryStore, content: bytes) -> None:
    store.delete(PATH)
    store.put_if_absent(PATH, content)


def moved(block: int, by: int) -> list[int]:
    """The first codes of the blocks, of which one is wrong."""
    return [fence + by * (place == block) for place, fence in enumerate(FENCES)]


def found(store: MemoryStore, key: IndexedKey, *numbers: int) -> list[int]:
    """Which of the numbers a lookup finds, by their places."""
    places: list[int] = KeyRun(store, PATH, key).find(np.array([numbers])).places.tolist()
    return places


FALSE_HEADS: list[tuple[dict[str, Any], str]] = [
    ({"fences": FENCES[::-1]}, "out of order"),
    ({"paths": ["a", "a"]}, "wrong paths"),
    ({"paths": ["a", None]}, "wrong paths"),
    ({"paths": ["a"]}, "wrong paths"),
    ({"paths": pa.array([b"a", b"\xff"]).view(pa.string())}, "decoded"),
    ({"rows": [-1, 401]}, "counts of rows"),
    ({"rows": [2**31, 200]}, "counts of rows"),
    ({"rows": [200, 100]}, "more entries"),
    ({"rows": [200, None]}, "decoded"),
    ({"sums": [0] * 24}, "wrong counts"),
    ({"tail": "-1"}, "wrong counts"),
    ({"tail": "16"}, "wrong counts"),
    ({"fences": [], "sums": [], "tail": "1"}, "wrong counts"),
    ({"fences": FENCES[:-1], "sums": [0] * 24}, "other blocks"),
    ({"block": "17"}, "another size"),
    ({"table": "other"}, "another table"),
    ({"key": "[]"}, "another table"),
    ({"more": "x" * 2**20}, "other parts"),
]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("changes", "reason"), FALSE_HEADS)
def test_a_head_that_contradicts_itself_is_not_used(changes: dict[str, Any], reason: str) -> None:
    store, key, _ = run_of_two_files(**changes)
    with pytest.raises(UnusableRunError, match=reason):
        KeyRun(store, PATH, key)
    assert open_runs(store, key) == []
    assert useless_runs(store, key) == [PATH]


def test_a_file_of_a_few_bytes_is_no_run() -> None:
    store = memory_store()
    store.put_if_absent(PATH, b"tidekey3")
    with pytest.raises(UnusableRunError, match="ends early"):
        KeyRun(store, PATH, key_of())


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("by", [-4, 4])
@pytest.mark.parametrize("block", [0, 1, 10, 24])
def test_a_wrong_first_code_of_a_block_hides_no_row(by: int, block: int) -> None:
    """Also of keys that another block would have by it, which is the only one that is read."""
    store, key, _ = run_of_two_files(fences=moved(block, by))
    with pytest.raises(UnusableRunError, match="filter"):
        KeyRun(store, PATH, key).find(np.arange(0, 80, 2).reshape(1, -1), mostly_absent=True)
    first = 32 * block
    for number in {first - 2, first, first + 2} - {-2}:
        try:
            assert found(store, key, number) == [0], number
        except UnusableRunError:
            continue


@pytest.mark.usefixtures("small_blocks")
def test_a_wrong_first_code_is_seen_although_other_blocks_were_read() -> None:
    store, key, _ = run_of_two_files(fences=moved(0, 4))
    run = KeyRun(store, PATH, key)
    assert len(run.find(np.array([[100]]))) == 1
    with pytest.raises(UnusableRunError, match="out of order"):
        run.find(np.array([[0]]))


@pytest.mark.usefixtures("small_blocks")
def test_the_first_block_is_read_once_for_codes_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store, key, _ = run_of_two_files()
    run = KeyRun(store, PATH, key)
    assert len(run.find(np.array([[-5]]))) == 0
    monkeypatch.setattr(store, "open_input", None)
    assert len(run.find(np.array([[-5]]))) == 0


@pytest.mark.usefixtures("small_blocks")
def test_codes_of_a_block_that_are_out_of_order_are_not_used() -> None:
    own = [*range(64, 96, 2)]
    store, key, _ = run_of_two_files({2: [own[0], *own[:0:-1]]})
    with pytest.raises(UnusableRunError, match="out of order"):
        found(store, key, 66)
    # The wrong first code of block 1 would hide its rows if block 0 could end with any code.
    store, key, _ = run_of_two_files({0: [*range(0, 30, 2), 62]}, fences=moved(1, 4))
    with pytest.raises(UnusableRunError, match="out of order"):
        found(store, key, 34)


@pytest.mark.usefixtures("small_blocks")
def test_a_lookup_can_ask_twice_for_a_code() -> None:
    store, key, _ = run_of_two_files()
    assert sorted(found(store, key, 34, 34, 35)) == [0, 1]


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


@pytest.mark.usefixtures("small_blocks")
def test_a_row_that_two_parts_of_a_lookup_find_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_runs, "_MOST_BLOCKS", 1)
    store, key, before = run_of_two_files()
    _, _, columns, metadata = parts_of(store.read(PATH))
    blocks = bytearray(before)
    # The places of the rows of block 3 are those of block 9.
    blocks[3 * 256 + 128 : 4 * 256] = blocks[9 * 256 + 128 : 10 * 256]
    columns["sums"][3] = zlib.crc32(blocks[3 * 256 : 4 * 256])
    replace_run(store, sealed(blocks, head_bytes(columns, metadata)))
    assert found(store, key, 96) == [0]
    with pytest.raises(UnusableRunError, match="a row twice"):
        found(store, key, 96, 288)


# --- filters ----------------------------------------------------------------------------------------------------------


def test_filters_that_were_stored_stay_what_they_are() -> None:
    """If this fails, filters have to be written another way, so that those of before are not used."""
    codes = np.array([0, 1, -1, 2**40, -(2**63), 7, 8, 9], dtype=np.int64)
    lines = filter_lines(codes, 4, 4)
    assert [line.tobytes().hex() for line in lines] == ["411050840003", "028840002a4e"]
    assert may_have(lines, codes, np.arange(8) // 4).all()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("lines", ["none", "of another block"])
def test_a_filter_that_lacks_the_first_code_of_its_block_is_not_used(lines: str) -> None:
    """Its checksum is right."""
    store, key, before = run_of_two_files()
    _, _, columns, metadata = parts_of(store.read(PATH))
    size = line_bytes(16)
    blocks, filters = before[: 25 * 256], before[25 * 256 :]
    filters = bytes(len(filters)) if lines == "none" else filters[size:] + filters[:size]
    fences = np.array(FENCES, dtype=np.int64).tobytes()
    metadata = {**metadata, b"filter": str(zlib.crc32(filters, zlib.crc32(fences))).encode()}
    replace_run(store, sealed(blocks + filters, head_bytes(columns, metadata)))
    with pytest.raises(UnusableRunError, match="filter of other codes"):
        KeyRun(store, PATH, key).find(np.arange(0, 80, 2).reshape(1, -1), mostly_absent=True)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("codes", "reads"), [(31, False), (32, True), (200, True), (201, False)])
def test_filters_are_read_if_they_save_blocks(codes: int, *, reads: bool) -> None:
    """That is from 32 codes on, and up to 8 for each of the 25 blocks."""
    store, key, _ = run_of_two_files()
    run = KeyRun(store, PATH, key)
    assert len(run.find(np.arange(codes).reshape(1, -1), mostly_absent=True)) == (codes + 1) // 2
    assert (run._lines is not None) is reads


def test_a_filter_has_every_code_of_its_block_and_few_others() -> None:
    key, store = key_of(), memory_store()
    numbers = np.random.default_rng(seed()).choice(2**40, 20_000, replace=False)
    write_run(store, PATH, key, [FileKeys("a", pa.table({"k": numbers}))])
    run = KeyRun(store, PATH, key)
    assert run._passes(np.sort(numbers)).all()
    others = np.setdiff1d(np.sort(np.random.default_rng(5).choice(2**40, 300)), numbers)
    assert run._passes(others).mean() < 0.05
