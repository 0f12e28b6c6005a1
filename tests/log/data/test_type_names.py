"""Arrow types under their SQL names."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidelog.log.data.type_names import sql_type


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.int64(), "bigint"),
        (pa.string(), "string"),
        (pa.decimal128(10, 2), "decimal(10,2)"),
        (pa.timestamp("us", "UTC"), "timestamp"),
        (pa.timestamp("us"), "timestamp_ntz"),
        (pa.list_(pa.map_(pa.string(), pa.int32())), "array<map<string, int>>"),
        (pa.struct([("x", pa.float64()), ("y", pa.list_(pa.date32()))]), "struct<x: double, y: array<date>>"),
        (pa.time32("s"), "time32[s]"),
    ],
)
def test_sql_names(kind: pa.DataType, name: str) -> None:
    assert sql_type(kind) == name
