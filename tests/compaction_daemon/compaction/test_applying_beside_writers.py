"""Compactions beside writers that are faster: nothing is lost, no writer fails, and it converges or says why not."""

from __future__ import annotations

import itertools
import threading
from collections import Counter

import pyarrow as pa
import pytest

from tests.compaction_daemon.compaction.test_compaction import assert_no_orphans
from tests.compaction_daemon.racing import clocked, meanwhile
from tests.compaction_daemon.support import live_files, memory_table, numbers_of, put
from tidelog.compaction_daemon import Daemon, DaemonConfig, PlannedGroup, compact
from tidelog.compaction_daemon.compaction import applying
from tidelog.log import Table
from tidelog.log.errors import ConflictError


@pytest.mark.parametrize("policy", ["delta-table", "transactional-table", "write-serializable", "serializable"])
@pytest.mark.parametrize("level", ["minor", "major"])
def test_a_hundred_commits_during_one_rewrite(policy: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inserts into the same partition, and updates and deletes of the very rows that are being moved."""
    table = memory_table(**{"tidelog.conflictPolicy": policy})
    for start in range(0, 400, 100):
        put(table, *range(start, start + 100))
    writer = Table.open(table.path)
    commits: list[int] = []

    def stream(_: PlannedGroup) -> None:
        for number in range(100):
            if number % 10 == 3:
                commits.append(writer.update(f"n = {number}", {"n": f"n + {10_000}"}).version)
            elif number % 10 == 7:
                commits.append(writer.delete(f"n = {number}").version)
            else:
                commits.append(writer.insert(rows(1000 + number)).version)

    meanwhile(monkeypatch, stream)
    report = compact(table, level, cluster_by=["n"] if level == "major" else ())
    assert commits == list(range(5, 105)), "each writer committed at its first attempt"
    assert report.versions == (105,)
    assert (report.groups, report.wasted_bytes) == (1, 0)
    assert report.rebased_over == tuple(commits)
    expected = Counter(range(400)) + Counter(1000 + number for number in range(100) if number % 10 not in (3, 7))
    expected -= Counter([*range(3, 100, 10), *range(7, 100, 10)])
    expected += Counter(10_000 + number for number in range(3, 100, 10))
    assert Counter(numbers_of(table)) == expected
    assert_no_orphans(table)


def test_a_daemon_converges_beside_a_stream_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step finds a hundred commits more than the one before, and leaves one file and those of the stream."""
    table = memory_table()
    stream = Table.open(table.path)
    batches = iter(range(1000))

    def hundred_commits(*_: PlannedGroup) -> None:
        for batch in itertools.islice(batches, 100):
            assert stream.insert(rows(batch), idempotency_key=("stream", batch)).metrics["numOutputRows"] == 1

    hundred_commits()
    daemon = Daemon([table])
    meanwhile(monkeypatch, hundred_commits)
    for step in range(1, 4):
        report = daemon.step().tables[0].compaction
        assert (len(report.versions), report.wasted_bytes, len(report.rebased_over)) == (1, 0, 100)
        assert len(live_files(table)) == 1 + 100
        assert sorted(numbers_of(table)) == list(range(100 * (step + 1)))
    monkeypatch.undo()
    assert daemon.step().did_anything
    assert not daemon.step().did_anything
    assert len(live_files(table)) == 1
    assert numbers_of(table) == list(range(400)), "all rows, in the order of their commits"


def test_a_stream_that_never_pauses_does_not_starve_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer in another thread commits as fast as it can, for as long as the compaction takes."""
    table = memory_table()
    for number in range(20):
        put(table, number)
    over = threading.Event()
    committed: list[int] = []
    failed: list[BaseException] = []

    def stream() -> None:
        writer = Table.open(table.path)
        try:
            while not over.is_set():
                committed.append(writer.insert(rows(100 + len(committed))).version)
        except BaseException as error:  # noqa: BLE001 - the test shows it
            failed.append(error)

    thread = threading.Thread(target=stream)
    enough = threading.Event()

    def wait_for_commits(_: PlannedGroup) -> None:
        before = len(committed)
        while len(committed) < before + 100 and not failed:
            enough.wait(0.001)

    meanwhile(monkeypatch, wait_for_commits)
    thread.start()
    try:
        report = compact(table)
    finally:
        over.set()
        thread.join()
    assert not failed
    assert (report.groups, report.wasted_bytes) == (1, 0)
    assert len(report.rebased_over) >= 100
    assert Counter(numbers_of(table)) == Counter([*range(20), *range(100, 100 + len(committed))])


def rows(number: int) -> pa.Table:
    return pa.table({"part": ["a"], "n": pa.array([number], pa.int64())})


# Whether the published matrix lets a compaction commit after an insert into its partition, and after a delete.
ALLOWED = {
    ("delta-table", "minor"): (True, True),
    ("delta-table", "major"): (False, False),
    ("transactional-table", "minor"): (False, False),
    ("transactional-table", "major"): (False, False),
    ("write-serializable", "minor"): (True, False),
    ("write-serializable", "major"): (True, False),
    ("serializable", "minor"): (True, False),
    ("serializable", "major"): (True, False),
}


@pytest.mark.parametrize(("policy", "level"), ALLOWED)
@pytest.mark.parametrize("changes", [False, True])
def test_without_metadata_retry_the_matrix_decides(
    policy: str, level: str, changes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer never fails. A compaction that the matrix refuses leaves nothing behind, and the next quiet one goes
    through.
    """
    table = memory_table(**{"tidelog.conflictPolicy": policy, "tidelog.metadataRetry": False})
    for start in range(3):
        put(table, start, start + 100)
    writer = Table.open(table.path)
    meanwhile(monkeypatch, lambda _: writer.delete("n = 1") if changes else writer.insert(rows(7)))
    if ALLOWED[policy, level][changes]:
        assert compact(table, level).rebased_over == (4,)
    else:
        with pytest.raises(ConflictError) as raised:
            compact(table, level)
        assert (raised.value.policy, raised.value.winning_version) == (policy, 4)
        assert "tidelog.metadataRetry" in raised.value.advice
    assert_no_orphans(table)
    monkeypatch.undo()
    compact(table, level)
    assert len(live_files(table)) == 1
    assert sorted(numbers_of(table)) == [*([0, 2] if changes else [0, 1, 2, 7]), 100, 101, 102]


@pytest.mark.parametrize("policy", ["transactional-table", "write-serializable", "serializable"])
def test_without_metadata_retry_a_hot_partition_does_not_keep_others_from_being_compacted(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = clocked(
        "cold", "hot", "quiet", properties={"tidelog.conflictPolicy": policy, "tidelog.metadataRetry": False}
    )
    writer = Table.open(table.path)
    monkeypatch.setattr(applying, "THREADS", 1)  # a handle of a table is for one thread
    meanwhile(monkeypatch, lambda _: writer.delete("part = 'hot' and n = 0"))
    report = compact(table)
    assert (report.groups, len(report.versions), report.stopped) == (2, 2, None)
    assert [drop.partition_values for drop in report.dropped] == [{"part": "hot"}]
    assert f"the policy {policy} does not allow" in report.dropped[0].reason
    assert report.wasted_bytes > 0
    assert sorted(add.partition_values["part"] or "" for add in live_files(table)) == ["cold", "hot", "hot", "quiet"]
    assert_no_orphans(table)


def test_a_daemon_that_always_loses_says_so_and_tries_less_often(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table, clock = clocked(
        "a", properties={"tidelog.conflictPolicy": "transactional-table", "tidelog.metadataRetry": False}
    )
    daemon = Daemon([table.path], config=DaemonConfig(interval_s=1.0), clock=clock)
    meanwhile(monkeypatch, lambda _: Table.open(table.path).insert(rows(7)))
    lost = []
    for _ in range(60):
        lost += [clock.seconds for step in daemon.step().tables if step.error is not None]
        clock.pass_s(1)
    assert [later - earlier for earlier, later in itertools.pairwise(lost)] == [1, 1, 8, 16, 32]
    (warning,) = caplog.records
    assert "3 times in a row; the table is not compacted" in warning.getMessage()
    assert "tidelog.metadataRetry=true" in warning.getMessage()
    (status,) = daemon.status().tables
    assert status.error_code == "TIDELOG_CONFLICT"
    assert (status.totals.bytes_read > 0, status.totals.wasted_bytes > 0) == (True, True)
    monkeypatch.undo()
    clock.pass_s(300)
    assert daemon.step().tables[0].compaction.did_anything
