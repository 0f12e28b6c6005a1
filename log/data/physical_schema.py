"""Convert between a data file's columns and the table's columns.

A file can lack columns and nested fields that were added later (they are null), have a narrower type than the table has
now, use physical names or ids for columns (column mapping), and use an older form of a type (int96 timestamps).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.errors import UnsupportedFeatureError
from tidelog.log.format.schema import PARQUET_ID, field_id, is_variant, physical_fields, physical_name


def find_fields(wanted: Sequence[pa.Field], found: Sequence[pa.Field]) -> list[int | None]:
    """For each of the table's fields, the index of the file's field that holds it, or None.

    Fields match by id if the table maps columns by id, else by physical name. The cost is linear in the fields.
    """
    by_name: dict[str, int] = {}
    by_id: dict[int, int] = {}
    for index, candidate in enumerate(found):
        by_name.setdefault(candidate.name, index)
        number = _parquet_id(candidate)
        if number is not None:
            by_id.setdefault(number, index)
    ids = [field_id(field) for field in wanted]
    names = [physical_name(field) for field in wanted]
    return [by_name.get(name) if number is None else by_id.get(number) for name, number in zip(names, ids, strict=True)]


def reshape(values: pa.Array, field: pa.Field) -> pa.Array:
    """Cast a file's `values` to the type of the table's `field`; nested fields are matched one by one."""
    kind = field.type
    if not pt.is_nested(kind):
        return _cast(values, kind)
    if pt.is_list(kind) and _is_other_list(values.type):
        values = values.cast(pa.list_(values.type.value_field))
    if not _same_nesting(values.type, kind):
        raise pa.ArrowTypeError(f"column {field.name!r} is {values.type} in the file but {kind} in the table")
    if values.offset:
        values = pa.concat_arrays([values])
    if is_variant(field):
        _refuse_shredded(values, field)
    if pt.is_struct(kind):
        return pa.StructArray.from_arrays(_children(values, kind), fields=list(kind), mask=values.is_null())
    if pt.is_map(kind):
        keys, items = reshape(values.keys, kind.key_field), reshape(values.items, kind.item_field)
        return pa.MapArray.from_arrays(_offsets(values), keys, items, type=kind)
    elements = reshape(values.values, kind.value_field)
    return pa.ListArray.from_arrays(_offsets(values), elements, type=kind)


def to_physical(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """`rows` under the names and ids that data files use; their columns are some of those in `schema`.

    Columns with codes (Arrow dictionaries) keep them.
    """
    own = physical_fields([schema.field(name) for name in rows.column_names])
    fields = [_coded_like(field, kind) for field, kind in zip(own, rows.schema.types, strict=True)]
    if pa.schema(fields).equals(rows.schema, check_metadata=True):
        return rows
    columns = [
        column
        if pt.is_dictionary(field.type)
        else pa.chunked_array([chunk.view(field.type) for chunk in column.chunks], field.type)
        for column, field in zip(rows.columns, fields, strict=True)
    ]
    return pa.table(columns, schema=pa.schema(fields))


def physical_path(path: Sequence[str], schema: pa.Schema) -> tuple[str, ...]:
    """The path of a column, or of a field in one, in the names that data files use; case does not matter.

    An unknown name stays as it is.
    """
    fields = list(schema)
    found = []
    for name in path:
        field = next((candidate for candidate in fields if candidate.name.lower() == name.lower()), None)
        found.append(name if field is None else physical_name(field))
        kind: Any = field.type if field is not None and pt.is_struct(field.type) else pa.struct([])
        fields = [kind.field(index) for index in range(kind.num_fields)]
    return tuple(found)


def _coded_like(field: pa.Field, kind: pa.DataType) -> pa.Field:
    return field.with_type(kind) if pt.is_dictionary(kind) else field


def _is_other_list(kind: pa.DataType) -> bool:
    """Whether the type is one of Arrow's other list types, which an Arrow schema inside the file can ask for."""
    tests = (pt.is_large_list, pt.is_fixed_size_list, pt.is_list_view, pt.is_large_list_view)
    return any(test(kind) for test in tests)


def _same_nesting(found: pa.DataType, wanted: pa.DataType) -> bool:
    return any(kind(found) and kind(wanted) for kind in (pt.is_struct, pt.is_map, pt.is_list))


def _children(values: pa.StructArray, kind: pa.StructType) -> list[pa.Array]:
    fields = list(kind)
    return [
        pa.nulls(len(values), field.type) if index is None else reshape(values.field(index), field)
        for field, index in zip(fields, find_fields(fields, list(values.type)), strict=True)
    ]


def _offsets(values: pa.Array) -> pa.Array:
    """A list's offsets, null where the list is null: Arrow's `from_arrays` takes validity in this form."""
    if not values.null_count:
        return values.offsets
    present = pa.concat_arrays([values.is_valid(), pa.array([True])])
    return pa.compute.if_else(present, values.offsets, pa.scalar(None, pa.int32()))


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type.equals(kind):
        return values
    if pt.is_timestamp(values.type) and pt.is_timestamp(kind):
        # int96 timestamps are in nanoseconds; Spark keeps microseconds.
        return values.cast(kind, safe=False)
    return values.cast(kind)


def _parquet_id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(PARQUET_ID)
    return None if text is None else int(text)


def _refuse_shredded(values: pa.Array, field: pa.Field) -> None:
    if values.type.get_field_index("typed_value") >= 0:
        raise UnsupportedFeatureError(
            f"the variant column {field.name!r} is shredded, which tidelog cannot read",
            advice="read the table with another engine, or leave the column out",
            features="variantShredding",
        )
