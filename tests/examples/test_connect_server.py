"""The example of a Spark Connect server: its unit, its image and its guide fit together."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "connect_server"
PAGE = ROOT / "docs" / "guides" / "spark-connect.md"


def settings() -> dict[str, str]:
    lines = [line for line in (FOLDER / "spark-defaults.conf").read_text().splitlines() if line and line[0] != "#"]
    return dict(line.split(maxsplit=1) for line in lines)


def service() -> configparser.SectionProxy:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((FOLDER / "tidelog-connect.service").read_text())
    return unit["Service"]


def test_the_guide_shows_the_files() -> None:
    page = PAGE.read_text()
    for name in ("serve.py", "spark-defaults.conf"):
        assert f"\n{(FOLDER / name).read_text()}```\n" in page, name


def test_the_unit_may_write_where_the_server_does() -> None:
    folders = service()["ReadWritePaths"].split()
    for name in ("spark.sql.catalog.tidelog.warehouse", "spark.sql.warehouse.dir"):
        assert settings()[name] in folders, name
    assert service()["WorkingDirectory"] in folders
    page = PAGE.read_text().partition("## A server that has tidelog")[2].partition("## What works")[0]
    checkpoint = re.findall(r'(?:"checkpointLocation", "|storage: file://)(/data/[^"\n]*)', page)
    assert len(checkpoint) == 2
    assert all(any(place.startswith(f"{folder}/") for folder in folders) for place in checkpoint)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = (FOLDER / "tidelog-connect.service").read_text()
    copy = tmp_path / "tidelog-connect.service"
    copy.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_image() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = re.search(r'"/source\[([\w,]+)\]"', text)
    assert found
    assert set(found[1].split(",")) <= extras.keys()
    for name in re.findall(r"examples/connect_server/([\w.-]+)", text):
        assert (FOLDER / name).exists(), name
    port = settings()["spark.connect.grpc.binding.port"]
    assert f"EXPOSE {port}\n" in text
    assert f"('127.0.0.1', {port})" in text
    for folder in (settings()[name] for name in ("spark.sql.catalog.tidelog.warehouse", "spark.sql.warehouse.dir")):
        assert folder in text
    assert re.findall(r"^USER (\S+)$", text, flags=re.MULTILINE) == ["10001:10001"]
