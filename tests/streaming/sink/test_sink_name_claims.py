"""A sink claims its name with its first batch, so that a table which is not the query's own is refused."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.lanes import full_but
from tests.streaming.sink.support import Reports
from tests.streaming.support import (
    NUMBERS,
    Input,
    drain,
    footprint,
    forget_last_commit,
    numbers_in,
    refused,
)
from tidelog.log import Committed, OperationClass, Superseded, Table, Transaction
from tidelog.log.errors import CheckpointResetError, ConcurrentTransactionException
from tidelog.streaming import Sink
from tidelog.streaming.sink.batch import Batch

pytestmark = pytest.mark.spark

# Only the driver's writer, which is the faster one for a few rows; the claim is the same.
DRIVER = "driver"


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


def sink_of(path: Path, name: str = "default", on_reset: str = "error") -> Sink:
    return Sink(str(path), name=name, on_reset=on_reset, writer=DRIVER)


def owners(path: Path) -> list[str]:
    return [app_id for app_id in Table.open(str(path)).transactions if app_id.startswith("tidelog/sink/")]


# --- a table that is not the one from before -------------------------------------------------------------------------


def drop(path: Path) -> None:
    Table.drop(str(path))


def create_by_hand(path: Path) -> None:
    drop(path)
    Table.create(str(path), NUMBERS).insert([{"n": -1}])


@pytest.mark.parametrize(
    "lose",
    [drop, pytest.param(shutil.rmtree, marks=pytest.mark.full), pytest.param(create_by_hand, marks=pytest.mark.full)],
)
def test_a_table_that_was_lost_is_refused_until_it_is_adopted(
    spark: SparkSession, source: Input, tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    drain(source.put(3).stream(spark), sink_of(path), checkpoint)
    lose(path)
    before = sorted(path.rglob("*"))
    error = refused(source.put().stream(spark), sink_of(path), checkpoint, CheckpointResetError)
    assert sorted(path.rglob("*")) == before
    assert path.exists() == (lose is not shutil.rmtree)
    assert (error.path, error.sink) == (str(path), "default")
    assert " is at batch 3, but " in error.message
    missing = "was dropped and created again" if lose is create_by_hand else f"there is no table at {path}: "
    assert missing in error.message
    assert error.advice.startswith("check the path, the mount and the name")
    assert "on_reset='adopt'" in error.advice

    drain(source.stream(spark), sink_of(path, on_reset="adopt"), checkpoint)
    by_hand = [-1] if lose is create_by_hand else []
    assert numbers_in(path) == [*by_hand, *range(30, 40)]
    # The name is claimed now.
    forget_last_commit(checkpoint)
    drain(source.put().stream(spark), sink_of(path), checkpoint)
    assert numbers_in(path) == [*by_hand, *range(30, 50)]


def test_a_mistyped_path_is_refused_and_leaves_no_gap(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path, wrong, checkpoint = tmp_path / "table", tmp_path / "tabel" / "inner", tmp_path / "cp"
    drain(source.put().stream(spark), sink_of(path), checkpoint)
    error = refused(source.put().stream(spark), sink_of(wrong), checkpoint, CheckpointResetError)
    assert f"there is no table at {wrong}: " in error.message
    assert "the path is wrong" in error.message
    assert not wrong.parent.exists()
    drain(source.stream(spark), sink_of(path), checkpoint)
    assert numbers_in(path) == source.numbers

    # The stream moves on purpose.
    drain(source.put().stream(spark), sink_of(wrong, on_reset="adopt"), checkpoint)
    drain(source.put().stream(spark), sink_of(wrong), checkpoint)
    assert numbers_in(wrong) == list(range(20, 40))


def test_another_name_is_refused_until_it_is_adopted(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    drain(source.put().stream(spark), sink_of(path), checkpoint)
    before = footprint(path)
    error = refused(source.put().stream(spark), sink_of(path, "renamed"), checkpoint, CheckpointResetError)
    assert f"has never written to {path} under the sink name 'renamed'" in error.message
    assert "the path or the name is another one than before" in error.message
    assert "the sink was added to a query that had already run" in error.message
    assert error.sink == "renamed"
    assert footprint(path) == before

    drain(source.stream(spark), sink_of(path, "renamed", "adopt"), checkpoint)
    drain(source.put().stream(spark), sink_of(path, "renamed"), checkpoint)
    assert numbers_in(path) == source.numbers
    assert owners(path) == ["tidelog/sink/default", "tidelog/sink/renamed"]


def test_an_adopted_batch_without_rows_claims_the_name_as_well(
    spark: SparkSession, source: Input, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    stream = source.put().stream(spark).where("n >= 20")
    drain(stream, sink_of(path), checkpoint)
    shutil.rmtree(path)
    refused(source.put().stream(spark).where("n >= 20"), sink_of(path), checkpoint, CheckpointResetError)
    with caplog.at_level(logging.WARNING, "tidelog.streaming"):
        drain(source.stream(spark).where("n >= 20"), sink_of(path, on_reset="adopt"), checkpoint)
    (warning,) = (
        record.getMessage() for record in caplog.records if "committing the batch as new" in record.getMessage()
    )
    assert "there is no table at " in warning
    assert owners(path) == ["tidelog/sink/default"]
    drain(source.put().stream(spark).where("n >= 20"), sink_of(path), checkpoint)
    assert numbers_in(path) == list(range(20, 30))


# --- the claim -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", full_but(["spark"], ["driver", "spark"]))
@pytest.mark.parametrize("exists", [False, True])
def test_an_empty_first_batch_claims_the_name_in_a_commit_without_rows(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str, exists: bool
) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    if exists:
        Table.create(str(path), NUMBERS)
    reports = Reports(Sink(str(path), writer=writer))
    drain(source.put(2).stream(spark).where("n < 0"), reports, checkpoint)
    assert [(report.version, report.rows, report.writer) for report in reports.all] == [(1, 0, None), (None, 0, None)]

    table = Table.open(str(path))
    assert (table.version, table.time_version, table.schema.names) == (1, None, ["n"])
    (claim, _) = table.history()
    assert (claim.operation, claim.operation_class) == ("STREAMING UPDATE", OperationClass.NONE)
    lines = (path / "_delta_log" / f"{1:020d}.json").read_text().splitlines()
    (entry,) = (json.loads(line)["txn"] for line in lines if '"txn"' in line)
    assert entry["appId"] == "tidelog/sink/default"

    # A replay and a restart find the claim; the first rows come later.
    forget_last_commit(checkpoint)
    drain(source.put().stream(spark).where("n >= 20"), Sink(str(path), writer=writer), checkpoint)
    assert (numbers_in(path), Table.open(str(path)).version) == (list(range(20, 30)), 2)


def test_a_first_batch_with_rows_claims_the_name_in_its_own_commit(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    drain(source.put().stream(spark), sink_of(path), tmp_path / "cp")
    assert Table.open(str(path)).version == 1
    assert owners(path) == ["tidelog/sink/default"]


def test_a_first_batch_that_changes_nothing_claims_the_name(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    sink = Sink(str(path), mode="upsert", keys=["n"], delete_where="n < 10", writer=DRIVER)
    drain(source.put().stream(spark), sink, checkpoint)
    assert sink.last
    assert (sink.last.rows, sink.last.version) == (10, 1)
    drain(source.put().stream(spark), sink, checkpoint)
    assert numbers_in(path) == list(range(10, 20))


def test_the_writer_is_still_chosen_by_the_first_batch_with_rows(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    """A claim says nothing about the size of batches."""
    reports = Reports(Sink(str(tmp_path / "table")))
    drain(source.put(3).stream(spark).where("n >= 10"), reports, tmp_path / "cp")
    assert [report.writer for report in reports.all] == [None, "spark", "driver"]


def test_two_tables_of_one_query_are_claimed_each(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    """The first dead letter comes late; afterwards the loss of its table is noticed."""
    good, bad, checkpoint = tmp_path / "good", tmp_path / "bad", tmp_path / "cp"

    def split(batch: DataFrame, number: int) -> None:
        sink_of(good)(batch.where("n < 20"), number)
        sink_of(bad, "dead-letter")(batch.where("n >= 20"), number)

    drain(source.put(2).stream(spark), split, checkpoint)
    assert numbers_in(bad) == []
    drain(source.put().stream(spark), split, checkpoint)
    assert numbers_in(bad) == list(range(20, 30))
    shutil.rmtree(bad)
    with pytest.raises(StreamingQueryException, match=r"TIDELOG_CHECKPOINT_RESET.* there is no table at "):
        drain(source.put().stream(spark), split, checkpoint)
    assert not bad.exists()


def test_a_crash_between_the_table_and_the_claim_is_replayed(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"

    def dies(_: Batch) -> None:
        raise RuntimeError("died before the claim")

    stream = source.put(2).stream(spark).where("n >= 10")
    with monkeypatch.context() as patched:
        patched.setattr(Batch, "_claim", dies)
        with pytest.raises(StreamingQueryException, match="died before the claim"):
            drain(stream, sink_of(path), checkpoint)
    assert (Table.open(str(path)).version, owners(path)) == (0, [])
    drain(stream, sink_of(path), checkpoint)
    assert numbers_in(path) == list(range(10, 20))


def test_only_one_of_two_queries_can_claim_a_name(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither has rows; the rival claims the name after this query has looked, and before it commits its claim."""
    path, commit = tmp_path / "table", Transaction.commit
    Table.create(str(path), NUMBERS)
    stream = source.put().stream(spark).where("n < 0")

    def after_the_rival(transaction: Transaction) -> Committed | Superseded:
        monkeypatch.setattr(Transaction, "commit", commit)
        # A stream started in the batch function's own thread would inherit that thread's properties.
        rival = Thread(target=drain, args=(stream, sink_of(path), tmp_path / "cp-2"))
        rival.start()
        rival.join()
        return commit(transaction)

    monkeypatch.setattr(Transaction, "commit", after_the_rival)
    error = refused(stream, sink_of(path), tmp_path / "cp-1", ConcurrentTransactionException)
    assert "tidelog/sink/default" in str(error)
    assert Table.open(str(path)).version == 1
    refused(stream, sink_of(path), tmp_path / "cp-1", CheckpointResetError)


# --- batches that left nothing ---------------------------------------------------------------------------------------


def test_a_restart_logs_once_which_batches_left_nothing(
    spark: SparkSession, source: Input, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    only_some = "n < 10 or n between 30 and 39 or n >= 50"
    with caplog.at_level(logging.INFO, "tidelog.streaming.sink"):
        drain(source.put(3).stream(spark).where(only_some), sink_of(path), checkpoint)
        assert "left nothing" not in caplog.text
        drain(source.put(3).stream(spark).where(only_some), sink_of(path), checkpoint)
    (record,) = (record for record in caplog.records if "left nothing" in record.getMessage())
    assert record.levelno == logging.INFO
    assert record.getMessage().startswith("batches 1 to 2 of query ")
    assert f" left nothing in {path} under the sink name 'default'" in record.getMessage()
