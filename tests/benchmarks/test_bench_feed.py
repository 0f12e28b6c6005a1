from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import feed
from benchmarks.harness import REPOSITORY, TIDELOG

CASES = (
    "scan_numbers",
    "scan_text",
    "scan_deletion_vectors",
    "changes",
    "scan_one_small_file",
    "scan_small_files",
)
WAYS_OF_STREAMS = ("format", "format in a batch function", "Feed")
STREAMS = [f"stream, {way}, {figure}" for way in WAYS_OF_STREAMS for figure in ("addBatch", "whole run")]
MANY_FILES = [
    "first row of 200 files, read()",
    'first row of 200 files, format("tidelog")',
    "frame of 200 files in 4 commits, changes()",
    "frame of 200 files in 4 commits, changes(), memory",
    "sharing out 200 files, table()",
    "sharing out 200 files, table(), memory",
    "compaction of one of 5 partitions of 200 files, by Spark",
]
WAYS = [f"ways, {way}" for way in ("changes()", 'format("tidelog")', "tidelog_changes")]
LATENCIES = [
    f"latency{checkpoint}, {engine}, {figure}"
    for checkpoint in ("", ", checkpoint without processes")
    for engine in ("format", "Feed")
    for figure in ("median", "p99")
]


def quick(home: Path, part: str) -> list[dict[str, Any]]:
    """The lines of a quick run of some parts, without the one about the machine."""
    command = [sys.executable, "-m", "benchmarks.feed", "--quick", "--only", part]
    # The cache of tables is in the home folder.
    environment = {**os.environ, "HOME": str(home)}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    machine, *measured = [json.loads(line) for line in done.stdout.splitlines()]
    assert machine["bench"] == "feed"
    # A tiny table need not make the memory of a process grow.
    assert all(line[TIDELOG] > 0 or line["unit"] == "MB" for line in measured)
    assert all({"unit", *feed.REPORTED, "ratio", "cpu_ratio", "goal", "met"} <= line.keys() for line in measured)
    assert "different numbers of rows" not in done.stderr
    assert "goals met" in done.stderr
    return measured


@pytest.mark.full
def test_a_quick_run_prints_every_case_as_one_line_of_json(tmp_path: Path) -> None:
    found = [line["case"] for line in quick(tmp_path, "scan")]
    assert found == [name for case in CASES for name in (case, f"{case}_memory")]


@pytest.mark.spark
@pytest.mark.interop
@pytest.mark.full
@pytest.mark.parametrize(
    ("part", "cases"),
    [
        pytest.param("batch", ["batch"] * 2, id="batch", marks=pytest.mark.nightly),
        pytest.param("ways", WAYS, id="ways", marks=pytest.mark.nightly),
        pytest.param("stream", STREAMS * 2, id="stream", marks=pytest.mark.nightly),
        pytest.param("latency", LATENCIES, id="latency", marks=pytest.mark.nightly),
        pytest.param("planning", ["planning"] * 3, id="planning"),
        pytest.param("many_files", MANY_FILES, id="many_files", marks=pytest.mark.nightly),
    ],
)
def test_a_quick_run_of_the_parts_in_spark(part: str, cases: list[str]) -> None:
    # The jars are in the home folder.
    found = [line["case"].split(":")[0] for line in quick(Path.home(), part)]
    assert found == cases


def test_each_part_is_a_method() -> None:
    public = {name for name in vars(feed.FeedBench) if not name.startswith("_")}
    assert public - {"run"} == set(feed.PARTS)
