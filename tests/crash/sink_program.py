"""Run the streams of a group of scenarios up to one point of a batch, wait until all have arrived, then kill them.

python -m tests.crash.sink_program WAY GROUP BASE BATCH POINT      to run to the end of the input:  ... BASE -1 ""

`crash_barrier` wraps the functions of tidelog at that point. The ways:

- `classic`: a classic session. The whole process group is killed, and so the JVM; Spark's Python workers end when their
  pipes close.
- `named`: as `classic`, but the queries have no batch functions: `writeStream.format("tidelog")`.
- `connect`: a session of Spark Connect, whose server belongs to the process group as well.
- a URL of Spark Connect: only the Python processes that run the batch functions are killed, then this process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from examples.shared.small_spark import SETTINGS
from tests.crash.crash_barrier import TIMEOUT_S, BatchFunction, CrashBarrier, arrived, installed_barrier
from tests.crash.sink_scenarios import AFTER_SINK, GROUPS, SPARK_SCHEMA, Scenario, folder_of
from tests.streaming.connect import server
from tests.streaming.support import started
from tidelog.streaming import register
from tidelog.streaming.datasource import stream_sinks

CLASSIC = "classic"
NAMED = "named"
CONNECT = "connect"


@contextmanager
def session(way: str, base: Path) -> Iterator[SparkSession]:
    if way in {CLASSIC, NAMED}:
        yield classic_session()
    elif way == CONNECT:
        with server.server(base / "server") as url:
            spark = server.session(url)
            yield spark
            # Else the session would be released when Python exits: for ten minutes, because the server is gone.
            spark.stop()
    else:
        yield server.session(way)


def classic_session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config(map=dict(SETTINGS))
    spark = builder.config("spark.driver.memory", "1g").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def with_options(writer: DataStreamWriter, scenario: Scenario, base: Path) -> DataStreamWriter:
    """What writes the only call of a scenario, by options."""
    (call,) = scenario.calls
    names = {"keys": "keys", "delete_where": "deleteWhere", "partition_by": "partitionBy"}
    names |= {"mode": "mode", "writer": "writer", "name": "sinkName"}
    arguments = call.arguments()
    properties: dict[str, object] = arguments.pop("properties", {})
    options = {names[key]: ",".join(value) if isinstance(value, list) else value for key, value in arguments.items()}
    options |= {f"property.{key}": str(value).lower() for key, value in properties.items()}
    return writer.format("tidelog").options(**options, path=str(folder_of(base, "tables", call.table)))


def stop_at_the_point(barrier: CrashBarrier, scenarios: Sequence[Scenario], killed_batch: int) -> None:
    """Let the sinks of queries without batch functions have the points that `BatchFunction` has."""
    write = stream_sinks.write_batch

    def stopped(spark: SparkSession, request: Mapping[str, Any], java: Any) -> str:
        path = Path(json.loads(request["sink"])["options"]["path"])
        (scenario,) = (one for one in scenarios if one.name.replace(" ", "-") == path.name)
        barrier.arm(scenario if request["batch"] == killed_batch else None)
        shown = write(spark, request, java)
        barrier.pass_by(AFTER_SINK)
        return shown

    setattr(stream_sinks, "write_batch", stopped)  # noqa: B010 - mypy takes the assignment for another signature


def main(way: str, group: str, base: str, killed_batch: str, point: str) -> None:
    scenarios = GROUPS[group]
    folder = Path(base) / "arrived" / killed_batch
    folder.mkdir(parents=True)
    barrier = partial(installed_barrier, point, folder, len(scenarios), whole_group=way in {CLASSIC, NAMED, CONNECT})

    def start(spark: SparkSession, scenario: Scenario) -> StreamingQuery:
        checkpoint = folder_of(Path(base), "checkpoints", scenario.name)
        stream = spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{base}/input")
        if way == NAMED:
            writer = with_options(stream.writeStream, scenario, Path(base))
        else:
            named = None if way == CLASSIC else checkpoint
            function = BatchFunction(scenario, Path(base), int(killed_batch), barrier, named)
            writer = stream.writeStream.foreachBatch(function)
        return started(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True))

    with session(way, Path(base)) as spark:
        if way == NAMED:
            register(spark)
            stop_at_the_point(barrier(), scenarios, int(killed_batch))
        try:
            queries = [start(spark, scenario) for scenario in scenarios]
        except PySparkException as error:
            _give_up(str(error))
        deadline = time.monotonic() + TIMEOUT_S
        while any(query.isActive for query in queries):
            failed = [query.exception() for query in queries if not query.isActive and query.exception()]
            is_killed = len(arrived(folder)) == len(scenarios)
            if (failed and not is_killed) or time.monotonic() > deadline:
                _give_up(f"at {point!r} of batch {killed_batch} only {arrived(folder)} arrived: {failed}")
            time.sleep(0.05)
        failed = [query.exception() for query in queries if query.exception()]
        if len(arrived(folder)) == len(scenarios) == len(failed):
            os.kill(os.getpid(), signal.SIGKILL)
        if failed:
            _give_up(str(failed))
        print("drained", flush=True)


def _give_up(reason: str) -> NoReturn:
    """End at once: ending a server waits for its queries, which wait at the point for one that does not come."""
    print(reason, file=sys.stderr, flush=True)
    os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
