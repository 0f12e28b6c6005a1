"""Tasks that fail and run again: each row is committed once, and no reader sees the files of failed attempts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.log.operations.changing_rows import SCHEMA, rows
from tidelog.log import Table
from tidelog.log.state.files import to_adds

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).with_name("cluster_program.py")
ROOT = PROGRAM.parents[2]
CLUSTER = "local-cluster[2,1,1024]"


def spark_home(folder: Path) -> Path:
    """A folder of links to Spark's files, since a cluster writes logs into its home."""
    folder.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (folder / entry.name).symlink_to(entry)
    return folder


@pytest.mark.full
@pytest.mark.parametrize("master", ["local[2,3]", pytest.param(CLUSTER, marks=pytest.mark.nightly)])
def test_every_task_fails_once(master: str, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA, partition_by=["part"])
    for first in (0, 10, 20):
        table.insert([*rows(range(first, first + 5)), *rows(range(first + 5, first + 10), "b")])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)]),
        "SPARK_HOME": str(spark_home(tmp_path / "spark")),
    }
    subprocess.run([sys.executable, str(PROGRAM), master, table.path], env=environment, check=True, timeout=500)
    updated = table.at(version=4)
    assert sorted(updated.scan().to_arrow()["v"].to_pylist()) == list(range(1000, 1030))
    found = table.refresh().scan().to_arrow()
    assert sorted(found["k"].to_pylist()) == [k for k in range(50, 60) if k not in {51, 58}]
    # The last commit closes the purge.
    assert [entry.operation_class.name for entry in table.history(3)] == ["NONE", "MAJOR", "UPDATE_DELETE"]
    # Each failed attempt left one file: three of the update, one of the overwrite, and two of the compaction.
    named = {
        add.path
        for state in (table.at(version=3), updated, table.at(version=6), table.at())
        for add in to_adds(state.files())
    }
    written = [path for path in Path(table.path).rglob("*.parquet") if "_delta_log" not in path.parts]
    assert len(written) == len(named) + 3 + 1 + 2
