"""A Spark application on a cluster, each of whose parts checks its rows: program.py MASTER FOLDER PART...

A part that begins with `!` must fail because tidelog is missing where its Python runs.

It uses what tidelog's users have, and nothing of the tests, so that `spark-submit --py-files` can run it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import tidelog
from tidelog import Daemon, Feed, Sink, Table, register
from tidelog.compaction_daemon import DaemonConfig, compact
from tidelog.log.errors import PrerequisiteError
from tidelog.streaming import SparkExecutor, changes, read, table

PATIENCE_S = 300
PARTS: dict[str, Callable[[SparkSession, Path], None]] = {}
Rows = list[tuple[Any, ...]]


def part(function: Callable[[SparkSession, Path], None]) -> Callable[[SparkSession, Path], None]:
    PARTS[function.__name__] = function
    return function


def main(master: str, folder: str, *parts: str) -> None:
    print("tidelog is in", tidelog.__file__, flush=True)
    spark = SparkSession.builder.master(master).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    for name in parts:
        run_part(spark, Path(folder), name)
        print("done:", name, flush=True)
    spark.stop()


def run_part(spark: SparkSession, folder: Path, name: str) -> None:
    own = folder / name.removeprefix("!")
    own.mkdir(parents=True)
    if name.startswith("!"):
        must_lack_tidelog(partial(PARTS[name[1:]], spark, own))
    else:
        PARTS[name](spark, own)


def must_lack_tidelog(call: Callable[[], object]) -> None:
    """Check that the call fails, and says why: in tidelog's words where it runs the job, else in Spark's."""
    message = ""
    try:
        call()
    except PrerequisiteError as error:
        message = str(error)
        assert "the Python of Spark's workers cannot import tidelog" in message, message
    except PySparkException as error:
        message = str(error)
        assert "No module named 'tidelog'" in message or "workers cannot import tidelog" in message, message
    assert message, "it works"


# --- streams in ------------------------------------------------------------------------------------------------------


@part
def sink_driver(spark: SparkSession, folder: Path) -> None:
    append(spark, folder, "driver")


@part
def sink_spark(spark: SparkSession, folder: Path) -> None:
    append(spark, folder, "spark", partition_by=["p"])


@part
def sink_overwrite(spark: SparkSession, folder: Path) -> None:
    """Each batch replaces the partitions that it has rows in."""
    sink = Sink(str(folder / "table"), mode="overwrite-partitions", writer="spark", partition_by=["p"])
    for first in (0, 100):
        put(folder / "in", first, 100)
        run(numbers(spark, folder / "in").where("n < 100 OR p = 'a'"), sink, folder)
    check(
        Table.open(str(folder / "table")).scan().to_arrow(),
        [(n, p) for n, p in expected(range(200)) if (p == "a") == (n >= 100)],
    )


@part
def sink_tasks(spark: SparkSession, folder: Path) -> None:
    """Python in the tasks writes columns of which Spark cannot say by their types that each value fits."""
    Table.create(str(folder / "table"), pa.schema([("n", pa.int32()), ("p", pa.string())]))
    append(spark, folder, "spark")


@part
def sink_many_files(spark: SparkSession, folder: Path) -> None:
    """Spark's writer makes more files than the driver describes itself."""
    put(folder / "in", 0, 200)
    stream = numbers(spark, folder / "in").selectExpr("n", "cast(n as string) p")
    run(stream, Sink(str(folder / "table"), writer="spark", partition_by=["p"]), folder)
    check(Table.open(str(folder / "table")).scan().to_arrow(), [(n, str(n)) for n in range(200)])


@part
def upsert_driver(spark: SparkSession, folder: Path) -> None:
    upsert(spark, folder, "driver")


@part
def upsert_spark(spark: SparkSession, folder: Path) -> None:
    upsert(spark, folder, "spark")


def append(spark: SparkSession, folder: Path, writer: str, **options: Any) -> None:
    sink = Sink(str(folder / "table"), writer=writer, **options)
    for first in (0, 100):
        put(folder / "in", first, 100)
        run(numbers(spark, folder / "in"), sink, folder)
    assert sink.last is not None
    assert (sink.last.rows, sink.last.writer) == (100, writer), sink.last
    check(Table.open(str(folder / "table")).scan().to_arrow(), expected(range(200)))


def upsert(spark: SparkSession, folder: Path, writer: str) -> None:
    path = str(folder / "table")
    Table.create(path, pa.schema([("n", pa.int64()), ("p", pa.string())]), properties={CHANGES: "true"})
    sink = Sink(path, mode="upsert", keys=["n"], writer=writer, delete_where="p = 'a' AND n >= 90")
    put(folder / "in", 0, 100)
    run(numbers(spark, folder / "in"), sink, folder)
    put(folder / "in", 50, 100)
    run(numbers(spark, folder / "in").selectExpr("n", "if(n % 3 = 0, 'a', 'new') p"), sink, folder)
    kept = [(n, p) for n, p in expected(range(50)) if not (p == "a" and n >= 90)]
    check(
        Table.open(path).scan().to_arrow(),
        [*kept, *((n, "a" if n % 3 == 0 else "new") for n in range(50, 150) if n % 3 or n < 90)],
    )


