"""The server of the guide, a Python process that has called `register`, and clients that have nothing of tidelog."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.streaming.connect.server import ROOT, registered

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(1800)]

PAGE = ROOT / "docs" / "guides" / "spark-connect.md"
CLIENT = Path(__file__).with_name("registered_client.py")
PATIENCE_S = 300


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("registered")


@pytest.fixture(scope="module")
def url(base: Path) -> Iterator[str]:
    with registered(base) as url:
        yield url


def run(program: Path, *arguments: str) -> str:
    """What a client prints, which cannot import the repository."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(program), *arguments],
        cwd=program.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_a_client_without_tidelog(url: str, base: Path, tmp_path: Path) -> None:
    program = tmp_path / "client.py"  # beside nothing that it could import
    program.write_text(CLIENT.read_text())
    run(program, url, str(base))


def test_the_client_of_the_guide(url: str, base: Path, tmp_path: Path) -> None:
    section = PAGE.read_text().partition("## A server that has tidelog")[2]
    (block,) = (block for block in re.findall(r"```py\n(.*?)```", section, flags=re.DOTALL) if "remote(" in block)
    program = tmp_path / "guide.py"
    program.write_text(block.replace("sc://localhost:15002", url).replace("/data", str(base)))
    assert "|  1|" in run(program)
