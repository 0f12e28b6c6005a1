"""Run the suites in a JVM that PySpark has started, and read what became of each test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import tidelog
from tests.spark_suites.jars import class_path

_PACKAGE = "org.apache.spark.sql.connector"
# The classes of Suites.scala, and what they are about.
SUITES = {
    "Delete": "DELETE",
    "Update": "UPDATE",
    "Merge": "MERGE",
    "MergeInto": "`df.mergeInto`",
    "Evolution": "MERGE `WITH SCHEMA EVOLUTION`",
    "EvolutionOfFrames": "`df.mergeInto` with schema evolution",
}
PASSED, FAILED, CANCELLED = "passed", "failed", "cancelled"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a test, and why it did not pass. `trace` is for whom it has failed."""

    kind: str
    suite: str
    test: str
    why: str
    trace: str = ""


def outcomes(folder: Path, suites: Sequence[str], words: Sequence[str] = ()) -> list[Outcome]:
    """Run these suites, or their tests that have one of the words in their names.

    Each suite stops Spark when it ends, so each has a process of its own. Raises AssertionError for one without a test.
    """
    found: list[Outcome] = []
    for suite in suites:
        own = folder / suite
        own.mkdir()
        subprocess.run([sys.executable, "-m", __name__, str(own), suite, *words], check=True)
        lines = own / "lines.txt"
        assert lines.exists(), f"the suite {suite} has run no test"
        found += _read(lines)
    return found


def _run(folder: Path, suite: str, words: Sequence[str]) -> None:
    """Run a suite, or its tests with one of the words in their names."""
    spark = _session(folder)
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    jvm.java.lang.System.getProperties().put("tidelog.loader", loader)
    given = ["-s", f"{_PACKAGE}.{suite}", "-C", f"{_PACKAGE}.Lines", "-oW"]
    given += [part for word in words for part in ("-z", word)]
    gateway: Any = spark.sparkContext._gateway
    arguments = gateway.new_array(jvm.java.lang.String, len(given))
    for number, argument in enumerate(given):
        arguments[number] = argument
    jvm.org.scalatest.tools.Runner.run(arguments)


def _session(folder: Path) -> SparkSession:
    settings = {
        "spark.driver.extraClassPath": ":".join(map(str, class_path())),
        "spark.driver.extraJavaOptions": f"-Dtidelog.suites={folder} -Dspark.testing=true",
        "spark.driver.memory": "2g",
        # Each statement is new, and compiling it takes longer than its few rows.
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.testing": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.unsafe.exceptionOnMemoryLeak": "false",
    }
    builder: Any = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.master("local[2]").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    tidelog.register(spark)
    return spark


def _read(lines: Path) -> Iterator[Outcome]:
    for line in lines.read_text().splitlines():
        kind, suite, test, text = line.split("\t")
        why, _, trace = text.replace("\\n", "\n").partition("\n\tat ")
        yield Outcome(kind, suite, test, why.strip(), trace)


if __name__ == "__main__":
    _run(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
