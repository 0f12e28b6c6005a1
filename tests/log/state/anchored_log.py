"""Logs of commits with any file times, and checkpoints with nothing but anchors."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from tests.log.faults import Counting
from tests.log.state.test_versions import by_definition
from tests.log.support import START_MS, Clock, add, memory_store, put_commit
from tidelog.log.format import filenames
from tidelog.log.state import commit_times, versions
from tidelog.log.state.commit_times import Anchor, CommitTimes
from tidelog.log.storage import Store

KEY = commit_times.ANCHORS_KEY


class Log:
    """Commits without in-commit timestamps, with any file times, and checkpoints with nothing but anchors."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = memory_store(self.clock)
        self.known: dict[int, int] = {}

    def commit(self, version: int, file_time: int) -> None:
        self.clock.ms = self.known[version] = file_time
        put_commit(self.store, version, add(f"f{version}"), info={"inCommitTimestamp": None})

    def touch(self, version: int, file_time: int) -> None:
        self.store.delete(filenames.commit_path(version))
        self.commit(version, file_time)

    def expire(self, version: int) -> None:
        self.store.delete(filenames.commit_path(version))
        del self.known[version]

    def checkpoint(self, version: int) -> list[Anchor]:
        anchors = CommitTimes(self.store).anchors(version)
        record(self.store, version, commit_times.anchors_text(anchors))
        assert commit_times.read_anchors(self.store) == tuple(anchors)
        return anchors

    def expected(self) -> dict[int, int]:
        return by_definition(self.known)

    def found(self) -> dict[int, int]:
        """The time of each commit, the newest first, by a process that knows nothing yet."""
        times = CommitTimes(self.store)
        return {version: times.at(version) for version in reversed(self.known)}

    def at(self, at_ms: int) -> int | None:
        return versions.version_at(CommitTimes(self.store), at_ms, min(self.known), max(self.known))


def record(store: Store, version: int, text: str | bytes) -> None:
    """A checkpoint with nothing but this text for the anchors."""
    buffer = pa.BufferOutputStream()
    with pq.ParquetWriter(buffer, pa.schema([])) as writer:
        writer.add_key_value_metadata({KEY: text})
    store.replace(filenames.checkpoint_path(version), buffer.getvalue().to_pybytes())
    store.replace(filenames.LAST_CHECKPOINT, json.dumps({"version": version}).encode())


def linear(times: Mapping[int, int], at_ms: int) -> int | None:
    return max((version for version, time in times.items() if time <= at_ms), default=None)


class Looks(Counting):
    """Counts the files whose times are looked at."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.times: list[str] = []

    def modified_ms(self, path: str) -> int:
        self.times.append(path)
        return super().modified_ms(path)


def long_log(commits: int) -> tuple[Log, Looks]:
    log = Log()
    for version in range(commits):
        log.commit(version, START_MS + 10 * version)
    return log, Looks(log.store)
