"""The schema of the rows: as a caller gives it, or as the envelopes of a batch say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.types import DataType, StructType

from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, SchemaMismatchError
from tidelog.log.format import properties
from tidelog.log.presentable import brief
from tidelog.streaming import spark_versions
from tidelog.streaming.sink.captured import CONTROL

Schema: TypeAlias = "Table | pa.Schema | StructType | str"
"""The columns of a table: a Table, a schema of Arrow's or Spark's, or DDL text such as `"id BIGINT, name STRING"`."""


def struct_of(schema: Any) -> StructType:
    """A schema as Spark's, without the columns that belong to the sink. Raises ConfigurationError."""
    if isinstance(schema, Table):
        schema = schema.schema
    if isinstance(schema, pa.Schema):
        found: DataType = spark_versions.columns_from_arrow(schema)
    elif isinstance(schema, str):
        found = DataType.fromDDL(schema)
    else:
        found = schema
    if not isinstance(found, StructType):
        raise ConfigurationError(
            f"schema cannot be {brief(schema)}",
            advice="pass a Table, a pyarrow.Schema, a StructType, or DDL text such as 'id BIGINT, name STRING'",
        )
    return StructType([field for field in found if field.name not in CONTROL])


def keys_of(keys: Sequence[str], schema: Any, columns: StructType) -> tuple[str, ...]:
    """The columns of the key as the schema spells them; those of a Table by default."""
    if isinstance(keys, str):
        raise ConfigurationError(f"keys must be a list of column names, not {keys!r}", advice=f"pass [{keys!r}]")
    if not keys and isinstance(schema, Table):
        keys = properties.primary_key(schema.properties)
    if not keys:
        raise ConfigurationError(
            "keys are missing: the columns that identify a row",
            advice="pass keys=['id'], or a Table with a primary key",
        )
    known = {field.name.lower(): field.name for field in columns}
    for name in keys:
        if name.lower() not in known:
            raise SchemaMismatchError(
                f"the schema lacks the key column {name!r}",
                advice=f"choose from {', '.join(known.values())}",
                column=name,
            )
    return tuple(known[name.lower()] for name in keys)
