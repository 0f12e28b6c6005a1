"""Several sinks in one batch function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.streaming.support import Input, drain, forget_last_commit, numbers_in, refused
from tidelog.log.errors import ConfigurationError
from tidelog.streaming import Sink

pytestmark = pytest.mark.spark


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


def test_two_names_on_one_table_are_two_sinks(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"

    def both() -> Any:
        small, large = Sink(str(path), name="small"), Sink(str(path), name="large")

        def function(batch: DataFrame, number: int) -> None:
            small(batch.where("n % 2 = 0"), number)
            large(batch.where("n % 2 = 1"), number)

        return function

    drain(source.put(2).stream(spark), both(), checkpoint)
    forget_last_commit(checkpoint)
    drain(source.put().stream(spark), both(), checkpoint)
    assert numbers_in(path) == source.numbers


def test_after_a_crash_between_two_sinks_both_tables_have_the_batch(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"

    def function(batch: DataFrame, number: int) -> None:
        Sink(str(first))(batch, number)
        if not second.exists():
            second.mkdir()
            raise RuntimeError("died between the two")
        Sink(str(second))(batch, number)

    with pytest.raises(StreamingQueryException, match="died between the two"):
        drain(source.put().stream(spark), function, tmp_path / "cp")
    drain(source.stream(spark), function, tmp_path / "cp")
    assert numbers_in(first) == numbers_in(second) == source.numbers


@pytest.mark.parametrize("how", ["the same object", "another", "another through a link"])
def test_a_name_used_twice_for_one_batch_is_refused(
    spark: SparkSession, source: Input, tmp_path: Path, how: str
) -> None:
    """The second call would find the batch committed, skip it and lose its rows."""
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    (tmp_path / "link").symlink_to(path)
    sink = Sink(str(path))
    second = {
        "the same object": sink,
        "another": Sink(str(path)),
        "another through a link": Sink(str(tmp_path / "link")),
    }[how]

    def twice(batch: DataFrame, number: int) -> None:
        sink(batch.where("n % 2 = 0"), number)
        second(batch.where("n % 2 = 1"), number)

    error = refused(source.put().stream(spark), twice, checkpoint, ConfigurationError)
    assert "sink 'default' was called twice for batch 0 of " in str(error)
    assert "give each Sink in a batch function its own name" in str(error)
