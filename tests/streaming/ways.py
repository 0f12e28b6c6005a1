"""The ways to follow a table in a query. They take the same options, so one test can run all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.streaming.support import IN_JVM, BatchFunction, changes_stream, feed, run_to_end
from tidelog import Feed
from tidelog.log import Table
from tidelog.streaming import spark_versions

FORMAT_NAMES = {
    "consumer": "consumer",
    "max_files": "maxFilesPerTrigger",
    "max_bytes": "maxBytesPerTrigger",
    "max_rows": "maxRowsPerTrigger",
}


def by_format(spark: SparkSession, path: str, function: BatchFunction, **options: Any) -> DataStreamWriter:
    """`readStream.format("tidelog")`, with the options of `Feed`."""
    named = {FORMAT_NAMES[name]: value for name, value in options.items()}
    return feed(spark, path, **named).writeStream.foreachBatch(function)


def by_feed(spark: SparkSession, path: str, function: BatchFunction, **options: Any) -> DataStreamWriter:
    """`Feed`."""
    return Feed(spark, path, **options).foreachBatch(function)


def by_changes(spark: SparkSession, path: str, function: BatchFunction, **options: Any) -> DataStreamWriter:
    """`readStream.changes`, of Spark 4.2 and later."""
    named = {FORMAT_NAMES[name]: value for name, value in options.items()}
    return changes_stream(spark, path, **named).writeStream.foreachBatch(function)


WAYS: dict[str, Callable[..., DataStreamWriter]] = {"format": by_format, "Feed": by_feed}
if IN_JVM and spark_versions.CATALOGS_HAVE_CHANGES:
    WAYS["changes"] = by_changes


def follow(
    spark: SparkSession,
    way: str,
    table: Table,
    checkpoint: Path,
    *,
    before_each: Callable[[], object] = lambda: None,
    once: bool = False,
    **options: Any,
) -> list[list[int]]:
    """Follow a table up to its newest version; the column `n` of each micro-batch, sorted."""
    batches: list[list[int]] = []

    def take(batch: DataFrame, _: int) -> None:
        before_each()
        batches.append(sorted(row["n"] for row in batch.select("n").collect()))

    run_to_end(WAYS[way](spark, table.path, take, **options), checkpoint, once=once)
    return batches
