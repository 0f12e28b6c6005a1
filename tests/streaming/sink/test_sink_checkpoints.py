"""Streaming checkpoints that were deleted, restored, copied or shared are refused, unless `on_reset="adopt"`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.streaming.support import (
    Input,
    drain,
    footprint,
    forget_last_commit,
    numbers_in,
    refused,
    restore,
)
from tidelog.log.errors import CheckpointResetError, FencedError
from tidelog.streaming import Sink, spark_versions

pytestmark = pytest.mark.spark


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


def test_a_deleted_checkpoint_is_refused_and_nothing_written(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    drain(source.put(2).stream(spark), Sink(str(path)), checkpoint)
    before = footprint(path)
    shutil.rmtree(checkpoint)
    error = refused(source.put().stream(spark), Sink(str(path)), checkpoint, CheckpointResetError)
    assert footprint(path) == before
    assert (error.path, error.sink) == (str(path), "default")
    for advice in ("its checkpoint was deleted", "Sink(name=...)", "on_reset='adopt'"):
        assert advice in str(error)
    # A second attempt is refused as well.
    refused(source.stream(spark), Sink(str(path)), checkpoint, CheckpointResetError)
    assert footprint(path) == before


def test_adopting_continues_and_fences_the_old_query(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path, old, new = tmp_path / "table", tmp_path / "old", tmp_path / "new"
    drain(source.put(2).stream(spark), Sink(str(path)), old)

    fresh = Input(tmp_path / "fresh")
    fresh.count = 100
    drain(fresh.put(2).stream(spark), Sink(str(path), on_reset="adopt"), new)
    after = [*source.numbers, *range(1000, 1020)]
    assert numbers_in(path) == after
    # The new query owns the name now: it no longer needs to adopt, and replays are skipped again.
    forget_last_commit(new)
    drain(fresh.put().stream(spark), Sink(str(path)), new)
    after += range(1020, 1030)
    assert numbers_in(path) == after

    before = footprint(path)
    for on_reset in ("error", "adopt"):
        error = refused(source.put().stream(spark), Sink(str(path), on_reset=on_reset), old, FencedError)
        assert "another query has taken over sink name 'default'" in str(error)
        assert "stop this query" in str(error)
    assert footprint(path) == before


def test_adopting_skips_a_replay_of_the_adopted_batch(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    drain(source.put().stream(spark), Sink(str(path)), tmp_path / "old")
    other = Input(tmp_path / "other")
    other.count = 50
    for _ in range(3):
        drain(other.put().stream(spark), Sink(str(path), on_reset="adopt"), checkpoint)
        forget_last_commit(checkpoint)
    drain(other.stream(spark), Sink(str(path), on_reset="adopt"), checkpoint)
    assert numbers_in(path) == [*range(10), *range(500, 530)]


def test_a_second_stream_needs_its_own_name(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path = tmp_path / "table"
    drain(source.put().stream(spark), Sink(str(path)), tmp_path / "cp-1")
    second = Input(tmp_path / "second")
    second.count = 10
    error = refused(second.put(2).stream(spark), Sink(str(path)), tmp_path / "cp-2", CheckpointResetError)
    assert "a second stream needs its own name" in str(error)
    assert numbers_in(path) == list(range(10))

    drain(second.stream(spark), Sink(str(path), name="second"), tmp_path / "cp-2")
    drain(source.put().stream(spark), Sink(str(path)), tmp_path / "cp-1")
    assert numbers_in(path) == [*range(20), *range(100, 120)]


Source = Callable[[SparkSession, Input], DataFrame]


def files_of_a_folder(spark: SparkSession, source: Input) -> DataFrame:
    """A source whose offsets are just numbers: the files of a batch are listed elsewhere in the checkpoint."""
    return source.stream(spark, max_files=None)


def rows_of_a_generator(spark: SparkSession, source: Input) -> DataFrame:
    """A source whose offsets determine the rows: one batch for each run, with 10 rows for each file put last."""
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10 * source.newest)
    return reader.load().selectExpr("value as n")


SOURCES = pytest.mark.parametrize(
    "stream", [files_of_a_folder, pytest.param(rows_of_a_generator, marks=pytest.mark.full)]
)


@pytest.fixture
def offset_log(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """The format of the checkpoint's offset log, in a session whose sources can have names."""
    evolution, log_format = "spark.sql.streaming.queryEvolution.enableSourceEvolution", "spark.sql.streaming.offsetLog"
    spark.conf.set(evolution, "true")
    spark.conf.set(f"{log_format}.formatVersion", request.param)
    yield request.param
    spark.conf.unset(evolution)
    spark.conf.unset(f"{log_format}.formatVersion")


