"""Spark's test jars, ScalaTest, and our classes above them: fetched and compiled once."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pyspark

from tests import ivy
from tests.ivy import Artifact

SOURCE = Path(__file__).with_name("Suites.scala")
# The release whose suites run. PySpark's must be of the same line.
SPARK = "4.2.0"
SCALATEST = "3.2.19"
COMPILE_TIMEOUT_S = 900
_SPARK_MODULES = ("sql", "catalyst", "core", "common-utils", "sql-api")


def class_path() -> list[Path]:
    """Our classes, and what they need beyond PySpark's jars.

    Raises AssertionError where the jars cannot be fetched, or where PySpark is of another release.
    """
    assert pyspark.__version__ == SPARK, f"the suites are those of Spark {SPARK}, and PySpark is {pyspark.__version__}"
    tests = [
        Artifact("org.apache.spark", f"spark-{name}_2.13", SPARK, alone=True, classifier="tests")
        for name in _SPARK_MODULES
    ]
    scalatest = Artifact("org.scalatest", "scalatest_2.13", SCALATEST)
    jars = ivy.jars(f"spark-suites-{SPARK}-{SCALATEST}", [*tests, scalatest])
    return [_compiled(jars), *jars]


def _compiled(jars: list[Path]) -> Path:
    """The folder of the classes of `Suites.scala`, which has its hash as a name."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    target = ivy.CACHE / f"spark-suites-classes-{SPARK}-{digest}"
    if target.is_dir():
        return target
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    partial.mkdir(parents=True)
    path = ":".join(map(str, [*ivy.spark_jars().glob("*.jar"), *jars]))
    command = [ivy.java(), "-Xmx1g", "-cp", path, "scala.tools.nsc.Main", "-nowarn", "-d", str(partial), "-cp", path]
    done = subprocess.run(
        [*command, str(SOURCE)], capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        shutil.rmtree(partial)
        raise AssertionError(f"{SOURCE.name} does not compile: {(done.stdout + done.stderr)[-3000:]}")
    partial.rename(target)
    return target
