"""The columns of files with different columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidelog.log.errors import SchemaMismatchError
from tidelog.log.format.schema_union import SchemaUnion


def union_of(*schemas: pa.Schema) -> pa.Schema:
    union = SchemaUnion()
    for number, schema in enumerate(schemas):
        union.add(schema, f"{number}.parquet")
    return union.schema


def of(kind: pa.DataType, name: str = "c") -> pa.Schema:
    return pa.schema([(name, kind)])


def test_columns_come_in_the_order_in_which_they_first_occur_and_are_nullable() -> None:
    first = pa.schema([pa.field("b", pa.int64(), nullable=False), ("a", pa.string())])
    found = union_of(first, pa.schema([("c", pa.bool_()), ("a", pa.string())]))
    assert found == pa.schema([("b", pa.int64()), ("a", pa.string()), ("c", pa.bool_())])


@pytest.mark.parametrize(
    ("one", "other", "wider"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int8(), pa.int16(), pa.int16()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(9, 2), pa.decimal128(9, 2), pa.decimal128(9, 2)),
    ],
)
def test_the_wider_type_counts_at_every_level(one: pa.DataType, other: pa.DataType, wider: pa.DataType) -> None:
    for pair in ((one, other), (other, one)):
        assert union_of(*map(of, pair)) == of(wider)
        nested = [of(pa.struct([("x", pa.list_(pa.map_(pa.string(), kind)))])) for kind in pair]
        assert union_of(*nested) == of(pa.struct([("x", pa.list_(pa.map_(pa.string(), wider)))]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.int32(), pa.float64()),
        (pa.int64(), pa.string()),
        (pa.decimal128(9, 2), pa.decimal128(12, 2)),
        (pa.decimal128(9, 2), pa.int32()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.date32(), pa.timestamp("us")),
        (pa.string(), pa.binary()),
        (pa.list_(pa.int32()), pa.int32()),
        (pa.struct([("x", pa.int32())]), pa.map_(pa.string(), pa.int32())),
    ],
)
def test_other_types_conflict_and_both_files_are_named(one: pa.DataType, other: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        union_of(of(pa.bool_(), "other"), of(one), of(one), of(other))
    assert "in the files 1.parquet and 3.parquet" in caught.value.message
    assert caught.value.column == "c"


def test_the_file_that_widened_a_field_is_named() -> None:
    kinds = (pa.int32(), pa.int64(), pa.string())
    with pytest.raises(SchemaMismatchError) as caught:
        union_of(*(of(pa.struct([("x", kind)])) for kind in kinds))
    assert "column 'c.x' is int64 and string in the files 1.parquet and 2.parquet" in caught.value.message


def test_names_that_differ_in_case_only_conflict() -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        union_of(of(pa.int32(), "Id"), of(pa.int32(), "ID"))
    assert "column 'Id' is spelled 'ID' in the files 0.parquet and 1.parquet" in caught.value.message


def test_a_struct_has_the_fields_of_all_files() -> None:
    found = union_of(of(pa.struct([("x", pa.int32())])), of(pa.struct([("y", pa.string()), ("x", pa.int32())])))
    assert found == of(pa.struct([("x", pa.int32()), ("y", pa.string())]))
