"""Statements that Spark rewrites, whose tasks run again or twice: each row is committed once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from tests.log.cleanup.support import AT_ONCE
from tests.streaming.executors.test_spark_table_retries import CLUSTER, spark_home
from tests.streaming.support import JVM_SOURCE, wait_until
from tidelog.log import Table
from tidelog.log.state.files import to_adds

pytestmark = [pytest.mark.spark, JVM_SOURCE]

PROGRAM = Path(__file__).with_name("retried_statements.py")
ROOT = PROGRAM.parents[3]
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
PROPERTIES = {**AT_ONCE, "delta.targetFileSize": "1000", "delta.enableChangeDataFeed": "true"}


@pytest.mark.parametrize(
    ("master", "fault"),
    [
        pytest.param("local[2,3]", "fails", marks=pytest.mark.full),
        *(pytest.param(CLUSTER, fault, marks=pytest.mark.nightly) for fault in ("fails", "killed", "slow")),
    ],
)
def test_tasks_that_run_again(tmp_path: Path, master: str, fault: str) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA, properties=PROPERTIES)
    for start in range(0, 400, 100):
        table.insert([{"k": k, "v": 1} for k in range(start, start + 100)])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)]),
        "SPARK_HOME": str(spark_home(tmp_path / "spark")),
    }
    command = [sys.executable, str(PROGRAM), master, table.path, fault]
    subprocess.run(command, env=environment, check=True, timeout=500)
    found = table.refresh().scan().to_arrow().to_pylist()
    expected = [(k, 12) for k in range(400) if k % 3] + [(k, 15) for k in range(400, 440)]
    assert sorted((row["k"], row["v"]) for row in found) == expected
    kinds = [
        Counter(table.changes(after=after, until=after + 1, mode="cdc").to_arrow()["_change_type"].to_pylist())
        for after in (4, 5)
    ]
    assert kinds == [
        {"delete": 134, "update_preimage": 266, "update_postimage": 266, "insert": 40},
        {"update_preimage": 306, "update_postimage": 306},
    ]
    # What the other attempts have written, no version names, and a vacuum deletes.
    table.insert([{"k": -1, "v": 0}])
    live = {Path(table.path, add.path) for add in to_adds(table.at().state.files().adds)}
    wait_until(lambda: bool(table.vacuum()) and written(table) == live, "the rest is deleted")
    assert table.scan().to_arrow().num_rows == len(expected) + 1


def written(table: Table) -> set[Path]:
    return {path for path in Path(table.path).rglob("*.parquet") if "_delta_log" not in path.parts}
