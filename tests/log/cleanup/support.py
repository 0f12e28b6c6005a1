"""Helpers for the tests of clean-up."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.compaction_daemon.support import z85
from tests.log.support import (
    START_MS,
    Clock,
    bitmap,
    memory_store,
    new_table,
    numbers,
    put_commit,
    read_numbers,
    reopen,
    stage_compaction,
    vector_file,
)
from tidelog.log import Table
from tidelog.log.errors import HistoryExpiredError
from tidelog.log.format import filenames
from tidelog.log.format.actions import AddFile, DeletionVectorDescriptor
from tidelog.log.state import files
from tidelog.log.storage import Store
from tidelog.log.system import to_datetime

DAY = 86_400_000
HOUR = 3_600_000


# No retention at all, so that a vacuum deletes everything that it may.
AT_ONCE = {"tidelog.maxTransactionTime": "0 days", "delta.deletedFileRetentionDuration": "0 days"}


class Ticking(Clock):
    """A clock that moves with each look at it, so that no two files are equally old."""

    def now_ms(self) -> int:
        self.ms += 1
        return self.ms


# --- the log ---------------------------------------------------------------------------------------------------------


def daily(
    store: Store, clock: Clock, *, days: int = 10, every: int = 3, properties: Mapping[str, object] | None = None
) -> Table:
    """A table whose version n inserts n on day n, with a checkpoint after every `every` versions."""
    table = new_table(store, system=clock, properties=properties)
    for day in range(1, days + 1):
        clock.ms = START_MS + day * DAY
        table.insert(numbers([day]))
        if day % every == 0:
            table.checkpoint()
    return table


def written_when_committed(table: Table) -> Table:
    """Give the commit files of a table on a disk the times of their commits."""
    for record in table.history():
        moment_s = record.timestamp.timestamp()
        os.utime(Path(table.path, filenames.commit_path(record.version)), (moment_s, moment_s))
    return table


def log_names(store: Store) -> list[str]:
    return [status.name for status in store.list("_delta_log")]


def versions_of(store: Store, suffix: str = ".json") -> list[int]:
    return [int(name[:20]) for name in log_names(store) if name[20:] == suffix]


def require_versions_since(table: Table, earliest: int, days: int = 10) -> None:
    fresh = reopen(table)
    assert read_numbers(fresh) == list(range(1, days + 1))
    for version in range(earliest, days + 1):
        assert read_numbers(fresh.at(version=version)) == list(range(1, version + 1))
        assert fresh.at(version=version).timestamp == to_datetime(START_MS + version * DAY)
    with pytest.raises(HistoryExpiredError) as gone:
        fresh.at(version=earliest - 1)
    assert gone.value.earliest_version == earliest


def require_every_version(table: Table) -> None:
    for version in range(11):
        assert read_numbers(reopen(table).at(version=version)) == list(range(1, version + 1))


def damage(table: Table, version: int, how: str) -> None:
    path = filenames.checkpoint_path(version)
    content = table.store.read(path)
    match how:
        case "empty":
            content = b""
        case "cut":
            content = content[: len(content) // 2]
        case "garbage in the middle":
            content = content[:2000] + bytes(500) + content[2500:]
        case "of another version":
            content = table.store.read(filenames.checkpoint_path(version - 3))
        case "gone":
            table.store.delete(path)
            return
        case other:
            raise AssertionError(other)
    table.store.replace(path, content)


# --- data files ------------------------------------------------------------------------------------------------------


def compacted(clock: Clock) -> Table:
    """A table with two inserts on day 1, a compaction on day 2 and an insert on day 3. Now it is day 20."""
    made = new_table(memory_store(clock), system=clock)
    clock.ms = START_MS + DAY
    for number in (1, 2):
        made.insert(numbers([number]))
    clock.ms = START_MS + 2 * DAY
    stage_compaction(made).commit()
    clock.ms = START_MS + 3 * DAY
    made.insert(numbers([3]))
    clock.ms = START_MS + 20 * DAY
    return made


def put(table: Table, clock: Clock, path: str, *, days_ago: float, content: bytes = b"x") -> str:
    now = clock.ms
    clock.ms = now - int(days_ago * DAY)
    table.store.put_if_absent(path, content)
    clock.ms = now
    return path


def paths(store: Store) -> set[str]:
    return {path for path, _ in store.walk() if not path.startswith("_delta_log/")}


def live_files_at(table: Table, version: int) -> list[AddFile]:
    return files.to_adds(table.at(version=version).files())


def put_at(table: Table, info: dict[str, Any], *actions: Any) -> None:
    put_commit(table.store, table.refresh().version + 1, *actions, info=info)


def put_stored_vector(table: Table, clock: Clock, positions: list[int], *, days_ago: int) -> DeletionVectorDescriptor:
    """Write a deletion vector below `_dv/`, where tidelog keeps them."""
    name = uuid.uuid4()
    blob = bitmap(positions)
    put(table, clock, f"_dv/deletion_vector_{name}.bin", days_ago=days_ago, content=vector_file(blob))
    text = "_dv" + z85(name.bytes)
    return DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv=text, offset=1, size_in_bytes=len(blob), cardinality=len(positions)
    )
