"""Tombstones in memory: which are found, how often a file is read, and how much memory they take."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.log.faults import Around
from tests.log.support import Clock
from tests.randomness import seed
from tidelog.log.data import tombstone_cache, tombstones
from tidelog.log.data.room import Room
from tidelog.log.data.tombstones import WINS_TIES, WRITTEN_MS, TombstoneColumns, order_names
from tidelog.log.format.tombstone_list import TombstoneFile
from tidelog.log.storage.memory import MemoryStore

STORES = itertools.count()
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [-(2**63), -7, 0, 3, 2**63 - 1],
    pa.int16(): [-(2**15), 0, 5],
    pa.string(): ["", "a", "ab", "a\0b", "é" * 40],
    pa.binary(): [b"", b"\0", b"\0\0"],
    pa.date32(): [date(1, 1, 1), date(2026, 1, 31)],
    pa.timestamp("us", "UTC"): [datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, microsecond=1, tzinfo=UTC)],
    pa.decimal128(30, 2): [Decimal("-1.50"), Decimal("0.00"), Decimal("9999999.99")],
    pa.bool_(): [True, False],
    pa.float64(): [0.0, -0.0, 1.5, float("nan")],
}


class Counted(Around):
    """A store that counts how often each file is opened."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(f"memory://tombstone-cache-{next(STORES)}"))
        self.opened: Counter[str] = Counter()

    def open_input(self, path: str) -> Any:
        self.opened[path] += 1
        return super().open_input(path)


def columns_of(*kinds: pa.DataType) -> TombstoneColumns:
    keys = pa.schema([(f"k{number}", kind) for number, kind in enumerate(kinds)])
    return TombstoneColumns("t", keys, pa.schema([("at", pa.int64())]))


def written(store: Counted, columns: TombstoneColumns, keys: pa.Table) -> TombstoneFile:
    """A file with tombstones of these keys, of which each has its number as its order."""
    rows = {name: keys[name] for name in columns.keys.names}
    rows |= {order_names(["at"])[0]: pa.array(range(keys.num_rows), pa.int64())}
    rows |= {WRITTEN_MS: pa.array([7] * keys.num_rows, pa.int64()), WINS_TIES: pa.array([True] * keys.num_rows)}
    return tombstones.write_tombstones(store, Clock(), columns, pa.table(rows))


def found(store: Counted, file: TombstoneFile, columns: TombstoneColumns, keys: pa.Table) -> list[int]:
    """The numbers of the tombstones that are read for these keys, in order."""
    (at,) = order_names(["at"])
    return sorted(
        number for rows in tombstones.read_tombstones(store, file, columns, keys) for number in rows[at].to_pylist()
    )


def numbers(keys: range) -> pa.Table:
    return pa.table({"k0": pa.array(keys, pa.int64())})


@pytest.mark.parametrize("kinds", [*itertools.product(VALUES), (pa.string(), pa.int64()), (pa.float64(), pa.date32())])
def test_all_tombstones_of_a_key_are_found(kinds: tuple[pa.DataType, ...]) -> None:
    randomness, columns, store = random.Random(seed()), columns_of(*kinds), Counted()

    def drawn(count: int) -> list[tuple[Any, ...]]:
        return [tuple(randomness.choice(VALUES[kind]) for kind in kinds) for _ in range(count)]

    def as_table(keys: list[tuple[Any, ...]]) -> pa.Table:
        return pa.table(
            [pa.array(column, kind) for column, kind in zip(zip(*keys, strict=True), kinds, strict=True)],
            names=columns.keys.names,
        )

    for _ in range(10):
        known, asked = drawn(randomness.randrange(1, 40)), drawn(1 + randomness.randrange(3))
        file = written(store, columns, as_table(known))
        # NaN is equal to NaN as a text, and -0.0 is 0.0 after adding 0.
        texts = [
            [str([value + 0.0 if isinstance(value, float) else value for value in key]) for key in keys]
            for keys in (known, asked)
        ]
        expected = {number for number, text in enumerate(texts[0]) if text in texts[1]}
        for _ in range(2):
            assert expected <= set(found(store, file, columns, as_table(asked)))
        assert store.opened[file.path] == 1


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_few_of_many_are_read_once_and_not_for_each_batch(kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tombstones, "_GROUP_ROWS", 16)
    monkeypatch.setattr(tombstones, "_FEW_ROWS", 16)
    store, columns = Counted(), columns_of(kind)
    file = written(store, columns, pa.table({"k0": pa.array(range(0, 2000, 2)).cast(kind)}))
    few = pa.table({"k0": pa.array([10, 11, 12]).cast(kind)})
    for _ in range(2):
        assert {5, 6} <= set(found(store, file, columns, few))
    assert store.opened[file.path] == 2, "few row groups are read again, and not kept"
    everywhere = pa.table({"k0": pa.array(range(0, 2000, 33)).cast(kind)})
    for _ in range(3):
        assert found(store, file, columns, everywhere) == list(range(0, 1000, 33))
    assert found(store, file, columns, few) == [5, 6]
    assert store.opened[file.path] == 3
    assert len(found(store, file, columns, few.cast(pa.schema([("k0", pa.large_string())])))) == 1000
    tombstone_cache.uncache_others(store, [])
    assert found(store, file, columns, everywhere) == list(range(0, 1000, 33))
    assert store.opened[file.path] == 4


def test_they_take_no_more_memory_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tombstone_cache, "_ROOM", Room(8000))
    columns, store, other = columns_of(pa.int64()), Counted(), Counted()
    keys = numbers(range(100))
    files = [written(store, columns, keys) for _ in range(3)]
    for _ in range(3):
        assert [found(store, file, columns, numbers(range(7, 8))) for file in files] == [[7], [7], list(range(100))]
    opened = [store.opened[file.path] for file in files]
    assert opened == [1, 1, 3], "those of two files have room, and a third does not take it from them"
    foreign = written(other, columns, keys)
    assert [found(other, foreign, columns, numbers(range(7, 8))) for _ in range(2)] == [[7]] * 2
    assert other.opened[foreign.path] == 1, "those of another table make room"
    assert found(store, files[0], columns, numbers(range(7, 8))) == [7]
    assert store.opened[files[0].path] == 2


def test_a_file_of_more_than_the_room_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tombstones, "MOST_CACHED_BYTES", 2000)
    monkeypatch.setattr(tombstones, "_GROUP_ROWS", 8)
    monkeypatch.setattr(tombstones, "_GROUPS_AT_ONCE", 2)
    store, columns = Counted(), columns_of(pa.int64())
    file = written(store, columns, numbers(range(1000)))
    pieces = list(tombstones.read_tombstones(store, file, columns, numbers(range(1))))
    assert pa.concat_tables(pieces)["k0"].to_pylist() == list(range(1000))
    assert max(piece.num_rows for piece in pieces) == 16
    assert found(store, file, columns, numbers(range(1))) == list(range(1000))
    assert store.opened[file.path] == 2
