"""The change feed with executors in separate processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.streaming.executors.test_spark_table_retries import CLUSTER, ROOT, spark_home
from tidelog.log import Table

PROGRAM = Path(__file__).with_name("feed_cluster_program.py")


@pytest.mark.spark
@pytest.mark.full
def test_every_change_once_on_a_cluster(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("part", pa.string())])
    table = Table.create(str(tmp_path / "table"), schema, partition_by=["part"])
    for first in range(0, 40, 10):
        table.insert([{"n": n, "part": "abc"[n % 3]} for n in range(first, first + 10)])
    table.delete("n = 3")
    snapshot = table.scan().to_arrow().to_pylist()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)]),
        "SPARK_HOME": str(spark_home(tmp_path / "spark-home")),
    }
    subprocess.run([sys.executable, str(PROGRAM), CLUSTER, str(tmp_path)], env=environment, check=True, timeout=300)
    changes = table.changes(after=5, until=8).to_arrow().to_pylist()
    for way in ("format", "feed"):
        first_run, second_run = (rows_of(tmp_path / f"{way}-{run}.json") for run in range(2))
        assert sorted_rows(first_run) == sorted_rows(
            [{**row, "_change_type": "insert", "_commit_version": 5} for row in snapshot]
        ), way
        assert sorted_rows(second_run) == sorted_rows(changes), way


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def sorted_rows(rows: list[dict[str, Any]]) -> list[str]:
    kept = [{name: value for name, value in row.items() if name != "_commit_timestamp"} for row in rows]
    return sorted(json.dumps(row, sort_keys=True) for row in kept)
