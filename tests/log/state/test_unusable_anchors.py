"""Commit times where the newest checkpoint has no anchors that count, and anchors in real tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.log.faults import Around
from tests.log.state.anchored_log import KEY, linear, long_log, record
from tests.log.support import NUMBERS, START_MS, Clock, memory_store, new_table, numbers, reopen
from tidelog.log import Table
from tidelog.log.format import filenames
from tidelog.log.format.actions import Commit
from tidelog.log.state import checkpoint_writer, commit_times, versions
from tidelog.log.state.commit_times import Anchor, CommitTimes
from tidelog.log.storage import Store
from tidelog.log.storage.local import LocalStore
from tidelog.log.system import to_datetime

# --- anchors that cannot be used -------------------------------------------------------------------------------------

ANCHORS = [[0, START_MS], [5, START_MS + 50]]


def crc32_of(anchors: object) -> int:
    return int(json.loads(commit_times.anchors_text(anchors))["crc32"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\x00",
        b"not JSON",
        b"null",
        b"[" * 100_000,
        json.dumps({"anchors": ANCHORS, "crc32": 1}),
        json.dumps({"anchors": ANCHORS}),
        json.dumps({"anchors": [["0", 1]], "crc32": crc32_of([["0", 1]])}),
        json.dumps({"anchors": [[0]], "crc32": crc32_of([[0]])}),
        json.dumps({"anchors": {"0": 1}, "crc32": 0}),
        *(
            json.dumps({"anchors": wrong, "crc32": crc32_of(wrong)})
            for wrong in (
                [[5, START_MS + 50], [0, START_MS]],
                [[0, START_MS], [0, START_MS]],
                [[0, START_MS], [5, START_MS + 4]],
                [[-1, START_MS]],
                [[0, -1]],
                [[2**63, START_MS]],
                [[0, 2**62]],
                [[version, START_MS + version] for version in range(100_000)],
            )
        ),
    ],
)
def test_damaged_anchors_are_as_none(text: str | bytes) -> None:
    log, looks = long_log(10)
    record(log.store, 9, text)
    assert commit_times.read_anchors(log.store) == ()
    assert log.found() == log.expected()
    assert versions.version_at(CommitTimes(looks), START_MS + 55, 0, 9) == 5
    assert looks.lists == 1


@pytest.mark.parametrize(
    "anchors",
    [
        [[0, START_MS], [10**12, START_MS + 10**12]],
        [[0, START_MS], [7, START_MS + 71]],
        [[3, START_MS + 31], [8, START_MS + 80]],
        [[9, START_MS + 90]],
    ],
)
def test_intact_anchors_of_other_commits_do_not_count(anchors: list[list[int]]) -> None:
    log, _ = long_log(10)
    record(log.store, 9, json.dumps({"anchors": anchors, "crc32": crc32_of(anchors)}))
    assert log.found() == log.expected()
    for at_ms in range(START_MS - 1, START_MS + 99, 4):
        assert log.at(at_ms) == linear(log.expected(), at_ms)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 1000, b"PAR1" + b"\xff" * 100 + b"PAR1"])
def test_a_checkpoint_that_cannot_be_read_has_no_anchors(content: bytes) -> None:
    log, _ = long_log(10)
    log.checkpoint(9)
    log.store.replace(filenames.checkpoint_path(9), content)
    assert log.found() == log.expected()


@pytest.mark.parametrize("pointer", [b"{", b"{}", b'{"version": -1}', b'{"version": 8}', b'{"version": 1e300}'])
def test_a_pointer_to_no_checkpoint_means_no_anchors(pointer: bytes) -> None:
    log, _ = long_log(10)
    log.checkpoint(9)
    log.store.replace(filenames.LAST_CHECKPOINT, pointer)
    assert log.found() == log.expected()


# --- real tables -----------------------------------------------------------------------------------------------------


def plain_table(store: Store, clock: Clock, commits: int) -> Table:
    off = {"delta.enableInCommitTimestamps": False, "delta.enableDeletionVectors": False}
    table = new_table(store, NUMBERS, properties=off, system=clock)
    for number in range(commits):
        clock.ms += 1000
        table.insert(numbers([number]))
    return table


def anchors_of(store: Store, version: int) -> tuple[Anchor, ...]:
    content = pq.read_metadata(store.open_input(filenames.checkpoint_path(version))).metadata or {}
    return commit_times.anchors_in(content.get(KEY.encode(), b""))


def test_deltalake_reads_a_checkpoint_with_anchors(tmp_path: Path) -> None:
    table = plain_table(LocalStore(str(tmp_path)), Clock(), 3)
    table.checkpoint()
    assert anchors_of(table.store, 3)[0].version == 0
    for version in range(3):
        table.store.delete(filenames.commit_path(version))
    found = DeltaTable(str(tmp_path))
    assert found.version() == 3
    assert sorted(found.to_pyarrow_table()["n"].to_pylist()) == [0, 1, 2]
    assert table.at(timestamp=table.at().timestamp).version == 3


def test_a_table_with_in_commit_timestamps_has_no_anchors() -> None:
    clock = Clock()
    table = new_table(memory_store(clock), NUMBERS, system=clock)
    table.checkpoint()
    assert anchors_of(table.store, 0) == ()


class NoTimes(Around):
    """Listing commits with their times raises."""

    def __init__(self, inner: Store, error: Exception) -> None:
        super().__init__(inner)
        self._error = error

    def modified_times(self, folder: str, ending: str) -> Sequence[tuple[str, int]]:
        del folder, ending
        raise self._error


@pytest.mark.parametrize("error", [OSError("no"), ValueError("no"), MemoryError()])
def test_a_checkpoint_does_not_fail_with_its_anchors(error: Exception) -> None:
    clock = Clock()
    table = plain_table(memory_store(clock), clock, 2)
    state = reopen(table).at().state
    checkpoint_writer.write_checkpoint(NoTimes(table.store, error), state.replayed(), state.files())
    assert anchors_of(table.store, 2) == ()
    assert reopen(table).version == 2


@pytest.mark.parametrize("checkpoints", [(), (3,), (3, 6), (6,), (3, 9), (9,), (3, 6, 9)])
def test_a_table_that_had_in_commit_timestamps_for_a_while(checkpoints: tuple[int, ...]) -> None:
    """Versions 5 to 7 have them."""
    clock = Clock()
    table = plain_table(memory_store(clock), clock, 4)
    stamps = [START_MS + 1000 * number for number in range(5)]
    for version in range(5, 10):
        clock.ms += 1000
        if version in (5, 8):
            table.set_properties({"delta.enableInCommitTimestamps": version == 5}, allow_protocol_upgrade=True)
        else:
            table.insert(numbers([version]))
        stamps.append(clock.ms)
        # The file is put long after the commit's own time.
        if 5 <= version < 8:
            content = table.store.read(path := filenames.commit_path(version))
            table.store.delete(path)
            clock.ms += 400
            table.store.put_if_absent(path, content)
            clock.ms -= 400
        if version in checkpoints:
            reopen(table).checkpoint()
    if 3 in checkpoints:
        state = reopen(table).at(version=3).state
        checkpoint_writer.write_checkpoint(table.store, state.replayed(), state.files())
    for version, stamp in enumerate(stamps):
        fresh = reopen(table)
        for more in (0,) if version == 9 else (0, 399, 999):
            assert fresh.timeline.snapshot_version(to_datetime(stamp + more)) == version
        assert fresh.at(version=version).timestamp == to_datetime(stamp)


def test_a_history_ends_where_a_clean_up_has_got_to_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_times, "_SPACING", 2)
    clock = Clock()
    table = plain_table(memory_store(clock), clock, 8)
    table.checkpoint()
    of = CommitTimes.of

    def late(times: CommitTimes, commit: Commit) -> int:
        if commit.version == 1:
            for version in (0, 1):
                table.store.delete(filenames.commit_path(version))
        return of(times, commit)

    monkeypatch.setattr(CommitTimes, "of", late)
    assert [record.version for record in reopen(table).history()] == [8, 7, 6, 5, 4, 3, 2]
