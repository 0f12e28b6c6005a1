"""Writes that share a session: each has the settings for a table's files, and the last one restores the session's."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tidelog.streaming.executors.session import session_settings

pytestmark = pytest.mark.spark

KEY = "spark.sql.parquet.outputTimestampType"
MICROS = {KEY: "TIMESTAMP_MICROS"}


def test_overlapping_blocks_keep_the_settings_until_the_last_one_ends(spark: SparkSession) -> None:
    before = spark.conf.get(KEY)
    assert before != "TIMESTAMP_MICROS"
    first, second = session_settings(spark, MICROS), session_settings(spark, MICROS)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert spark.conf.get(KEY) == "TIMESTAMP_MICROS"
    second.__exit__(None, None, None)
    assert spark.conf.get(KEY) == before


def test_another_session_keeps_its_settings(spark: SparkSession) -> None:
    other = spark.newSession()
    before = other.conf.get(KEY)
    with session_settings(spark, MICROS):
        assert other.conf.get(KEY) == before
        with session_settings(other, MICROS):
            assert other.conf.get(KEY) == "TIMESTAMP_MICROS"
        assert spark.conf.get(KEY) == "TIMESTAMP_MICROS"
    assert spark.conf.get(KEY) == other.conf.get(KEY) == before
