"""The sink with executors in separate processes: failed tasks and killed executors lose and double nothing."""

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
    """Put six files, of which a batch reads two; return the number of rows."""
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
        pytest.param("driver", CLUSTER, ["fails", "killed"], marks=pytest.mark.full),
        # Spark itself makes sure that collected rows are counted once; writing tasks are the risk.
        pytest.param("driver", "two-hosts", ["straggles"], marks=pytest.mark.nightly),
        pytest.param("spark", CLUSTER, ["fails", "fails-partitioned"], marks=pytest.mark.nightly),
        pytest.param("spark", CLUSTER, ["killed", "lost"], marks=pytest.mark.nightly),
        pytest.param("spark", "two-hosts", ["straggles"], marks=pytest.mark.nightly),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_after_faults_each_row_is_in_the_table_once(
    writer: str, master: str, faults: list[str], tmp_path: Path
) -> None:
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
        live = {add.path for add in to_adds(table.at().files())}
        stored = {str(file.relative_to(table.path)) for file in Path(table.path).rglob("*.parquet")}
        assert {path for path in stored if not path.startswith("_delta_log")} == live, fault


@pytest.mark.parametrize("content", [b"half of a fi", None], ids=["open", "whole"])
def test_a_file_that_the_slower_copy_of_a_task_still_writes_is_ignored(tmp_path: Path, content: bytes | None) -> None:
    """Spark sends the slower copy of a task a message to stop, which arrives after the job has ended."""
    writer = Table.create(str(tmp_path), pa.schema([("n", pa.int64())])).begin().writer
    (add,) = writer.write(pa.table({"n": [1, 2]}))
    file = (tmp_path / add.path).read_bytes()
    done, late = "data/1/p=x/part-00000-1.parquet", "data/1/_temporary/0/_temporary/attempt_1/p=x/part-00000-1.parquet"
    for path, stored in ((done, file), (late, content or file)):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_bytes(stored)
    no_session: Any = None
    assert [found.path for found in jvm_files._taken_up(no_session, writer, "data/1")] == [done]
