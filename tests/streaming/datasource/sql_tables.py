"""A small table for tests of SQL, and the rows of a query."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession

from tidelog.log import Table

SCHEMA = pa.schema([("n", pa.int64()), ("part", pa.string())])


def small_table(folder: Path) -> Table:
    """A table with the rows 0 to 3, at version 1."""
    made = Table.create(str(folder / "table"), SCHEMA)
    made.insert([{"n": n, "part": "ab"[n % 2]} for n in range(4)])
    return made


def rows(spark: SparkSession, text: str) -> list[tuple[object, ...]]:
    """The rows of a query, in order."""
    return sorted(tuple(row) for row in spark.sql(text).collect())


def only(frame: DataFrame) -> Row:
    """The one row of a frame."""
    [found] = frame.collect()
    return found
