"""Queries with state are killed between the sink's commit and Spark's, again and again: their rows are right."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

from tests.streaming.support import PATIENCE_S, Input
from tidelog.log import Table

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.full, pytest.mark.timeout(3600)]

_PROGRAM = [sys.executable, "-m", "tests.streaming.sink.killed_state_program"]
_NUMBERS = 15
# Their rows are changed by later batches: the newest one of a key counts.
_BY_KEY = ("windows-update", "pandas", "totals", "complete", "two", "named")
_OTHERS = ("windows", "sessions", "distinct", "within", "joined")
_OF_ROCKS = ("transform", *(() if pyspark.__version__.startswith("4.0.") else ("transform-rows",)))
_ALL = (*_BY_KEY, *_OTHERS)


@pytest.mark.parametrize(
    ("provider", "names"),
    [
        pytest.param("rocksdb-2", ("totals", "windows", "joined", "named"), id="some"),
        pytest.param("hdfs", _ALL, marks=pytest.mark.nightly, id="hdfs"),
        pytest.param("rocksdb", (*_ALL, *_OF_ROCKS), marks=pytest.mark.nightly, id="rocksdb"),
        pytest.param("rocksdb-2", (*_ALL, *_OF_ROCKS), marks=pytest.mark.nightly, id="rocksdb-2"),
    ],
)
def test_a_query_with_state_survives_kills(tmp_path: Path, provider: str, names: tuple[str, ...]) -> None:
    source = Input(tmp_path / "input")
    put(source, 6)
    # Batches 0 and 1; then 1 alone, which is skipped; then 1, 2 and 3, of which the first is skipped again.
    for die_after in (2, 1, 3):
        run(tmp_path, provider, die_after, names)
    run(tmp_path, provider, 0, names)
    for name in names:
        rows = Table.open(str(tmp_path / name / "table")).scan().to_arrow().to_pylist()
        found = sorted(repr({key: row[key] for key in ("n", "count", "m") if key in row}) for row in rows)
        assert found == expected(tmp_path, name), name


def put(source: Input, files: int) -> None:
    """Add files, each of which repeats some numbers of the one before."""
    for _ in range(files):
        first = source.count * 10
        source.put_table(pa.table({"n": pa.array(range(first, first + _NUMBERS), pa.int64())}))


def run(folder: Path, provider: str, die_after: int, names: tuple[str, ...]) -> None:
    """Run the program until it ends or dies."""
    done = subprocess.run(
        [*_PROGRAM, str(folder), provider, str(die_after), *names],
        check=False,
        capture_output=True,
        text=True,
        timeout=6 * PATIENCE_S,
    )
    assert done.returncode == (-signal.SIGKILL if die_after else 0), done.stderr[-5000:]


def expected(folder: Path, name: str) -> list[str]:
    """What a query gave that never died."""
    batches = sorted((folder / "calm" / name).iterdir(), key=lambda file: int(file.name))
    rows: list[dict[str, Any]] = [row for file in batches for row in json.loads(file.read_text())]
    assert rows
    is_changed = name in (*_BY_KEY, *_OF_ROCKS)
    return sorted(map(repr, {row["n"]: row for row in rows}.values() if is_changed else rows))
