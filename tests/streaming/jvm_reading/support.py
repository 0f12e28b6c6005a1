"""Compare frames with tidelog's own readers, bit by bit, and look into plans."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from tidelog.log.read.scan import RowReader
from tidelog.streaming.executors.tasks import spark_schema

NUMBERS = {pa.date32(): pa.int32(), pa.timestamp("us"): pa.int64(), pa.timestamp("us", "UTC"): pa.int64()}


def assert_same(frame: DataFrame, reader: RowReader) -> int:
    """The frame has exactly the rows and the schema of the reader; returns their number."""
    assert frame.schema == spark_schema(reader.schema)
    # Not `toArrow`, which cannot convert a null struct with a field that is never null.
    batches = frame._collect_as_arrow()  # type: ignore[operator]
    found = bag(pa.Table.from_batches(batches), reader.schema) if batches else []
    expected = bag(reader.to_arrow(), reader.schema)
    assert found == expected
    return len(expected)


def bag(rows: pa.Table, schema: pa.Schema) -> list[str]:
    """The rows as texts, sorted. Dates and times are numbers, since Python has none for the years after 9999."""
    columns = []
    for column, field in zip(rows.columns, schema, strict=True):
        kind = NUMBERS.get(field.type)
        chunks = column.chunks if kind is None else [chunk.view(kind) for chunk in column.chunks]
        columns.append([value for chunk in chunks for value in chunk.to_pylist()])
    return sorted(map(repr, zip(*columns, strict=True)))


def physical_plan(frame: DataFrame) -> str:
    """The physical plan as text."""
    text: str = frame._jdf.queryExecution().executedPlan().toString()
    return text


def is_read_by_spark(frame: DataFrame) -> bool:
    """Whether Spark's own reader reads all files, without Python."""
    plan = physical_plan(frame)
    return "FileScan parquet" in plan and "MapInArrow" not in plan


def is_read_by_tidelog(frame: DataFrame) -> bool:
    """Whether tidelog's reader reads all files."""
    plan = physical_plan(frame)
    return "MapInArrow" in plan and "FileScan" not in plan
