"""Errors of statements on Spark's executors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.log.operations.changing_rows import SCHEMA, rows
from tests.log.support import live_files
from tests.streaming.executors.twins import filled, frame_of
from tidelog.log import Table
from tidelog.log.errors import (
    AppendOnlyError,
    ConfigurationError,
    DataFileMissingError,
    DuplicateKeyError,
    PredicateError,
    PrerequisiteError,
    SchemaMismatchError,
    TableNotFoundError,
    TidelogError,
)
from tidelog.streaming import SparkTable, table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("one_file_a_task")]


@pytest.mark.parametrize(
    ("operation", "kind", "message"),
    [
        (lambda one, _: one.delete("nothing = 1"), PredicateError, "there is no column 'nothing'"),
        (lambda one, _: one.delete("initcap(part) = 'A'"), PredicateError, "not supported"),
        (
            lambda one, _: one.update("k = 1", {}),
            ConfigurationError,
            "set is empty, so the update would change nothing",
        ),
        (lambda one, _: one.update("k = 1", {"nothing": "1"}), ConfigurationError, "no column 'nothing' to set"),
        # Only a task finds this, since it reads the values.
        (
            lambda one, _: one.update("k > 5", {"v": "k * 1000000000"}),
            SchemaMismatchError,
            "'v' is bigint, but the column",
        ),
        (lambda one, frame: one.overwrite(frame, where="part = 'a'"), ConfigurationError, "1 of 3 rows are outside"),
        (lambda one, frame: one.overwrite(frame, where="k = 1"), ConfigurationError, "rows are outside"),
        (lambda one, frame: one.overwrite(frame, where="nowhere = 1"), PredicateError, "there is no column"),
        (lambda one, frame: one.overwrite(frame, where="part = 'a'", dynamic=True), ConfigurationError, "both where"),
        (
            lambda one, frame: one.overwrite(frame.withColumnRenamed("v", "w")),
            SchemaMismatchError,
            "a column 'w' that the table does not have",
        ),
        (
            lambda one, frame: one.overwrite(frame.selectExpr("k", "cast(v as string) as v")),
            SchemaMismatchError,
            "column 'v' is int32 in the table but string",
        ),
        (
            lambda one, frame: one.overwrite(frame.selectExpr("k * 1000000000 as v")),
            SchemaMismatchError,
            "column 'v' is int32 in the table but int64",
        ),
        (lambda one, frame: one.upsert(frame), ConfigurationError, "no keys are given"),
        (lambda one, frame: one.upsert(frame, keys=["n"]), ConfigurationError, "there is no key column 'n'"),
        (lambda one, frame: one.upsert(frame.union(frame), keys=["k"]), DuplicateKeyError, "several rows for 3 keys"),
        (lambda one, frame: one.upsert(frame.drop("k"), keys=["k"]), SchemaMismatchError, "'k' is null in 3 rows"),
        (lambda one, frame: one.upsert(frame, keys=["k"], delete_where="op = 'd'"), PredicateError, "no column 'op'"),
        (
            lambda one, _: one.upsert([{"k": 1}], keys=["k"]),
            SchemaMismatchError,
            "a Spark DataFrame is needed, not list",
        ),
        (lambda one, _: one.overwrite([{"k": 1}]), SchemaMismatchError, "a Spark DataFrame is needed, not list"),
    ],
)
def test_errors_are_typed_and_nothing_is_committed(
    operation: Callable[[SparkTable, DataFrame], Any],
    kind: type[TidelogError],
    message: str,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    made = filled(tmp_path, "vectors")
    frame = frame_of(spark, [*rows(range(1, 3)), *rows(range(8, 9), "b")])
    before = made.version
    with pytest.raises(kind, match=message) as caught:
        operation(table(spark, made.path), frame)
    assert type(caught.value) is kind
    assert made.refresh().version == before


def test_keys_that_are_not_the_primary_key_need_a_word(spark: SparkSession, tmp_path: Path) -> None:
    made = filled(tmp_path, "vectors")
    made.set_properties({"tidelog.primaryKey": "k"})
    frame, before = frame_of(spark, rows(range(90, 91))), made.version
    with pytest.raises(ConfigurationError, match=r"keys=\['part'\] are not the table's primary key, \['k'\]"):
        table(spark, made.path).upsert(frame, keys=["part"])
    assert made.refresh().version == before
    committed = table(spark, made.path).upsert(frame, keys=["part"], other_keys=True)
    assert committed.metrics["numTargetRowsDeleted"] > 1
    assert made.refresh().scan("part = 'a'").count() == 1


def test_a_missing_data_file(spark: SparkSession, tmp_path: Path) -> None:
    made = filled(tmp_path, "vectors")
    (tmp_path / "table" / live_files(made)[0].path).unlink()
    with pytest.raises(DataFileMissingError, match="is missing"):
        table(spark, made.path).delete("v >= 0")


def test_an_append_only_table(spark: SparkSession, tmp_path: Path) -> None:
    made = Table.create(str(tmp_path / "table"), SCHEMA, properties={"delta.appendOnly": True})
    changed = table(spark, made.path)
    with pytest.raises(AppendOnlyError):
        changed.delete("k = 1")
    with pytest.raises(AppendOnlyError):
        changed.update("k = 1", {"v": "1"})
    with pytest.raises(AppendOnlyError):
        changed.overwrite(frame_of(spark, []))
    with pytest.raises(AppendOnlyError):
        changed.upsert(frame_of(spark, []), keys=["k"])


def test_unsuitable_tables_and_sessions(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        table(spark, str(tmp_path / "nothing"))
    Table.create("memory://for-spark", SCHEMA, exist_ok=True)
    with pytest.raises(ConfigurationError, match="in this process's memory"):
        table(spark, "memory://for-spark")
    with pytest.raises(ConfigurationError, match="a Spark session is needed, not str"):
        table("local[2]", str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="a Spark session is needed, not SparkSession"):
        table(SparkSession, str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(PrerequisiteError, match=r"Spark 3\.5\.6 is too old"):
        table(SimpleNamespace(version="3.5.6"), str(tmp_path))  # type: ignore[arg-type]
