"""Statements of Spark whose files a vacuum deletes while the tasks run. The tasks run here, so no Spark is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.log.cleanup.test_horizon import with_a_vector
from tests.log.support import read_numbers
from tidelog.log import Table
from tidelog.log.errors import DataFileMissingError
from tidelog.streaming.executors import spark_table
from tidelog.streaming.executors.spark_table import SparkTable

Statement = Callable[[SparkTable], object]
STATEMENTS: dict[str, tuple[Statement, list[int]]] = {
    "delete": (lambda table: table.delete("n = 3"), [4, 5]),
    "update": (lambda table: table.update("n = 3", {"n": "30"}), [4, 5, 30]),
}


@pytest.fixture
def tasks_here(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Run tasks in this process, and one of these functions before each job."""
    before: list[Callable[[], None]] = []

    def run(_: Any, work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        if before:
            before.pop(0)()
        return [work(part) for part in parts]

    monkeypatch.setattr(spark_table, "run", run)
    monkeypatch.setattr(spark_table, "require_reachable", lambda _: None)
    return before


def on_spark(table: Table) -> SparkTable:
    spark: Any = None
    return SparkTable(spark, table)


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_runs_again(name: str, tasks_here: list[Callable[[], None]]) -> None:
    table, change_and_vacuum = with_a_vector(whole=False)
    statement, expected = STATEMENTS[name]
    tasks_here.append(change_and_vacuum)
    statement(on_spark(table))
    assert read_numbers(table.refresh()) == expected


def test_a_file_that_is_missing_without_a_vacuum_is_missing(tasks_here: list[Callable[[], None]]) -> None:
    assert not tasks_here
    table, _ = with_a_vector(whole=False)
    for path, _status in list(table.store.walk("_dv")):
        table.store.delete(path)
    with pytest.raises(DataFileMissingError):
        on_spark(table).delete("n = 3")
