"""File statistics written from rows: bounds, null counts, and which columns have them."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.strategies import PRIMITIVES
from tidelog.log.format.statistics import collect, num_records, truncate_maximum, truncate_minimum

UTC = dt.UTC
ZONED, NTZ = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
MILLISECOND = dt.timedelta(milliseconds=1)
# Strings near the cut, with the characters at which the rules for the tie-breaker change.
EDGES = st.text(st.sampled_from("a~\x7f\x80é\ud7ff\uffff\U0010fffe\U0010ffff"), min_size=28, max_size=36)


def column(values: list[Any], kind: pa.DataType) -> dict[str, Any]:
    """The statistics of one column, as a reader parses them."""
    text = collect(pa.table({"c": pa.array(values, kind)}))
    return json.loads(text, parse_float=Decimal)  # type: ignore[no-any-return]


def bounds(values: list[Any], kind: pa.DataType) -> tuple[Any, Any]:
    stats = column(values, kind)
    return stats["minValues"].get("c"), stats["maxValues"].get("c")


# --- the oracle: what a reader can conclude from a bound -------------------------------------------------------------


def may_hold(value: Any, kind: pa.DataType, low: Any, high: Any) -> bool:
    """Whether a reader that looks for `value` would open the file (protocol, "Per-file Statistics")."""
    if kind in (ZONED, NTZ):
        lowest, highest = (None if text is None else moment(text, kind) for text in (low, high))
        after = lowest is None or lowest <= value
        # A maximum is rounded down to the millisecond, so readers add one.
        return after and (highest is None or value < highest + MILLISECOND)
    parsers: dict[Any, Callable[[Any], Any]] = {
        pa.date32(): dt.date.fromisoformat,
        pa.float32(): float,
        pa.float64(): float,
    }
    parsed = parsers.get(kind, lambda bound: bound)
    after = low is None or parsed(low) <= value
    return after and (high is None or value <= parsed(high))


def moment(text: str, kind: pa.DataType) -> dt.datetime:
    assert text.endswith("Z") == (kind == ZONED), "only a timestamp with a time zone has a Z"
    return dt.datetime.fromisoformat(text)


_COLUMNS = st.sampled_from(list(PRIMITIVES)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(st.none() | PRIMITIVES[kind], max_size=8))
)


@settings(max_examples=250)
@given(_COLUMNS)
def test_bounds_never_exclude_a_value(case: tuple[pa.DataType, list[Any]]) -> None:
    kind, values = case
    stats = column(values, kind)
    low, high = stats["minValues"].get("c"), stats["maxValues"].get("c")
    assert stats["numRecords"] == len(values)
    assert stats["nullCount"] == {"c": values.count(None)}
    for value in values:
        assert value is None or may_hold(value, kind, low, high)


@settings(max_examples=150)
@given(st.lists(EDGES, min_size=1, max_size=4))
def test_bounds_of_long_strings_never_exclude_a_value(values: list[str]) -> None:
    low, high = bounds(values, pa.string())
    assert all(may_hold(value, pa.string(), low, high) for value in values)


_ORDERED = [kind for kind in PRIMITIVES if kind not in (pa.binary(), pa.bool_())]


@given(st.sampled_from(_ORDERED).flatmap(lambda kind: st.tuples(st.just(kind), PRIMITIVES[kind])))
def test_the_bounds_of_a_single_value_are_that_value(case: tuple[pa.DataType, Any]) -> None:
    kind, value = case
    if isinstance(value, float) and not math.isfinite(value):
        return
    if isinstance(value, str) and len(value) > 32:
        return
    low, high = bounds([value, None], kind)
    if isinstance(value, dt.datetime):
        cut = value.replace(microsecond=value.microsecond // 1000 * 1000)
        assert moment(low, kind) == moment(high, kind) == cut
    elif isinstance(value, float):
        assert float(low) == float(high) == value
    else:
        spelled = value.isoformat() if isinstance(value, dt.date) else value
        assert low == high == spelled


# --- strings ---------------------------------------------------------------------------------------------------------

CUT = "x" * 32


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("", "", ""),
        ("abc", "abc", "abc"),
        (CUT, CUT, CUT),
        (CUT + "a", CUT, CUT + "\x7f"),
        (CUT + "~~~", CUT, CUT + "\x7f"),
        (CUT + "\x7f", CUT, CUT + "\U0010ffff"),
        (CUT + "é", CUT, CUT + "\U0010ffff"),
        (CUT + "\U0010ffff", CUT, None),
    ],
)
def test_strings_are_cut_to_32_characters(text: str, low: str, high: str | None) -> None:
    assert truncate_minimum(text) == low
    assert truncate_maximum(text) == high
    assert bounds([text], pa.string()) == (low, high)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80) | EDGES)
def test_the_bounds_of_a_cut_string_still_hold(text: str) -> None:
    low, high = truncate_minimum(text), truncate_maximum(text)
    assert len(low) <= 32
    assert low <= text
    assert high is None or (len(high) <= 33 and text <= high)
    # Readers compare UTF-8 bytes, whose order is that of the characters.
    assert high is None or text.encode() <= high.encode()


# --- numbers and times -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_column_with_nan_or_infinity_has_no_bounds(kind: pa.DataType, odd: float) -> None:
    assert bounds([1.0, odd, None], kind) == (None, None)
    assert column([1.0, odd, None], kind)["nullCount"] == {"c": 1}


@pytest.mark.parametrize(
    ("micros", "expected"),
    [
        (0, "1970-01-01T00:00:00.000"),
        (123_999, "1970-01-01T00:00:00.123"),
        (-1, "1969-12-31T23:59:59.999"),
        (-1001, "1969-12-31T23:59:59.998"),
        (1_577_934_245_678_901, "2020-01-02T03:04:05.678"),
    ],
)
def test_times_are_rounded_down_to_the_millisecond(micros: int, expected: str) -> None:
    assert bounds([micros], NTZ) == (expected, expected)
    assert bounds([micros], ZONED) == (expected + "Z", expected + "Z")


@pytest.mark.parametrize("kind", [ZONED, NTZ, pa.date32()])
def test_a_time_outside_pythons_calendar_has_no_bounds(kind: pa.DataType) -> None:
    far = pa.array([0, 2**61 if kind != pa.date32() else 2**31 - 1], pa.int64() if kind != pa.date32() else pa.int32())
    stats = json.loads(collect(pa.table({"c": far.cast(kind) if kind == pa.date32() else far.view(kind)})))
    assert stats["minValues"] == stats["maxValues"] == {}
    assert stats["nullCount"] == {"c": 0}


def test_decimals_keep_every_digit() -> None:
    digits = Decimal("12345678901234567890123456789012345.678")
    assert bounds([digits, -digits], pa.decimal128(38, 3)) == (-digits, digits)


def test_long_integers_keep_every_digit() -> None:
    assert bounds([-(2**63), 2**63 - 1], pa.int64()) == (-(2**63), 2**63 - 1)


# --- columns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, None], pa.bool_()),
        ([b"x", None], pa.binary()),
        ([[1], None], pa.list_(pa.int64())),
        ([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        ([None, 1], pa.int64()),
    ],
)
def test_only_ordered_types_have_bounds_but_all_have_null_counts(values: list[Any], kind: pa.DataType) -> None:
    stats = column(values, kind)
    assert ("c" in stats["minValues"]) is ("c" in stats["maxValues"]) is (kind == pa.int64())
    assert stats["nullCount"] == {"c": 1}


def test_a_column_of_nulls_has_no_bounds() -> None:
    assert column([None, None], pa.int64()) == {
        "numRecords": 2,
        "minValues": {},
        "maxValues": {},
        "nullCount": {"c": 2},
        "tightBounds": True,
    }


def test_structs_are_nested_and_a_null_parent_counts_as_a_null_child() -> None:
    inner = pa.struct([("y", pa.string()), ("z", pa.list_(pa.int64()))])
    kind = pa.struct([("x", pa.int64()), ("in", inner)])
    values = [
        {"x": 3, "in": {"y": "b", "z": None}},
        {"x": None, "in": {"y": "a", "z": [1]}},
        {"x": 5, "in": None},
        None,
    ]
    stats = json.loads(collect(pa.table({"s": pa.array(values, kind)})))
    assert stats["minValues"] == {"s": {"x": 3, "in": {"y": "a"}}}
    assert stats["maxValues"] == {"s": {"x": 5, "in": {"y": "b"}}}
    assert stats["nullCount"] == {"s": {"x": 2, "in": {"y": 2, "z": 3}}}


def test_values_below_a_null_parent_do_not_count() -> None:
    hidden = pa.StructArray.from_arrays(
        [pa.array([1, 99], pa.int64())], fields=[pa.field("x", pa.int64())], mask=pa.array([False, True])
    )
    stats = json.loads(collect(pa.table({"s": hidden})))
    assert stats["maxValues"] == {"s": {"x": 1}}
    assert stats["nullCount"] == {"s": {"x": 1}}


def leaf_names(tree: dict[str, Any], path: str = "") -> list[str]:
    names = []
    for name, below in tree.items():
        names += leaf_names(below, f"{path}{name}.") if isinstance(below, dict) else [path + name]
    return names


def test_the_first_32_leaf_columns_are_indexed() -> None:
    wide = pa.table({f"c{index}": pa.array([index]) for index in range(40)})
    stats = json.loads(collect(wide))
    for key in ("minValues", "maxValues", "nullCount"):
        assert list(stats[key]) == [f"c{index}" for index in range(32)]


@pytest.mark.parametrize("indexed", [0, 1, 2, 3, 4, 5, 100])
def test_leaf_columns_within_structs_count(indexed: int) -> None:
    kind = pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.int64())]))])
    table = pa.table(
        {
            "a": pa.array([1]),
            "l": pa.array([[1]]),
            "s": pa.array([{"x": 1, "y": {"z": 1}}], kind),
            "b": pa.array([1]),
        }
    )
    expected = ["a", "l", "s.x", "s.y.z", "b"][:indexed]
    stats = json.loads(collect(table, indexed_columns=indexed))
    assert leaf_names(stats["nullCount"]) == expected
    assert leaf_names(stats["minValues"]) == [name for name in expected if name != "l"]


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ([("b",)], ["b"]),
        ([("b",), ("a",)], ["a", "b"]),
        ([("S", "Y")], ["s.y.z"]),
        ([("s",)], ["s.x", "s.y.z"]),
        ([("s", "x"), ("s", "y", "z")], ["s.x", "s.y.z"]),
        ([("x",), ("s.x",)], []),
        ([], []),
    ],
)
def test_named_columns_override_the_number_of_columns(only: list[tuple[str, ...]], expected: list[str]) -> None:
    kind = pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.int64())]))])
    table = pa.table({"a": [1], "s": pa.array([{"x": 1, "y": {"z": 1}}], kind), "b": [1]})
    stats = json.loads(collect(table, indexed_columns=0, only=only))
    for key in ("minValues", "maxValues", "nullCount"):
        assert leaf_names(stats[key]) == expected


def test_names_may_contain_dots_and_backticks() -> None:
    kind = pa.struct([("x.y", pa.int64()), (".z", pa.int64())])
    table = pa.table({"a.b": pa.array([{"x.y": 1, ".z": 2}], kind), "`q`": pa.array([3])})
    assert json.loads(collect(table))["minValues"] == {"a.b": {"x.y": 1, ".z": 2}, "`q`": 3}


def test_chunks_of_a_column_are_combined() -> None:
    chunked = pa.table({"c": pa.chunked_array([[3], [], [1, None], [2]], pa.int64())})
    stats = json.loads(collect(chunked))
    assert (stats["minValues"], stats["maxValues"], stats["nullCount"]) == ({"c": 1}, {"c": 3}, {"c": 1})


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        (None, None),
        ("", None),
        ("{", None),
        ("[]", None),
        ("{}", None),
        ('{"numRecords":"3"}', None),
        ('{"numRecords":null}', None),
        ('{"numRecords":0}', 0),
        ('{"numRecords":3,"minValues":{"a":12345678901234567890123456789012345.678}}', 3),
    ],
)
def test_the_row_count_is_read_from_any_text(stats: str | None, expected: int | None) -> None:
    assert num_records(stats) == expected
