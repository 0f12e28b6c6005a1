"""Lists, maps and structs of Arrow: converted element by element, field by field.

A list, map or struct that is null may still have elements or fields in memory: Polars' `when(...).then(None)`, a filter
of pyarrow and every list of fixed size leave there what they like. These are no values of any row. Two facts of Arrow
make it easy to take them for some:

- `ListArray.from_arrays` takes a null for an offset, but then gives the elements below it to the row before.
- `values` and `field()` return what is in memory, `flatten()` of a struct what is in the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.arrays import BoolArray, Int64Array

_LISTS = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list, pt.is_list_view, pt.is_large_list_view)
MOST_ELEMENTS = 2**31 - 1
"""The offsets of a list have 32 bits."""

Convert: TypeAlias = Callable[[pa.Array, int], pa.Array]
"""Converts elements or fields. The number says how many of them are null because they belong to no row."""


def is_any_list(kind: pa.DataType) -> bool:
    """Whether the type is one of Arrow's five list types."""
    return any(test(kind) for test in _LISTS)


def convert_lists(values: pa.Array, kind: pa.DataType, converts: Sequence[Convert]) -> pa.Array:
    """A list of the type `kind` from a list of any type, or a map from a map.

    `converts` has one function for the elements, or one each for the keys and the items. They never see the elements of
    a null, and the result has none there. Raises pa.ArrowInvalid if the type cannot hold so many elements.
    """
    starts, lengths = _places(values)
    is_null = np.asarray(values.is_null()) if values.null_count else None
    if is_null is not None:
        lengths[is_null] = 0
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    count = int(offsets[-1])
    if count > MOST_ELEMENTS:
        raise pa.ArrowInvalid(f"{count} elements do not fit into one array of {kind}")
    filled = np.flatnonzero(lengths)
    first = int(starts[filled].min()) if len(filled) else 0
    end = int((starts + lengths)[filled].max()) if len(filled) else 0
    children = [child.slice(first, end - first) for child in _children(values)]
    if np.array_equal(starts[filled] - first, offsets[filled]):
        children = [convert(child, 0) for convert, child in zip(converts, children, strict=True)]
    else:
        taken = np.repeat(starts - first - offsets[:-1], lengths) + np.arange(count)
        is_unused = np.ones(end - first, dtype=bool)
        is_unused[taken] = False
        # They become null first, because they may not fit, and Arrow cannot take elements of every type.
        unused, places = int(is_unused.sum()), pa.array(taken)
        children = [
            convert(nulls_at(child, is_unused), unused).take(places)
            for convert, child in zip(converts, children, strict=True)
        ]
    whole = pa.MapArray if pt.is_map(kind) else pa.ListArray
    mask = None if is_null is None else pa.array(is_null)
    return whole.from_arrays(pa.array(offsets, pa.int32()), *children, type=kind, mask=mask)


def _places(values: pa.Array) -> tuple[Int64Array, Int64Array]:
    """Where the elements of each list start in memory, and how many there are."""
    if pt.is_fixed_size_list(values.type):
        size = values.type.list_size
        return (values.offset + np.arange(len(values))) * size, np.full(len(values), size)
    if pt.is_list_view(values.type) or pt.is_large_list_view(values.type):
        return values.offsets.to_numpy().astype(np.int64), values.sizes.to_numpy().astype(np.int64)
    offsets = values.offsets.to_numpy().astype(np.int64)
    return offsets[:-1], np.diff(offsets)


def _children(values: pa.Array) -> list[pa.Array]:
    return [values.keys, values.items] if pt.is_map(values.type) else [values.values]


def nulls_at(values: pa.Array, places: BoolArray) -> pa.Array:
    """The values, null at these places, too. Copies nothing, and supports every type that has nulls."""
    return pa.StructArray.from_arrays([values], [""], mask=pa.array(places)).flatten()[0]


def build_struct(children: Sequence[pa.Array], kind: pa.StructType, is_null: BoolArray) -> pa.Array:
    """A struct of the type `kind` that is null at these places; `children` may have anything there.

    Below a null struct, a field that cannot be null repeats another row's value, as Parquet's writer wants one there.
    """
    if is_null.all():
        return nulls(len(is_null), kind)
    if is_null.any():
        last = np.maximum.accumulate(np.where(is_null, -1, np.arange(len(is_null))))
        places = pa.array(np.where(last < 0, np.argmin(is_null), last))
        children = [
            child if field.nullable or not child.null_count else child.take(places)
            for child, field in zip(children, kind, strict=True)
        ]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.array(is_null))


def nulls(count: int, kind: pa.DataType) -> pa.Array:
    """So many nulls. Below a null struct, a field that cannot be null has some value."""
    return pa.array([None] * count, kind) if pt.is_struct(kind) else pa.nulls(count, kind)
