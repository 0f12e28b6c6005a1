"""Rows that Spark's executors delete from a table with an order leave tombstones, as those of a Table do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tidelog.log import Table
from tidelog.streaming import table
from tidelog.streaming.executors import spark_upsert
from tidelog.streaming.executors.spark_table import SparkTable

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("v", pa.string())])


def records(keys: Any, at: int) -> list[dict[str, Any]]:
    return [{"k": k, "at": at, "v": "v"} for k in keys]


def frame_of(spark: SparkSession, keys: Any) -> DataFrame:
    rows = [(k, 0, "", k < 4) for k in keys]
    return spark.createDataFrame(rows, "k BIGINT, at BIGINT, v STRING, gone BOOLEAN")


def upserted(target: SparkTable, spark: SparkSession) -> None:
    target.upsert(frame_of(spark, range(6)), delete_where="gone", order_by=())


@pytest.mark.parametrize(
    ("delete", "most_keys"),
    [
        (lambda target, _: target.delete("k < 4"), None),
        (lambda target, _: target.update("k < 4", {"k": "k + 100"}), None),
        (upserted, None),
        pytest.param(upserted, 3, marks=pytest.mark.full),
    ],
    ids=["delete", "another key", "upsert", "upsert by ranges"],
)
def test_deleted_rows_stay_deleted(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    delete: Callable[[SparkTable, SparkSession], Any],
    most_keys: int | None,
) -> None:
    if most_keys:
        monkeypatch.setattr(spark_upsert, "MAX_KEYS", most_keys)
    properties = {"tidelog.primaryKey": "k", "tidelog.orderBy": "at"}
    made = Table.create(str(tmp_path / "t"), SCHEMA, properties=properties)
    for keys in (range(3), range(3, 8)):
        made.upsert(records(keys, 10))
    delete(table(spark, made.path), spark)
    assert made.upsert(records(range(4), 10)).metrics["numSourceRowsOutdated"] == 4
    assert not made.refresh().scan("k < 4").count()
    assert made.upsert(records(range(4), 11)).metrics["numTargetRowsInserted"] == 4


def test_rows_that_an_overwrite_replaces_may_come_again(spark: SparkSession, tmp_path: Path) -> None:
    properties = {"tidelog.primaryKey": "k", "tidelog.orderBy": "at"}
    made = Table.create(str(tmp_path / "t"), SCHEMA, properties=properties)
    made.upsert(records(range(4), 10))
    table(spark, made.path).overwrite(frame_of(spark, []).drop("gone"), where="k < 2")
    assert made.upsert(records(range(2), 5)).metrics["numSourceRowsOutdated"] == 0
