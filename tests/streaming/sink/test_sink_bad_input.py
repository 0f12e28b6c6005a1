"""Stores, tables and rows that a sink cannot write to: typed errors that say what to do, and nothing is written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.streaming.support import NUMBERS, Input, drain, footprint, numbers_in, refused
from tidelog.log import Table
from tidelog.log.errors import (
    ConfigurationError,
    CorruptLogError,
    NullValueError,
    PathNotWritableError,
    SchemaMismatchError,
    StoreNotSupportedError,
)
from tidelog.streaming import Sink

pytestmark = pytest.mark.spark


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


def test_a_path_below_a_file_is_not_writable(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    sink = Sink(str(tmp_path / "file" / "table"))
    error = refused(source.put().stream(spark), sink, tmp_path / "cp", PathNotWritableError)
    assert "check the path, its permissions (reading included) and whether it is mounted read-only" in str(error)


def test_a_file_system_that_cannot_create_folders_is_not_writable(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    error = refused(source.put().stream(spark), Sink("/proc/tidelog/table"), tmp_path / "cp", PathNotWritableError)
    assert error.path == "/proc/tidelog/table"


def test_a_file_system_without_put_if_absent_is_refused(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", no_links)
        sink = Sink(str(tmp_path / "table"))
        error = refused(source.put().stream(spark), sink, tmp_path / "cp", StoreNotSupportedError)
    assert "has no hard links, so two writers could overwrite each other; put the table on a local disk" in str(error)


def test_a_damaged_log_is_an_error_that_names_the_commit(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path = tmp_path / "table"
    drain(source.put().stream(spark), Sink(str(path)), tmp_path / "cp")
    (path / "_delta_log" / f"{1:020d}.json").write_text("{ not json")
    (path / "_delta_log" / f"{1:020d}.crc").unlink()
    error = refused(source.put().stream(spark), Sink(str(path)), tmp_path / "cp", CorruptLogError)
    assert "commit 1 of" in str(error)
    assert "restore the file in _delta_log from a backup" in str(error)


def test_a_table_whose_ledger_would_expire_is_refused(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path = tmp_path / "table"
    Table.create(str(path), NUMBERS, properties={"delta.setTransactionRetentionDuration": "7 days"})
    error = refused(source.put().stream(spark), Sink(str(path)), tmp_path / "cp", ConfigurationError)
    assert "so a batch could be written twice; remove that property" in str(error)
    sink = Sink(str(tmp_path / "new"), properties={"delta.setTransactionRetentionDuration": "7 days"})
    refused(source.stream(spark), sink, tmp_path / "cp-2", ConfigurationError)
    assert Table.open(str(path)).version == 0


def test_a_partitioning_that_differs_from_the_table_is_refused(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    path = str(tmp_path / "table")
    Table.create(path, pa.schema([("n", pa.int64()), ("a", pa.int64())]), partition_by=["a"])
    stream = source.put().stream(spark).selectExpr("n", "n % 2 as a")
    error = refused(stream, Sink(path, partition_by=["n"]), tmp_path / "cp", ConfigurationError)
    assert "is partitioned by ['a'], not by ['n']; leave partition_by out" in str(error)
    for sink in (Sink(path), Sink(path, partition_by=["a"])):
        drain(stream, sink, tmp_path / "cp")
    assert numbers_in(path) == source.numbers


@pytest.mark.parametrize(
    ("columns", "column", "problem", "advice"),
    [
        (["n", "n as more"], "more", "'more' that the table does not have", "pass schema_evolution=True to add it"),
        (["cast(n as string) as n"], "n", "'n' is int64 in the table but string in the data", "cast it"),
        (["n + 0.5 as n"], "n", "'n' is int64 in the table but decimal", "cast it"),
        (["if(n = 3, null, n) as must", "n"], "must", "'must' cannot be null, but 1", "fill or drop those rows"),
        (["n"], "must", "lacks the column 'must', which cannot be null", "add the column to the data"),
    ],
)
def test_a_batch_that_does_not_fit_the_table_names_the_column(
    spark: SparkSession, source: Input, tmp_path: Path, columns: list[str], column: str, problem: str, advice: str
) -> None:
    path = tmp_path / "table"
    fields = [pa.field("n", pa.int64())]
    if column == "must":
        fields.append(pa.field("must", pa.int64(), nullable=False))
    Table.create(str(path), pa.schema(fields)).insert(pa.schema(fields).empty_table())
    before = footprint(path)
    stream = source.put().stream(spark).selectExpr(*columns)
    kind = NullValueError if "cannot be null, but" in problem else SchemaMismatchError
    error = refused(stream, Sink(str(path)), tmp_path / "cp", kind)
    assert error.column == column
    assert problem in error.message
    assert advice in error.advice
    assert footprint(path) == before


@pytest.mark.parametrize(
    ("columns", "partition_by", "message"),
    [
        (["n", "N as other"], ["missing"], "cannot partition by 'missing'"),
        (["n"], ["n"], "every column is a partition column"),
        (["n", "array(n) as a"], ["a"], "partition by a column that is not nested"),
        (["n", "interval 1 day as a"], [], "which a Delta table cannot hold; cast it to STRING or BIGINT"),
    ],
)
def test_a_batch_that_no_table_can_be_created_for_is_refused(
    spark: SparkSession, source: Input, tmp_path: Path, columns: list[str], partition_by: list[str], message: str
) -> None:
    sink = Sink(str(tmp_path / "table"), partition_by=partition_by)
    stream = source.put().stream(spark).selectExpr(*columns)
    error = refused(stream, sink, tmp_path / "cp", SchemaMismatchError)
    assert message in str(error)
    assert not (tmp_path / "table").exists()
