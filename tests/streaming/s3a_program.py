"""Write streams to tables in S3 with Spark's own writer, in a Spark that starts with Hadoop's S3 connector.

python -m tests.streaming.s3a_program JARS FOLDER, with the table's URL and storage options as JSON on stdin. The last
line of the output is what the program observed, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from examples.shared.small_spark import SETTINGS
from tests.streaming.jvm_reading.support import is_read_by_spark, physical_plan
from tests.streaming.support import Input, drain, drain_feed
from tidelog.compaction_daemon import Daemon
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError
from tidelog.streaming import Sink, changes, read, register
from tidelog.streaming.executors import hadoop


def session(jars: str, folder: Path) -> SparkSession:
    events = folder / "events"
    events.mkdir()
    spark = (
        SparkSession.builder.master("local[2,2]")  # a task can fail once
        .config(map={**SETTINGS})
        .config("spark.jars", jars)
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", events.as_uri())
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    return spark


class Scenarios:
    def __init__(self, spark: SparkSession, folder: Path, url: str, options: dict[str, str]) -> None:
        self.spark = spark
        self.folder = folder
        self.url = url
        self.options = options

    def batches(self) -> dict[str, Any]:
        """Three batches, then a replay of the last one, then one with new rows."""
        sink, source = self._sink("table"), Input(self.folder / "in").put(3)
        checkpoint = self.folder / "writer"
        drain(source.stream(self.spark), sink, checkpoint)
        for name in ("2", ".2.crc"):
            (checkpoint / "commits" / name).unlink(missing_ok=True)
        skipped: list[bool] = []

        def again(batch: DataFrame, number: int) -> None:
            sink = self._sink("table")
            sink(batch, number)
            assert sink.last
            skipped.append(sink.last.skipped)

        drain(source.put().stream(self.spark), again, checkpoint)
        return {"skipped": skipped, **self._contents("table")}

    def failing_tasks(self) -> dict[str, Any]:
        """Each task fails once, after it has passed its rows to the writer; the table is partitioned."""
        failed = self.folder / "failed"
        failed.mkdir()

        def fails_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from batches
            context = TaskContext.get()
            if context is not None and context.attemptNumber() == 0:
                (failed / str(context.partitionId())).touch()
                raise OSError("simulated: the disk is full")

        source = Input(self.folder / "failing").put(2).stream(self.spark, max_files=None)
        rows = source.repartition(2).mapInArrow(fails_once, "n long").selectExpr("n", "n % 3 as part")
        drain(rows, self._sink("failing", partition_by=["part"]), self.folder / "failing-writer")
        return {"failed": len(list(failed.iterdir())), **self._contents("failing")}

    def daemon_and_feed(self) -> dict[str, Any]:
        table = self._table("table")
        table.set_properties({"tidelog.minorSpan": "1 day"})
        checkpoint = self.folder / "follower"
        options = {f"storageOption.{name}": text for name, text in self.options.items()}
        before = drain_feed(self.spark, table.path, checkpoint, **options)
        (step,) = Daemon([table]).step().tables
        after = drain_feed(self.spark, table.path, checkpoint, **options)
        return {
            "before": sorted(row.n for batch in before for row in batch),
            "error": str(step.error or ""),
            "compacted": step.compaction.did_anything,
            "files": table.refresh().at().num_files,
            "after": after,
            **self._contents("table"),
        }

    def frames(self) -> dict[str, Any]:
        """A table with partitions and dead rows, as frames that Spark's own reader reads."""
        table = self._table("failing")
        table.delete("n < 5")
        read_frame = read(self.spark, table.path, storage_options=self.options)
        feed = changes(self.spark, table.path, storage_options=self.options, where="_change_type = 'delete'")
        plans = [physical_plan(frame) for frame in (read_frame, feed)]
        return {
            "by_spark": [is_read_by_spark(frame) for frame in (read_frame, feed)],
            "plans": plans,
            "read": sorted(row.n for row in read_frame.collect()),
            "deleted": sorted(row.n for row in feed.collect()),
        }

    def other_credentials(self) -> str:
        url = hadoop.hadoop_url(self.url)
        try:
            hadoop.require_connector(self.spark, url, hadoop.write_options({**self.options, "secret": "another"}, url))
        except ConfigurationError as error:
            return str(error)
        return ""

    def _sink(self, name: str, **arguments: Any) -> Sink:
        return Sink(f"{self.url}/{name}", storage_options=self.options, writer="spark", **arguments)

    def _table(self, name: str) -> Table:
        return Table.open(f"{self.url}/{name}", storage_options=self.options)

    def _contents(self, name: str) -> dict[str, Any]:
        table = self._table(name)
        return {
            "rows": sorted(table.scan().to_arrow()["n"].to_pylist()),
            "live": sorted(table.at().files()["path"].to_pylist()),
            "objects": sorted(path for path, _ in table.store.walk("data")),
        }


def main(jars: str, folder: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    given = json.load(sys.stdin)
    spark = session(jars, Path(folder))
    scenarios = Scenarios(spark, Path(folder), given["url"], given["options"])
    observed = {
        "batches": scenarios.batches(),
        "failing_tasks": scenarios.failing_tasks(),
        "daemon_and_feed": scenarios.daemon_and_feed(),
        "frames": scenarios.frames(),
        "other_credentials": scenarios.other_credentials(),
    }
    spark.stop()
    print(json.dumps(observed))


if __name__ == "__main__":
    main(*sys.argv[1:])
