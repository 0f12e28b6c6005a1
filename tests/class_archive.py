"""Make an archive of Spark's classes, with which a JVM starts in half the time: `python -m tests.class_archive FILE`.

Loading and verifying Spark's classes is most of what a short test asks of its JVM, and the tests start dozens of them.
A JVM that is given the file by `-XX:SharedArchiveFile` maps the classes into memory instead, if its Java and its jars
are the ones that the file was made with; otherwise it starts as ever. The classes are those that the work below loads.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from examples.shared.small_spark import FEW_FORKS, SETTINGS
from tidelog.streaming import Sink

_JAVA = "spark.driver.extraJavaOptions"
_PATIENCE_S = 300


def main(archive: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Under its own name the file is complete.
    unfinished = archive.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    java = f"{SETTINGS[_JAVA]} -XX:ArchiveClassesAtExit={unfinished} -Xlog:disable"
    with tempfile.TemporaryDirectory(prefix="tidelog-class-archive-") as scratch:
        builder = SparkSession.builder.master("local[2]").config("spark.local.dir", scratch)
        spark = builder.config(map={**SETTINGS, **FEW_FORKS, _JAVA: java}).getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        _work(spark, Path(scratch))
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        spark.stop()
        # The JVM writes the file when it ends, which it does when its standard input ends.
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_PATIENCE_S)
    if not unfinished.exists():
        print("this Java makes no archive of classes; the tests take longer without it")
        unfinished.touch()
    unfinished.replace(archive)


def _work(spark: SparkSession, folder: Path) -> None:
    rows = spark.range(1000).selectExpr("id", "id % 7 AS part", "CAST(id AS STRING) AS text")
    files = str(folder / "files")
    rows.write.parquet(files)
    rows.groupBy("part").count().join(rows, "part").orderBy("id").toArrow()
    stream = spark.readStream.schema(rows.schema).parquet(files).writeStream
    sink = stream.foreachBatch(Sink(str(folder / "table"), writer="spark"))
    sink.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