@pytest.mark.skipif(spark_versions.INSTALLED < (4, 2), reason="sources have names since Spark 4.2")
@pytest.mark.parametrize("offset_log", [pytest.param("1", marks=pytest.mark.full), "2"], indirect=True)
def test_other_files_of_a_source_with_a_name_are_other_rows(
    spark: SparkSession, source: Input, tmp_path: Path, offset_log: str
) -> None:
    path, checkpoint, copy = tmp_path / "table", tmp_path / "cp", tmp_path / "copy"

    def stream() -> DataFrame:
        named = spark.readStream.schema("n long").name("arrivals").parquet(str(source.folder))
        fixed = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).name("a_clock").load()
        return fixed.where("false").selectExpr("value as n").union(named)

    source.put()
    drain(stream(), Sink(str(path)), checkpoint)
    shutil.copytree(checkpoint, copy)
    source.put()
    drain(stream(), Sink(str(path)), checkpoint)
    restore(checkpoint, copy)
    drain(stream(), Sink(str(path)), checkpoint)
    assert numbers_in(path) == source.numbers, "the same files are a replay"
    restore(checkpoint, copy)
    source.put()
    refused(stream(), Sink(str(path)), checkpoint, CheckpointResetError)
    # Spark 4.3 writes version 2 whenever sources have names.
    assert (checkpoint / "offsets" / "1").read_text()[:2] in {f"v{offset_log}", "v2"}
    assert numbers_in(path) == list(range(20))


@SOURCES
def test_an_older_copy_of_the_checkpoint_is_refused(
    spark: SparkSession, source: Input, tmp_path: Path, stream: Source
) -> None:
    """Its next batch has a number that an earlier batch was committed with."""
    path, checkpoint, copy = tmp_path / "table", tmp_path / "cp", tmp_path / "copy"
    drain(stream(spark, source.put()), Sink(str(path)), checkpoint)
    shutil.copytree(checkpoint, copy)
    for _ in range(3):
        drain(stream(spark, source.put()), Sink(str(path)), checkpoint)
    before = footprint(path)
    restore(checkpoint, copy)
    error = refused(stream(spark, source.put()), Sink(str(path)), checkpoint, CheckpointResetError)
    assert "the checkpoint was restored from an older copy; put the newest checkpoint back" in str(error)
    assert footprint(path) == before


@SOURCES
def test_the_newest_number_with_other_rows_is_refused(
    spark: SparkSession, source: Input, tmp_path: Path, stream: Source
) -> None:
    """A copy that is one batch old plans that batch again, with everything new; skipping it would lose rows."""
    path, checkpoint, copy = tmp_path / "table", tmp_path / "cp", tmp_path / "copy"
    drain(stream(spark, source.put()), Sink(str(path)), checkpoint)
    shutil.copytree(checkpoint, copy)
    drain(stream(spark, source.put()), Sink(str(path)), checkpoint)
    before = footprint(path)
    restore(checkpoint, copy)
    error = refused(stream(spark, source.put(2)), Sink(str(path)), checkpoint, CheckpointResetError)
    assert "was already committed" in str(error)
    assert "with other source offsets" in str(error)
    assert footprint(path) == before


@SOURCES
def test_a_restored_checkpoint_that_plans_the_same_batch_is_a_replay(
    spark: SparkSession, source: Input, tmp_path: Path, stream: Source
) -> None:
    path, checkpoint, copy = tmp_path / "table", tmp_path / "cp", tmp_path / "copy"
    drain(stream(spark, source.put()), Sink(str(path)), checkpoint)
    shutil.copytree(checkpoint, copy)
    drain(stream(spark, source.put()), Sink(str(path)), checkpoint)
    restore(checkpoint, copy)
    drain(stream(spark, source), Sink(str(path)), checkpoint)
    drain(stream(spark, source.put()), Sink(str(path)), checkpoint)
    assert numbers_in(path) == source.numbers


def test_adopting_a_restored_checkpoint_commits_each_batch_once(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    """With on_reset="adopt" every batch counts as new, even if the source repeats rows."""
    path, checkpoint, copy = tmp_path / "table", tmp_path / "cp", tmp_path / "copy"
    generated = rows_of_a_generator
    drain(generated(spark, source.put()), Sink(str(path)), checkpoint)
    shutil.copytree(checkpoint, copy)
    for _ in range(2):
        drain(generated(spark, source.put()), Sink(str(path)), checkpoint)
    restore(checkpoint, copy)
    drain(generated(spark, source.put()), Sink(str(path), on_reset="adopt"), checkpoint)
    assert numbers_in(path) == sorted([*range(30), *range(10, 20)])
    # Batch 1 is replayed and skipped this time; batch 2 follows.
    forget_last_commit(checkpoint)
    drain(generated(spark, source.put()), Sink(str(path)), checkpoint)
    assert numbers_in(path) == sorted([*range(30), *range(10, 30)])
