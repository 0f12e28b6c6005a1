"""Downloading jars once, also after an interruption and with several processes; a fake `java` replaces Ivy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.kafka import jars
from examples.kafka.jars import Artifact, FetchError

JARS = (Artifact("org.example", "first", "1.0"), Artifact("org.example", "second_2.13", "2.0.1", alone=True))
IVY = """#!/bin/sh
case "$1" in -version) echo 'openjdk version "17.0.1"' >&2; exit 0;; esac
for last; do :; done
folder=$(dirname "$last")
echo fetched >> "{log}"
{body}
"""
FETCH = 'touch "$folder/first-1.0.jar" "$folder/other-3.jar"; sleep 1; touch "$folder/second_2.13-2.0.1.jar"'


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty cache; returns a file that gets one line for each download."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    return tmp_path / "log"


def ivy(log: Path, body: str) -> None:
    """Install a fake Ivy that runs `body`; jars go to `$folder`."""
    program = log.parent / "java" / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(IVY.format(log=log, body=body), encoding="utf-8")
    program.chmod(0o755)


def names() -> list[str]:
    return [jar.name for jar in jars.jars(JARS)]


def test_downloaded_jars_are_kept(log: Path) -> None:
    ivy(log, FETCH)
    assert names() == ["first-1.0.jar", "other-3.jar", "second_2.13-2.0.1.jar"]
    ivy(log, "exit 1")
    assert names() == ["first-1.0.jar", "other-3.jar", "second_2.13-2.0.1.jar"]
    assert log.read_text().count("fetched") == 1


def test_a_killed_download_is_not_used(log: Path) -> None:
    ivy(log, 'touch "$folder/first-1.0.jar"; kill -9 $$')
    with pytest.raises(FetchError, match=r"could not download first 1\.0 from Maven"):
        names()
    # A killed process leaves only the partial folder.
    assert [path.name for path in jars.cache().glob("first*")] == ["first-1.0.partial"]
    ivy(log, FETCH)
    assert "second_2.13-2.0.1.jar" in names()


@pytest.mark.parametrize(
    "body", ["echo no route to host; exit 1", 'touch "$folder/first-1.0.jar"; echo no route to host']
)
def test_the_output_of_ivy_is_in_the_error(log: Path, body: str) -> None:
    """Ivy can fail to find something and still exit with zero."""
    ivy(log, body)
    with pytest.raises(FetchError, match="no route to host"):
        names()


def test_only_one_of_two_processes_downloads(log: Path) -> None:
    ivy(log, FETCH)
    program = "from tests.kafka.test_jars import names; print('ready', flush=True); input(); print(len(names()))"
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            cwd=root,
        )
        for _ in range(2)
    ]
    for process in started:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate(timeout=120)[0] for process in started] == ["3\n", "3\n"]
    assert log.read_text().count("fetched") == 1


def test_the_name_of_a_jar_without_its_version() -> None:
    found = [jars._artifact(Path(name)) for name in ("kafka-clients-3.9.2.jar", "spark-tags_2.13-4.2.0.jar", "own.jar")]
    assert found == ["kafka-clients", "spark-tags_2.13", "own"]
