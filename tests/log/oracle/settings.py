"""The tables of the histories, each built once and then copied in memory."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from tests.log.support import Clock, memory_url, new_table
from tidelog.log.storage.memory import MemoryStore

SCHEMA = pa.schema([("k", pa.int64()), ("p", pa.int64()), ("v", pa.int64())])
# A key whose codes in the index depend on its scale.
NARROW, WIDE = pa.decimal128(10, 2), pa.decimal128(14, 4)
# Every history starts here: after create, three inserts and a delete.
INITIAL_VERSION = 4
# Odd, so that its multiples run through all ids before one repeats.
_STRIDE = 0x9E3779B97F4A7C15F39CC0605CEDC835


class Steady(Clock):
    """A fixed clock, counted ids and no randomness, so that a history is the same in every run."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = 0

    def uuid(self) -> str:
        self.ids += 1
        return str(uuid.UUID(int=self.ids * _STRIDE % 2**128))

    def monotonic_s(self) -> float:
        return 0.0

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2


@dataclass(frozen=True)
class Setting:
    """A kind of table: with deletion vectors or copy-on-write, with or without a change feed and partitions.

    One with partitions has a primary key and an order, and unless `indexed` is off an index of keys and order. If it
    `forgets`, tombstones count for the two commits after their own. With `decimals`, the key can get a wider type.
    """

    vectors: bool = True
    feed: bool = False
    partitioned: bool = False
    indexed: bool = True
    forgets: bool = False
    decimals: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns that the table begins with."""
        return SCHEMA.set(0, pa.field("k", NARROW)) if self.decimals else SCHEMA

    @property
    def properties(self) -> dict[str, object]:
        """The table's properties. Tombstones stay for ever, or for two commits."""
        return {
            # The clock stands still, so each commit is a millisecond after the one before.
            "tidelog.tombstoneRetention": "2 milliseconds" if self.forgets else "100000 days",
            "delta.enableDeletionVectors": self.vectors,
            "delta.enableChangeDataFeed": self.feed,
            **({"tidelog.primaryKey": "k", "tidelog.orderBy": "v"} if self.partitioned else {}),
            **({} if self.indexed else {"tidelog.keyIndex": False}),
            **({"delta.enableTypeWidening": True} if self.decimals else {}),
        }

    @property
    def name(self) -> str:
        words = ["vectors" if self.vectors else "copies", "feed" * self.feed, "partitions" * self.partitioned]
        words += ["no index" * (not self.indexed), "forgets" * self.forgets, "decimals" * self.decimals]
        return ", ".join(word for word in words if word)


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting(),
        Setting(partitioned=True),
        Setting(feed=True),
        Setting(feed=True, partitioned=True),
        Setting(vectors=False),
        Setting(vectors=False, feed=True, partitioned=True),
    )
}


# Not explored: a transaction that waits knows tombstones that are too old once it commits.
FORGETTING = Setting(partitioned=True, forgets=True)


@cache
def _built(setting: Setting) -> tuple[dict[str, tuple[bytes, int]], int]:
    """The files of a table with three data files and dead rows in two of them, and the number of ids used."""
    system = Steady()
    store = MemoryStore(memory_url(), system=system)
    partition_by = ["p"] if setting.partitioned else []
    table = new_table(store, setting.schema, partition_by=partition_by, properties=setting.properties, system=system)
    for keys, partition in (((1, 2, 3, 4), 1), ((5, 6), 1), ((7, 8, 9), 2)):
        table.insert([{"k": key, "p": partition, "v": key * 10} for key in keys])
    table.delete("k = 2 or k = 8")
    files = dict(store._files)
    MemoryStore._shared.pop(store.url)
    return files, system.ids


def fresh(setting: Setting) -> tuple[MemoryStore, Steady]:
    """A new store with a copy of the initial table."""
    files, ids = _built(setting)
    system = Steady()
    system.ids = ids
    store = MemoryStore(memory_url(), system=system)
    store._files.update(files)
    return store, system


def discard(store: MemoryStore) -> None:
    """Free the memory of the store."""
    MemoryStore._shared.pop(store.url, None)
