"""Streams by name and by path: `readStream.table`, `toTable`, and `writeStream.format("tidelog").start(path)`.

What a Sink promises holds for them: each of these queries has one.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions.base import IllegalArgumentException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.randomness import seed
from tests.streaming.support import (
    JVM_SOURCE,
    PATIENCE_S,
    Input,
    drain,
    footprint,
    forget_last_commit,
    last_committed_batch,
    numbers_in,
    wait_until,
)
from tidelog.log import Table
from tidelog.streaming import Sink, register
from tidelog.streaming.datasource import stream_sinks
from tidelog.streaming.spark_versions import INSTALLED

pytestmark = [pytest.mark.spark, JVM_SOURCE]


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


@pytest.fixture
def name(spark: SparkSession) -> Iterator[str]:
    """A name of Spark's own catalog, which is free."""
    spark.sql("DROP TABLE IF EXISTS named_stream")
    yield "named_stream"
    spark.sql("DROP TABLE IF EXISTS named_stream")


def writer(stream: DataFrame, checkpoint: Path | None, **options: object) -> DataStreamWriter:
    made = stream.writeStream.format("tidelog").trigger(availableNow=True)
    made = made.options(**{key: str(value) for key, value in options.items()})
    return made if checkpoint is None else made.option("checkpointLocation", str(checkpoint))


def into(made: DataStreamWriter, target: str | Path) -> StreamingQuery:
    """Run it to its end: into the path, or into the name."""
    query = made.start(str(target)) if isinstance(target, Path) else made.toTable(target)
    try:
        assert query.awaitTermination(PATIENCE_S), "the query does not end"
    finally:
        query.stop()
    return query


def shown(query: StreamingQuery) -> dict[str, Any]:
    """What the query's progress shows of its sink, after the newest batch."""
    progress: Any = query.lastProgress
    return dict(progress["sink"])


def named(path: Path) -> str:
    return f"tidelog.`{path}`"


# --- exactly once -----------------------------------------------------------------------------------------------------


