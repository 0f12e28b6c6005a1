"""Run the streams of a group of scenarios up to one point of a batch, wait until all have arrived, then kill them.

python -m tests.crash.sink_program WAY GROUP BASE BATCH POINT      to run to the end of the input:  ... BASE -1 ""

`crash_barrier` wraps the functions of tidelog at that point. The ways:

- `classic`: a classic session. The whole process group is killed, and so the JVM; Spark's Python workers end when their
  pipes close.
- `connect`: a session of Spark Connect, whose server belongs to the process group as well.
- a URL of Spark Connect: only the Python processes that run the batch functions are killed, then this process.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NoReturn

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from examples.shared.small_spark import SETTINGS
from tests.crash.crash_barrier import TIMEOUT_S, BatchFunction, arrived, installed_barrier
from tests.crash.sink_scenarios import GROUPS, SPARK_SCHEMA, Scenario, folder_of
from tests.streaming.connect import server
from tests.streaming.support import started

CLASSIC = "classic"
CONNECT = "connect"


@contextmanager
def session(way: str, base: Path) -> Iterator[SparkSession]:
    if way == CLASSIC:
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


def main(way: str, group: str, base: str, killed_batch: str, point: str) -> None:
    scenarios = GROUPS[group]
    folder = Path(base) / "arrived" / killed_batch
    folder.mkdir(parents=True)
    barrier = partial(installed_barrier, point, folder, len(scenarios), whole_group=way in {CLASSIC, CONNECT})

    def start(spark: SparkSession, scenario: Scenario) -> StreamingQuery:
        checkpoint = folder_of(Path(base), "checkpoints", scenario.name)
        named = None if way == CLASSIC else checkpoint
        function = BatchFunction(scenario, Path(base), int(killed_batch), barrier, named)
        stream = spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{base}/input")
        writer = stream.writeStream.foreachBatch(function)
        return started(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True))

    with session(way, Path(base)) as spark:
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
