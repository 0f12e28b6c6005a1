"""`make demo-follow`, run as a person runs it, and the follower alone: it applies every kind of commit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from examples.follow.board import Board
from examples.follow.checks import Lag, checks, lag
from examples.follow.folder import Folder
from examples.follow.follower import Apply, changes_of
from examples.follow.position import Batch, followed_version
from examples.follow.run import run
from examples.shared.departures import SCHEMA, Departures, announce
from tests.examples.support import demo, verdicts
from tidelog.log import Table

ALL_HOLD = ["ok"] * 5
ROWS = [{"id": number, "status": "new"} for number in range(6)]


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.nightly
def test_a_follower_that_was_killed_has_the_same_rows(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    printed = demo("follow", folder.root, "--days", "4", "--kills", "1")
    assert verdicts(printed) == ALL_HOLD
    assert printed.count("the follower is killed and started again") == 1
    assert re.search(r"nothing is left to follow: 0 time versions behind", printed)
    table, copy = Table.open(str(folder.table)), Table.open(str(folder.copy))
    assert followed_version(folder) <= table.version
    assert copy.scan().count() == table.scan().count() > 0


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.parametrize("seed", ["1", "2"])
def test_through_many_kills(tmp_path: Path, seed: str) -> None:
    printed = demo("follow", tmp_path / "data", "--days", "16", "--kills", "6", "--seed", seed)
    assert verdicts(printed) == ALL_HOLD
    assert "killed 6 times" in printed


def follow(spark: SparkSession, table: Table, copy: str, checkpoint: Path) -> list[tuple[object, ...]]:
    """The rows of the copy after the follower has read everything."""
    Table.create(copy, table.schema, exist_ok=True)
    query = changes_of(spark, table.path).writeStream.foreachBatch(Apply(copy, ["id"]))
    query = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query.start().awaitTermination()
    return rows_of(Table.open(copy))


def rows_of(table: Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


@pytest.mark.full
@pytest.mark.parametrize("with_change_files", [True, False])
def test_each_kind_of_commit_is_applied(spark: SparkSession, tmp_path: Path, with_change_files: bool) -> None:
    columns = pa.schema([("id", pa.int64()), ("status", pa.string())])
    table = Table.create(str(tmp_path / "table"), columns, properties={"delta.enableChangeDataFeed": with_change_files})
    table.insert(ROWS)
    table.delete("id = 5")

    def applied() -> Sequence[tuple[object, ...]]:
        return follow(spark, table, str(tmp_path / "copy"), tmp_path / "checkpoint")

    assert applied() == rows_of(table)
    table.update("id = 1", {"status": "'done'"})
    table.update("id < 3", {"id": "id + 10"})  # other keys: the old ones are gone
    table.update("id >= 10", {"id": "id + 1"})  # to keys that the same statement takes away
    table.upsert([{"id": 3, "status": "again"}, {"id": 7, "status": "new"}], keys=["id"])
    table.delete("id = 7")
    table.insert([{"id": 7, "status": "back"}])  # deleted and inserted again in one micro-batch
    assert applied() == rows_of(table)
    table.overwrite([{"id": 3, "status": "written over"}, {"id": 8, "status": "new"}])  # a key that it also removes
    table.compact()
    assert applied() == rows_of(table)
    table.restore(version=1)
    assert applied() == rows_of(table)


def test_the_checks_name_what_differs(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    table, copy = (Table.create(str(path), SCHEMA) for path in (folder.table, folder.copy))
    rows = Departures(days=1).planned(0)
    table.insert(rows)
    copy.insert(rows)
    batches = [Batch(0, 1, "", 1, len(rows), 0)]
    assert [check.holds for check in checks(folder, batches, 0)] == [True] * 5
    table.insert(rows.slice(0, 1))  # a row twice: equal as sets
    found = checks(folder, batches, 1)
    assert [check.holds for check in found] == [False, False, False, True, True]
    assert "only in the table: (0, " in str(found[1])
    copy.delete("id = 0")
    assert [check.holds for check in checks(folder, batches, 0)] == [True, False, False, True, False]


def test_the_lag_counts_time_versions_only(tmp_path: Path) -> None:
    board = Board(Folder(tmp_path), Departures(days=2))
    board.begin(1)
    table = board.table.refresh()
    assert lag(table, 1) == Lag(time_versions=3, followed=1, compactions=1, versions=5)
    assert lag(table, 3).behind == lag(table, table.version).behind == 0
    assert followed_version(Folder(tmp_path)) == -1


def test_a_day_is_changed_once_the_stream_has_committed_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    board = Board(folder, Departures(days=2))
    board.begin(1)
    board.announce_next()
    assert board.is_full
    assert board.is_waiting
    assert not board.change_if_arrived()
    (file,) = folder.incoming.iterdir()
    assert file.name == "2013-01-02.parquet"
    Table.open(str(folder.table)).insert(Departures(days=2).planned(1))
    assert board.change_if_arrived()
    assert not board.is_waiting
    assert board.table.refresh().scan("status = 'scheduled'").count() == 0


def test_planned_flights_are_the_actual_ones_before_they_left(tmp_path: Path) -> None:
    departures = Departures(days=1)
    planned, actual = departures.planned(0), departures.actual(0)
    assert planned.schema == actual.schema == SCHEMA
    assert planned["id"].equals(actual["id"])
    assert set(planned["status"].to_pylist()) == {"scheduled"}
    assert planned["delay"].null_count == len(planned) == 842
    assert set(actual["status"].to_pylist()) == {"departed", "cancelled"}
    announce(planned, tmp_path / "incoming", 0)
    assert [file.name for file in (tmp_path / "incoming").iterdir()] == ["2013-01-01.parquet"]


@pytest.mark.parametrize("options", [("--days", "3"), ("--days", "366"), ("--kills", "-1")])
def test_wrong_options_are_refused(tmp_path: Path, options: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["--data", str(tmp_path / "data"), *options])
    assert "--days must be from 4 to 365" in capsys.readouterr().err


def test_cleaning_removes_what_a_demo_wrote_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Folder(tmp_path / "data")
    for path in (folder.table, folder.copy, folder.incoming, folder.checkpoints, folder.logs, folder.scratch):
        path.mkdir(parents=True)
    folder.batches.touch()
    own = folder.root / "own"
    own.touch()
    assert run(["--data", str(folder.root), "--clean"]) == 0
    assert list(folder.root.iterdir()) == [own]
    own.unlink()
    assert run(["--data", str(folder.root), "--clean"]) == 0
    assert not folder.root.exists()
    assert "removed what the demo wrote" in capsys.readouterr().out


def test_a_second_demo_in_the_same_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Folder(tmp_path / "data")
    with folder.locked():
        assert run(["--data", str(folder.root)]) == 2
    assert "another demo is running" in capsys.readouterr().out
