"""What a rebase keeps of the small files that it reads."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from tests.log.support import memory_url
from tidelog.log.commit import race
from tidelog.log.commit.race import StoreBlobs
from tidelog.log.data.deletion_vectors import write_dead_rows
from tidelog.log.data.row_maps import row_map_schema, write_row_map
from tidelog.log.storage.memory import MemoryStore
from tidelog.log.system import REAL_SYSTEM


class CountingStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__(memory_url())
        self.reads: Counter[str] = Counter()

    def read(self, path: str) -> bytes:
        self.reads[path] += 1
        return super().read(path)


def test_a_long_race_keeps_a_bounded_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    store = CountingStore()
    rows = [BitMap64(range(number, 100_000, 2 + number)) for number in range(20)]
    vectors = [write_dead_rows(store, REAL_SYSTEM, [each])[0] for each in rows]
    columns = [pa.array(range(1000), pa.int64())] * 4
    paths = [write_row_map(store, REAL_SYSTEM, pa.table(columns, schema=row_map_schema())) for _ in range(20)]
    monkeypatch.setattr(race, "MAX_KEPT_BYTES", 100_000)
    blobs = StoreBlobs(store)
    for _ in range(2):
        for vector, each, path in zip(vectors, rows, paths, strict=True):
            assert blobs.dead_rows(vector) == each
            assert blobs.row_map(path).num_rows == 1000
            assert 0 < blobs._kept_bytes <= 100_000
    assert sum(store.reads.values()) == 2 * 40
    # The newest ones are still there.
    blobs.row_map(paths[-1])
    blobs.dead_rows(vectors[-1])
    assert sum(store.reads.values()) == 2 * 40


def test_a_vector_file_is_read_once() -> None:
    store = CountingStore()
    rows = [BitMap64([number]) for number in range(50)]
    vectors = write_dead_rows(store, REAL_SYSTEM, rows)
    blobs = StoreBlobs(store)
    assert [blobs.dead_rows(vector) for _ in range(2) for vector in vectors] == rows * 2
    assert sum(store.reads.values()) == 1
