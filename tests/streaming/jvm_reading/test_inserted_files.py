"""`changes` takes the files of commits that only inserted rows as columns, and gives the rows of `Table.changes`."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.log.support import live_files, put_foreign
from tests.streaming.jvm_reading.support import assert_same, is_read_by_spark
from tests.streaming.support import rewrite_all
from tidelog.log import Table
from tidelog.log.errors import CorruptLogError, NotAppendOnlyError
from tidelog.log.format.actions import AddFile
from tidelog.log.format.paths import to_storage_path
from tidelog.log.read import inserted_files
from tidelog.log.read.change_files import ChangeFile
from tidelog.log.read.inserted_files import InsertedFiles
from tidelog.streaming import changes
from tidelog.streaming.jvm_reading import jvm_rows

SCHEMA = pa.schema([("id", pa.int64()), ("path", pa.string()), ("at", pa.timestamp("us", "UTC")), ("size", pa.int32())])
TEXTS = ("a", None, "_a", "__HIVE_DEFAULT_PARTITION__", "b c", "50%", "ü/x=1", "a")


@pytest.fixture(autouse=True)
def as_objects(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two files are enough for columns. Returns the paths of those that become objects after all."""
    found: list[str] = []

    def noted(files: pa.Table) -> list[ChangeFile]:
        found.extend(files["path"].to_pylist())
        return [*inserted_files.to_change_files(files)]

    monkeypatch.setattr(inserted_files, "_MIN_FILES", 2)
    monkeypatch.setattr(jvm_rows, "to_change_files", noted)
    return found


def rows(start: int) -> list[dict[str, Any]]:
    moments = [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None]
    return [
        {"id": start + n, "path": text, "at": moments[n % 2], "size": n if n % 3 else None}
        for n, text in enumerate(TEXTS)
    ]


def put_copies(table: Table, *changed: dict[str, Any]) -> list[AddFile]:
    """Add the newest file once more for each of these changes to its action, as another writer would."""
    newest = live_files(table.refresh())[-1]
    copies = [msgspec.structs.replace(newest, **change) for change in changed]
    put_foreign(table, *copies)
    return copies


@pytest.mark.parametrize("partition_by", [(), ("path",), ("path", "at"), ("size",)], ids=str)
@pytest.mark.parametrize("mode", ["append", "cdc"])
def test_inserts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_by: tuple[str, ...], mode: str
) -> None:
    table = Table.create(str(tmp_path / "a table"), SCHEMA, partition_by=partition_by)
    for start in (0, 10, 20):
        table.insert(rows(start))
    rewrite_all(table)
    frame, found = changes(spark, table.path, mode=mode), table.changes(mode=mode)
    assert [type(unit) for unit in found.units] == [InsertedFiles]
    assert is_read_by_spark(frame)
    assert assert_same(frame, found) == 24
    for columns in (["path"], ["_commit_version", "size", "at"]):
        chosen = changes(spark, table.path, mode=mode, columns=columns)
        assert assert_same(chosen, table.changes(mode=mode, columns=columns)) == 24
    monkeypatch.setattr(inserted_files, "_MIN_FILES", 100)
    assert assert_same(frame, table.changes(mode=mode)) == 24


def test_files_with_odd_paths_become_objects(spark: SparkSession, tmp_path: Path, as_objects: list[str]) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA, partition_by=["path"])
    for start in (0, 10):
        table.insert(rows(start))
    assert assert_same(changes(spark, table.path), table.changes()) == 16
    assert as_objects == []
    odd = ["path=b%20c/x.parquet", "path=50%2525/x.parquet", "_x.parquet"]
    for copy in put_copies(table, *({"path": path} for path in odd)):
        path = Path(table.path, to_storage_path(copy.path))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(Path(table.path, live_files(table)[-1].path).read_bytes())
    assert assert_same(changes(spark, table.path), table.changes()) == 19
    assert as_objects == odd


def test_inserts_between_other_commits(spark: SparkSession, tmp_path: Path, as_objects: list[str]) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA, properties={"tidelog.primaryKey": "id"})
    for start in (0, 10):
        table.insert(rows(start))
    table.delete("id IN (1, 2)")
    table.update("id = 3", {"path": "'new'"})
    for start in (20, 30):
        table.insert(rows(start))
    kinds = [isinstance(unit, InsertedFiles) for unit in table.changes().units]
    assert (kinds[0], kinds[-1], any(kinds[1:-1])) == (True, True, False)
    for mode in ("cdc", "net"):
        assert assert_same(changes(spark, table.path, mode=mode), table.changes(mode=mode)) > 25
    assert as_objects == []
    with pytest.raises(NotAppendOnlyError, match="version 3 "):
        changes(spark, table.path, mode="append")


def test_what_other_writers_add(spark: SparkSession, tmp_path: Path, as_objects: list[str]) -> None:
    """Files without rows, of unknown size or row count, and with other texts for the same value."""
    table = Table.create(str(tmp_path / "table"), SCHEMA, partition_by=["size"])
    table.insert(rows(0)[2:3])
    (first,) = live_files(table)
    copies: list[dict[str, Any]] = [
        {"stats": '{"numRecords":0}', "path": "gone"},
        {"size": 0},
        {"stats": None},
        {"partition_values": {"size": "002"}},
        {"partition_values": {"size": ""}},
    ]
    for copy in copies:
        put_foreign(table, msgspec.structs.replace(first, **copy))
    assert assert_same(changes(spark, table.path), table.changes()) == 5
    assert as_objects == [first.path]


def test_a_text_that_is_no_value_is_the_same_error(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA, partition_by=["size"])
    table.insert(rows(0)[:3])
    put_copies(table, {"partition_values": {"size": "many"}})
    message = "the partition value 'many' is not a valid int32"
    with pytest.raises(CorruptLogError, match=message):
        table.changes().to_arrow()
    with pytest.raises(Exception, match=message):
        changes(spark, table.path).collect()
    assert assert_same(changes(spark, table.path, until=1), table.changes(until=1)) == 3
