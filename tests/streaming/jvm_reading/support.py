"""Compare frames with tidelog's own readers, bit by bit, and look into plans."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from tidelog.log.read.scan import RowReader
from tidelog.streaming.jvm_reading.file_scan import spark_schema

NUMBERS = {pa.date32(): pa.int32(), pa.timestamp("us"): pa.int64(), pa.timestamp("us", "UTC"): pa.int64()}


def assert_same(frame: DataFrame, reader: RowReader) -> int:
    """The frame has exactly the rows and the schema of the reader; returns their number."""
    assert frame.schema == spark_schema(reader.schema)
    found, expected = bag(frame.toArrow(), reader.schema), bag(reader.to_arrow(), reader.schema)
    assert found == expected
    return len(expected)


def bag(rows: pa.Table, schema: pa.Schema) -> list[str]:
    """The rows as texts, sorted. Dates and times are numbers, since Python has none for the years after 9999."""
    columns = []
    for column, field in zip(rows.columns, schema, strict=True):
        values = pa.concat_arrays([chunk.cast(field.type) for chunk in column.chunks] or [pa.array([], field.type)])
        columns.append(values.view(NUMBERS[field.type]) if field.type in NUMBERS else values)
    return sorted(map(repr, zip(*(column.to_pylist() for column in columns), strict=True)))


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
