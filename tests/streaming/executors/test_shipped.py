"""tidelog as Spark ships it to Python workers; tests/cluster/ does so on a real cluster."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidelog.log.errors import PrerequisiteError
from tidelog.streaming.executors.session import NEEDED, imports_explained, link_for_stream_readers
from tidelog.streaming.executors.tasks import run, run_on_rows


def test_stream_readers_find_what_was_shipped_and_what_is_shipped_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    context = SimpleNamespace(_python_includes=["one.zip"])
    session: Any = SimpleNamespace(sparkContext=context)
    for name in ("one.zip", "two.zip"):
        (tmp_path / name).write_text(name)
    link_for_stream_readers(session)
    context._python_includes.append("two.zip")
    for _ in range(2):
        link_for_stream_readers(session)
    assert [(tmp_path / "streaming_job" / name).read_text() for name in ("one.zip", "two.zip")] == [
        "one.zip",
        "two.zip",
    ]


def test_nothing_is_made_where_nothing_was_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_python_includes=[]))
    link_for_stream_readers(session)
    assert list(tmp_path.iterdir()) == []


def test_spark_connect_has_no_files_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    remote: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    link_for_stream_readers(remote)
    assert list(tmp_path.iterdir()) == []


def test_tasks_need_what_tidelog_depends_on_but_for_the_command_line_and_metrics() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    names = {re.split("[^a-z-]", dependency)[0] for dependency in project["dependencies"]}
    assert names - {"typer", "rich", "prometheus-client"} == NEEDED - {"tidelog"}


def lacks_tidelog(*_: object) -> Any:
    raise ModuleNotFoundError("No module named 'tidelog.log'")


def lacks_something_else(*_: object) -> Any:
    raise ModuleNotFoundError("No module named 'pricing'")


def test_workers_without_tidelog_are_explained_in_both_kinds_of_jobs(spark: SparkSession) -> None:
    with pytest.raises(PrerequisiteError, match="cannot import tidelog"):
        run(spark, lacks_tidelog, [1])
    with pytest.raises(PrerequisiteError, match="cannot import tidelog"):
        run_on_rows(spark.range(1), lacks_tidelog)


def test_a_module_of_the_user_is_not_explained(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="No module named 'pricing'"):
        run_on_rows(spark.range(1), lacks_something_else)


def test_other_errors_are_not_touched() -> None:
    with pytest.raises(PySparkException, match="something else"), imports_explained():
        raise PySparkException("something else")
