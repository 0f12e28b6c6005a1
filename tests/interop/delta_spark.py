"""delta-spark in a separate process, so that the tests' Spark has no extra jars: the jars, the process, the program.

The program reads one command per line: `["sql", text]`, `["rows", table]`, `["arrow", table, file]`,
`["changes", table, after, file]`, `["append", table, rows]`, `["stream", folder, table, checkpoint, app_id]` or
`["checkpoint", table]`. It answers each with one line of JSON.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from examples.shared.small_spark import SETTINGS
from tests import ivy
from tests.ivy import Artifact

VERSION = "4.4.0"
ARTIFACT = Artifact("io.delta", "delta-spark_4.2_2.13", VERSION)
ANSWER = "answer: "


def jars() -> list[Path]:
    """The jars of delta-spark that PySpark does not have. Raises AssertionError if they cannot be fetched."""
    return ivy.jars(f"delta-spark-{VERSION}", [ARTIFACT])


class DeltaSpark:
    """A process with delta-spark. Each method sends one command."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def sql(self, text: str) -> list[dict[str, Any]]:
        """The rows of a statement, with values that JSON lacks as text."""
        answer: list[dict[str, Any]] = self._ask("sql", text)
        return answer

    def rows(self, table: str) -> list[str]:
        """All rows of the table as Spark's JSON, sorted."""
        answer: list[str] = self._ask("rows", table)
        return answer

    def arrow(self, table: str) -> pa.Table:
        """All rows of the table, with their types."""
        return self._table("arrow", table)

    def changes(self, table: str, after: int) -> pa.Table:
        """The change feed of the versions after `after`."""
        return self._table("changes", table, str(after))

    def _table(self, *command: str) -> pa.Table:
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder) / "rows.arrow")
            self._ask(*command, file)
            with pa.ipc.open_file(file) as reader:
                return reader.read_all()

    def checkpoint(self, table: str) -> None:
        """Write a checkpoint of the newest version."""
        self._ask("checkpoint", table)

    def append(self, table: str, select: str) -> None:
        """Append the rows of a SELECT."""
        self._ask("append", table, select)

    def stream(self, folder: str, table: str, checkpoint: str, app_id: str = "") -> None:
        """Stream the new files of a folder into a table, one file per batch.

        With delta-spark's own sink, or with a batch function that uses the application id if one is given.
        """
        self._ask("stream", folder, table, checkpoint, app_id)

    def _ask(self, *command: str) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(command), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                answer = json.loads(line.removeprefix(ANSWER))
                assert "error" not in answer, answer["error"]
                return answer["ok"]
        raise AssertionError(f"delta-spark ended with {self._process.wait()} at {command}")


@contextmanager
def session(errors: Path) -> Iterator[DeltaSpark]:
    """Start a Spark with delta-spark. Its messages go to the file `errors`."""
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, ",".join(map(str, jars()))],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    with process:
        try:
            yield DeltaSpark(process)
        except AssertionError:
            print(errors.read_text()[-5000:])
            raise
        finally:
            assert process.stdin
            process.stdin.close()
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()


def main(class_path: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config(map={**SETTINGS})
        .config("spark.jars", class_path)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.driver.memory", "1g")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        answer: dict[str, Any]
        try:
            answer = {"ok": _do(spark, *json.loads(line))}
        except Exception as error:  # noqa: BLE001 - it fails the test that sent the command
            answer = {"error": str(error)}
        print(ANSWER + json.dumps(answer, default=_text), flush=True)


def _do(spark: SparkSession, command: str, *arguments: str) -> Any:
    match command:
        case "sql":
            return [row.asDict(recursive=True) for row in spark.sql(arguments[0]).collect()]
        case "rows":
            return sorted(row[0] for row in _as_json(spark, arguments[0]).collect())
        case "arrow":
            table, file = arguments
            _write(spark.read.format("delta").load(table).toArrow(), file)
        case "changes":
            table, after, file = arguments
            reader = spark.read.format("delta").option("readChangeFeed", "true")
            _write(reader.option("startingVersion", int(after) + 1).load(table).toArrow(), file)
        case "checkpoint":
            assert spark._jvm
            logs = spark._jvm.org.apache.spark.sql.delta.DeltaLog
            logs.forTable(spark._jsparkSession, *arguments).checkpoint()
        case "append":
            table, select = arguments
            spark.sql(select).write.format("delta").mode("append").save(table)
        case "stream":
            _stream(spark, *arguments)
        case _:
            raise AssertionError(command)
    return None


def _stream(spark: SparkSession, folder: str, table: str, checkpoint: str, app_id: str) -> None:
    rows = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).parquet(folder)
    writer = rows.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    if app_id:

        def function(batch: Any, number: int) -> None:
            output = batch.write.format("delta").mode("append")
            output.option("txnAppId", app_id).option("txnVersion", number).save(table)

        writer.foreachBatch(function).start().awaitTermination()
    else:
        writer.format("delta").start(table).awaitTermination()


def _write(rows: pa.Table, file: str) -> None:
    with pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)


def _text(value: Any) -> str:
    """A value that JSON lacks, as text. PySpark returns timestamps as naive local times."""
    return value.astimezone(dt.UTC).isoformat() if isinstance(value, dt.datetime) else str(value)


def _as_json(spark: SparkSession, table: str) -> Any:
    frame = spark.read.format("delta").load(table)
    return frame.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))")


if __name__ == "__main__":
    main(*sys.argv[1:])