@pytest.mark.oldest
def test_a_batch_that_spark_replays_is_skipped(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    """The table is new, and the query ends between the sink's commit and Spark's."""
    path, checkpoint = tmp_path / "a table", tmp_path / "cp"
    query = into(writer(source.put(2).stream(spark), checkpoint, sinkName="orders"), named(path))
    assert [progress["numInputRows"] for progress in query.recentProgress] == [10, 10]
    sink = shown(query)
    assert sink["description"] == f"Sink({str(path)!r}, name='orders')"
    assert (sink["metrics"]["outcome"], sink["metrics"]["rows"], sink["metrics"]["version"]) == ("committed", "10", "2")

    before = footprint(path)
    replayed = forget_last_commit(checkpoint)
    query = into(writer(source.stream(spark), checkpoint, sinkName="orders"), named(path))
    assert shown(query)["metrics"]["outcome"] == "skipped"
    assert footprint(path) == before
    assert last_committed_batch(checkpoint) == replayed
    # The same query goes on by its path, and as a batch function.
    into(writer(source.put().stream(spark), checkpoint, sinkName="orders"), path)
    drain(source.put().stream(spark), Sink(str(path), name="orders"), checkpoint)
    assert numbers_in(path) == source.numbers


@pytest.mark.full
def test_the_sink_of_a_long_forgotten_query_is_made_again(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_sinks, "_MOST_SINKS", 0)
    stream = source.put(3).stream(spark).selectExpr("n", "n % 2 AS part")
    into(writer(stream, tmp_path / "cp").partitionBy("part"), tmp_path / "table")
    assert numbers_in(tmp_path / "table") == source.numbers
    assert Table.open(str(tmp_path / "table")).partition_by == ("part",)


@pytest.mark.full
def test_another_query_cannot_take_the_name_of_a_sink(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path = tmp_path / "table"
    into(writer(source.put().stream(spark), tmp_path / "cp"), path)
    before = footprint(path)
    with pytest.raises(StreamingQueryException, match="TIDELOG_CHECKPOINT_RESET"):
        into(writer(source.stream(spark), tmp_path / "other"), named(path))
    assert footprint(path) == before
    into(writer(source.stream(spark), tmp_path / "other", onReset="adopt"), named(path))
    assert numbers_in(path) == sorted(source.numbers * 2)


@pytest.mark.full
def test_a_batch_is_computed_once(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    """Also one that an upsert reads twice."""
    computed: Any = spark.sparkContext.accumulator(0)
    counted = F.udf(lambda n: (computed.add(1), n)[1], "long").asNondeterministic()
    stream = source.put(2).stream(spark).withColumn("n", counted("n"))
    into(writer(stream, tmp_path / "cp", mode="upsert", keys="n"), tmp_path / "table")
    assert computed.value == 20
    assert numbers_in(tmp_path / "table") == source.numbers


@pytest.mark.full
@pytest.mark.parametrize("mode", ["upsert", "overwrite-partitions"])
def test_a_skipped_batch_keeps_the_state(spark: SparkSession, source: Input, tmp_path: Path, mode: str) -> None:
    """The next batch reads what the one that is skipped writes; from Spark 4.1 on a query fails without that."""
    stores = "org.apache.spark.sql.execution.streaming.state"
    settings = {
        "spark.sql.streaming.stateStore.providerClass": f"{stores}.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    }
    session = spark.newSession()
    for key, value in settings.items():
        session.conf.set(key, value)

    def run(output_mode: str) -> None:
        rows = source.put().stream(session).groupBy((F.col("n") % 2).alias("n")).agg(F.count("*").alias("count"))
        options = {"keys": "n"} if mode == "upsert" else {"partitionBy": "n"}
        made = writer(rows, tmp_path / "cp", mode=mode, **options).outputMode(output_mode)
        into(made, named(tmp_path / "table"))

    for _ in range(3):
        run("update" if mode == "upsert" else "complete")
        forget_last_commit(tmp_path / "cp")
    run("update" if mode == "upsert" else "complete")
    found = Table.open(str(tmp_path / "table")).scan().to_arrow().to_pylist()
    assert sorted((row["n"], row["count"]) for row in found) == [(0, 20), (1, 20)]


@pytest.mark.full
def test_a_query_that_is_stopped_has_no_error(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    """Its batch is in a job, which the stop interrupts."""
    begun: Any = tmp_path / "begun"
    pause: Any = time.sleep
    slow = F.udf(lambda n: (begun.touch(), pause(0.5), n)[2], "long")
    stream = source.put().stream(spark).withColumn("n", slow("n"))
    query = writer(stream, tmp_path / "cp").start(str(tmp_path / "table"))
    wait_until(begun.exists, "the batch runs")
    query.stop()
    assert query.exception() is None
    into(writer(source.stream(spark), tmp_path / "cp"), tmp_path / "table")
    assert numbers_in(tmp_path / "table") == source.numbers


# --- what is refused at the start -------------------------------------------------------------------------------------


def test_what_is_refused_leaves_nothing(spark: SparkSession, source: Input, name: str, tmp_path: Path) -> None:
    stream, checkpoint, path = source.put().stream(spark), tmp_path / "cp", tmp_path / "table"
    counts = stream.groupBy("n").count()
    refused = [
        (writer(stream, checkpoint, sinkNam="a"), "did you mean 'sinkName'"),
        (writer(stream, checkpoint, mode="upsrt"), "did you mean 'upsert'"),
        (writer(stream, None), "no checkpointLocation"),
        (writer(stream, path / "cp"), "is in the folder of the table"),
        (writer(counts, checkpoint).outputMode("update"), "does not replace their older ones"),
        (writer(counts, checkpoint).outputMode("complete"), "would be appended each time"),
        (writer(stream, checkpoint, keys="n"), "keys needs mode='upsert'"),
        (writer(stream, checkpoint, mode="upsert", deleteWhere="n ="), "TIDELOG_PREDICATE"),
        (writer(stream, checkpoint, mode="upsert", deadLetters=str(path)), "writes to the same table"),
    ]
    for made, message in refused:
        for target in (named(path), path):
            with pytest.raises(IllegalArgumentException, match=message):
                into(made, target)
    for made, message in refused[:3]:
        # Spark has made this name, and its table, before it asks for a sink.
        with pytest.raises(IllegalArgumentException, match=message):
            into(made, name)
    # Spark itself compares the format with the table's.
    with pytest.raises(AnalysisException, match=r"data source provider\s?\(tidelog\)"):
        stream.writeStream.option("checkpointLocation", str(checkpoint)).toTable(named(path))
    assert not path.exists()
    assert not checkpoint.exists()
    assert not spark.catalog.tableExists(name)
    warehouse = str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:")
    assert not Path(warehouse, name, "_delta_log").exists()


@pytest.mark.full
def test_a_table_that_was_there_stays_when_a_query_is_refused(
    spark: SparkSession, source: Input, name: str, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    Table.create(str(path), pa.schema([("n", pa.int64())]))
    before = footprint(path)
    spark.sql(f"CREATE TABLE {name} USING tidelog LOCATION '{path}'")
    for target in (name, named(path), path):
        with pytest.raises(IllegalArgumentException, match="unknown option"):
            into(writer(source.put().stream(spark), tmp_path / "cp", nonsense="1"), target)
    assert footprint(path) == before
    assert spark.catalog.tableExists(name)


# --- names and options ------------------------------------------------------------------------------------------------


def test_a_name_of_sparks_own_catalog(spark: SparkSession, source: Input, name: str, tmp_path: Path) -> None:
    """The table that Spark makes has the keys and properties that a sink gives to its own."""
    stream = source.put().stream(spark).selectExpr("n", "n % 2 AS part")
    made = writer(stream, tmp_path / "cp", mode="upsert", keys="n").partitionBy("part")
    into(made.option("property.delta.enableChangeDataFeed", "true"), name)
    properties = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
    assert properties["tidelog.primaryKey"] == "n"
    assert properties["delta.enableChangeDataFeed"] == "true"
    forget_last_commit(tmp_path / "cp")
    into(writer(source.put().stream(spark).selectExpr("n", "n % 2 AS part"), tmp_path / "cp", mode="upsert"), name)
    assert sorted(row["n"] for row in spark.table(name).collect()) == source.numbers
    feed = spark.readStream.option("changes", "cdc").table(name)
    assert feed.columns == ["n", "part", "_change_type", "_commit_version", "_commit_timestamp"]


@pytest.mark.full
def test_dead_letters(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    stream = source.put().stream(spark).selectExpr("IF(n = 3, NULL, n) AS n")
    letters = {"deadLetters": tmp_path / "dead", "deadLetters.sinkName": "dead"}
    into(writer(stream, tmp_path / "cp", mode="upsert", keys="n", **letters), named(tmp_path / "table"))
    assert numbers_in(tmp_path / "table") == [n for n in source.numbers if n != 3]
    assert Table.open(str(tmp_path / "dead")).scan().count() == 1


@pytest.mark.full
def test_storage_options_of_the_catalog_reach_the_sink_and_no_plan(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    session = spark.newSession()
    register(session)
    session.conf.set("spark.sql.catalog.tidelog.storageOption.key", "hidden-in-plans")
    # The session has its catalog now: of several sessions, toTable would ask the one that is active in the thread.
    session.sql(f"DROP TABLE IF EXISTS {named(tmp_path / 'table')}")
    made = writer(source.put().stream(session), tmp_path / "cp", **{"storageOption.other": "also-hidden"})
    query = into(made, named(tmp_path / "table"))
    sink = next(reversed(stream_sinks._sinks.values()))
    assert sink.settings.storage_options == {"key": "hidden-in-plans", "other": "also-hidden"}
    java: Any = query._jsq
    plans = str(java.explainInternal(True)) + str(java.streamingQuery().logicalPlan().toString())
    assert "hidden" not in plans + json.dumps(shown(query))
    read: Any = session.readStream.table(named(tmp_path / "table"))._jdf
    if INSTALLED >= (4, 1):  # an older one hides nothing in the plan of a stream that reads
        assert "hidden" not in read.queryExecution().toString()


@pytest.mark.full
def test_a_session_that_is_made_later(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    """As those of Spark Connect, which no Python of the server sees."""
    later = spark.newSession()
    path = tmp_path / "table"
    into(writer(source.put().stream(later), tmp_path / "cp"), named(path))
    later.sql(f"DELETE FROM {named(path)} WHERE n > 4")
    assert numbers_in(path) == list(range(5))


# --- against the other doors ------------------------------------------------------------------------------------------


def random_history(chance: random.Random, path: Path) -> Table:
    table = Table.create(
        str(path),
        pa.schema([("n", pa.int64()), ("s", pa.string())]),
        properties={"delta.enableChangeDataFeed": "true"},
    )
    for step in range(chance.randrange(1, 6)):
        kind = chance.choice(["insert", "insert", "delete", "update", "compact"])
        if kind == "insert" or not step:
            first = step * 10
            table.insert(
                [{"n": n, "s": chance.choice(["a", "b"])} for n in range(first, first + chance.randrange(1, 6))]
            )
        elif kind == "delete":
            table.delete(f"n % {chance.randrange(2, 4)} = 0")
        elif kind == "update":
            table.update(f"n % {chance.randrange(2, 4)} = 1", {"s": "'c'"})
        else:
            table.compact()
    return table


def random_reading(chance: random.Random, versions: int) -> dict[str, object]:
    start: Mapping[str, object] = chance.choice(
        [
            {},
            {"startingVersion": chance.randrange(versions + 1)},
            {"after": chance.randrange(versions + 1)},
            {"initialSnapshot": "true"},
            {"startingVersion": "earliest"},
        ]
    )
    mode: Mapping[str, object] = chance.choice(
        [{"changes": "cdc"}, {"skipChangeCommits": "true"}, {"changes": "append", "skipChangeCommits": "true"}]
    )
    more: Mapping[str, object] = chance.choice([{}, {"maxFilesPerTrigger": 1}, {"where": "n > 2"}, {"columns": "n"}])
    return {**start, **mode, **more}


@pytest.mark.parametrize("count", [1, pytest.param(15, marks=pytest.mark.nightly)])
def test_a_name_gives_the_rows_of_its_path(spark: SparkSession, name: str, tmp_path: Path, count: int) -> None:
    """With all options of the feed."""
    chance = random.Random(seed())
    for number in range(count):
        table = random_history(chance, tmp_path / f"table-{number}")
        options = {key: str(value) for key, value in random_reading(chance, table.version).items()}
        spark.sql(f"CREATE TABLE {name} USING tidelog LOCATION '{table.path}'")
        reader = spark.readStream.options(**options)
        streams = [reader.format("tidelog").load(table.path), reader.table(named(Path(table.path))), reader.table(name)]
        found = [batches(stream, tmp_path / f"cp-{number}-{place}") for place, stream in enumerate(streams)]
        assert found[1:] == found[:1] * 2, options
        spark.sql(f"DROP TABLE {name}")


def batches(stream: DataFrame, checkpoint: Path) -> list[list[str]]:
    found: list[list[str]] = []
    drain(stream, lambda rows, _: found.append([*rows.columns, *sorted(map(repr, rows.collect()))]), checkpoint)
    return found


def random_sink(chance: random.Random) -> tuple[dict[str, Any], dict[str, str]]:
    """The arguments of a Sink, and the options that say the same."""
    mode = chance.choice(["append", "upsert", "overwrite-partitions"])
    arguments: dict[str, Any] = {"mode": mode, "writer": chance.choice(["auto", "driver", "spark"])}
    options = {"mode": mode, "writer": arguments["writer"]}
    if mode == "overwrite-partitions" or chance.random() < 0.5:
        arguments["partition_by"], options["partitionBy"] = ["part"], "part"
    if mode == "upsert":
        arguments["keys"], options["keys"] = ["n"], "n"
        if chance.random() < 0.5:
            arguments["order_by"], options["orderBy"] = ["at"], "at"
        if chance.random() < 0.5:
            arguments["delete_where"], options["deleteWhere"] = "at % 5 = 0", "at % 5 = 0"
    if chance.random() < 0.5:
        arguments["properties"] = {"delta.enableChangeDataFeed": "true"}
        options["property.delta.enableChangeDataFeed"] = "true"
    return arguments, options


@pytest.mark.parametrize(
    "count", [pytest.param(1, marks=pytest.mark.full), pytest.param(15, marks=pytest.mark.nightly)]
)
def test_a_query_writes_what_a_batch_function_writes(spark: SparkSession, tmp_path: Path, count: int) -> None:
    """Also after crashes between the sink's commit and Spark's."""
    chance = random.Random(seed())
    schema = pa.schema([("n", pa.int64()), ("part", pa.int64()), ("at", pa.int64())])
    for number in range(count):
        source = Input(tmp_path / f"input-{number}")
        arguments, options = random_sink(chance)
        paths = [tmp_path / f"{kind}-{number}" for kind in ("function", "query")]
        checkpoints = [tmp_path / f"cp-{kind}-{number}" for kind in ("function", "query")]
        for _ in range(2):
            for _ in range(chance.randrange(1, 3)):
                keys = chance.sample(range(10), chance.randrange(1, 6))
                rows = [{"n": n, "part": n % 3, "at": chance.randrange(20)} for n in keys]
                source.put_table(pa.Table.from_pylist(rows, schema=schema))
            stream = source.stream(spark, schema="n long, part long, at long")
            drain(stream, Sink(str(paths[0]), **arguments), checkpoints[0])
            targets: list[str | Path] = [paths[1], named(paths[1])]
            into(writer(stream, checkpoints[1], **options), chance.choice(targets))
            tables = [Table.open(str(path)) for path in paths]
            assert rows_of(tables[1]) == rows_of(tables[0]), options
            assert tables[1].version == tables[0].version
            for checkpoint in checkpoints:
                forget_last_commit(checkpoint)
        same = [(table.properties, table.partition_by, table.schema) for table in tables]
        assert same[0] == same[1]


def rows_of(table: Table) -> list[str]:
    return sorted(map(repr, table.scan().to_arrow().to_pylist()))
