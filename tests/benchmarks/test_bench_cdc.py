from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness import REPOSITORY

CASES = {
    "machine",
    "changes a second into 5,000 rows, at most 50 a trigger of 1 s",
    "freshness at 100 changes a second into 5,000 rows: median",
    "freshness at 100 changes a second into 5,000 rows: 99th percentile",
}


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.server
def test_a_quick_run_prints_every_case_as_one_line_of_json(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.cdc", "--quick", "--no-delta"]
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(Path.home() / ".cache")}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["case"] for line in lines} == CASES
    assert all(line["tidelog"] > 0 for line in lines if line["case"] != "machine")
