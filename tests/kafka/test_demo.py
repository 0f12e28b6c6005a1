"""`make demo-kafka`, run as a user runs it: to the end, and interrupted in the middle."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from examples.kafka.folder import Folder
from examples.kafka.run import run
from tidelog.log import Table

DEMO = Path(__file__).parents[2] / "examples" / "kafka" / "demo.py"
RECORDS = 600
RUN_S = 540
END_S = 40


def command(data: Path, *options: str) -> list[str]:
    return [sys.executable, str(DEMO), "--data", str(data), *options]


def processes_of(data: Path) -> list[str]:
    """The command lines of all processes with the folder in their arguments."""
    listed = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if str(data) in line]


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.crash
def test_after_three_crashes_all_checks_hold(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    done = subprocess.run(
        command(folder.root, "--records", str(RECORDS), "--rate", "100"),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for crashed in ("writer", "broker", "consumer"):
        assert f"the {crashed} is killed and restarted" in done.stdout
    verdicts = [line.split()[0] for line in done.stdout.splitlines() if re.match(r"  (ok|FAILED)", line)]
    assert verdicts == ["ok"] * 5
    assert "with 3 crashes" in done.stdout
    rows = Table.open(str(folder.table)).scan().count()
    dead = Table.open(str(folder.dead_letters)).scan().count()
    assert rows + dead == RECORDS
    assert f"{rows:,} produced, {rows:,} rows" in done.stdout
    assert f"{dead:,} produced, {dead:,} rows" in done.stdout
    assert processes_of(folder.root) == []


@pytest.mark.full
@pytest.mark.crash
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_demo_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    data = tmp_path / "data"
    with subprocess.Popen(
        command(data, "--records", "300"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as running:
        assert running.stdout
        said = ""
        for line in running.stdout:
            said += line
            if "have started" in line:
                break
        else:
            pytest.fail(said)
        assert any("kafka.Kafka" in line for line in processes_of(data))
        os.killpg(running.pid, number)  # as a terminal does
        rest, _ = running.communicate(timeout=END_S)
    if number == signal.SIGINT:
        assert running.returncode == 130
        assert rest.endswith("interrupted; all its processes have ended\n")
        assert "Traceback" not in rest
        assert processes_of(data) == []
    deadline_s = time.monotonic() + END_S
    while processes_of(data):
        assert time.monotonic() < deadline_s, processes_of(data)
        time.sleep(0.2)


def test_a_second_demo_in_the_same_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Folder(tmp_path / "data")
    with folder.locked():
        assert run(["--data", str(folder.root)]) == 2
    assert "another demo is running" in capsys.readouterr().out


def test_without_java_the_demo_prints_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert run(["--data", str(tmp_path / "data")]) == 2
    printed = capsys.readouterr().out
    assert printed.startswith("demo: TIDELOG_PREREQUISITE: ")
    assert printed.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_cleaning_removes_what_a_demo_wrote_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Folder(tmp_path / "data")
    for path in (folder.table, folder.dead_letters, folder.checkpoints, folder.broker, folder.logs, folder.scratch):
        path.mkdir(parents=True)
    own = folder.root / "own"
    own.touch()
    clean = ["--data", str(folder.root), "--clean"]
    assert run(clean) == 0
    assert list(folder.root.iterdir()) == [own]
    own.unlink()
    assert run(clean) == 0
    assert not folder.root.exists()
    capsys.readouterr()
    assert run(clean) == 0
    assert capsys.readouterr().out == f"nothing to remove in {folder.root}\n"
