"""Spark Connect. The cases run in another process, because a process has either a classic session or a Connect one.

`pytest tests/streaming/connect/cases_sink.py` runs those of one file; all of a run share one server.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.streaming.connect.server import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

FILES = sorted(Path(__file__).parent.glob("cases_*.py"))


def run(marks: str) -> str:
    """The output of the cases with these marks, all of which pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", marks]
    done = subprocess.run(
        [*command, *map(str, FILES)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-4000:]
    return done.stdout


def test_the_main_cases() -> None:
    assert " passed" in run("not full and not nightly")


@pytest.mark.full
def test_the_other_cases() -> None:
    assert " passed" in run("full")
