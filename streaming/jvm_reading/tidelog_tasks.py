"""DataFrames whose rows come from tidelog's own code, run in Spark's tasks."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidelog.streaming.executors.session import is_connect
from tidelog.streaming.executors.tasks import shared_out
from tidelog.streaming.jvm_reading.file_scan import spark_schema

_Part = TypeVar("_Part")


def in_tasks(
    spark: SparkSession,
    parts: Sequence[_Part],
    work: Callable[[_Part], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """The rows that `work` yields for the parts, one task each, when the frame is computed.

    The batches have exactly `schema`. `work` and the parts must be picklable; they are not shown in plans.
    """
    if is_connect(spark):
        tasks = shared_out(spark, parts).select("part")
    else:
        pickled = spark.sparkContext.parallelize([(pickle.dumps(part),) for part in parts], len(parts))
        tasks = spark.createDataFrame(pickled, "part binary")
    return from_arrow(tasks, partial(_worked, work), schema)


def from_arrow(
    frame: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: pa.Schema
) -> DataFrame:
    """`frame.mapInArrow`, also for a schema without columns: Spark 4.0 forgets how many rows such batches have."""
    if schema.names:
        return frame.mapInArrow(work, spark_schema(schema))
    return frame.mapInArrow(partial(_with_a_column, work), "row boolean").select()


def _with_a_column(
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in work(batches):
        yield pa.RecordBatch.from_arrays([pa.nulls(batch.num_rows, pa.bool_())], ["row"])


def _worked(
    work: Callable[[_Part], Iterator[pa.RecordBatch]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for part in batch.column(0):
            yield from work(pickle.loads(part.as_py()))  # noqa: S301 - made by `in_tasks`
