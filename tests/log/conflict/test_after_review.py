"""What a review of the transaction code found, each held by a test."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.log.faults import Around
from tests.log.support import Clock, live_files, memory_store, new_table, put_foreign, reopen, stage_compaction
from tidelog.compaction_daemon import stage, vacuum
from tidelog.log import Committed, OperationClass, Table
from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import CommitStateUnknownError, FencedError, HistoryExpiredError, StoreUnavailableError
from tidelog.log.format.actions import RemoveFile, SetTransaction
from tidelog.log.state.commits import read_commit
from tidelog.log.state.loader import load

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def filled(*rows: tuple[int, int], **properties: object) -> Table:
    """A table with a file for each row."""
    table = new_table(memory_store(), SCHEMA, properties=properties)
    for row in rows:
        table.insert(data(row))
    return table


def data(*rows: tuple[int, int]) -> list[dict[str, int]]:
    return [{"k": k, "v": v} for k, v in rows]


def rows(table: Table) -> list[tuple[int, int]]:
    return sorted((row["k"], row["v"]) for row in reopen(table).scan().to_arrow().to_pylist())


class FailsAfterTheCommit(Around):
    """Once a version is put, the n-th call fails."""

    def __init__(self, inner: Any, fails_at: int) -> None:
        super().__init__(inner)
        self.fails_at = fails_at
        self.calls: int | None = None

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        self._count()
        super().put_if_absent(path, content, durable=durable)
        if path.startswith("_delta_log/") and path.endswith(".json"):
            self.calls = 0

    def read(self, path: str) -> bytes:
        self._count()
        return super().read(path)

    def modified_ms(self, path: str) -> int:
        self._count()
        return super().modified_ms(path)

    def delete(self, path: str) -> None:
        self._count()
        super().delete(path)

    def _count(self) -> None:
        if self.calls is not None:
            self.calls += 1
            if self.calls == self.fails_at:
                raise StoreUnavailableError("no answer", path=self.url)


@pytest.mark.parametrize("in_commit", [True, False], ids=["in-commit timestamps", "file times"])
@pytest.mark.parametrize("fails_at", range(1, 6))
def test_what_fails_after_a_durable_commit_is_no_failed_commit(fails_at: int, in_commit: bool) -> None:
    table = filled((0, 0), **{"delta.enableInCommitTimestamps": in_commit})
    store = FailsAfterTheCommit(table.store, fails_at)
    mine = Table(store, load(store))
    assert mine.insert(data((1, 1))).version == 2
    store.calls = None
    assert mine.insert(data((2, 2))).version == 3
    assert rows(table) == [(0, 0), (1, 1), (2, 2)]


def test_a_restore_does_not_bring_back_what_a_vacuum_took_meanwhile() -> None:
    clock = Clock()
    table = new_table(memory_store(clock), SCHEMA, system=clock)
    table.insert(data((1, 1)))
    table.truncate()
    restoring = table.begin().restore(version=1)
    clock.ms += 30 * 24 * 3_600_000
    reopened = Table(table.store, load(table.store), clock)
    reopened.insert(data((2, 2)))
    assert vacuum(reopened, older_than=timedelta(days=2)).data_files == 1
    with pytest.raises(HistoryExpiredError, match="vacuum"):
        restoring.commit()
    assert rows(table) == [(2, 2)]


@pytest.mark.parametrize("appends", [[data((1, 0), (2, 0))], [data((1, 0)), data((2, 0))]])
def test_an_append_that_another_winner_built_on_cannot_follow(appends: list[list[dict[str, int]]]) -> None:
    table = filled((0, 0), **{"tidelog.conflictPolicy": "write-serializable"})
    deleting = reopen(table).begin().delete("v >= 0")
    for append in appends:
        table.insert(append)
    table.update("k = 1", {"v": "v + 10"})
    assert isinstance(deleting.commit(), Committed)
    assert rows(table) == [], "as if it had run last"


@pytest.mark.parametrize("compacts", [False, True])
def test_a_blind_append_alone_may_follow(compacts: bool) -> None:
    table = filled((0, 0), (3, 0), **{"tidelog.conflictPolicy": "write-serializable"})
    deleting = reopen(table).begin().delete("v >= 0")
    table.insert(data((1, 0)))
    if compacts:
        assert isinstance(stage(reopen(table), "minor").commit(), Committed)
    assert isinstance(deleting.commit(), Committed)
    assert rows(table) == [(1, 0)]


class ThereAndNotThere(Around):
    """A version that is put is said to exist already, and cannot be read for a while."""

    def __init__(self, inner: Any, unseen: int) -> None:
        super().__init__(inner)
        self.unseen = unseen
        self.put = 0

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        ours = path.startswith("_delta_log/") and path.endswith(".json")
        self.put += ours
        super().put_if_absent(path, content, durable=durable)
        if ours:
            raise FileExistsError(path)

    def read(self, path: str) -> bytes:
        if self.put and self.unseen and path.startswith("_delta_log/"):
            self.unseen -= 1
            raise FileNotFoundError(path)
        return super().read(path)


@pytest.mark.parametrize("unseen", [0, 1, 3])
def test_a_version_that_is_there_and_not_seen_yet_is_looked_at_again(unseen: int) -> None:
    table = filled((0, 0))
    clock = Clock()
    store = ThereAndNotThere(table.store, unseen)
    assert Table(store, load(store), clock).insert(data((1, 1))).version == 2
    assert rows(table) == [(0, 0), (1, 1)]


def test_a_version_that_is_never_seen_is_in_doubt_and_keeps_its_files() -> None:
    table = filled((0, 0))
    store = ThereAndNotThere(table.store, 100)
    with pytest.raises(CommitStateUnknownError):
        Table(store, load(store), Clock()).insert(data((1, 1)))
    assert rows(table) == [(0, 0), (1, 1)], "it was committed, and its file is there"


def test_files_that_match_by_their_partition_alone_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(memory_store(), SCHEMA, partition_by=["v"])
    table.insert(data((0, 1), (0, 2)))
    deleting = reopen(table).begin().delete("v = 1")
    monkeypatch.setattr("tidelog.log.commit.rebase_reads.MAX_READ_FILES", 2)
    for number in range(5):
        table.insert(data((number, 1), (number, 2)))
    table.delete("k = 3")
    assert isinstance(deleting.commit(), Committed)
    assert rows(table) == [(0, 2), (0, 2), (1, 2), (2, 2), (4, 2)]


def test_too_much_to_read_is_a_conflict_and_the_statement_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled((0, 1))
    deleting = reopen(table).begin().delete("v = 1")
    monkeypatch.setattr("tidelog.log.commit.rebase_reads.MAX_READ_FILES", 2)
    for number in range(5):
        table.insert(data((number, 1), (number, 2)))
    with pytest.raises(Exception, match="too many new rows to check"):
        deleting.commit()
    table.delete("v = 1")
    assert [v for _, v in rows(table)] == [2] * 5


@pytest.mark.parametrize(
    ("staged", "meanwhile"),
    [
        (lambda table: table.begin().truncate(), lambda table: table.truncate()),
        (lambda table: table.begin().delete("k = 1"), lambda table: table.delete("k = 1")),
        (lambda table: table.begin().restore(version=1), lambda table: table.restore(version=1)),
    ],
    ids=["truncate", "delete", "restore"],
)
def test_nothing_left_to_do_says_zero(staged: Callable[[Table], Any], meanwhile: Callable[[Table], Any]) -> None:
    table = filled((1, 1), (2, 2))
    transaction = staged(reopen(table))
    meanwhile(table)
    outcome = transaction.commit()
    assert outcome.version == table.version
    assert set(outcome.metrics.values()) == {0}


def test_metrics_count_what_the_commit_did() -> None:
    table = filled((1, 1), (2, 2))
    overwriting = reopen(table).begin().overwrite(data((9, 9)))
    for number in range(3, 6):
        table.insert(data((number, number)))
    assert overwriting.commit().metrics["numRemovedFiles"] == 5  # type: ignore[union-attr]
    table = filled((1, 1), (2, 2), (3, 3))
    major = stage(reopen(table), "major")
    stage(reopen(table), "minor").commit()
    outcome = major.commit()
    assert isinstance(outcome, Committed)
    removes = [each for each in read_commit(table.store, outcome.version).actions if isinstance(each, RemoveFile)]
    assert outcome.metrics["numRemovedFiles"] == len(removes) == 1


def test_a_minor_compaction_leaves_what_a_major_one_placed() -> None:
    table = filled((1, 1), (2, 2), (3, 3))
    a, b, c = live_files(table)
    minor = stage_compaction(reopen(table), [a, c])
    stage_compaction(reopen(table), [a, b], operation_class=OperationClass.MAJOR).commit()
    (placed,) = [file for file in live_files(reopen(table)) if file.path != c.path]
    outcome = minor.commit()
    assert isinstance(outcome, Committed)
    assert outcome.metrics["numRemovedFiles"] == 1
    after = {file.path: file for file in live_files(reopen(table))}
    assert after[placed.path] == placed, "it was not touched"
    assert c.path not in after
    assert rows(table) == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_fence_is_lost_to_a_higher_epoch_only(epoch: int) -> None:
    table = filled((1, 1))
    fence = SetTransaction(app_id="daemon", version=2)
    transaction = reopen(table).begin()
    transaction._staged = Staged("OPTIMIZE", OperationClass.NONE, fence=fence)
    put_foreign(table, SetTransaction(app_id="daemon", version=epoch))
    if epoch > fence.version:
        with pytest.raises(FencedError, match="epoch 3 of daemon has begun"):
            transaction.commit()
    else:
        assert isinstance(transaction.commit(), Committed)
        assert reopen(table).transactions["daemon"] == fence.version
