"""The server of the guide, a Python process that has called `register`, and clients that have nothing of tidelog."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.shared.small_spark import FEW_FORKS, SETTINGS
from tests.streaming.connect.server import ROOT, free_port

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(1800)]

FOLDER = ROOT / "examples" / "connect_server"
PAGE = ROOT / "docs" / "guides" / "spark-connect.md"
CLIENT = Path(__file__).with_name("registered_client.py")
PATIENCE_S = 300


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("registered")


@pytest.fixture(scope="module")
def url(base: Path) -> Iterator[str]:
    """The example as it stands, but for its folders, its port, and what makes a small session start sooner."""
    port = free_port()
    text = (FOLDER / "spark-defaults.conf").read_text().replace("/data", str(base)).replace("15002", str(port))
    further = {**SETTINGS, **FEW_FORKS, "spark.master": "local[2]", "spark.driver.memory": "1g"}
    text = "\n".join([text, *(f"{name} {value}" for name, value in further.items())])
    (base / "spark-defaults.conf").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_CONF_DIR": str(base)}
    environment.pop("PYSPARK_PYTHON", None)
    with (base / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, str(FOLDER / "serve.py")],
            cwd=base,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert server.stdout
    try:
        ready, _, _ = select.select([server.stdout], [], [], PATIENCE_S)
        assert ready, (base / "log").read_text()[-4000:]
        assert server.stdout.readline() == "ready\n", (base / "log").read_text()[-4000:]
        yield f"sc://localhost:{port}"
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=PATIENCE_S) == 0, (base / "log").read_text()[-4000:]
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


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
