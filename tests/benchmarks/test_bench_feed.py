from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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


def test_a_quick_run_prints_every_case_as_one_line_of_json(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.feed", "--quick"]
    # The cache of tables is in the home folder.
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    machine, *measured = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["case"] for line in measured] == [name for case in CASES for name in (case, f"{case}_memory")]
    assert machine["bench"] == "feed"
    assert all(line[TIDELOG] > 0 for line in measured)
    assert all({"unit", *feed.ENGINES, "ratio", "cpu_ratio", "goal", "met"} <= line.keys() for line in measured)
    assert "different numbers of rows" not in done.stderr
    assert "goals met" in done.stderr


def test_each_part_is_a_method() -> None:
    public = {name for name in vars(feed.FeedBench) if not name.startswith("_")}
    assert public - {"run"} == set(feed.PARTS)
