"""History, maintenance and text forms of a table."""

from __future__ import annotations

import datetime as dt
import pickle
from pathlib import Path

import pyarrow as pa

from tests.log.cleanup.support import written_when_committed
from tests.log.support import NUMBERS, Clock, memory_store, new_table, numbers, read_numbers, reopen
from tidelog.log import Table
from tidelog.log.storage import open_store


def test_results_can_be_pickled() -> None:
    table = new_table(memory_store())
    committed = table.insert(numbers([1]))
    assert pickle.loads(pickle.dumps(committed)) == committed
    assert pickle.loads(pickle.dumps(table.history())) == table.history()
    assert committed.timestamp.tzinfo == dt.UTC


def test_repr_shows_path_version_and_columns(path: str) -> None:
    table = Table.create(path, pa.schema([("n", pa.int64()), ("p", pa.string())]), partition_by=["p"])
    where = table.path
    assert repr(table) == f"Table({where!r}, version=0, columns=[n: int64, p: string], partition_by=['p'])"
    assert repr(table.at()) == f"Snapshot({where!r}, version=0, columns=[n: int64, p: string])"
    assert repr(table.scan("n > 1", ["n"])) == f"Scan({where!r}, columns=[n: int64], where='n > 1')"
    columns = "[n: int64, _change_type: string, _commit_version: int64, _commit_timestamp: timestamp[us, tz=UTC]]"
    assert repr(table.changes(columns=["n", "_change_type", "_commit_version", "_commit_timestamp"])) == (
        f"Changes({where!r}, mode='cdc', columns={columns})"
    )


def test_the_history_has_operation_rows_files_and_engine(path: str) -> None:
    table = Table.create(path, NUMBERS)
    table.insert(numbers([1, 2, 3]))
    table.delete("n = 1")
    deleted, inserted, created = table.history()
    assert (created.operation, created.rows_added, created.files_added, created.files_removed) == (
        "CREATE TABLE",
        None,
        0,
        0,
    )
    assert (inserted.operation, inserted.rows_added, inserted.files_added, inserted.files_removed) == ("WRITE", 3, 1, 0)
    assert (deleted.operation, deleted.rows_added, deleted.files_added, deleted.files_removed) == ("DELETE", None, 1, 1)
    assert {record.engine for record in (deleted, inserted, created)} == {"tidelog/0.1.0"}


def test_maintenance_methods(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(str(tmp_path / "table"))
    table = new_table(store, system=clock, properties={"delta.enableExpiredLogCleanup": True})
    for number in range(3):
        table.insert(numbers([number]))
    report = table.compact()
    assert (report.files_removed, report.files_added) == (3, 1)
    assert table.refresh().at().num_files == 1
    table.checkpoint()
    table.insert(numbers([3]))  # by its time, which can be set, the version before is old, too
    written_when_committed(table)
    clock.ms += 60 * 86_400_000
    assert table.expire(dry_run=True).commits == 4
    assert table.expire().earliest_version == 4
    vacuumed = table.vacuum(older_than=dt.timedelta(days=2))
    assert (vacuumed.data_files, vacuumed.dry_run) == (0, False)  # the files are new by the store's clock
    assert read_numbers(reopen(table)) == [0, 1, 2, 3]
