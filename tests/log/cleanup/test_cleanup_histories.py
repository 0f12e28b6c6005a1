"""Clean-up over random histories: every retained version has the same rows before and after."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.cleanup.support import put_stored_vector
from tests.log.support import (
    Clock,
    live_files,
    memory_store,
    new_table,
    numbers,
    put_commit,
    read_numbers,
    remove,
    stage_compaction,
)
from tidelog.compaction_daemon import expire, vacuum
from tidelog.log import Table
from tidelog.log.errors import HistoryExpiredError, TransactionExpiredError
from tidelog.log.format.actions import AddFile
from tidelog.log.state import files
from tidelog.log.state.commits import written_ms
from tidelog.log.state.loader import load
from tidelog.log.system import to_datetime

HOUR = 3_600_000
_CHANGES = ["insert", "insert", "insert", "delete", "vector", "compact", "restore"]
_OTHERS = [
    "checkpoint",
    "checkpoint",
    "orphan",
    "stage",
    "commit",
    "expire",
    "expire",
    "vacuum",
    "vacuum",
    "vacuum from the log",
]
STEPS = st.tuples(
    st.sampled_from([*_CHANGES, *_OTHERS]),
    st.integers(0, 7),
    # Hours until the next step, some shorter and some longer than the retentions.
    st.sampled_from([0, 1, 20, 30, 60, 200]),
)
PROPERTIES = {
    "delta.enableExpiredLogCleanup": True,
    "delta.logRetentionDuration": "6 days",
    "delta.deletedFileRetentionDuration": "4 days",
}


class Model:
    """A table, and the rows that each of its versions had when it was committed."""

    def __init__(self, *, in_commit: bool) -> None:
        self.clock = Clock()
        properties = {**PROPERTIES, "delta.enableInCommitTimestamps": in_commit}
        self.table = new_table(memory_store(self.clock), properties=properties, system=self.clock)
        self.rows: dict[int, list[int]] = {}
        self.times: dict[int, int] = {}
        self.staged: Any = None
        # The latest cut-offs so far. Versions before them can be gone.
        self.log_cutoff_ms = self.data_cutoff_ms = 0.0
        self.next = 0
        self.remember()

    def remember(self) -> None:
        """Remember the newest version, read through a fresh table."""
        fresh = Table(self.table.store, load(self.table.store), self.clock)
        self.rows[fresh.version] = read_numbers(fresh)
        self.times[fresh.version] = int(fresh.at().timestamp.timestamp() * 1000)

    def step(self, kind: str, number: int) -> None:
        self.table.refresh()
        found = live_files(self.table)
        file = found[number % len(found)] if found else None
        match kind:
            case "insert":
                self.table.insert(numbers([self.next, self.next + 1, self.next + 2]))
                self.next += 3
            case "compact" if len(found) > 1 and all(each.deletion_vector is None for each in found):
                stage_compaction(self.table, found[: 2 + number]).commit()
            case "delete" if file:
                self.put(remove(file, deletion_timestamp=self.clock.ms - 2 * HOUR))
            case "vector" if file and not file.deletion_vector:
                vector = put_stored_vector(self.table, self.clock, [number % 3], days_ago=0)
                self.put(remove(file), msgspec.structs.replace(file, deletion_vector=vector))
            case "checkpoint":
                self.table.checkpoint()
            case "restore":
                self.restore(number)
            case "orphan":
                self.table.store.put_if_absent(f"{number:02}/orphan-{self.clock.ms}-{self.next}", b"x")
                self.next += 1
            case "stage" if self.staged is None:
                self.staged = (self.clock.ms, self.table.begin().insert(numbers([self.next])))
                self.next += 1
            case "commit" if self.staged:
                self.commit_staged()
            case "expire":
                self.clean(expire, number)
            case "vacuum" | "vacuum from the log":
                self.clean(vacuum if kind == "vacuum" else partial(vacuum, listing=False), number)
            case _:  # there is nothing to do this step on
                pass
        self.remember()

    def put(self, *actions: Any) -> None:
        stamp = max(self.clock.ms, self.times[self.table.version] + 1)
        put_commit(self.table.store, self.table.version + 1, *actions, info={"inCommitTimestamp": stamp})

    def restore(self, number: int) -> None:
        """Another writer's RESTORE of a version whose log and data files are retained."""
        back = self.table.version - number
        if back < min(self.versions_since(self.log_cutoff_ms)):
            return
        if self.times.get(back + 1, self.clock.ms) < self.clock.ms - 90 * HOUR:
            return
        now = {each.key: each for each in live_files(self.table)}
        then: dict[Any, AddFile] = {each.key: each for each in files.to_adds(self.table.at(version=back).files())}
        gone = [remove(each, deletion_timestamp=self.clock.ms) for key, each in now.items() if key not in then]
        self.put(*gone, *(each for key, each in then.items() if key not in now))

    def commit_staged(self) -> None:
        """Commit the staged transaction. Only one that took longer than a transaction can take may be refused."""
        began, transaction = self.staged
        self.staged = None
        try:
            transaction.commit()
        except (TransactionExpiredError, HistoryExpiredError):
            assert self.clock.ms - began > 24 * HOUR

    def clean(self, clean_up: Any, number: int) -> None:
        older_than = timedelta(hours=24 + 12 * number) if number % 2 else None
        report = clean_up(self.table, older_than=older_than)
        cutoff_ms = report.cutoff.timestamp() * 1000
        assert cutoff_ms <= self.clock.ms - 24 * HOUR
        if clean_up is expire:
            self.log_cutoff_ms = max(self.log_cutoff_ms, cutoff_ms)
        else:
            self.data_cutoff_ms = max(self.data_cutoff_ms, cutoff_ms)
        if clean_up is vacuum:
            # Orphans go once a version after them has reached the cut-off.
            before = [version for version, time in self.times.items() if time <= cutoff_ms]
            written = written_ms(self.table.store, max(before, default=0)) or 0
            orphans = [status for path, status in self.table.store.walk() if "orphan" in path]
            assert all(status.modified_ms >= min(written, cutoff_ms) for status in orphans)
        self.remember()
        self.check()

    def check(self) -> None:
        """Check that every version that must be retained is unchanged."""
        fresh = Table(self.table.store, load(self.table.store), self.clock)
        assert read_numbers(fresh) == self.rows[fresh.version]
        for version in self.versions_since(self.log_cutoff_ms):
            assert fresh.at(version=version).timestamp == to_datetime(self.times[version])
        for version in self.versions_since(max(self.log_cutoff_ms, self.data_cutoff_ms)):
            assert read_numbers(fresh.at(version=version)) == self.rows[version]

    def versions_since(self, cutoff_ms: float) -> list[int]:
        """The versions that a reader at the cut-off or later can see."""
        before = [version for version, time in self.times.items() if time <= cutoff_ms]
        return [version for version in self.times if version >= max(before, default=0)]


@settings(max_examples=40)
@given(st.lists(STEPS, min_size=5, max_size=25), st.booleans())
def test_every_retained_version_keeps_its_rows(steps: list[tuple[str, int, int]], in_commit: bool) -> None:
    model = Model(in_commit=in_commit)
    for kind, number, hours in steps:
        model.step(kind, number)
        model.clock.ms += hours * HOUR
    for clean_up in (expire, vacuum):
        model.clock.ms += 100 * HOUR
        model.clean(clean_up, 0)
