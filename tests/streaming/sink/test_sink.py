"""The sink in a real query: one commit for each batch, what the commit records, and the tables that it creates."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.streaming.sink.support import Reports
from tests.streaming.support import Input, drain, forget_last_commit, numbers_in, wait_until
from tidelog.compaction_daemon import report_of
from tidelog.log import OperationClass, Table
from tidelog.streaming import Sink

pytestmark = pytest.mark.spark


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


def test_each_batch_is_one_commit_with_a_report(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path = tmp_path / "table"
    reports = Reports(Sink(str(path)))
    assert reports.sink.last is None
    drain(source.put(3).stream(spark), reports, tmp_path / "cp")

    assert numbers_in(path) == source.numbers
    table = Table.open(str(path))
    assert table.version == 3
    assert [record.operation_class for record in table.history()[:3]] == [OperationClass.INSERT] * 3
    assert [(report.batch_id, report.version, report.rows, report.files) for report in reports.all] == [
        (0, 1, 10, 1),
        (1, 2, 10, 1),
        (2, 3, 10, 1),
    ]
    sizes = table.at().files()["size"].to_pylist()
    assert [report.bytes for report in reports.all] == sizes
    for report in reports.all:
        assert not report.skipped
        assert report.rebased_over == ()
        assert set(report.seconds) == {"identify", "collect", "write", "commit"}
        assert all(seconds >= 0 for seconds in report.seconds.values())


def test_a_commit_records_its_query_batch_sink_and_fingerprint(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    sink = Sink(str(path), name="in-1")
    drain(source.put().stream(spark), sink, checkpoint)
    query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    lines = [json.loads(line) for line in (path / "_delta_log" / f"{1:020d}.json").read_text().splitlines()]
    info = lines[0]["commitInfo"]
    entries = {line["txn"]["appId"]: line["txn"] for line in lines if "txn" in line}

    assert info["operation"] == "STREAMING UPDATE"
    assert info["operationParameters"] == {"outputMode": "Append", "queryId": query_id, "epochId": "0"}
    record = info["tidelog"]["batch"]
    assert (record["queryId"], record["batchId"], record["sink"]) == (query_id, 0, "in-1")
    assert "queryName" not in record
    assert sink.last is not None
    before_s = sum(seconds for phase, seconds in sink.last.seconds.items() if phase != "commit")
    assert record["ms"] == round(before_s * 1000) > 0
    assert entries[f"tidelog/{query_id}/in-1"]["version"] == 0
    assert entries[f"tidelog/{query_id}/in-1/offsets"]["version"] == record["fingerprint"]
    assert "tidelog/sink/in-1" in entries
    assert all(entry["lastUpdated"] > 1_700_000_000_000 for entry in entries.values())


def test_a_commit_records_the_name_of_its_query(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    writer = source.put().stream(spark).writeStream.queryName("clicks").foreachBatch(Sink(str(tmp_path / "table")))
    writer = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True)
    writer.start().awaitTermination()
    (stream,) = report_of(Table.open(str(tmp_path / "table"))).streams
    assert (stream.query_name, stream.sink) == ("clicks", "default")


def test_an_empty_batch_commits_nothing_but_the_first_claims_the_name(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    reports = Reports(Sink(str(path)))
    stream = source.put(3).stream(spark).where("n >= 10 and n < 20")
    drain(stream, reports, checkpoint)
    assert [(report.version, report.rows, report.files, report.skipped) for report in reports.all] == [
        (1, 0, 0, False),
        (2, 10, 1, False),
        (None, 0, 0, False),
    ]
    assert Table.open(str(path)).version == 2


def test_a_batch_adds_one_file_for_each_partition(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path = tmp_path / "table"
    stream = source.put(2).stream(spark).selectExpr("n", "if(n % 5 = 4, null, concat('p ', n % 5)) as part")
    reports = Reports(Sink(str(path), partition_by=["part"], properties={"user.note": "x"}))
    drain(stream, reports, tmp_path / "cp")
    assert [report.files for report in reports.all] == [5, 5]
    table = Table.open(str(path))
    assert table.partition_by == ("part",)
    assert table.properties["user.note"] == "x"
    rows = table.scan().to_arrow().to_pylist()
    assert sorted(row["n"] for row in rows) == source.numbers
    assert all(row["part"] == (None if row["n"] % 5 == 4 else f"p {row['n'] % 5}") for row in rows)
    assert sorted(table.scan("part = 'p 3'").to_arrow()["n"].to_pylist()) == [3, 8, 13, 18]


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_paths_can_have_characters_that_urls_escape(
    spark: SparkSession, source: Input, tmp_path: Path, prefix: str
) -> None:
    path, checkpoint = tmp_path / "a b%20ü" / "table", tmp_path / "c p%25" / "cp"
    drain(source.put(2).stream(spark), Sink(f"{prefix}{path}"), checkpoint)
    forget_last_commit(checkpoint)
    drain(source.stream(spark), Sink(f"{prefix}{path}"), checkpoint)
    assert numbers_in(path) == source.numbers


def test_a_batch_is_fitted_to_the_columns_of_an_existing_table(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    """Columns match by name in any order and case, a missing one is null, and a narrower number is widened."""
    path = tmp_path / "table"
    schema = pa.schema([("extra", pa.string()), ("N", pa.int64()), ("wide", pa.float64())])
    Table.create(str(path), schema).insert([{"N": -1, "extra": "old", "wide": 0.5}])
    stream = source.put().stream(spark).selectExpr("cast(n as int) as n", "cast(n as float) as wide")
    drain(stream, Sink(str(path)), tmp_path / "cp")
    rows = Table.open(str(path)).scan("N >= 0").to_arrow().to_pylist()
    assert sorted(row["N"] for row in rows) == source.numbers
    assert all(row["extra"] is None and row["wide"] == row["N"] for row in rows)


def test_without_a_daemon_the_sink_writes_checkpoints_of_the_log(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    sink = Sink(str(path), properties={"delta.checkpointInterval": 3})
    drain(source.put(4).stream(spark), sink, tmp_path / "cp")
    pointer = path / "_delta_log" / "_last_checkpoint"
    wait_until(pointer.exists, "the sink has written a checkpoint")
    assert json.loads(pointer.read_text())["version"] in {3, 4}
    assert Table.open(str(path)).commits_since_checkpoint() < 3
    assert numbers_in(path) == source.numbers


def test_no_checkpoint_is_written_before_the_interval_ends(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path = tmp_path / "table"
    drain(source.put(3).stream(spark), Sink(str(path)), tmp_path / "cp")
    assert not list(path.rglob("*checkpoint*"))
