"""`make demo`, run as a person runs it: to the end, again, interrupted in the middle, without Java."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet
import pytest

from examples.flights import source, summary
from examples.flights.folder import Folder
from examples.flights.interrupts import Interrupts
from examples.flights.pipeline import Total
from examples.flights.run import run
from examples.shared.working_folder import WrongUseError
from tidelog.log import Table

DEMO = Path(__file__).parents[2] / "examples" / "flights" / "demo.py"
DAYS = 6
FLIGHTS = 5_166  # on the first six days
ALL_FLIGHTS = 336_776
# Each run starts Spark, which takes ten seconds alone and more beside others.
RUN_S = 400
QUICK_S = 60
END_S = 30


def command(data: Path, *options: str) -> list[str]:
    return [sys.executable, str(DEMO), "--data", str(data), *options]


def demo(data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(data, *options), capture_output=True, text=True, timeout=RUN_S, check=False, cwd=data.parent
    )
    assert done.stderr == ""
    return done


def here(capsys: pytest.CaptureFixture[str], data: Path, *options: str) -> tuple[int, str]:
    """Exit code and output of a run in this process: quicker, for runs that need no Spark."""
    code = run(["--data", str(data), *options], Interrupts())
    return code, capsys.readouterr().out


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Folder, str]:
    """The folder of a run over a few days, and what it printed."""
    folder = Folder(tmp_path_factory.mktemp("flights") / "data")
    done = demo(folder.root, "--days", str(DAYS))
    assert done.returncode == 0, done.stdout
    return folder, done.stdout


@pytest.mark.spark
def test_a_first_run_ends_with_a_summary_whose_rows_agree(finished: tuple[Folder, str]) -> None:
    folder, printed = finished
    assert printed.startswith(f"starting in {folder.root}")
    facts = dict(line.split(maxsplit=1) for line in printed.splitlines() if line.startswith("  "))
    assert facts["batches"] == f"{DAYS}, one per day"
    assert (
        facts["rows"] == f"source {FLIGHTS:,}, table {FLIGHTS:,}, consumer {FLIGHTS:,}: equal for each origin and month"
    )
    assert facts["files"] == f"{DAYS} before compaction, 1 after"
    assert facts["versions"].startswith(f"ID version {Table.open(str(folder.table)).version} ({DAYS} batches, ")
    assert facts["micro-batch"].endswith(f"(of {DAYS})")
    assert facts["table"] == str(folder.table)
    assert Table.open(str(folder.table)).scan().count() == FLIGHTS


@pytest.mark.spark
def test_a_run_ends_with_the_report_of_the_table(finished: tuple[Folder, str]) -> None:
    folder, printed = finished
    assert printed.splitlines()[-1] == f"wrote {folder.report}: open it in a browser to see what happened to the table"
    page = folder.report.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    (report,) = re.findall(r'<script type="application/json" id="report">(.*?)</script>', page)
    found = json.loads(report)
    assert (found["path"], found["version"]) == (str(folder.table), Table.open(str(folder.table)).version)


@pytest.mark.spark
def test_a_run_after_the_last_one_says_so_and_verifies_again(finished: tuple[Folder, str]) -> None:
    folder, first = finished
    version = Table.open(str(folder.table)).version
    started_s = time.monotonic()
    again = demo(folder.root, "--days", str(DAYS))
    assert again.returncode == 0
    assert again.stdout.startswith(f"all {DAYS} days are already in {folder.table}")
    assert time.monotonic() - started_s < QUICK_S
    assert next(line for line in first.splitlines() if line.startswith("  rows")) in again.stdout
    assert Table.open(str(folder.table)).version == version


@pytest.mark.spark
def test_rows_that_differ_are_named_and_fail_the_run(
    finished: tuple[Folder, str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = finished
    right = folder.totals.read_text(encoding="utf-8")
    wrong = json.loads(right)
    wrong["totals"][0]["miles"] += 1
    folder.totals.write_text(json.dumps(wrong), encoding="utf-8")
    try:
        code, printed = here(capsys, folder.root, "--days", str(DAYS))
    finally:
        folder.totals.write_text(right, encoding="utf-8")
    assert code == 1
    assert "THEY DIFFER" in printed
    assert f"differs: {wrong['totals'][0]['origin']} in month 1: source" in printed


@pytest.mark.spark
def test_fewer_days_than_are_there_are_refused(
    finished: tuple[Folder, str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = finished
    code, printed = here(capsys, folder.root, "--days", "2")
    assert code == 2
    assert f"already has {DAYS} days" in printed


@pytest.mark.nightly
@pytest.mark.spark
def test_an_interrupted_run_goes_on_to_the_same_totals(tmp_path: Path) -> None:
    days, flights = 12, 10_452
    folder = Folder(tmp_path / "data")
    with subprocess.Popen(
        command(folder.root, "--days", str(days)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as running:
        wait_for_batches(running, folder, 2)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to the demo and to the JVM
        printed, _ = running.communicate(timeout=END_S)
    assert running.returncode == 130, printed
    assert "Traceback" not in printed
    assert printed.rstrip().endswith("run the same command again to continue")
    # Nothing of it works on: neither the JVM nor the daemon.
    version = Table.open(str(folder.table)).version
    resumed = demo(folder.root, "--days", str(days))
    assert resumed.returncode == 0, resumed.stdout
    assert resumed.stdout.startswith(f"continuing in {folder.root}: ")
    assert f"source {flights:,}, table {flights:,}, consumer {flights:,}: equal" in resumed.stdout
    assert Table.open(str(folder.table)).version > version


def wait_for_batches(running: subprocess.Popen[str], folder: Folder, count: int) -> None:
    deadline_s = time.monotonic() + RUN_S
    commit = folder.table / "_delta_log" / f"{count:020}.json"
    while not commit.exists():
        assert running.poll() is None, running.communicate()[0]
        assert time.monotonic() < deadline_s, "no batch was committed in time"
        time.sleep(0.05)


def test_without_java_there_is_one_line_and_nothing_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    code, printed = here(capsys, tmp_path / "data")
    assert code == 2
    assert printed.startswith("demo: TIDELOG_PREREQUISITE: ")
    assert printed.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_a_second_demo_in_the_same_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Folder(tmp_path / "data")
    with folder.locked():
        code, printed = here(capsys, folder.root)
    assert code == 2
    assert "another demo is running" in printed


def test_cleaning_removes_what_a_demo_wrote_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Folder(tmp_path / "data")
    for path in (folder.source, folder.table, folder.checkpoints, folder.logs):
        path.mkdir(parents=True)
    folder.totals.touch()
    own = folder.root / "own"
    own.touch()
    removed = 0, f"removed what the demo wrote in {folder.root}\n"
    assert here(capsys, folder.root, "--clean") == removed
    assert list(folder.root.iterdir()) == [own]
    own.unlink()
    assert here(capsys, folder.root, "--clean") == removed
    assert not folder.root.exists()
    assert here(capsys, folder.root, "--clean") == (0, f"nothing to remove in {folder.root}\n")


def test_checkpoints_without_their_table_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Folder(tmp_path / "data")
    folder.checkpoints.mkdir(parents=True)
    code, printed = here(capsys, folder.root)
    assert code == 2
    assert "make demo-clean" in printed


def test_the_prepared_files_hold_each_flight_once_in_the_order_of_their_times(tmp_path: Path) -> None:
    assert source.prepare(tmp_path, source.DAYS, lambda _: None)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files][:2] == ["2013-01-01.parquet", "2013-01-02.parquet"]
    assert len(files) == source.DAYS
    times = [file.stat().st_mtime for file in files]
    assert times == sorted(set(times))
    assert source.count(tmp_path) == ALL_FLIGHTS
    table = Table.create(str(tmp_path / "table"), source.SCHEMA)
    for file in files[:DAYS]:
        table.insert(pyarrow.parquet.read_table(file))
    assert summary.table_totals(Folder(tmp_path)) == summary.source_totals(source.archive(), DAYS)


def test_preparing_goes_on_where_it_stopped(tmp_path: Path) -> None:
    source.prepare(tmp_path, 2, lambda _: None)
    (tmp_path / ".2013-01-03.parquet").write_bytes(b"half a file")
    before = {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("2013-*")}
    made: list[int] = []
    assert source.prepare(tmp_path, 4, made.append)
    assert made == [3, 4]
    after = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert len(after) == 4
    assert before.items() < after.items()
    assert not source.prepare(tmp_path, 4, made.append)
    with pytest.raises(WrongUseError, match="already has 4 days"):
        source.require_at_most(tmp_path, 3)


def test_a_verdict_names_each_origin_and_month_that_differ() -> None:
    right = {("JFK", 1): Total(2, 10), ("LGA", 1): Total(1, 5)}
    assert summary.Verdict(right, right, right).holds
    lacking = summary.Verdict(right, right, {("JFK", 1): Total(2, 10)})
    assert not lacking.holds
    assert lacking.differences() == [
        "LGA in month 1: source 1 flights and 5 miles, table 1 flights and 5 miles, consumer 0 flights and 0 miles"
    ]
