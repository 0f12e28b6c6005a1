"""How a failure of the sink looks to the person who runs the query: in Spark's error and in the log."""

from __future__ import annotations

import logging
import os
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.streaming.support import NUMBERS, PATIENCE_S, Input, wait_until
from tidelog.log import Table
from tidelog.log.errors import SchemaMismatchError
from tidelog.streaming import JsonLines, Sink
from tidelog.streaming.sink.batch import Batch

pytestmark = pytest.mark.spark


def failure(spark: SparkSession, tmp_path: Path) -> list[str]:
    """The texts that Spark has for a batch that does not fit its table: of the raised error, and of the query's."""
    Table.create(str(tmp_path / "table"), NUMBERS)
    stream = Input(tmp_path / "input").put().stream(spark).selectExpr("n", "n + 1 as more")
    query = (
        stream.writeStream.foreachBatch(Sink(str(tmp_path / "table")))
        .option("checkpointLocation", str(tmp_path / "cp"))
        .start()
    )
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(PATIENCE_S)
    return [str(raised.value), str(query.exception())]


def test_spark_shows_the_error_on_its_own_line_before_any_traceback(spark: SparkSession, tmp_path: Path) -> None:
    for text in failure(spark, tmp_path):
        introduction, line, *rest = text.splitlines()
        assert introduction.endswith(f"batch 0 of sink 'default' for {tmp_path / 'table'} failed")
        assert line.startswith("TIDELOG_SCHEMA_MISMATCH: the data has a column 'more' that the table does not have; ")
        assert "Traceback (most recent call last):" in rest


def test_spark_shows_no_internals_of_tidelog(spark: SparkSession, tmp_path: Path) -> None:
    for text in failure(spark, tmp_path):
        shown = [line.split('"')[1] for line in text.splitlines() if line.startswith("  File ")]
        assert [Path(file).name for file in shown if "tidelog" in Path(file).parts] == ["sink.py"]


def test_the_log_record_says_where_the_error_was_raised(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "tidelog.streaming"):
        failure(spark, tmp_path)
    (record,) = (record for record in caplog.records if record.name == "tidelog.streaming")
    fields: dict[str, Any] = record.__dict__["tidelog"]
    assert (fields["code"], fields["batch_id"]) == ("TIDELOG_SCHEMA_MISMATCH", 0)
    assert fields["message"].startswith("TIDELOG_SCHEMA_MISMATCH: the data has a column 'more'")
    assert any("sink/batch.py:" in frame and frame.endswith(" in run") for frame in fields["traceback"])
    assert "match_names" in fields["traceback"][-1]
    assert "match_names" in JsonLines().format(record)
    assert "\n" not in record.getMessage()
    assert "match_names" not in record.getMessage()


def test_a_bug_keeps_its_traceback(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug in tidelog")

    monkeypatch.setattr(Batch, "_commit", broken)
    for text in failure(spark, tmp_path):
        assert "ZeroDivisionError: a bug in tidelog" in text
        assert "sink/batch.py" in text
        assert ", in broken" in text


def test_the_error_that_the_batch_function_gets_is_the_typed_one(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "table"
    Table.create(str(path), NUMBERS)
    errors: list[SchemaMismatchError] = []

    def function(batch: Any, number: int) -> None:
        try:
            Sink(str(path))(batch, number)
        except SchemaMismatchError as error:
            errors.append(error)

    stream = Input(tmp_path / "input").put().stream(spark).selectExpr("n", "n + 1 as more")
    query = stream.writeStream.foreachBatch(function).option("checkpointLocation", str(tmp_path / "cp"))
    assert query.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)
    (error,) = errors
    assert error.column == "more"
    assert "schema_evolution=True" in error.advice


@pytest.mark.oldest
def test_stopping_a_query_in_a_batch_is_an_interruption_in_words_that_spark_knows(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise Spark prints an error with a Java stack of hundreds of lines, although nothing has failed."""
    begun, fifo = tmp_path / "begun", tmp_path / "fifo"
    os.mkfifo(fifo)
    caught: list[Exception] = []

    def waiting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begun.touch()
        fifo.read_bytes()  # until the task is killed
        yield from batches

    def function(batch: DataFrame, number: int) -> None:
        try:
            sink(batch, number)
        except Exception as error:
            caught.append(error)
            raise

    sink = Sink(str(tmp_path / "table"), writer="driver")
    stream = Input(tmp_path / "input").put().stream(spark).mapInArrow(waiting, "n long")
    with caplog.at_level(logging.INFO, "tidelog.streaming"):
        query = stream.writeStream.foreachBatch(function).option("checkpointLocation", str(tmp_path / "cp")).start()
        wait_until(begun.exists, "the batch runs")
        query.stop()
    assert query.exception() is None
    (error,) = caught
    # As Spark looks for it: with an expression that needs the JVM's stack for each character between its ends.
    known = r"py4j.protocol.Py4JJavaError: An error occurred while calling(.|\n)*java.lang.InterruptedException"
    assert re.search(known, str(error))
    assert len("".join(traceback.format_exception(error))) < 3000
    messages = [record.getMessage() for record in caplog.records if record.name == "tidelog.streaming"]
    assert messages == [f"batch stopped outcome=stopped sink=default path={tmp_path / 'table'} batch_id=0"]


@pytest.mark.oldest
def test_a_query_without_a_checkpoint_location_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Spark makes up a checkpoint and deletes it, so a restart would not know what is in the table."""
    stream = Input(tmp_path / "input").put().stream(spark)
    query = stream.writeStream.foreachBatch(Sink(str(tmp_path / "table"))).start()
    with pytest.raises(StreamingQueryException, match="the query has no checkpointLocation, so Spark keeps") as raised:
        query.awaitTermination(PATIENCE_S)
    assert 'add .option("checkpointLocation", ' in str(raised.value)
    assert not (tmp_path / "table").exists()
