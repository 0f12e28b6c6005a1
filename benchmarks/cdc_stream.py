"""A stream of Debezium's records into one table, in a process and a Spark of its own: `benchmarks.cdc` starts it.

python -m benchmarks.cdc_stream ARGUMENTS, as JSON. It writes a line of JSON to standard output for each micro-batch:
its rows, the offset behind its last record, how long it took, the sink's phases, and when its rows were visible.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from benchmarks.harness import DELTA_SPARK
from benchmarks.peers import spark_session
from examples.kafka.jars import connector_jars

SCHEMA = "id BIGINT, v DOUBLE, k BIGINT"
# The envelope as a user of MERGE declares it by hand.
_ENVELOPE = f"op STRING, before STRUCT<{SCHEMA}>, after STRUCT<{SCHEMA}>, source STRUCT<lsn: BIGINT>"
_MEMORY = "2g"

BatchFunction: TypeAlias = Callable[[DataFrame, int], None]


def main(arguments: dict[str, Any]) -> None:
    engine, address, topic = arguments["engine"], arguments["address"], arguments["topic"]
    jars = [str(jar) for jar in connector_jars()]
    if engine == DELTA_SPARK:
        from tests.interop.delta_spark import jars as delta_jars

        jars += map(str, delta_jars())
    settings = {
        "spark.jars": ",".join(jars),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
    }
    spark = spark_session(delta=engine == DELTA_SPARK, memory=_MEMORY, settings=settings)
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )
    if arguments["most"]:
        reader = reader.option("maxOffsetsPerTrigger", arguments["most"])
    records = reader.load()
    function: BatchFunction
    if engine == DELTA_SPARK:
        function = _delta(arguments["table"])
    else:
        from tidelog.streaming import capture

        records = capture.debezium(records, schema=SCHEMA, keys=["id"])
        dead = f"{arguments['table']}-dead"
        function = capture.sink(arguments["table"], keys=["id"], dead_letters=dead, schema_evolution=True)
    visible: dict[int, float] = {}
    phases: dict[int, dict[str, float]] = {}

    def timed(batch: DataFrame, number: int) -> None:
        function(batch, number)
        visible[number] = time.time()
        last = getattr(function, "last", None)
        phases[number] = {} if last is None else dict(last.seconds)

    writer = records.writeStream.foreachBatch(timed).option("checkpointLocation", arguments["checkpoint"])
    query = writer.trigger(processingTime="1 second").start()
    printed = -1
    while query.isActive and not Path(arguments["stop"]).exists():
        query.awaitTermination(0.2)
        for progress in query.recentProgress:
            number = progress["batchId"]
            if number > printed and progress["numInputRows"] and number in visible:
                printed = number
                print(json.dumps({**_line(progress, visible[number]), "phases_s": phases[number]}), flush=True)
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))
    query.stop()


def _line(progress: Any, visible: float) -> dict[str, Any]:
    (source,) = progress["sources"]
    return {
        "batch": progress["batchId"],
        "rows": progress["numInputRows"],
        "ends": next(iter(_offsets(source["endOffset"]).values()))["0"],
        "trigger_ms": progress["durationMs"]["triggerExecution"],
        "add_batch_ms": progress["durationMs"]["addBatch"],
        "visible": visible,
    }


def _offsets(given: Any) -> dict[str, dict[str, int]]:
    """The offsets of each topic, which some versions of Spark give as text."""
    found: dict[str, dict[str, int]] = json.loads(given) if isinstance(given, str) else given
    return found


def _delta(path: str) -> BatchFunction:
    """The newest change of each key, merged by delta-spark: what its users write."""

    def merge(batch: DataFrame, number: int) -> None:
        del number
        change = F.from_json(F.col("value").cast("string"), _ENVELOPE)
        changes = batch.where("value IS NOT NULL").select(change.alias("c")).select("c.*")
        row = F.coalesce("after", "before")
        rows = changes.select("op", F.col("source.lsn").alias("lsn"), row.alias("row")).select("op", "lsn", "row.*")
        newest = Window.partitionBy("id").orderBy(F.desc("lsn"))
        rows.withColumn("place", F.row_number().over(newest)).where("place = 1").createOrReplaceTempView("changes")
        batch.sparkSession.sql(
            f"MERGE INTO delta.`{path}` AS t USING changes AS s ON t.id = s.id "
            "WHEN MATCHED AND s.op = 'd' THEN DELETE WHEN MATCHED THEN UPDATE SET t.v = s.v, t.k = s.k "
            "WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT (id, v, k) VALUES (s.id, s.v, s.k)"
        )

    return merge


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
