"""What a user's program and session may be like: their settings, threads, job groups, interpreter and driver."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

from tests.streaming.support import Input, drain, footprint, numbers_in, refused
from tidelog.log import Committed, Superseded, Table, Transaction
from tidelog.log.errors import AppendOnlyError, ConfigurationError, SchemaMismatchError, TidelogError
from tidelog.streaming import Sink

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).parent / "sink_surroundings_program.py"
PATIENCE_S = 400


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


# --- the session -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", ["driver", "spark"])
@pytest.mark.parametrize("case_sensitive", ["true", "false"])
def test_names_match_without_case_whatever_the_session_says(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str, case_sensitive: str
) -> None:
    schema = pa.schema(
        [("n", pa.int64()), ("s", pa.struct([("a", pa.int64())])), ("p", pa.string()), ("later", pa.string())]
    )
    path = tmp_path / "table"
    Table.create(str(path), schema, partition_by=["p"])
    spark.conf.set("spark.sql.caseSensitive", case_sensitive)
    try:
        stream = source.put().stream(spark).selectExpr("named_struct('A', n) S", "n N", "cast(n % 2 as string) P")
        drain(stream, Sink(str(path), writer=writer), tmp_path / "cp")
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    rows = Table.open(str(path)).scan().to_arrow().sort_by("n").to_pylist()
    assert rows == [{"n": n, "s": {"a": n}, "p": str(n % 2), "later": None} for n in range(10)]


def test_a_job_group_of_the_user_s_own(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    """It takes the place of the one by which Spark names a run, so that all runs look alike."""
    path, runs, failing = tmp_path / "table", set(), [True]
    sink = Sink(str(path))

    def function(batch: DataFrame, number: int) -> None:
        spark.sparkContext.setJobGroup("mine", "a job of mine")
        sink(batch, number)
        assert sink.last
        runs.add(sink.last.run_id)
        if failing:
            failing.pop()
            raise ValueError("after the sink")

    stream = source.put().stream(spark)
    with pytest.raises(Exception, match="after the sink"):
        drain(stream, function, tmp_path / "cp")
    drain(stream, function, tmp_path / "cp")
    assert numbers_in(path) == source.numbers
    assert len(runs - {"mine"}) == 2


# --- threads ---------------------------------------------------------------------------------------------------------


def test_a_second_call_at_the_very_moment_of_the_first_one_s_commit(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is in the table by then, and the first call has not returned."""
    path, committed, errors = str(tmp_path / "table"), Event(), []
    drain(source.put().stream(spark), Sink(path, writer="driver"), tmp_path / "cp")
    commit = Transaction.commit
    gone_on = Event()

    def slow(transaction: Transaction) -> Committed | Superseded:
        outcome = commit(transaction)
        committed.set()
        assert gone_on.wait(PATIENCE_S)
        return outcome

    def second(batch: DataFrame, number: int) -> None:
        try:
            assert committed.wait(PATIENCE_S)
            Sink(path, writer="driver")(batch.where("n % 2 = 1"), number)
        except TidelogError as error:
            errors.append(error)
        finally:
            gone_on.set()

    def function(batch: DataFrame, number: int) -> None:
        other = InheritableThread(target=second, args=(batch, number))
        other.start()
        Sink(path, writer="driver")(batch.where("n % 2 = 0"), number)
        other.join()

    monkeypatch.setattr(Transaction, "commit", slow)
    drain(source.put().stream(spark), function, tmp_path / "cp")
    (error,) = errors
    assert "was given to the sink 'default'" in str(error)


# --- what a failure leaves -------------------------------------------------------------------------------------------


def test_a_table_that_forbids_it_is_known_before_anything_is_written(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    schema = pa.schema([("n", pa.int64()), ("p", pa.int64())])
    Table.create(str(path), schema, partition_by=["p"], properties={"delta.appendOnly": True})
    before = footprint(path)
    stream = source.put().stream(spark).selectExpr("n", "n % 2 p")
    refused(stream, Sink(str(path), mode="overwrite-partitions", writer="spark"), tmp_path / "cp", AppendOnlyError)
    assert footprint(path) == before


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_task_that_finds_a_misfit_leaves_no_task_s_files(
    spark: SparkSession, source: Input, tmp_path: Path, mode: str
) -> None:
    path = tmp_path / "table"
    Table.create(str(path), pa.schema([("n", pa.int32())]))
    before = footprint(path)
    for first in (0, 2**40):
        source.put_table(pa.table({"n": pa.array(range(first, first + 10), pa.int64())}))
    sink = Sink(str(path), mode=mode, keys=["n"] if mode == "upsert" else (), writer="spark")
    error = refused(source.stream(spark, max_files=None), sink, tmp_path / "cp", SchemaMismatchError)
    assert "'n' is int32 in the table but int64 in the data" in str(error)
    assert footprint(path) == before


# --- the driver ------------------------------------------------------------------------------------------------------


def run(source: Input, tmp_path: Path, writer: str) -> list[str]:
    """What the program prints, in an environment that names no interpreter and finds another python3 first."""
    (tmp_path / "bin").mkdir()
    other = tmp_path / "bin" / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    environment = {**os.environ, "PATH": f"{other.parent}:{os.environ['PATH']}"}
    folders = [str(source.folder), str(tmp_path / "table"), str(tmp_path / "cp")]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *folders, writer],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=environment,
    )
    lines = done.stdout.splitlines()
    assert lines, done.stderr[-3000:]
    return lines


def put_small_and_large(source: Input) -> int:
    """Two batches, of which only the second is larger than a mebibyte however it is packed; the number of rows."""
    chance = random.Random(1)
    for first, count in ((0, 10), (10, 3000)):
        texts = [chance.randbytes(400).hex() for _ in range(count)]
        numbers = pa.array(range(first, first + count), pa.int64())
        source.put_table(pa.table({"n": numbers, "text": texts}))
    return 3010


def test_a_batch_that_the_driver_does_not_take_in_goes_by_spark(source: Input, tmp_path: Path) -> None:
    """And Spark's workers run this interpreter, though nobody told Spark and another python3 comes first."""
    count = put_small_and_large(source)
    source.put_table(pa.table({"n": pa.array([count], pa.int64()), "text": ["small"]}))
    assert run(source, tmp_path, "auto") == ["spark 10", "spark 3000", "driver 1"]
    assert numbers_in(tmp_path / "table") == list(range(count + 1))


def test_with_the_driver_alone_it_is_an_error_that_says_what_to_do(source: Input, tmp_path: Path) -> None:
    put_small_and_large(source)
    first, second, *_ = run(source, tmp_path, "driver")
    assert first == "driver 10"
    assert second.startswith(
        f"ConfigurationError: {ConfigurationError.code}: the batch is larger than the driver takes"
    )
    assert "leave writer out, raise spark.driver.maxResultSize" in second
    assert numbers_in(tmp_path / "table") == list(range(10))
