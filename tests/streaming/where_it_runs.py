"""What runs on this Spark: each capability of tidelog's Spark side, tried once, and its rows checked.

python -m tests.streaming.where_it_runs --session classic|connect [--master local[2]] FOLDER

It prints a JSON line for each capability: `outcome` is `ok`, `refused` (a typed error of tidelog's, which `text` gives)
or `failed`. `scripts/where_it_runs.py` runs it on each Spark and makes the README's table of the answers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidelog.log import Table
from tidelog.log.errors import TidelogError
from tidelog.streaming import Feed, Sink, changes, read, register, table

TIMEOUT_S = 120
SCHEMA = "k long, v string"
COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])


class Tried:
    """The folder and the session of one run, and what the capabilities share."""

    def __init__(self, spark: SparkSession, folder: Path, session: str) -> None:
        self.spark = spark
        self._folder = folder
        self._session = session
        self._count = 0

    def place(self, name: str) -> str:
        """A path that nothing uses yet."""
        self._count += 1
        return str(self._folder / f"{self._count:02d}-{name}")

    def frame(self, *keys: int) -> DataFrame:
        return self.spark.createDataFrame([(key, f"v{key}") for key in keys], SCHEMA)

    def filled(self, *parts: Iterable[int]) -> str:
        """The path of a table with a commit of rows for each of `parts`."""
        path = self.place("table")
        for number, keys in enumerate(parts):
            rows = [{"k": key, "v": f"v{key}"} for key in keys]
            if not number:
                Table.create(path, COLUMNS, properties={"delta.enableChangeDataFeed": "true"})
            Table.open(path).insert(rows)
        return path

    def sink(self, path: str, **options: Any) -> None:
        """Stream two files of two rows each into the table, a batch a file."""
        source, checkpoint = Path(self.place("source")), self.place("checkpoint")
        for start in (0, 2):
            source.mkdir(exist_ok=True)
            lines = [json.dumps({"k": key, "v": f"v{key}"}) for key in (start, start + 1)]
            (source / f"{start}.json").write_text("\n".join(lines))
        given: dict[str, Any] = {"checkpoint": checkpoint} if self._session == "connect" else {}
        stream = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(source))
        writer = stream.writeStream.foreachBatch(Sink(path, **given, **options))
        self.run(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True))

    def run(self, writer: Any) -> None:
        """Run a query to the end of what is there."""
        query = writer.start()
        if not query.awaitTermination(TIMEOUT_S):
            query.stop()
            raise TimeoutError(f"the query did not end within {TIMEOUT_S} s")

    def run_until(self, writer: Any, done: Callable[[], bool]) -> None:
        """Run a query that does not end by itself until `done`."""
        query = writer.start()
        try:
            for _ in range(TIMEOUT_S):
                query.processAllAvailable()
                if done():
                    return
            raise TimeoutError("the query did not read all rows")
        finally:
            query.stop()


def keys_of(path: str) -> list[int]:
    return sorted(Table.open(path).scan(columns=["k"]).to_arrow()["k"].to_pylist())


def keys_in(frame: DataFrame) -> list[int]:
    return sorted(row.k for row in frame.select("k").collect())


def expect(found: object, wanted: object) -> None:
    if found != wanted:
        raise AssertionError(f"found {found}, expected {wanted}")


def sink_by_driver(tried: Tried) -> None:
    path = tried.place("table")
    tried.sink(path, writer="driver")
    expect(keys_of(path), [0, 1, 2, 3])


def sink_by_spark(tried: Tried) -> None:
    path = tried.place("table")
    tried.sink(path, writer="spark")
    expect(keys_of(path), [0, 1, 2, 3])


def sink_upsert(tried: Tried) -> None:
    path = tried.filled([1, 2, 9])
    for writer in ("driver", "spark"):
        tried.sink(path, mode="upsert", keys=["k"], writer=writer, name=writer)
        expect(keys_of(path), [0, 1, 2, 3, 9])


def sink_overwrite(tried: Tried) -> None:
    path = tried.place("table")
    tried.sink(path, mode="overwrite-partitions", partition_by=["k"])
    expect(keys_of(path), [0, 1, 2, 3])


def batch_read(tried: Tried) -> None:
    path = tried.filled([0, 1], [2])
    expect(keys_in(tried.spark.read.format("tidelog").load(path)), [0, 1, 2])
    expect(keys_in(tried.spark.read.format("tidelog").option("versionAsOf", 1).load(path)), [0, 1])


def batch_write(tried: Tried) -> None:
    path = tried.place("table")
    tried.frame(0, 1).write.format("tidelog").mode("append").save(path)
    tried.frame(2).write.format("tidelog").mode("append").save(path)
    expect(keys_of(path), [0, 1, 2])


def stream_read(tried: Tried) -> None:
    path, target = tried.filled([0, 1], [2], [3]), tried.place("copy")
    stream = tried.spark.readStream.format("tidelog").option("maxFilesPerTrigger", 1).load(path)
    checkpoint = tried.place("checkpoint")

    def writer() -> Any:
        return stream.writeStream.format("parquet").option("path", target).option("checkpointLocation", checkpoint)

    def copied() -> list[int]:
        return keys_in(tried.spark.read.schema(SCHEMA).parquet(target)) if any(Path(target).glob("*.parquet")) else []

    tried.run_until(writer(), lambda: len(copied()) == 4)
    Table.open(path).insert([{"k": 4, "v": "v4"}])
    tried.run_until(writer(), lambda: len(copied()) == 5)
    expect(copied(), [0, 1, 2, 3, 4])


def stream_read_available_now(tried: Tried, **options: int) -> None:
    path, target = tried.filled([0, 1], [2], [3]), tried.place("copy")
    stream = tried.spark.readStream.format("tidelog").options(**options).load(path)
    writer = stream.writeStream.format("parquet").option("path", target).trigger(availableNow=True)
    tried.run(writer.option("checkpointLocation", tried.place("checkpoint")))
    expect(keys_in(tried.spark.read.schema(SCHEMA).parquet(target)), [0, 1, 2, 3])


def _copier(target: str) -> Callable[[DataFrame, int], None]:
    def copy(rows: DataFrame, number: int) -> None:
        rows.select("k", "v").write.mode("overwrite").parquet(f"{target}/batch={number}")

    return copy


def feed(tried: Tried) -> None:
    path, target = tried.filled([0, 1], [2], [3]), tried.place("copy")
    writer = Feed(tried.spark, path, max_files=1).foreachBatch(_copier(target))
    writer = writer.option("checkpointLocation", tried.place("checkpoint"))
    tried.run_until(writer, lambda: len(list(Path(target).glob("batch=*/_SUCCESS"))) >= 3)
    expect(keys_in(tried.spark.read.parquet(target)), [0, 1, 2, 3])


def feed_available_now(tried: Tried, **options: int) -> None:
    path, target = tried.filled([0, 1], [2], [3]), tried.place("copy")
    writer = (
        Feed(tried.spark, path, max_files=options.get("max_files"))
        .foreachBatch(_copier(target))
        .trigger(availableNow=True)
    )
    tried.run(writer.option("checkpointLocation", tried.place("checkpoint")))
    expect(keys_in(tried.spark.read.parquet(target)), [0, 1, 2, 3])


def reads(tried: Tried) -> None:
    path = tried.filled([0, 1], [2])
    Table.open(path).delete("k = 1")
    expect(keys_in(read(tried.spark, path)), [0, 2])
    expect(keys_in(read(tried.spark, path, version=2, where="k > 0")), [1, 2])


def change_reads(tried: Tried) -> None:
    path = tried.filled([0, 1], [2])
    Table.open(path).update("k = 1", {"v": "'new'"})
    rows = changes(tried.spark, path, after=1).select("k", "_change_type").collect()
    expect(
        sorted((row.k, row._change_type) for row in rows),
        [(1, "update_postimage"), (1, "update_preimage"), (2, "insert")],
    )


def row_changes(tried: Tried) -> None:
    path = tried.filled([0, 1], [2, 3])
    rows = table(tried.spark, path)
    rows.delete("k = 0")
    rows.update("k = 1", {"v": "'new'"})
    rows.upsert(tried.frame(3, 4), keys=["k"])
    expect(keys_of(path), [1, 2, 3, 4])
    rows.overwrite(tried.frame(7))
    expect(keys_of(path), [7])


def compaction(tried: Tried) -> None:
    path = tried.filled([0, 1], [2, 3], [4])
    table(tried.spark, path).compact("major")
    expect((Table.open(path).at().num_files, keys_of(path)), (1, [0, 1, 2, 3, 4]))


def sql_functions(tried: Tried) -> None:
    path = tried.filled([0, 1], [2])
    expect(keys_in(tried.spark.sql(f"SELECT * FROM tidelog_read('{path}')")), [0, 1, 2])
    expect(keys_in(tried.spark.sql(f"SELECT * FROM tidelog_changes('{path}', 1)")), [2])


# In the order of the README's table.
CAPABILITIES: dict[str, Callable[[Tried], None]] = {
    "`Sink`, written by the driver": sink_by_driver,
    "`Sink`, written by Spark": sink_by_spark,
    '`Sink(mode="upsert")`': sink_upsert,
    '`Sink(mode="overwrite-partitions")`': sink_overwrite,
    '`spark.read.format("tidelog")`': batch_read,
    '`df.write.format("tidelog")`': batch_write,
    '`readStream.format("tidelog")`': stream_read,
    "the same with `availableNow`": stream_read_available_now,
    "the same with `availableNow` and a limit": partial(stream_read_available_now, maxFilesPerTrigger=1),
    "`Feed`": feed,
    "`Feed` with `availableNow`": feed_available_now,
    "`Feed` with `availableNow` and a limit": partial(feed_available_now, max_files=1),
    "`read`": reads,
    "`changes`": change_reads,
    "`table(...)`: delete, update, upsert, overwrite": row_changes,
    "`table(...).compact`": compaction,
    "SQL functions": sql_functions,
}


def outcome(capability: Callable[[Tried], None], tried: Tried) -> tuple[str, str]:
    """How a capability ended. Spark wraps errors of other processes, so tidelog's are known by the name in the text."""
    try:
        capability(tried)
    except TidelogError as error:
        return "refused", str(error)
    except Exception as error:  # noqa: BLE001 - each capability gets its answer
        text = f"{type(error).__name__}: {error}"
        return ("refused" if "TIDELOG_PREREQUISITE" in text else "failed"), text
    return "ok", ""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--session", choices=["classic", "connect"], default="classic")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    builder = builder.remote(given.master) if given.session == "connect" else builder.master(given.master)
    spark = builder.getOrCreate()
    register(spark)
    tried = Tried(spark, given.folder, given.session)
    for what, capability in CAPABILITIES.items():
        how, text = outcome(capability, tried)
        line = {"what": what, "spark": spark.version, "session": given.session, "outcome": how, "text": text[:2000]}
        print(json.dumps(line), flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
