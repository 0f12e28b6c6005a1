"""Arrow types under the names that SQL has for them, for texts that people read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

_NAMES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.large_string(): "string",
    pa.large_binary(): "binary",
}


def sql_type(kind: pa.DataType) -> str:
    """The type as Spark SQL writes it, such as `array<bigint>`; Arrow's name for a type that SQL lacks."""
    if pt.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pt.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pt.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {sql_type(field.type)}' for field in kind)}>"
    if pt.is_map(kind):
        return f"map<{sql_type(kind.key_type)}, {sql_type(kind.item_type)}>"
    if pt.is_list(kind) or pt.is_large_list(kind):
        return f"array<{sql_type(kind.value_type)}>"
    return _NAMES.get(kind, str(kind))
