"""delta-spark reads and writes a table that tidelog wrote, and tidelog reads the result."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.interop.delta_spark import DeltaSpark
from tests.streaming.support import Input, drain, read
from tidelog.compaction_daemon import compact
from tidelog.log import OperationClass, Table
from tidelog.log.state.commit_times import read_anchors
from tidelog.streaming import Sink

pytestmark = [pytest.mark.spark, pytest.mark.interop]

COLUMNS = (
    "n",
    "if(n % 4 = 3, null, concat('p/', n % 4)) as part",
    "timestamp'2026-03-08 02:30:00.123456 UTC' + make_interval(0, 0, 0, n) as at",
    "cast(n as decimal(20,3)) / 8 as price",
    "named_struct('tags', array(cast(n as string), null), 'm', map('k', if(n % 2 = 0, n, null))) as nested",
)


def ours(spark: SparkSession, path: str) -> list[str]:
    frame = read(spark, path).selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))")
    return sorted(row[0] for row in frame.collect())


def numbers(table: Table) -> list[int]:
    return sorted(table.refresh().scan().to_arrow()["n"].to_pylist())


@pytest.mark.full
def test_a_stream_and_delta_spark_write_to_one_table(spark: SparkSession, delta: DeltaSpark, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    source = Input(tmp_path / "input")

    def stream(files: int) -> None:
        sink = Sink(path, partition_by=["part"], properties={"delta.checkpointInterval": 50})
        drain(source.put(files).stream(spark).selectExpr(*COLUMNS), sink, tmp_path / "cp")

    # Batches, a checkpoint, a compaction and another batch, each version with a checksum.
    stream(3)
    table = Table.open(path)
    table.checkpoint()
    assert compact(table).did_anything
    stream(1)
    log = Path(path, "_delta_log")
    assert table.refresh().version == 5
    assert len(list(log.glob("*.crc"))) == 6
    # A reader must use the checkpoint.
    for version in range(3):
        (log / f"{version:020d}.json").unlink()
        (log / f"{version:020d}.crc").unlink()

    assert delta.rows(path) == ours(spark, path)
    assert len(delta.rows(path)) == 40
    history = delta.sql(f"DESCRIBE HISTORY delta.`{path}`")
    assert [(entry["version"], entry["operation"]) for entry in history] == [
        (5, "STREAMING UPDATE"),
        (4, "OPTIMIZE"),
        (3, "STREAMING UPDATE"),
    ]
    assert history[0]["operationMetrics"]["numOutputRows"] == "10"
    (detail,) = delta.sql(f"DESCRIBE DETAIL delta.`{path}`")
    assert (detail["numFiles"], detail["partitionColumns"]) == (table.at().num_files, ["part"])

    # delta-spark appends. tidelog reads the rows and the changes, and the stream continues.
    row = ours(spark, path)[0]
    columns = "part, at + interval 1 day as at, price, nested"
    delta.append(path, f"select n + 1000 as n, {columns} from delta.`{path}` where n < 8")
    assert numbers(table) == [*source.numbers, *range(1000, 1008)]
    assert row in ours(spark, path)
    assert table.history(1)[0].operation_class is OperationClass.INSERT
    assert sorted(table.changes(mode="append", after=5).to_arrow()["n"].to_pylist()) == list(range(1000, 1008))
    stream(1)
    assert compact(table).did_anything
    assert numbers(table) == [*source.numbers, *range(1000, 1008)]
    assert delta.rows(path) == ours(spark, path)

    # delta-spark deletes with deletion vectors. tidelog reads the rest, and compaction drops the dead rows.
    delta.sql(f"DELETE FROM delta.`{path}` WHERE n % 10 = 0")
    left = [n for n in [*source.numbers, *range(1000, 1008)] if n % 10]
    assert numbers(table) == left
    assert any(add is not None for add in table.at().files()["deletionVector"].to_pylist())
    assert delta.rows(path) == ours(spark, path)
    stream(1)
    assert compact(table).did_anything
    left += range(50, 60)
    assert numbers(table) == sorted(left)
    assert delta.rows(path) == ours(spark, path)
    assert delta.sql(f"SELECT count(*) AS rows, sum(n) AS total FROM delta.`{path}` WHERE part = 'p/1'") == [
        {"rows": len([n for n in left if n % 4 == 1]), "total": sum(n for n in left if n % 4 == 1)}
    ]


@pytest.mark.full
def test_delta_spark_reads_a_checkpoint_with_commit_times_and_finds_the_same_versions(
    delta: DeltaSpark, tmp_path: Path
) -> None:
    """File times out of order, without in-commit timestamps."""
    path = str(tmp_path / "table")
    off = {"delta.enableInCommitTimestamps": False, "delta.enableDeletionVectors": False}
    table = Table.create(path, pa.schema([("n", pa.int64())]), properties=off)
    for number in range(1, 8):
        table.insert(pa.table({"n": [number]}))
    yesterday_s = int(time.time()) - 86_400
    for version, second in enumerate([100, 200, 900, 300, 400, 1000, 1100, 1050]):
        os.utime(tmp_path / "table/_delta_log" / f"{version:020d}.json", (yesterday_s + second,) * 2)
    table.checkpoint()
    assert [anchor.version for anchor in read_anchors(table.store)] == [0, 6]
    opened = Table.open(path)
    for record in opened.history():
        count = f"SELECT count(*) AS rows FROM delta.`{path}` TIMESTAMP AS OF '{record.timestamp.isoformat()}'"
        assert delta.sql(count) == [{"rows": record.version}]
        assert opened.at(timestamp=record.timestamp).version == record.version
    for version in range(5):
        (tmp_path / "table/_delta_log" / f"{version:020d}.json").unlink()
    assert len(delta.rows(path)) == 7
