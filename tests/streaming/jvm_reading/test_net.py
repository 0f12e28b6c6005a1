"""The change mode `net`: Spark brings the changes of a key together."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.streaming.jvm_reading.support import assert_same
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, DuplicateKeyError
from tidelog.streaming import changes
from tidelog.streaming.executors.session import session_settings

SCHEMA = pa.schema([("key.a", pa.float64()), ("b", pa.string()), ("value", pa.timestamp("us", "UTC"))])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table.create(str(tmp_path / "table"), SCHEMA, properties={"delta.enableChangeDataFeed": True})
    keys = [1.0, 2.0, 3.0, math.nan, 0.0, None]
    table.insert(pa.table({"key.a": keys, "b": ["x"] * 6, "value": range(6)}, schema=SCHEMA))
    table.update("b = 'x'", {"b": "'y'"})
    table.delete("`key.a` = 2.0 OR `key.a` = 0.0")
    table.insert(pa.table({"key.a": [-0.0, 7.0], "b": ["y", None], "value": [4, None]}, schema=SCHEMA))
    table.delete("`key.a` = 7.0")
    return table


@pytest.mark.parametrize("adaptive", ["true", pytest.param("false", marks=pytest.mark.full)])
def test_net(spark: SparkSession, table: Table, adaptive: str) -> None:
    settings = {"spark.sql.adaptive.enabled": adaptive, "spark.sql.session.timeZone": "Asia/Tokyo"}
    with session_settings(spark, settings):
        for after in (None, 1, 3):
            frame = changes(spark, table.path, after=after, mode="net", keys=["key.a"])
            assert assert_same(frame, table.changes(after=after, mode="net", keys=["key.a"])) > 0
        chosen = {"where": "_change_type = 'insert'", "columns": ["value", "_commit_version"]}
        frame = changes(spark, table.path, mode="net", keys=["key.a"], **chosen)  # type: ignore[arg-type]
        assert_same(frame, table.changes(mode="net", keys=["key.a"], **chosen))  # type: ignore[arg-type]


def test_the_table_s_own_key(spark: SparkSession, table: Table) -> None:
    with pytest.raises(ConfigurationError):
        changes(spark, table.path, mode="net")
    table.set_properties({"tidelog.primaryKey": "key.a"})
    assert_same(changes(spark, table.path, mode="net"), table.changes(mode="net"))


def test_a_key_with_several_rows(spark: SparkSession, table: Table) -> None:
    table.insert(pa.table({"key.a": [1.0], "b": ["z"], "value": [None]}, schema=SCHEMA))
    frame = changes(spark, table.path, mode="net", keys=["key.a"])
    with pytest.raises(DuplicateKeyError) as ours:
        table.changes(mode="net", keys=["key.a"]).to_arrow()
    with pytest.raises(PySparkException) as spark_s:
        frame.collect()
    assert str(ours.value) in str(spark_s.value)
