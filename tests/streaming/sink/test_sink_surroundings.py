"""The sink in different programs: session settings, job groups, threads, interpreters and a small driver."""

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

from tests.lanes import full_but
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
@pytest.mark.parametrize("case_sensitive", full_but(["true"], ["true", "false"]))
def test_case_does_not_matter_in_column_names_in_any_session(
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


def test_a_job_group_of_the_user_does_not_hide_the_run_id(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    """It replaces the job group that Spark names after the run, which would be the same for all runs."""
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


def test_a_second_call_while_the_first_one_commits_is_refused(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is in the table already, but the first call has not returned."""
    path, committed, errors = str(tmp_path / "table"), Event(), []
    drain(source.put().stream(spark), Sink(path, writer="driver"), tmp_path / "cp")
    commit = Transaction.commit
    may_return = Event()

    def slow(transaction: Transaction) -> Committed | Superseded:
        outcome = commit(transaction)
        committed.set()
        assert may_return.wait(PATIENCE_S)
        return outcome

    def second(batch: DataFrame, number: int) -> None:
        try:
            assert committed.wait(PATIENCE_S)
            Sink(path, writer="driver")(batch.where("n % 2 = 1"), number)
        except TidelogError as error:
            errors.append(error)
        finally:
            may_return.set()

    def function(batch: DataFrame, number: int) -> None:
        other = InheritableThread(target=second, args=(batch, number))
        other.start()
        Sink(path, writer="driver")(batch.where("n % 2 = 0"), number)
        other.join()

    monkeypatch.setattr(Transaction, "commit", slow)
    drain(source.put().stream(spark), function, tmp_path / "cp")
    (error,) = errors
    assert "sink 'default' was called twice for batch 1 of " in str(error)


# --- files after a failure -------------------------------------------------------------------------------------------


def test_an_append_only_table_is_refused_before_any_file_is_written(
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
def test_if_a_value_does_not_fit_the_files_of_all_tasks_are_deleted(
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
    """The program's output in an environment that names no interpreter and has another python3 first on PATH."""
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
    """Put two batches, of which only the second exceeds 1 MiB even when compressed; return the number of rows."""
    chance = random.Random(1)
    for first, count in ((0, 10), (10, 3000)):
        texts = [chance.randbytes(400).hex() for _ in range(count)]
        numbers = pa.array(range(first, first + count), pa.int64())
        source.put_table(pa.table({"n": numbers, "text": texts}))
    return 3010


@pytest.mark.full
def test_spark_writes_a_batch_that_is_too_large_for_the_driver(source: Input, tmp_path: Path) -> None:
    """Also: Spark's workers run this interpreter, although it is not configured and another python3 is on PATH."""
    count = put_small_and_large(source)
    source.put_table(pa.table({"n": pa.array([count], pa.int64()), "text": ["small"]}))
    assert run(source, tmp_path, "auto") == ["spark 10", "spark 3000", "driver 1"]
    assert numbers_in(tmp_path / "table") == list(range(count + 1))


@pytest.mark.full
def test_with_writer_driver_a_batch_that_is_too_large_is_an_error(source: Input, tmp_path: Path) -> None:
    put_small_and_large(source)
    first, second, *_ = run(source, tmp_path, "driver")
    assert first == "driver 10"
    assert second.startswith(
        f"ConfigurationError: {ConfigurationError.code}: the batch exceeds spark.driver.maxResultSize"
    )
    assert "leave writer out, raise spark.driver.maxResultSize" in second
    assert numbers_in(tmp_path / "table") == list(range(10))
