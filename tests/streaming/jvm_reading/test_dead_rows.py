"""Rows by their positions: deletion vectors and their differences, in files of any size and number."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.lanes import full_but
from tests.log.support import add, put_foreign
from tests.streaming.jvm_reading.support import assert_same, is_read_by_spark, is_read_by_tidelog, physical_plan
from tidelog.log import Table
from tidelog.log.errors import DataFileMissingError, HistoryExpiredError
from tidelog.log.read.change_files import ChangeFile
from tidelog.streaming import changes, read
from tidelog.streaming.executors.session import session_settings
from tidelog.streaming.jvm_reading import dead_rows

ROWS = 20_000
SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two files of several row groups and blocks, each with dead rows at the edges of both, one added in two steps."""
    table = Table.create(str(tmp_path / "table"), SCHEMA)
    for start in (0, ROWS):
        file = tmp_path / "table" / f"{start}.parquet"
        pq.write_table(pa.table({"n": range(start, start + ROWS)}, schema=SCHEMA), file, row_group_size=3000)
        put_foreign(table.refresh(), add(file.name, size=file.stat().st_size, stats=f'{{"numRecords":{ROWS}}}'))
    table.refresh()
    table.delete(f"n IN (0, 63, 64, 2999, 3000, 4095, 4096, 8191, {ROWS - 1}, {ROWS}, {2 * ROWS - 1})")
    table.delete("n BETWEEN 5000 AND 5999")
    table.restore(version=3)
    return table


SETTINGS = {
    # Several tasks for each file.
    "splits": {"spark.sql.files.maxPartitionBytes": "4096", "spark.sql.files.openCostInBytes": "1"},
    "defaults": {},
    "no broadcast": {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.adaptive.enabled": "false"},
    "rows": {"spark.sql.parquet.enableVectorizedReader": "false", "spark.sql.ansi.enabled": "true"},
    "no hints": {"spark.sql.ansi.enabled": "false", "spark.sql.optimizer.disableHints": "true"},
}


@pytest.mark.oldest
@pytest.mark.parametrize("settings", full_but(["splits"], SETTINGS))
def test_dead_rows_and_differences(spark: SparkSession, table: Table, settings: str) -> None:
    with session_settings(spark, SETTINGS[settings]):
        frame = read(spark, table.path)
        assert is_read_by_spark(frame)
        assert assert_same(frame, table.scan()) == 2 * ROWS - 11
        feed = changes(spark, table.path, until=4)
        assert is_read_by_spark(feed)
        assert assert_same(feed, table.changes(until=4)) == 2 * ROWS + 11 + 1000
        # A restore can take rows away and bring rows back, so tidelog compares both sides.
        restored = changes(spark, table.path, after=4)
        assert is_read_by_tidelog(restored)
        assert assert_same(restored, table.changes(after=4)) == 1000
        assert frame.where("n > 2995 AND n < 3005").count() == 7


@pytest.mark.full
def test_the_executors_read_many_vectors(spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_rows, "_FEW_FILES", 0)
    monkeypatch.setattr(dead_rows, "_FILES_PER_TASK", 1)
    assert_same(read(spark, table.path), table.scan())
    assert_same(changes(spark, table.path), table.changes())


@pytest.mark.full
def test_too_many_positions_are_left_to_tidelog(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.insert([{"n": -1}])
    monkeypatch.setattr(dead_rows, "MAX_BLOCKS", 5)
    frame = read(spark, table.path)
    plan = physical_plan(frame)
    assert plan.count("FileScan") == 2
    assert plan.count("MapInArrow") == 1
    assert_same(frame, table.scan())
    monkeypatch.setattr(dead_rows, "MAX_BLOCKS", 0)
    assert is_read_by_tidelog(read(spark, table.path, where="n > 5"))


def test_bitmaps_have_a_bound(table: Table) -> None:
    units = [unit for unit in table.changes().units if isinstance(unit, ChangeFile) and dead_rows.has_positions(unit)]
    assert units
    for unit in units:
        made = sum(batch.num_rows for batch in dead_rows._bitmaps_of(table.store, [(0, unit)]))
        assert made <= dead_rows.max_blocks(unit) <= 5


@pytest.mark.parametrize("few", [64, 0], ids=["driver", "executors"])
def test_a_missing_vector(spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(dead_rows, "_FEW_FILES", few)
    for file in Path(table.path).rglob("*.bin"):
        file.unlink()
    with pytest.raises((DataFileMissingError, PySparkException), match="TIDELOG_DATA_FILE_MISSING"):
        read(spark, table.path).count()
    with pytest.raises(
        (HistoryExpiredError, PySparkException), match=r"TIDELOG_HISTORY_RANGE|TIDELOG_DATA_FILE_MISSING"
    ):
        changes(spark, table.path).count()
