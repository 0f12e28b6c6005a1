"""Support for tests in which another engine commits between our stage and our commit: a table, our operations and the
checks.

The engine commits once, on a copy of the table. The commit is then copied into the table of each of our operations. It
would be the same commit there, because the engine does not see staged files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.log.support import memory_store
from tidelog.compaction_daemon import stage
from tidelog.log import Table, Transaction
from tidelog.log.commit.result import Superseded
from tidelog.log.errors import ConflictError
from tidelog.log.state.loader import load
from tidelog.log.storage.memory import MemoryStore

SCHEMA = pa.schema([("k", pa.int64()), ("part", pa.string()), ("v", pa.int64())])
OFF = {"delta.enableDeletionVectors": False}
FEED = {"delta.enableChangeDataFeed": True}
KINDS: Mapping[str, Mapping[str, object]] = {
    "vectors": {},
    "vectors, feed": FEED,
    "copies": OFF,
    "copies, feed": {**OFF, **FEED},
}


def row(k: int) -> dict[str, Any]:
    return {"k": k, "part": "ab"[k % 2], "v": k * 10}


OURS: Mapping[str, Callable[[Table], Transaction]] = {
    "insert": lambda table: table.begin().insert([row(100), row(101)]),
    "delete": lambda table: table.begin().delete("k IN (0, 3, 6, 9, 300)"),
    "update": lambda table: table.begin().update("k IN (1, 5, 9, 301)", {"v": "v + 1000"}),
    "upsert": lambda table: table.begin().upsert([{**row(2), "v": -2}, {**row(50), "v": -50}], keys=["k"]),
    "overwrite": lambda table: table.begin().overwrite([row(200)]),
    "overwrite a": lambda table: table.begin().overwrite([row(202)], where="part = 'a'"),
    "truncate": lambda table: table.begin().truncate(),
    "minor": stage,
    "major": lambda table: stage(table, "major"),
}

# Outcomes.
COMMITTED, SUPERSEDED, CONFLICT = "C", "S", "x"


def base_table(path: Path, kind: str, **properties: object) -> Table:
    """Twelve rows in two partitions with three files each. One row is dead, but not yet in version 3."""
    made = Table.create(str(path), SCHEMA, partition_by=["part"], properties={**KINDS[kind], **properties})
    for first in (0, 4, 8):
        made.insert([row(k) for k in range(first, first + 4)])
    made.delete("k = 7")
    return made


@dataclass(frozen=True)
class Winner:
    """A table before and after one commit of another engine."""

    before: Path
    after: Path

    def copy_commit(self, store: MemoryStore) -> None:
        """Add the engine's commit to a copy of the table before it."""
        for file in sorted(files_below(self.after) - files_below(self.before)):
            store.put_if_absent(file, (self.after / file).read_bytes())


def files_below(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}


def in_memory(path: Path) -> MemoryStore:
    """A copy of a table in memory, which is faster than a disk."""
    store = memory_store()
    for file in files_below(path):
        store.put_if_absent(file, (path / file).read_bytes())
    return store


def on_disk(store: MemoryStore, path: Path) -> None:
    """Copy a table to disk for the other engines."""
    for file, _ in store.walk():
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        (path / file).write_bytes(store.read(file))


def data_files(store: MemoryStore) -> set[str]:
    """All files except those of the log and of the conflict ledger."""
    return {path for path, _ in store.walk() if not path.startswith(("_delta_log/", "_tidelog/conflicts/"))}


def opened(store: MemoryStore) -> Table:
    return Table(store, load(store))


def meet(winner: Winner, ours: str, path: Path) -> str:
    """Stage our operation, let the engine's commit win, commit ours, check the result, and return the outcome.

    The table is written to `path`.
    """
    mine, again = in_memory(winner.before), in_memory(winner.after)
    found = data_files(mine)
    transaction = OURS[ours](opened(mine))
    staged = data_files(mine) - found
    winner.copy_commit(mine)
    others = data_files(mine) - staged
    newest = opened(mine).version
    letter = _outcome(transaction, newest)
    table = opened(mine)
    on_disk(mine, path)
    for version in range(newest, table.version + 1):
        assert_true_feed(table, version)
    if letter != COMMITTED:
        assert (table.version, data_files(mine)) == (newest, others)
    if letter != CONFLICT:
        OURS[ours](opened(again)).commit()
        assert rows_of(table) == rows_of(opened(again)), ours
    return letter


def _outcome(transaction: Transaction, newest: int) -> str:
    try:
        outcome = transaction.commit()
    except ConflictError:
        return CONFLICT
    if isinstance(outcome, Superseded):
        assert outcome.by == newest
        return SUPERSEDED
    assert outcome.rebased_over == (newest,)
    return COMMITTED


def rows_of(table: Table, version: int | None = None) -> Counter[str]:
    return texts(table.at(version=version).scan().to_arrow())


def texts(data: pa.Table) -> Counter[str]:
    """The rows as text, without their nulls, so that a column added by an engine does not matter."""
    return Counter(repr(sorted((name, v) for name, v in row.items() if v is not None)) for row in data.to_pylist())


def assert_true_feed(table: Table, version: int) -> None:
    """Check that the changes of a version turn the rows of the version before into its rows."""
    changes = table.changes(after=version - 1, until=version).to_arrow()
    replayed: Counter[str] = rows_of(table, version - 1)
    for sign, kinds in ((-1, {"delete", "update_preimage"}), (1, {"insert", "update_postimage"})):
        mask = pa.array([kind in kinds for kind in changes["_change_type"].to_pylist()], pa.bool_())
        part = changes.filter(mask).drop_columns(["_change_type", "_commit_version", "_commit_timestamp"])
        for text, count in texts(part).items():
            replayed[text] += sign * count
    assert not [text for text, count in replayed.items() if count < 0], version
    assert +replayed == rows_of(table, version), version


def meet_all(winner: Winner, path: Path) -> str:
    """The outcomes of all our operations, one letter each."""
    return "".join(meet(winner, ours, path / ours) for ours in OURS)
