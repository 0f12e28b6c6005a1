"""Values that no column can hold: Python rows and frames with cycles, mixed types or broken text are typed errors."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from datetime import UTC
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.data.test_conform import to_arrow_table
from tests.log.support import memory_store, new_table
from tidelog.log.data import blocks, conform, inferred_columns
from tidelog.log.data.conform import cast
from tidelog.log.data.inferred_columns import require_end
from tidelog.log.errors import SchemaMismatchError

NUMBER = pa.schema([("c", pa.int64())])
LONE_SURROGATE = "\ud800"


# --- values that are not alike ---------------------------------------------------------------------------------------


@st.composite
def columns(draw: st.DrawFn) -> list[Any]:
    """Columns of one kind of values, or of two, with gaps; also in lists and dicts."""
    kinds = [
        st.integers(-9, 9),
        st.booleans(),
        st.sampled_from([0.5, float("nan")]),
        st.just(float("nan")),
        st.decimals(-9, 9, places=2),
        st.sampled_from(["a", ""]),
        st.just(b"a"),
        st.dates(),
        st.datetimes(),
        st.datetimes(timezones=st.just(UTC)),
        st.sampled_from([np.int64(1), np.float64("nan"), pd.NA, pd.Timestamp("2024-01-01"), np.array([1, None])]),
    ]
    flat = st.one_of(*draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=2)), st.none())
    nested = [flat, st.lists(flat, max_size=3), st.fixed_dictionaries({"a": flat}, optional={"b": flat})]
    return draw(st.lists(st.one_of(*draw(st.lists(st.sampled_from(nested), min_size=1, max_size=2))), max_size=6))


@given(columns(), st.booleans())
def test_values_are_alike_by_their_types_as_by_themselves(values: list[Any], nan_is_null: bool) -> None:
    """Their types tell it fast, and never anything else than a look at each value."""

    def found() -> tuple[str, str]:
        try:
            return "alike", repr(inferred_columns.alike(values, "c", nan_is_null=nan_is_null))
        except SchemaMismatchError as error:
            return "refused", str(error)

    by_types = found()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(inferred_columns, "_told_by_types", lambda *_, **__: None)
        assert by_types == found()


# --- values without an end -------------------------------------------------------------------------------------------


def endless_list() -> list[Any]:
    found: list[Any] = []
    found += [found, found]
    return found


def endless_dict() -> dict[str, Any]:
    found: dict[str, Any] = {}
    found["a"] = [found]
    return found


def endless_view() -> dict[str, Any]:
    found: dict[str, Any] = {}
    found["a"] = found.values()
    return found


def endless_array() -> Any:
    found = np.empty(1, dtype=object)
    found[0] = found
    return found


def deep_list() -> list[Any]:
    found: list[Any] = []
    for _ in range(5_000):
        found = [found]
    return found


ENDLESS = [endless_list, endless_dict, endless_view, endless_array, deep_list]
KINDS = [
    pa.int64(),
    pa.string(),
    pa.null(),
    pa.list_(pa.int64()),
    pa.map_(pa.string(), pa.int64()),
    pa.struct([("a", pa.int64())]),
]


@pytest.mark.parametrize("make", ENDLESS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_endless_value_is_refused(make: Callable[[], Any], kind: pa.DataType) -> None:
    table = new_table(memory_store(), pa.schema([("c", kind), ("x", pa.int64())]))
    started = time.process_time()
    with pytest.raises(SchemaMismatchError, match="'c"):
        table.insert([{"c": None}, {"c": make()}])
    with pytest.raises(SchemaMismatchError, match="'c"):
        table.insert(pd.DataFrame({"c": [None, make()]}))
    assert time.process_time() - started < 5
    assert table.scan().count() == 0


@pytest.mark.parametrize("make", ENDLESS)
def test_an_endless_value_in_a_column_that_the_table_lacks_is_refused(make: Callable[[], Any]) -> None:
    table = new_table(memory_store(), NUMBER)
    with pytest.raises(SchemaMismatchError, match="'op' of the data is nested too deeply"):
        table.upsert([{"c": 1, "op": make()}], keys=["c"], delete_where="op IS NULL")


def test_values_that_are_only_repeated_are_not_endless() -> None:
    shared = [1]
    values = [[shared, shared, None], [], None, [shared] * 1000, {"a": {1, 2}, "b": np.array([1, 2])}]
    require_end(values, "c")


# --- values of the wrong kind ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [["ab" * 3], ["ab"], [1], (1,), [(1, 2, 3)], [None], [{"a"}]], ids=str)
def test_a_map_of_other_things_than_pairs_is_an_error(value: Any) -> None:
    with pytest.raises(SchemaMismatchError, match=r"'c' is map<.*list of \(key, value\) pairs"):
        to_arrow_table([{"c": value}], pa.schema([("c", pa.map_(pa.string(), pa.string()))]))


def test_a_map_can_be_a_dict_or_a_list_of_pairs() -> None:
    rows = [{"c": {"a": 1}}, {"c": [("a", 1), ["b", 2]]}, {"c": ()}, {"c": None}]
    found = to_arrow_table(rows, pa.schema([("c", pa.map_(pa.string(), pa.int64()))]))
    assert found["c"].to_pylist() == [[("a", 1)], [("a", 1), ("b", 2)], [], None]


FRAMES = {
    "a lone surrogate": pd.DataFrame({"x": [1], "c": [LONE_SURROGATE]}),
    "numbers and text": pd.DataFrame({"x": [1, 2], "c": [1, "x"]}),
    "an object": pd.DataFrame({"c": [object()]}),
    "a large number": pd.DataFrame({"c": [10**30]}),
    "a complex number": pd.DataFrame({"c": [1j]}),
    "two columns of a name": pd.DataFrame([[1, 2]], columns=["c", "c"]),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
def test_a_column_of_a_frame_that_arrow_cannot_take_is_named(frame: pd.DataFrame) -> None:
    table = new_table(memory_store(), pa.schema([("x", pa.int64()), ("c", pa.string())]))
    for write in (table.insert, table.overwrite, functools.partial(table.upsert, keys=["x"])):
        with pytest.raises(
            SchemaMismatchError, match=r"column 'c' of the data cannot be read: .*give it values of one type"
        ) as caught:
            write(frame)
        assert caught.value.fields == {"column": "c"}


def test_the_name_of_a_column_can_be_broken_text() -> None:
    with pytest.raises(SchemaMismatchError, match=r"column '\\ud800' of the data"):
        to_arrow_table(pd.DataFrame({LONE_SURROGATE: [1]}), NUMBER)


@pytest.mark.parametrize("data", [pa.chunked_array([[1]]), pl.Series([1])], ids=["arrow", "polars"])
def test_a_single_column_is_not_a_table(data: Any) -> None:
    with pytest.raises(SchemaMismatchError, match=r"cannot be read.*pass a table or a frame"):
        to_arrow_table(data, NUMBER)


# --- more than one Arrow array holds ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()], ids=str)
@pytest.mark.parametrize("source", ["large", "view", "dictionary", "dictionary of views", "list"])
def test_long_chunks_are_split(kind: pa.DataType, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 10_000)
    is_text = kind == pa.string()
    large, view = (pa.large_string(), pa.string_view()) if is_text else (pa.large_binary(), pa.binary_view())
    values = pa.array([None, *(str(number % 7) * 100 for number in range(2_000)), ""], pa.string()).cast(large)
    data, target = values, kind
    if source == "view":
        data = values.cast(view)
    elif source.startswith("dictionary"):
        data = values.dictionary_encode()
        words = data.dictionary.cast(view if source.endswith("views") else kind)
        data = pa.DictionaryArray.from_arrays(data.indices, words)
    elif source == "list":
        data, target = pa.ListArray.from_arrays(list(range(len(values) + 1)), values), pa.list_(kind)
    found = to_arrow_table(pa.table({"c": data}), pa.schema([("c", target)]))["c"]
    assert found.to_pylist() == data.to_pylist()
    assert 10 < found.num_chunks < 100
    assert max(chunk.nbytes for chunk in found.chunks) <= 20_000


def test_parts_of_a_long_chunk_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a slice, the offsets of the last texts would still be beyond what the type can hold."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1_000)
    offset_bytes = []

    def recorded(values: pa.Array, field: pa.Field, where: str) -> pa.Array:
        offset_bytes.append(values.buffers()[1].size)
        return cast(values, field, where)

    monkeypatch.setattr(conform, "cast", recorded)
    to_arrow_table(
        pa.table({"s": pa.repeat(pa.scalar("x" * 100, pa.large_string()), 100)}), pa.schema([("s", pa.string())])
    )
    assert len(offset_bytes) > 10
    assert max(offset_bytes) < 500
