from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness import DELTALAKE, REPOSITORY, TIDELOG

MEASURED = ("", "_memory", "_size", "_files")


@pytest.mark.full
def test_a_quick_run_prints_every_case_as_one_line_of_json(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.compaction", "--quick"]
    # The cache of tables is in the home folder.
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    machine, *lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert machine["bench"] == "compaction"
    found = [line["case"] for line in lines]
    compared = [f"{case}{measured}" for case in ("minor", "clustered") for measured in MEASURED]
    assert found[: len(compared)] == compared
    assert all(line[TIDELOG] > 0 and line[DELTALAKE] > 0 for line in lines[: len(compared)])
    rest = [case.split(": ")[0] for case in found[len(compared) :]]
    assert rest == ["planning"] * 6 + ["memory"] * 3 + ["idle"] * 4
    assert not list((tmp_path / ".cache" / "tidelog-benchmarks").glob("work-*"))
