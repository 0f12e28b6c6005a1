from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness import REPOSITORY
from benchmarks.upsert_statements import STATEMENTS, case

CASES = {
    "machine",
    "10 keys into 1,000 rows",
    "one key of 1,000 rows",
    "10 keys into 5,000 rows",
    "one key of 5,000 rows",
    "100 keys into 5,000 rows",
    "10 keys into 5,000 rows in one run: CPU",
    "10 keys into 5,000 rows in 10 runs: CPU",
    "10 keys into 1,000 rows by an order, 5 % deletions",
    "10 keys into 5,000 rows by an order, 5 % deletions",
    "10 keys into 1,000 rows by an order, half of them deleted: CPU",
    "writing 5,000 rows in 1 inserts",
    "bytes of the index for each row",
    "merging the runs of 5,000 rows",
    "20 upserts beside the daemon: the last tenth, beside the second",
    "20 upserts beside the daemon: 99th percentile",
    "20 upserts beside the daemon: runs of the index, most in the last tenth, beside the second",
    "20 upserts beside the daemon: files with tombstones, most in the last tenth, beside the second",
    "20 upserts beside the daemon: data files, most in the last tenth, beside the second",
    "20 upserts beside the daemon: a scan, beside one before",
    *(case(name, 100, 1000) for name in STATEMENTS),
}


@pytest.mark.full
def test_a_quick_run_prints_every_case_as_one_line_of_json(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.upsert", "--quick", "--no-spark"]
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["case"] for line in lines} == CASES
    assert {line["bench"] for line in lines} == {"upsert"}
    for line in lines:
        if "half of them deleted" in line["case"]:
            assert line["tidelog"] > 0
            assert line["undeleted"] > 0
        elif "by an order" in line["case"]:
            assert line["tidelog"] > 0
            assert line["without_order"] > 0
        elif "of a source" in line["case"]:
            assert line["tidelog"] > 0
        elif "10 runs" in line["case"]:
            assert line["ratio"] == pytest.approx(line["tidelog"] / line["merged"], rel=0.01)
        elif "one run" in line["case"]:
            assert line["tidelog"] > 0
        elif "keys into" in line["case"]:
            assert line["tidelog"] > 0
            assert line["without_index"] > 0
            assert line["deltalake"] > 0
