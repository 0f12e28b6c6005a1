"""The digest of rows in order: the same for the same rows however they come, and another for any other rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
import pytest

from tests.log.data.test_row_hashes import VALUES, array
from tidelog.compaction_daemon.rewriting.digests import SequenceDigest, differing_columns


def digest(*batches: pa.RecordBatch) -> SequenceDigest:
    found = SequenceDigest()
    for batch in batches:
        found.add(batch)
    return found


def of(values: Any, kind: pa.DataType | None = None) -> str:
    column = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return digest(pa.record_batch({"x": column})).columns["x"]


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_each_value_at_each_place_counts(kind: pa.DataType) -> None:
    values = array(kind)
    count = len(values)
    whole = of(values)
    for first in range(count):
        for second in range(first):
            order = np.arange(count)
            order[[first, second]] = order[[second, first]]
            assert of(values.take(pa.array(order))) != whole, "two values exchanged"
            order = np.arange(count)
            order[first] = second
            assert of(values.take(pa.array(order))) != whole, "a value replaced"
    assert of(values.slice(1)) != whole
    assert of(pa.concat_arrays([values, values.slice(0, 1)])) != whole


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_batches_and_offsets_do_not_count(kind: pa.DataType) -> None:
    values = pa.concat_arrays([array(kind)] * 5)
    whole = digest(pa.record_batch({"x": values}))
    for size in (1, 2, 3, 7, 8, 9):
        parts = [pa.record_batch({"x": values.slice(at, size)}) for at in range(0, len(values), size)]
        found = digest(*parts)
        assert found.columns == whole.columns
        assert found.sums == whole.sums


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_what_is_under_a_null_does_not_count(kind: pa.DataType) -> None:
    """Arrow leaves anything in the place of a null."""
    present = array(kind).take(pa.array([1, len(array(kind)) - 1, 1]))
    hidden = _with_null_second(present)
    clean = pa.concat_arrays([present.slice(0, 1), pa.nulls(1, kind), present.slice(2, 1)])
    assert hidden.equals(clean)
    assert of(hidden) == of(clean)


def _with_null_second(values: pa.Array) -> pa.Array:
    """Three values of which the second is null by the validity bitmap alone: its value is still there."""
    kind = values.type
    own = 2 if pt.is_list(kind) or pt.is_map(kind) else 1 if pt.is_struct(kind) else len(values.buffers())
    children = None
    if pt.is_struct(kind):
        children = [values.field(index) for index in range(kind.num_fields)]
    elif pt.is_list(kind):
        children = [values.values]
    elif pt.is_map(kind):
        children = [pa.StructArray.from_arrays([values.keys, values.items], fields=[kind.key_field, kind.item_field])]
    buffers = [pa.py_buffer(bytes([0b101])), *values.buffers()[1:own]]
    return pa.Array.from_buffers(kind, len(values), buffers, null_count=1, children=children)


def test_codes_do_not_count() -> None:
    texts = pa.array(["a", None, "", "longer", "a", None], pa.string())
    codes = pa.DictionaryArray.from_arrays(
        pa.array([2, None, 1, 0, 2, None], pa.int32()), pa.array(["longer", "", "a", "unused"])
    )
    assert of(codes) == of(texts)
    assert of(codes.slice(2)) == of(texts.slice(2))
    null_as_code = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array([None, "x"], pa.string()))
    assert of(null_as_code) == of([None, "x"], pa.string())


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (["ab", "c"], ["a", "bc"], pa.string()),
        (["", "a"], ["a", ""], pa.string()),
        ([None, ""], ["", None], pa.string()),
        ([[1], [2, 3]], [[1, 2], [3]], pa.list_(pa.int64())),
        ([[None], []], [[], [None]], pa.list_(pa.int64())),
        ([0.0], [-0.0], pa.float64()),
        ([None, 0], [0, None], pa.int64()),
        ([Decimal("1.0")], [Decimal("10.0")], pa.decimal128(10, 1)),
    ],
)
def test_values_with_the_same_bytes_differ(first: list[Any], second: list[Any], kind: pa.DataType) -> None:
    assert of(first, kind) != of(second, kind)


def test_the_columns_that_differ_are_named() -> None:
    rows = pa.record_batch({"a": [1, 2], "b": [1, 2], "c": ["x", "y"]})
    other = pa.record_batch({"a": [1, 2], "b": [2, 1], "c": ["x", "z"]})
    assert list(differing_columns(digest(rows), digest(other))) == ["b", "c"]
    assert list(differing_columns(digest(rows), digest(rows))) == []
    assert digest(rows).sums != digest(other).sums
    exchanged = pa.record_batch({"b": [1, 2], "a": [1, 2], "c": ["x", "y"]})
    assert digest(rows).sums == digest(exchanged).sums, "columns are compared by name"


def test_columns_that_are_missing_differ() -> None:
    rows = pa.record_batch({"a": [1], "b": [1]})
    assert list(differing_columns(digest(rows), digest(rows.select(["a"])))) == ["b"]
    assert list(differing_columns(digest(rows), digest())) == ["a", "b"]


def test_rows_without_columns_are_counted() -> None:
    empty = pa.RecordBatch.from_arrays([], names=[])
    assert digest(empty).sums.rows == 0
