"""The consumer of a query, in a real Spark. datasource/test_stream_consumer.py tests the rest without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import SparkSession

from tests.lanes import full_but
from tests.streaming.support import BEFORE_LIMITS, NUMBERS, SINCE_LIMITS
from tests.streaming.ways import WAYS, follow
from tidelog.log import Table
from tidelog.log.consumers.consumer_status import ConsumerStatus, consumers
from tidelog.log.system import REAL_SYSTEM


def status(table: Table) -> ConsumerStatus:
    (found,) = consumers(table.store, table.refresh().head, REAL_SYSTEM)
    return found


@BEFORE_LIMITS
@pytest.mark.parametrize("way", WAYS)
def test_a_run_of_one_micro_batch_is_confirmed_by_the_next_run(spark: SparkSession, tmp_path: Path, way: str) -> None:
    """Only when the next micro-batch begins does Spark report the one before as done."""
    table = Table.create(str(tmp_path / "table"), NUMBERS)
    for n in (1, 2, 3):
        table.insert([{"n": n}])
    positions: list[int | None] = []

    def run(checkpoint: str) -> list[list[int]]:
        positions.clear()
        note: Any = {"before_each": lambda: positions.append(status(table).position)}
        return follow(spark, way, table, tmp_path / checkpoint, consumer="copy", **note)

    assert run("cp") == [[1, 2, 3]]
    first = status(table)
    assert (positions, first.position) == ([-1], -1)
    table.insert([{"n": 4}])
    assert run("cp") == [[4]]
    again = status(table)
    assert (positions, again.owner) == ([3], first.owner)
    with pytest.raises(StreamingQueryException, match="TIDELOG_CONSUMER_IN_USE: the consumer 'copy' "):
        run("another")


@SINCE_LIMITS
@pytest.mark.parametrize("way", full_but(["format"], WAYS))
def test_a_restart_is_the_same_owner_and_another_query_is_refused(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    table = Table.create(str(tmp_path / "table"), NUMBERS)
    for n in (1, 2, 3):
        table.insert([{"n": n}])
    positions: list[int | None] = []

    def note_position() -> None:
        positions.append(status(table).position)

    def run(checkpoint: str) -> list[list[int]]:
        positions.clear()
        options: dict[str, Any] = {"consumer": "copy", "max_files": 1, "before_each": note_position}
        return follow(spark, way, table, tmp_path / checkpoint, **options)

    assert run("cp") == [[1], [2], [3]]
    # While a micro-batch runs, only those before it are processed.
    assert positions == [-1, 1, 2]
    first = status(table)
    assert (first.name, first.position, first.state) == ("copy", 3, "live")
    assert first.is_confirmed

    table.insert([{"n": 4}])
    assert run("cp") == [[4]]
    assert positions == [3]
    again = status(table)
    assert (again.owner, again.position) == (first.owner, 4)

    table.insert([{"n": 5}])
    with pytest.raises(StreamingQueryException, match="TIDELOG_CONSUMER_IN_USE: the consumer 'copy' "):
        run("another")
    assert positions == []
    assert (status(table).owner, status(table).position) == (first.owner, 4)
