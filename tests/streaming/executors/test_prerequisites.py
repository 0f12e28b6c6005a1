from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tidelog.log.errors import ConfigurationError, PrerequisiteError
from tidelog.streaming import register, require_java, require_spark, table
from tidelog.streaming.executors.prerequisites import require_jvm

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("version", ["3.5.6", "3.5.99", "2.4"])
def test_an_old_spark_is_an_error_that_names_the_version_to_install(version: str) -> None:
    with pytest.raises(PrerequisiteError) as caught:
        require_spark(version)
    assert f"Spark {version} is too old; install pyspark 4.0 or later" in str(caught.value)


@pytest.mark.parametrize("version", ["4.0.0", "4.1.0-amzn-1", "4.2.1", "4.10.0", "5.0.0-SNAPSHOT", None])
def test_a_new_enough_spark_passes(version: str | None) -> None:
    require_spark(version)


def fake_java(folder: Path, version_line: str, *, exit_code: int = 0) -> None:
    """A `java` that prints this line for `-version`, to stderr as Java does."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{version_line}' >&2\nexit {exit_code}\n")
    program.chmod(0o755)


def test_the_installed_java_is_new_enough() -> None:
    assert require_java() >= 17


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)


@pytest.mark.usefixtures("no_java")
def test_a_missing_java() -> None:
    with pytest.raises(PrerequisiteError) as caught:
        require_java()
    assert str(caught.value).startswith("TIDELOG_PREREQUISITE: Java was not found; ")
    assert "install Java 17 or later" in str(caught.value)
    assert "or set JAVA_HOME" in str(caught.value)


def test_a_missing_java_on_a_system_with_a_package_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apt-get").write_text("#!/bin/sh\n")
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(PrerequisiteError, match="run: sudo apt-get install -y openjdk-17-jre-headless"):
        require_java()


def test_a_java_home_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PrerequisiteError, match="does not run"):
        require_java()


@pytest.mark.parametrize(
    ("line", "major"),
    [('openjdk version "11.0.23" 2024-04-16', 11), ('java version "1.8.0_402"', 8)],
)
def test_a_java_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, major: int) -> None:
    fake_java(tmp_path, line)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PrerequisiteError) as caught:
        require_java()
    assert f"is Java {major}, which is too old; " in str(caught.value)
    assert "JAVA_HOME" in str(caught.value)


def test_a_java_that_reports_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "something else entirely")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PrerequisiteError, match=r"does not report its version; .* JAVA_HOME"):
        require_java()


def test_a_java_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "Error: could not open libjvm.so", exit_code=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PrerequisiteError, match="does not run"):
        require_java()


@pytest.mark.parametrize("line", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21" 2023-09-19'])
def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    fake_java(tmp_path / "home", line)
    fake_java(tmp_path / "path", 'openjdk version "11"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    assert require_java() in {17, 21}


# --- sessions --------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """No JVM runs here, none has started this process, and the session is not remote."""
    monkeypatch.setattr(SparkContext, "_gateway", None)
    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_jvm", "no_java")
@pytest.mark.parametrize("call", [register, partial(table, path="/data/t")], ids=["register", "table"])
def test_without_java_the_error_says_how_to_install_it(call: Callable[[Any], Any]) -> None:
    for session in (None, SparkSession, SparkSession.builder):
        with pytest.raises(PrerequisiteError, match=r"Java was not found; .*install Java 17 or later.* set JAVA_HOME"):
            call(session)


@pytest.mark.usefixtures("no_jvm")
def test_with_java_the_error_asks_for_a_session() -> None:
    with pytest.raises(ConfigurationError, match="a Spark session is needed, not NoneType"):
        register(None)  # type: ignore[arg-type]


@pytest.mark.usefixtures("no_jvm", "no_java")
@pytest.mark.parametrize("name", ["PYSPARK_GATEWAY_PORT", "SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"])
def test_a_jvm_elsewhere_needs_no_java_here(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    require_jvm()


@pytest.mark.usefixtures("no_jvm", "no_java")
def test_a_running_jvm_needs_no_java_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", object())
    require_jvm()


def test_register_in_a_process_without_java(tmp_path: Path) -> None:
    """As a user meets it: without Java no session can start, so there is none to pass."""
    program = "from tidelog import register; from pyspark.sql import SparkSession; register(SparkSession)"
    environment = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "PATH": str(tmp_path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0
    assert "TIDELOG_PREREQUISITE: Java was not found; install Java 17 or later" in done.stderr