# --- streams out, and reading ----------------------------------------------------------------------------------------


@part
def feed(spark: SparkSession, folder: Path) -> None:
    events = filled(folder, 40)
    follow(
        events, folder, lambda keep: Feed(spark, events.path, changes="cdc", initial_snapshot=True).foreachBatch(keep)
    )


@part
def format_stream(spark: SparkSession, folder: Path) -> None:
    """`readStream.format("tidelog")`."""
    events = filled(folder, 40)
    stream = spark.readStream.format("tidelog").option("changes", "cdc").option("initialSnapshot", "true")
    follow(events, folder, stream.load(events.path).writeStream.foreachBatch)


def follow(events: Table, folder: Path, writer_for: Callable[[Callable[[DataFrame, int], None]], Any]) -> None:
    """The snapshot comes, and then each change once."""
    rows: Rows = []

    def keep(batch: DataFrame, _: int) -> None:
        rows.extend(tuples(batch.select("n", "p", "_change_type").toArrow()))

    start(writer_for(keep), folder / "checkpoint")
    assert sorted(rows) == [(n, p, "insert") for n, p in expected(range(40))]
    rows.clear()
    events.update("n < 3", {"p": "'z'"})
    events.delete("n = 7")
    events.compact("major", purge=True)
    start(writer_for(keep), folder / "checkpoint")
    old = [(n, p, "update_preimage") for n, p in expected(range(3))]
    new = [(n, "z", "update_postimage") for n in range(3)]
    assert sorted(rows) == sorted([*old, *new, (7, "b", "delete")])


@part
def reading(spark: SparkSession, folder: Path) -> None:
    """With Spark's own reader."""
    events = filled(folder, 40)
    events.delete("n IN (3, 17)")
    events.update("n = 5", {"p": "'z'"})
    live = [(n, "z" if n == 5 else p) for n, p in expected(range(40)) if n not in {3, 17}]
    check(read(spark, events.path).toArrow(), live)
    found = changes(spark, events.path, after=events.version - 2).select("n", "_change_type").toArrow()
    check(found, [(3, "delete"), (5, "update_postimage"), (5, "update_preimage"), (17, "delete")])


@part
def net_changes(spark: SparkSession, folder: Path) -> None:
    """Python reduces the changes of a key in the tasks."""
    events = filled(folder, 40)
    events.update("n = 5", {"p": "'y'"})
    events.update("n = 5", {"p": "'z'"})
    net = changes(spark, events.path, after=events.version - 2, mode="net", keys=["n"])
    check(net.select("n", "p", "_change_type").toArrow(), [(5, "z", "update_postimage")])


@part
def many_deletion_vectors(spark: SparkSession, folder: Path) -> None:
    """More than the driver reads itself."""
    events = filled(folder, 700)
    events.delete("n % 10 = 4")
    check(read(spark, events.path).toArrow(), [(n, p) for n, p in expected(range(700)) if n % 10 != 4])


@part
def format_read(spark: SparkSession, folder: Path) -> None:
    """`spark.read.format("tidelog")`."""
    events = filled(folder, 40)
    found = spark.read.format("tidelog").option("where", "n < 10").load(events.path)
    check(found.toArrow(), expected(range(10)))


@part
def functions_of_sql(spark: SparkSession, folder: Path) -> None:
    events = filled(folder, 40)
    found = spark.sql(f"SELECT n FROM tidelog_read('{events.path}', where => 'n < 3')")
    check(found.toArrow(), [(0,), (1,), (2,)])


@part
def writing(spark: SparkSession, folder: Path) -> None:
    """`df.write.format("tidelog")`."""
    path = str(folder / "table")
    frame = spark.range(0, 40, 1, 4).selectExpr("id n", P)
    frame.write.format("tidelog").mode("append").save(path)
    check(Table.open(path).scan().to_arrow(), expected(range(40)))
    frame.where("n < 5").write.format("tidelog").mode("overwrite").save(path)
    check(spark.read.format("tidelog").load(path).toArrow(), expected(range(5)))


