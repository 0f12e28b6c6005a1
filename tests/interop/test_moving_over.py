"""A delta-spark stream becomes a tidelog stream and back again, on one checkpoint and with each batch once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.interop.delta_spark import DeltaSpark
from tests.streaming.support import Input, drain, footprint, forget_last_commit, numbers_in, refused
from tidelog.log import Table
from tidelog.log.errors import CheckpointResetError, ConfigurationError
from tidelog.streaming import Sink

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.full]


def app_id_of(path: Path) -> str:
    """The id of the only application that wrote to the table."""
    (name,) = Table.open(str(path)).transactions
    return name


@pytest.mark.parametrize("app_id", ["", "my-stream"])
@pytest.mark.parametrize("crashed", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_stream_moves_over_and_back_without_doubling_a_batch(
    spark: SparkSession, delta: DeltaSpark, tmp_path: Path, app_id: str, crashed: bool
) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    source = Input(tmp_path / "input").put(3)
    delta.stream(str(source.folder), str(path), str(checkpoint), app_id)
    if crashed:
        forget_last_commit(checkpoint)
    theirs = app_id_of(path)
    assert theirs == app_id or not app_id

    def sink() -> Sink:
        return Sink(str(path), adopt_txn=theirs, writer="driver")

    drain(source.put(2).stream(spark), sink(), checkpoint)
    assert numbers_in(path) == source.numbers
    forget_last_commit(checkpoint)
    replayed = sink()
    drain(source.stream(spark), replayed, checkpoint)
    assert replayed.last is not None
    assert replayed.last.skipped
    assert numbers_in(path) == source.numbers

    # Back to delta-spark, and over again. Each side knows the other's batches.
    forget_last_commit(checkpoint)
    source.put()
    delta.stream(str(source.folder), str(path), str(checkpoint), app_id)
    assert numbers_in(path) == source.numbers
    drain(source.put().stream(spark), sink(), checkpoint)
    assert numbers_in(path) == source.numbers


def test_another_checkpoint_or_application_id_is_an_error(
    spark: SparkSession, delta: DeltaSpark, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    source = Input(tmp_path / "input").put(3)
    delta.stream(str(source.folder), str(path), str(tmp_path / "cp"), "my-stream")
    before = footprint(path)
    stream = source.stream(spark)
    error: Exception = refused(stream, Sink(str(path), adopt_txn="my-stream"), tmp_path / "new", CheckpointResetError)
    assert "the query does not use that stream's checkpoint" in str(error)
    error = refused(stream, Sink(str(path), adopt_txn="other"), tmp_path / "newer", ConfigurationError)
    assert "no stream with the application id 'other' has written" in str(error)
    assert "pass an id from the table's log: my-stream" in str(error)
    assert footprint(path) == before
