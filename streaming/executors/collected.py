"""A frame's rows in the driver, also those that PySpark does not collect by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from tidelog.streaming import spark_versions
from tidelog.streaming.executors.plain_frame import arrow_schema
from tidelog.streaming.executors.session import is_connect

_VARIANT = re.compile(r'"(type|elementType|valueType)":"variant"')


def collected(frame: DataFrame) -> pa.Table:
    """The frame's rows. Variants are structs of `value` and `metadata`; all that is within a column is nullable."""
    if not _VARIANT.search(frame.schema.json()):
        # PySpark refuses a null struct with a field that is never null.
        loose = StructType([_with_nullable_parts(field) for field in frame.schema])
        return _to_arrow(frame if loose == frame.schema else frame.to(loose))
    return _with_variants(frame)


def _to_arrow(frame: DataFrame) -> pa.Table:
    """`toArrow` without what it first asks the JVM about the session, which takes as long as writing a small batch."""
    if is_connect(frame.sparkSession):
        return frame.toArrow()
    schema = arrow_schema(frame)
    batches: list[pa.RecordBatch] = frame._collect_as_arrow()  # type: ignore[operator]  # noqa: SLF001 - see above
    return (pa.Table.from_batches(batches) if batches else schema.empty_table()).cast(schema)


def _with_variants(frame: DataFrame) -> pa.Table:
    # PySpark cannot collect a null variant, because its parts cannot be null. In a task they become ones that can.
    names = frame.columns
    plain = frame.toDF(*(f"c{place}" for place in range(len(names))))
    loose = pa.schema([_loose(field) for field in arrow_schema(plain)])
    return (
        plain.mapInArrow(partial(_cast, loose), spark_versions.columns_from_arrow(loose))
        .toArrow()
        .rename_columns(names)
    )


def _cast(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _loose(field: pa.Field) -> pa.Field:
    """The field as one that can be null, as can be what is in it, and without metadata that makes it a variant."""
    kind = field.type
    if pt.is_struct(kind):
        kind = pa.struct([_loose(kind.field(index)) for index in range(kind.num_fields)])
    elif pt.is_map(kind):
        # Keys cannot be null.
        kind = pa.map_(kind.key_type, _loose(kind.item_field))
    elif pt.is_list(kind):
        kind = pa.list_(_loose(kind.value_field))
    return pa.field(field.name, kind)


def _with_nullable_parts(field: StructField) -> StructField:
    return StructField(field.name, _nullable_within(field.dataType), field.nullable, field.metadata)


def _nullable_within(kind: DataType) -> DataType:
    """The type with all fields, elements and values in it nullable."""
    if isinstance(kind, StructType):
        inner = [_with_nullable_parts(field) for field in kind]
        return StructType([StructField(field.name, field.dataType, True, field.metadata) for field in inner])  # noqa: FBT003 - Spark's signature
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable_within(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(_nullable_within(kind.keyType), _nullable_within(kind.valueType))
    return kind
