"""The sink on executors in processes of their own: what befalls tasks and executors costs a batch nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.streaming.executors.test_spark_table_retries import CLUSTER, ROOT, spark_home
from tests.streaming.support import Input
from tidelog.log import Table
from tidelog.log.state.files import to_adds
from tidelog.streaming.executors import jvm_files

PROGRAM = Path(__file__).with_name("sink_cluster_program.py")
ROWS_PER_FILE = 2000


def fill(source: Input) -> int:
    """Six files, two of which are a batch; the number of their rows."""
    for first in range(0, 6 * ROWS_PER_FILE, ROWS_PER_FILE):
        numbers = range(first, first + ROWS_PER_FILE)
        parts = ["abc"[number % 3] for number in numbers]
        source.put_table(pa.table({"n": pa.array(numbers, pa.int64()), "part": parts}))
    return 6 * ROWS_PER_FILE


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.parametrize(
    ("writer", "master", "faults"),
    [
        ("driver", CLUSTER, ["fails", "killed"]),
        # Collecting is Spark's own work, whose answers it takes once; the writing tasks are what can go wrong.
        pytest.param("driver", "two-hosts", ["straggles"], marks=pytest.mark.nightly),
        ("spark", CLUSTER, ["fails", "fails-partitioned"]),
        ("spark", CLUSTER, ["killed", "lost"]),
        ("spark", "two-hosts", ["straggles"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_each_row_is_there_once(writer: str, master: str, faults: list[str], tmp_path: Path) -> None:
    num_rows = fill(Input(tmp_path / "input"))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)]),
        "SPARK_HOME": str(spark_home(tmp_path / "spark")),
    }
    command = [sys.executable, str(PROGRAM), master, str(tmp_path), writer, *faults]
    subprocess.run(command, env=environment, check=True, timeout=500)
    for fault in faults:
        assert (tmp_path / fault / "marks" / "provoked").exists(), fault
        table = Table.open(str(tmp_path / fault / "table"))
        rows = table.scan().to_arrow()
        assert sorted(rows["n"].to_pylist()) == list(range(num_rows)), fault
        assert all(
            part == "abc"[n % 3] for n, part in zip(*(rows[name].to_pylist() for name in ("n", "part")), strict=True)
        )
        assert table.version == 3, fault
        named = {add.path for add in to_adds(table.at().files())}
        there = {str(file.relative_to(table.path)) for file in Path(table.path).rglob("*.parquet")}
        assert {path for path in there if not path.startswith("_delta_log")} == named, fault


@pytest.mark.parametrize("content", [b"half of a fi", None], ids=["open", "whole"])
def test_what_a_run_that_lost_still_writes_is_not_taken_up(tmp_path: Path, content: bytes | None) -> None:
    """Spark stops the slower run of a task by a message, and the job has ended by the time that it arrives."""
    writer = Table.create(str(tmp_path), pa.schema([("n", pa.int64())])).begin().writer
    (add,) = writer.write(pa.table({"n": [1, 2]}))
    file = (tmp_path / add.path).read_bytes()
    there, late = "data/1/p=x/part-00000-1.parquet", "data/1/_temporary/0/_temporary/attempt_1/p=x/part-00000-1.parquet"
    for path, held in ((there, file), (late, content or file)):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_bytes(held)
    no_session: Any = None
    assert [found.path for found in jvm_files._taken_up(no_session, writer, "data/1")] == [there]