@part
def object_store(spark: SparkSession, folder: Path) -> None:
    """`storage_options` reach the executors with the tasks, and the format's with its options."""
    url, options = json.loads((folder.parent / "store.json").read_text())
    put(folder / "in", 0, 100)
    run(numbers(spark, folder / "in"), Sink(url, storage_options=options), folder)
    events = table(spark, url, storage_options=options)
    events.delete("n < 10")
    assert events.compact("major", purge=True).files_added
    live = expected(range(10, 100))
    check(read(spark, url, storage_options=options).toArrow(), live)
    named = {f"storageOption.{name}": value for name, value in options.items()}
    check(spark.read.format("tidelog").options(**named).load(url).toArrow(), live)
    rows: Rows = []
    following = Feed(spark, url, initial_snapshot=True, storage_options=options)
    writer = following.foreachBatch(lambda batch, _: rows.extend(tuples(batch.select("n", "p").toArrow())))
    start(writer, folder / "follower")
    assert sorted(rows) == live


# --- changes of rows, and compactions --------------------------------------------------------------------------------


@part
def statements(spark: SparkSession, folder: Path) -> None:
    events = filled(folder, 60)
    on_spark = table(spark, events.path)
    on_spark.delete("n < 10")
    on_spark.update("n >= 50", {"p": "'z'"})
    on_spark.upsert(spark.range(45, 70, 1, 3).selectExpr("id n", "'u' p"), keys=["n"])
    live = [(n, p) for n, p in expected(range(10, 45))] + [(n, "u") for n in range(45, 70)]
    check(events.refresh().scan().to_arrow(), live)
    report = on_spark.compact("major", purge=True)
    assert report.files_added
    check(events.refresh().scan().to_arrow(), live)
    on_spark.overwrite(spark.range(0, 8, 1, 2).selectExpr("id n", P))
    check(events.refresh().scan().to_arrow(), expected(range(8)))


@part
def compaction(spark: SparkSession, folder: Path) -> None:
    """By a SparkExecutor: alone, and as the daemon's."""
    events, others = filled(folder / "one", 60), filled(folder / "two", 60)
    with SparkExecutor(spark) as executor:
        report = compact(events.path, executor=executor)
        assert (report.files_removed, report.files_added) == (6, 1), report
        daemon = Daemon([others.path], config=DaemonConfig(), executor=executor)
        step = daemon.step()
    assert step.tables[0].compaction.files_removed == 6, step
    for found in (events, others):
        assert found.refresh().at().num_files == 1
        check(found.scan().to_arrow(), expected(range(60)))


@part
def statements_without_tidelog(spark: SparkSession, folder: Path) -> None:
    """Each one fails with a clear error, and changes nothing."""
    events = filled(folder, 60)
    on_spark = table(spark, events.path)
    new = spark.range(45, 70, 1, 3).selectExpr("id n", "'u' p")
    calls: list[Callable[[], object]] = [
        lambda: on_spark.delete("n = 1"),
        lambda: on_spark.update("n = 1", {"p": "'z'"}),
        lambda: on_spark.upsert(new, keys=["n"]),
        lambda: on_spark.overwrite(new),
        on_spark.compact,
    ]
    for call in calls:
        must_lack_tidelog(call)
    version = events.version
    assert events.refresh().version == version
    check(events.scan().to_arrow(), expected(range(60)))


# --- what they share -------------------------------------------------------------------------------------------------

P = "substr('abc', int(n % 3) + 1, 1) p"
CHANGES = "delta.enableChangeDataFeed"


def expected(range_of_n: Iterable[int]) -> Rows:
    return [(n, "abc"[n % 3]) for n in range_of_n]


def filled(folder: Path, count: int) -> Table:
    """A table of files with ten rows each."""
    schema = pa.schema([("n", pa.int64()), ("p", pa.string())])
    created = Table.create(str(folder / "table"), schema, properties={CHANGES: "true"})
    for first in range(0, count, 10):
        created.insert([{"n": n, "p": p} for n, p in expected(range(first, first + 10))])
    return created


def put(folder: Path, first: int, count: int) -> None:
    """Two files of a stream's input, each complete when it appears."""
    folder.mkdir(exist_ok=True)
    for start_at in (first, first + count // 2):
        rows = pa.table({"n": pa.array(range(start_at, start_at + count // 2), pa.int64())})
        name = f"{len(list(folder.iterdir())):03d}.parquet"
        pq.write_table(rows, folder / f".{name}")
        (folder / f".{name}").rename(folder / name)


def numbers(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("n long").parquet(str(folder)).selectExpr("n", P)


def run(stream: DataFrame, sink: Callable[[DataFrame, int], None], folder: Path) -> None:
    start(stream.writeStream.foreachBatch(sink), folder / "checkpoint")


def start(writer: Any, checkpoint: Path) -> None:
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S), "the query did not end"


def tuples(rows: pa.Table) -> Rows:
    return [tuple(row.values()) for row in rows.to_pylist()]


def check(found: pa.Table, rows: Rows) -> None:
    assert sorted(tuples(found)) == sorted(rows), sorted(set(tuples(found)) ^ set(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
