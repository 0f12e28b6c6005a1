from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.log.errors import PrerequisiteError
from tidelog.streaming import require_java, require_spark


@pytest.mark.parametrize("version", ["4.1.0", "4.1.99", "3.5.6", "4.0.0-preview2", "2.4"])
def test_an_old_spark_is_refused_with_the_one_to_install(version: str) -> None:
    with pytest.raises(PrerequisiteError) as caught:
        require_spark(version)
    assert f"Spark {version} is too old; install pyspark 4.2 or later" in str(caught.value)


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1", "4.10.0", "5.0.0-SNAPSHOT", None])
def test_a_new_enough_spark_passes(version: str | None) -> None:
    require_spark(version)


def fake_java(folder: Path, version_line: str, *, exit_code: int = 0) -> None:
    """A `java` that answers `-version` as given; Java writes the answer to stderr."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{version_line}' >&2\nexit {exit_code}\n")
    program.chmod(0o755)


def test_the_java_that_is_here_will_do() -> None:
    assert require_java() >= 17


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(PrerequisiteError) as caught:
        require_java()
    assert str(caught.value).startswith("TIDELOG_PREREQUISITE: no Java was found; ")
    assert "install a Java 17 or later" in str(caught.value)
    assert "or set JAVA_HOME" in str(caught.value)


def test_no_java_where_a_package_manager_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apt-get").write_text("#!/bin/sh\n")
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(PrerequisiteError, match="run: sudo apt-get install -y openjdk-17-jre-headless"):
        require_java()


def test_a_java_home_without_a_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PrerequisiteError, match="does not run"):
        require_java()


@pytest.mark.parametrize(
    ("line", "major"),
    [('openjdk version "11.0.23" 2024-04-16', 11), ('java version "1.8.0_402"', 8), ("something else entirely", 0)],
)
def test_a_java_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, major: int) -> None:
    fake_java(tmp_path, line)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PrerequisiteError) as caught:
        require_java()
    assert f"is Java {major}, which is too old; " in str(caught.value)
    assert "JAVA_HOME" in str(caught.value)


def test_a_java_that_breaks_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "Error: could not open libjvm.so", exit_code=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PrerequisiteError, match="does not run"):
        require_java()


@pytest.mark.parametrize("line", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21" 2023-09-19'])
def test_java_home_is_asked_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    fake_java(tmp_path / "home", line)
    fake_java(tmp_path / "path", 'openjdk version "11"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    assert require_java() in {17, 21}
