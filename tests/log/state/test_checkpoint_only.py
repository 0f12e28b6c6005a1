"""Logs whose newest version is known from a checkpoint only: its commit is missing, as in a copy of a log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from typer.testing import CliRunner

from tests.log.faults import Around
from tests.log.state.foreign_checkpoints import KINDS
from tests.log.support import Clock, memory_store, new_table
from tidelog.cli.app import app
from tidelog.compaction_daemon import Daemon
from tidelog.log import Table
from tidelog.log.commit.result import committed
from tidelog.log.errors import CommitStateUnknownError, CorruptLogError, HistoryExpiredError, TableReplacedError
from tidelog.log.format import filenames
from tidelog.log.state.loader import load
from tidelog.log.storage import Store

SCHEMA = pa.schema([("k", pa.int64())])
DAY_MS = 86_400_000
WRITES: dict[str, tuple[Callable[[Table], Any], list[int]]] = {
    "insert": (lambda table: table.insert([{"k": 9}]), [0, 1, 2, 9]),
    "upsert": (lambda table: table.upsert([{"k": 1}, {"k": 9}]), [0, 1, 2, 9]),
    "delete": (lambda table: table.delete("k = 1"), [0, 2]),
    "update": (lambda table: table.update("k = 1", {"k": "7"}), [0, 2, 7]),
    "overwrite": (lambda table: table.overwrite([{"k": 5}]), [5]),
    "truncate": (lambda table: table.truncate(), []),
    "properties": (lambda table: table.set_properties({"tidelog.clusterBy": "k"}), [0, 1, 2]),
    "compact": (lambda table: table.compact("major"), [0, 1, 2]),
    "daemon": (lambda table: Daemon([table]).step(), [0, 1, 2]),
    "checkpoint": (lambda table: table.checkpoint(), [0, 1, 2]),
    "restore": (lambda table: table.restore(version=3), [0, 1, 2]),
}


def without_its_commit(
    clock: Clock, kind: str = "one part", *, has_checksum: bool = False, store: Store | None = None
) -> Table:
    """A table of the rows 0 to 2, opened at its newest version 3."""
    properties = {"tidelog.primaryKey": "k", "tidelog.maxTransactionTime": "0 seconds"}
    table = new_table(store or memory_store(clock), SCHEMA, properties=properties, system=clock)
    for k in range(3):
        clock.ms += DAY_MS
        table.insert([{"k": k}])
    KINDS[kind](table.store, 3)
    table.store.delete(filenames.commit_path(3))
    if not has_checksum:
        table.store.delete(filenames.checksum_path(3))
    return opened(table, clock)


def opened(table: Table, clock: Clock) -> Table:
    return Table(table.store, load(table.store), clock)


def keys_of(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["k"].to_pylist())


@pytest.mark.parametrize("has_checksum", [True, False])
@pytest.mark.parametrize("write", list(WRITES))
def test_each_operation_goes_on_from_it(write: str, *, has_checksum: bool) -> None:
    clock = Clock()
    table = without_its_commit(clock, has_checksum=has_checksum)
    operation, rows = WRITES[write]
    operation(table)
    for seen in (table.refresh(), opened(table, clock)):
        assert keys_of(seen) == rows
    before = table.version
    table.insert([{"k": 10}])
    assert table.version == before + 1
    assert keys_of(opened(table, clock)) == sorted([*rows, 10])
    assert table.changes(after=before).to_arrow()["k"].to_pylist() == [10]


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_checkpoint_can_be_another_engines(kind: str) -> None:
    table = without_its_commit(Clock(), kind)
    table.upsert([{"k": 1}, {"k": 9}])
    assert keys_of(table) == [0, 1, 2, 9]


def test_a_log_of_deltalake_is_written_and_deltalake_reads_it(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for k in range(3):
        write_deltalake(path, pa.table({"k": [k]}), mode="append")
    DeltaTable(path).create_checkpoint()
    (tmp_path / "t" / filenames.commit_path(2)).unlink()
    table = Table.open(path)
    assert table.insert([{"k": 9}]).version == 3
    rows = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT k FROM t ORDER BY k").read_all()
    assert pa.table(rows)["k"].to_pylist() == keys_of(table) == [0, 1, 2, 9]
    shown = CliRunner().invoke(app, ["history", path])
    assert "(checkpoint only)" in shown.output


def test_history_and_changes_say_what_is_known() -> None:
    clock = Clock()
    table = without_its_commit(clock)
    stamp = table.at().timestamp
    assert [(record.version, record.timestamp, record.checkpoint_only) for record in table.history()] == [
        (3, stamp, True)
    ]
    table.insert([{"k": 9}])
    assert [(record.version, record.checkpoint_only) for record in table.history()] == [(4, False), (3, True)]
    assert [record.version for record in table.history(1)] == [4]
    assert table.at(version=3).scan().count() == 3
    with pytest.raises(HistoryExpiredError, match="4 to 4"):
        table.changes(after=2).to_arrow()


def test_a_clean_up_removes_it_like_any_other() -> None:
    clock = Clock()
    table = without_its_commit(clock)
    for k in (10, 11):
        clock.ms += 2 * DAY_MS
        table.insert([{"k": k}])
        table.checkpoint()
    clock.ms += 2 * DAY_MS
    table.insert([{"k": 12}])
    clock.ms += 2 * DAY_MS
    report = table.expire(older_than=timedelta(days=1))
    assert report.earliest_version > 3
    table.vacuum(older_than=timedelta(days=1))
    assert keys_of(opened(table, clock)) == [0, 1, 2, 10, 11, 12]
    assert not any(record.checkpoint_only for record in table.history())


# --- races ------------------------------------------------------------------------------------------------------------


def test_a_writer_is_rebased_over_those_that_were_first() -> None:
    clock = Clock()
    table = without_its_commit(clock)
    transaction = table.begin().delete("k = 1")
    other = opened(table, clock)
    other.insert([{"k": 9}])
    other.compact("major")
    assert committed(transaction.commit()).rebased_over == (4, 5)
    assert keys_of(table.refresh()) == [0, 2, 9]


def cleaned_up(table: Table, clock: Clock, until: int) -> None:
    """Commit two versions, and delete the log before the newest: what is older than `until`, oldest first."""
    other = opened(table, clock)
    for k in (20, 21):
        other.insert([{"k": k}])
    other.checkpoint()
    for name in table.store.names(filenames.LOG_FOLDER):
        if name.startswith(tuple(f"{version:020}" for version in range(until))):
            table.store.delete(f"{filenames.LOG_FOLDER}/{name}")


@pytest.mark.parametrize("until", [4, 5])
def test_a_writer_that_slept_through_a_clean_up_is_refused(until: int) -> None:
    clock = Clock()
    table = without_its_commit(clock)
    transaction = table.begin().insert([{"k": 9}])
    cleaned_up(table, clock, until)
    with pytest.raises(HistoryExpiredError, match="version 3, which the transaction is based on, has been cleaned up"):
        transaction.commit()
    assert keys_of(table.refresh()) == [0, 1, 2, 20, 21]


class Slow(Around):
    """Does `before_put` before the first put of version 4, after all looks at the base version."""

    before_put: Callable[[], None] | None = None

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        if path == filenames.commit_path(4) and (first := self.before_put):
            self.before_put = None
            first()
        super().put_if_absent(path, content, durable=durable)


@pytest.mark.parametrize(("until", "expected"), [(4, HistoryExpiredError), (5, CommitStateUnknownError)])
def test_a_put_into_a_hole_below_a_checkpoint_is_not_reported_as_a_commit(
    until: int, expected: type[Exception]
) -> None:
    clock = Clock()
    store = Slow(memory_store(clock))
    table = without_its_commit(clock, store=store)
    store.before_put = lambda: cleaned_up(table, clock, until)
    with pytest.raises(expected):
        table.begin().insert([{"k": 9}]).commit()
    assert keys_of(opened(table, clock)) == [0, 1, 2, 20, 21]


def test_another_table_at_the_path_is_not_written_to() -> None:
    clock = Clock()
    table = without_its_commit(clock)
    for path, _ in list(table.store.walk()):
        table.store.delete(path)
    without_its_commit(clock, store=table.store)
    with pytest.raises(TableReplacedError):
        table.insert([{"k": 9}])


def test_a_commit_that_vanishes_under_a_writer_is_an_error() -> None:
    """The checkpoint does not say which commit it is of."""
    clock = Clock()
    table = new_table(memory_store(clock), SCHEMA, system=clock)
    table.insert([{"k": 1}])
    table.checkpoint()
    transaction = table.begin().insert([{"k": 9}])
    table.store.delete(filenames.commit_path(1))
    table.store.delete(filenames.checksum_path(1))
    with pytest.raises(CorruptLogError, match="refresh the table"):
        transaction.commit()
    table.refresh().insert([{"k": 9}])
    assert keys_of(table) == [1, 9]
