from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import log
from benchmarks.harness import DELTALAKE, ENGINES, REPOSITORY, TIDELOG, Goal, Harness, Report, Run

CASES = {
    "scan_partition",
    "scan_partition_memory",
    "delete_row",
    "delete_row_memory",
    "machine",
    "open_list_json",
    "open_list_json_memory",
    "open_list_checkpoint_by_tidelog",
    "open_list_checkpoint_by_tidelog_memory",
    "open_list_checkpoint_by_deltalake",
    "open_list_checkpoint_by_deltalake_memory",
    "write_checkpoint",
    "write_checkpoint_memory",
    "refresh",
    "append_commit_short_log",
    "append_commit_long_log",
    "append_commit_growth",
    "lookup_in_commit_first",
    "lookup_in_commit_again",
    "at_timestamp_in_commit",
    "lookup_file_times_first",
    "lookup_file_times_again",
    "at_timestamp_file_times",
    "open_list_long_tail",
    "import_feed",
}


@pytest.fixture
def report() -> Report:
    return Report("test")


@pytest.mark.full
def test_a_quick_run_prints_every_case_as_one_line_of_json(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.log", "--quick"]
    # The cache of tables is in the home folder.
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    machine, *measured = lines
    assert {line["case"] for line in lines} == CASES
    assert {line["bench"] for line in lines} == {"log"}
    assert machine["cores"] == os.cpu_count()
    assert len(machine["load_average_before"]) == 3
    assert {"deltalake", "pyspark", "tidelog"} <= machine["versions"].keys()
    assert all(line[TIDELOG] > 0 for line in measured)
    assert all({"unit", *ENGINES, "ratio", "cpu_ratio", "goal", "goal_of", "met"} <= line.keys() for line in measured)
    assert "goals met" in done.stderr
    # The copies are deleted, and the tables are kept for the next run.
    assert [path for path in (tmp_path / ".cache" / "tidelog-benchmarks").iterdir() if path.name.startswith("files-")]
    assert not list((tmp_path / ".cache" / "tidelog-benchmarks").glob("work-*"))


def test_each_group_of_cases_is_a_method() -> None:
    public = {name for name in vars(log.LogBench) if not name.startswith("_")}
    assert public - {"run"} == set(log.CASES)


def test_a_run_in_a_separate_process(tmp_path: Path, report: Report) -> None:
    runs = [Run(TIDELOG, "start", lambda _: {})]
    found = Harness(report, 1, tmp_path).measure(runs)
    # The memory of a process that imported PySpark and pyarrow. This process has several times as much.
    assert 50 < found[TIDELOG]["peak_mb"] < 400
    assert found[TIDELOG]["seconds"] > 0
    assert not list(tmp_path.iterdir())


def test_a_peer_that_fails_is_left_out_with_a_message(
    tmp_path: Path, report: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [Run(DELTALAKE, "open_list", lambda folder: {"path": str(folder / "missing")})]
    assert Harness(report, 2, tmp_path).measure(runs) == {}
    said = capsys.readouterr().err
    assert said.count("deltalake is left out of open_list") == 1
    with pytest.raises(subprocess.CalledProcessError):
        Harness(report, 1, tmp_path).measure([Run(TIDELOG, "open_list", lambda folder: {"path": str(folder)})])


def test_engines_take_turns_and_the_median_counts(
    tmp_path: Path, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    figures = iter([5.0, 50.0, 1.0, 3.0])

    def run(engine: str, action: str, arguments: dict[str, object]) -> dict[str, float]:
        assert (action, arguments) == ("act", {})
        order.append(engine)
        return {"seconds": next(figures)}

    monkeypatch.setattr("benchmarks.peers.run", run)
    runs = [Run(TIDELOG, "act", lambda _: {}), Run(DELTALAKE, "act", lambda _: {}, once=True)]
    harness = Harness(report, 3, tmp_path, isolated=False)
    assert harness.measure(runs) == {TIDELOG: {"seconds": 3.0}, DELTALAKE: {"seconds": 50.0}}
    assert order == [TIDELOG, DELTALAKE, TIDELOG, TIDELOG]


@pytest.mark.parametrize(
    ("goal", "figures", "met"),
    [
        (Goal(0.5), {TIDELOG: 1.0, DELTALAKE: 2.0}, True),
        (Goal(0.5), {TIDELOG: 1.1, DELTALAKE: 2.0}, False),
        (Goal(0.5), {TIDELOG: 0.1}, None),
        (Goal(10, TIDELOG), {TIDELOG: 10.0, DELTALAKE: 1.0}, True),
        (Goal(10, TIDELOG), {TIDELOG: 11.0, DELTALAKE: 100.0}, False),
        (None, {TIDELOG: 1.0, DELTALAKE: 2.0}, None),
    ],
)
def test_a_goal_applies_to_the_ratio_or_to_the_figure(
    report: Report, goal: Goal | None, figures: dict[str, float], met: bool | None, capsys: pytest.CaptureFixture[str]
) -> None:
    report.figure("case", "ms", figures, goal, cpu={TIDELOG: 1.0, DELTALAKE: 4.0})
    line = json.loads(capsys.readouterr().out)
    assert line["met"] is met
    assert line["cpu_ratio"] == 0.25
    report.table()
    assert ("1 of 1 goals met" in capsys.readouterr().err) is (met is True)
