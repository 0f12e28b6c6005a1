"""A client of Spark Connect needs no Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.streaming.connect.server import ROOT

PROGRAM = """
import shutil, sys
from tidelog import Feed, Sink, Table, changes, read, register
from tidelog.streaming import SparkExecutor, table
from tidelog.log.errors import PrerequisiteError
assert shutil.which("java") is None
Sink(sys.argv[1], checkpoint=sys.argv[1] + "-cp")
try:
    Sink(sys.argv[1])
except PrerequisiteError as error:
    print(error)
"""


def test_a_sink_for_spark_connect_is_made_without_java(tmp_path: Path) -> None:
    environment = {name: text for name, text in os.environ.items() if name not in {"JAVA_HOME", "SPARK_REMOTE"}}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "table")],
        env={**environment, "PATH": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Java was not found" in done.stdout
