"""The values of rows, also those that Python has no object for: dates and times outside the years 1 to 9999."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.arrays import BoolArray


def differing(left: pa.Table, right: pa.Table) -> BoolArray:
    """Whether row n of `left` differs from row n of `right` in any column. Both have the same columns.

    Null is equal to null, NaN to NaN and -0.0 to 0.0.
    """
    found = np.zeros(left.num_rows, dtype=bool)
    for name in left.column_names:
        found |= _differing(left[name].combine_chunks(), right[name].combine_chunks())
    return found


def shown(row: pa.Table) -> dict[str, Any]:
    """The values of a table of one row, for people: Python's, or Arrow's text for a date that Python lacks."""
    return {name: _shown(row[name][0]) for name in row.column_names}


def _differing(left: pa.Array, right: pa.Array) -> BoolArray:
    if pt.is_null(left.type):
        return np.zeros(len(left), dtype=bool)
    if pt.is_nested(left.type):
        both = (values.view(_as_numbers(values.type)).to_pylist() for values in (left, right))
        return np.array([_plain(one) != _plain(two) for one, two in zip(*both, strict=True)], dtype=bool)
    same = pc.equal(left, right)
    if pt.is_floating(left.type):
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    same = pc.if_else(pc.and_(pc.is_null(left), pc.is_null(right)), pa.scalar(True), pc.fill_null(same, False))  # noqa: FBT003 - values
    return ~np.asarray(same, dtype=bool)


def _as_numbers(kind: pa.DataType) -> pa.DataType:
    """The type of the same layout that has numbers for dates and times."""
    if pt.is_date(kind):
        return pa.int32()
    if pt.is_timestamp(kind):
        return pa.int64()
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_as_numbers(field.type)) for field in kind])
    if pt.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_as_numbers(key.type)), item.with_type(_as_numbers(item.type)))
    if pt.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_numbers(kind.value_type)))
    return kind


def _plain(value: Any) -> Any:
    """The value, with NaN equal to itself."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return "NaN" if isinstance(value, float) and value != value else value  # noqa: PLR0124 - only NaN differs


def _shown(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return value.cast(pa.string()).as_py()
