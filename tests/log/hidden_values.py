"""Random columns as Arrow can hold them: with values below nulls, in slices and chunks, as views and dictionaries."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

LEAVES = (pa.int64(), pa.int32(), pa.string(), pa.binary(), pa.bool_(), pa.float64(), pa.timestamp("us", "UTC"))


def random_type(draw: random.Random, depth: int = 2) -> pa.DataType:
    """A table's type: plain below `depth` lists, maps and structs at most."""
    shape = draw.choice(("list", "list", "map", "struct", "plain")) if depth else "plain"
    if shape == "list":
        return pa.list_(pa.field("element", random_type(draw, depth - 1), nullable=draw.random() < 0.8))
    if shape == "map":
        return pa.map_(pa.string(), random_type(draw, depth - 1))
    if shape == "struct":
        fields = [
            pa.field(f"f{number}", random_type(draw, depth - 1), nullable=draw.random() < 0.8)
            for number in range(draw.randint(1, 2))
        ]
        return pa.struct(fields)
    return draw.choice(LEAVES)


def random_value(draw: random.Random, kind: pa.DataType, *, nullable: bool = True) -> Any:
    """A value as `to_pylist` shows it."""
    if nullable and draw.random() < 0.3:
        return None
    if pt.is_map(kind):
        return [(f"k{number}", random_value(draw, kind.item_type)) for number in range(draw.randint(0, 2))]
    if pt.is_list(kind):
        inner = kind.value_field
        return [random_value(draw, inner.type, nullable=inner.nullable) for _ in range(draw.choice((0, 1, 2, 2)))]
    if pt.is_struct(kind):
        return {field.name: random_value(draw, field.type, nullable=field.nullable) for field in kind}
    number = draw.randint(0, 99)
    if pt.is_string(kind):
        return f"text {number} " + "x" * draw.choice((0, 20))  # a view holds a short text itself
    if pt.is_binary(kind):
        return f"{number}".encode()
    if pt.is_timestamp(kind):
        return pa.scalar(number, kind).as_py()
    return bool(number % 2) if pt.is_boolean(kind) else number / 2 if pt.is_floating(kind) else number


def random_column(draw: random.Random, values: Sequence[Any], kind: pa.DataType) -> pa.ChunkedArray:
    """The values as one of the columns that Arrow can hold them in."""
    before, after = draw.randint(0, 2), draw.randint(0, 1)
    padded = [_garbage(draw, kind) for _ in range(before)] + [*values] + [_garbage(draw, kind) for _ in range(after)]
    array = _array(draw, padded, kind).slice(before, len(values))
    cut = draw.choice((0, draw.randint(0, len(values))))
    column = pa.chunked_array([array.slice(0, cut), array.slice(cut)])
    column.validate(full=True)
    assert column.to_pylist() == list(values)
    return column


def _garbage(draw: random.Random, kind: pa.DataType) -> Any:
    """Anything that is in memory below a null."""
    return random_value(draw, kind, nullable=False)


def _array(draw: random.Random, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    style = draw.random()
    mask = pa.array([value is None for value in values], pa.bool_())
    if not pt.is_nested(kind):
        found = pa.array(values, kind)
        if pt.is_string(kind):
            found = found if style < 0.5 else found.cast(pa.string_view()) if style < 0.8 else found.dictionary_encode()
        if pt.is_binary(kind) and style < 0.5:
            found = found.cast(pa.binary_view())
        return found
    full = [_garbage(draw, kind) if value is None else value for value in values]
    if pt.is_struct(kind):
        children = [_array(draw, [value[field.name] for value in full], field.type) for field in kind]
        fields = [pa.field(field.name, child.type) for field, child in zip(kind, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    if pt.is_map(kind):
        pairs = [pair for value in full for pair in value]
        items = _array(draw, [item for _, item in pairs], kind.item_type)
        return pa.MapArray.from_arrays(
            _offsets(full), pa.array([key for key, _ in pairs], pa.string()), items, mask=mask
        )
    return _list(draw, values, kind, style)


def _list(draw: random.Random, values: Sequence[Any], kind: pa.DataType, style: float) -> pa.Array:
    mask = pa.array([value is None for value in values], pa.bool_())
    sizes = {len(value) for value in values if value is not None}
    full = [_garbage(draw, kind) if value is None else value for value in values]
    if style < 0.3 and len(sizes) == 1:
        (size,) = sizes
        inner = kind.value_field
        full = [
            [random_value(draw, inner.type, nullable=inner.nullable) for _ in range(size)] if value is None else value
            for value in values
        ]
        return pa.FixedSizeListArray.from_arrays(_elements(draw, full, kind), size, mask=mask)
    if 0.3 <= style < 0.5:
        # The lists of a view may be anywhere.
        order = draw.sample(range(len(full)), len(full))
        starts, at = [0] * len(full), 0
        for number in order:
            starts[number], at = at, at + len(full[number])
        elements = _elements(draw, [full[number] for number in order], kind)
        lengths = pa.array([len(value) for value in full], pa.int32())
        return pa.ListViewArray.from_arrays(pa.array(starts, pa.int32()), lengths, elements, mask=mask)
    elements = _elements(draw, full, kind)
    if style < 0.7:
        return pa.LargeListArray.from_arrays(_offsets(full).cast(pa.int64()), elements, mask=mask)
    return pa.ListArray.from_arrays(_offsets(full), elements, mask=mask)


def _elements(draw: random.Random, full: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return _array(draw, [element for value in full for element in value], kind.value_type)


def _offsets(full: Sequence[Any]) -> pa.Array:
    ends = [0]
    for value in full:
        ends.append(ends[-1] + len(value))
    return pa.array(ends, pa.int32())
