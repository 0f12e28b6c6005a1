"""Reading the statistics of many files as columns, including damaged ones."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidelog.log.format import statistics_reader
from tidelog.log.format.statistics_reader import read_bounds, read_row_counts

UTC = dt.UTC
ZONED, NTZ = pa.timestamp("us", tz="UTC"), pa.timestamp("us")


def texts(*values: str | None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, pa.string())])


def bounds(kind: pa.DataType, *values: str) -> list[tuple[Any, Any]]:
    """Low and high of files whose JSON has one of `values` as minimum and maximum."""
    spelled = (f'{{"numRecords":1,"minValues":{{"c":{value}}},"maxValues":{{"c":{value}}}}}' for value in values)
    _, found = read_bounds(texts(*spelled), {("c",): kind})
    column = found["c",]
    return list(zip(column.low.to_pylist(), column.high.to_pylist(), strict=True))


def same(*values: Any) -> list[tuple[Any, Any]]:
    return [(value, value) for value in values]


# No type accepts this value, so Arrow refuses the piece and every text is read by itself.
REFUSED = '"x"'


@pytest.mark.parametrize("refused", [(), (REFUSED,)])
@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int64(), ["9007199254740993", "-9223372036854775808"], [2**53 + 1, -(2**63)]),
        (pa.int8(), ["-128", "127"], [-128, 127]),
        (pa.float64(), ["0.1", "-0.0", "5e-324", "1"], [0.1, -0.0, 5e-324, 1.0]),
        (pa.float32(), ["0.1", "0.10000000149011612"], [0.10000000149011612, 0.10000000149011612]),
        (pa.decimal128(9, 2), ["1.50", "1", "-0.01", "1e3"], [Decimal("1.50"), 1, Decimal("-0.01"), 1000]),
        (pa.bool_(), ["true", "false"], [True, False]),
        (pa.date32(), ['"0001-01-01"', '"9999-12-31"'], [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
        (pa.float64(), ["null"], [None]),
    ],
)  # fmt: skip
def test_values_are_exact(kind: pa.DataType, values: list[str], expected: list[Any], refused: Sequence[str]) -> None:
    assert bounds(kind, *values, *refused) == same(*expected, *(None for _ in refused))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), ["1.5", "9223372036854775808", '"1"', "true", "[1]", '{"d":1}', "1e999999999"]),
        (pa.int8(), ["128"]),
        (pa.float64(), ['"NaN"', '"Infinity"', "true", "NaN"]),
        (pa.decimal128(9, 2), ["12345678.00", '"1"', "true", "1e999999999"]),
        (pa.string(), ["5", "null", '"\\ud800"']),
        (pa.bool_(), ["1", '"true"']),
        (pa.date32(), ['"+10000-01-01"', '"-0001-01-01"', '"soon"', "5"]),
        (ZONED, ['"2024-01-01T00:00:00"', '"+10000-01-01T00:00:00Z"', "1704067200000"]),
        (NTZ, ['"2024-01-01T00:00:00+05:00"', '"never"']),
        (pa.binary(), ['"YQ=="']),
        (pa.list_(pa.int64()), ["1"]),
    ],
)
def test_an_unreadable_value_is_unknown_but_its_neighbours_are_not(kind: pa.DataType, values: list[str]) -> None:
    assert bounds(kind, *values) == same(*(None for _ in values))
    good = {pa.int64(): "7", pa.float64(): "7", pa.string(): '"7"'}.get(kind)
    if good:
        assert [low is not None for low, _ in bounds(kind, good, *values, good)][:: len(values) + 1] == [True, True]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_nan_is_not_a_bound(kind: pa.DataType) -> None:
    """Some writers put a bare NaN into the JSON, which Arrow reads. As a bound it would exclude every value."""
    assert bounds(kind, "NaN", "1") == same(None, 1.0)


def test_the_maximum_of_a_time_is_a_millisecond_later() -> None:
    low = dt.datetime(1969, 12, 31, 23, 59, 59, 998_000, tzinfo=UTC)
    high = low + dt.timedelta(milliseconds=1)
    (found,) = bounds(ZONED, '"1969-12-31T23:59:59.998Z"')
    assert found == (low, high)
    (found,) = bounds(NTZ, '"1969-12-31T23:59:59.998"')
    assert found == (low.replace(tzinfo=None), high.replace(tzinfo=None))
    # Some writers add a time zone to a time without one; digits beyond microseconds are cut.
    assert bounds(NTZ, '"1969-12-31T23:59:59.998000999Z"') == [found]
    # The column used to be a date.
    midnight = dt.datetime(2024, 1, 1)  # noqa: DTZ001 - no time zone
    assert bounds(NTZ, '"2024-01-01"') == [(midnight, midnight + dt.timedelta(milliseconds=1))]


def test_an_offset_can_hide_up_to_a_minute() -> None:
    instant = dt.datetime(1800, 1, 1, 7, 52, tzinfo=UTC)
    minute, millisecond = dt.timedelta(minutes=1), dt.timedelta(milliseconds=1)
    assert bounds(ZONED, '"1800-01-01T00:00:00.000-07:52"') == [(instant - minute, instant + minute + millisecond)]


def test_bounds_of_long_decimals_allow_for_rounding_by_the_writer() -> None:
    exact = Decimal("12345678901234567.89")
    ((low, high),) = bounds(pa.decimal128(19, 2), repr(float(exact)))
    assert low < exact < high
    assert high - low < 100
    # Digits beyond the column's scale are rounded outwards.
    assert bounds(pa.decimal128(9, 2), "0.305", "-0.305") == [
        (Decimal("0.30"), Decimal("0.31")),
        (Decimal("-0.31"), Decimal("-0.30")),
    ]


def test_nested_columns_odd_names_and_null_counts() -> None:
    stats = json.dumps(
        {
            "numRecords": 3,
            "minValues": {"a.b": {'q"': 1}, "A": 9},
            "maxValues": {"a.b": {'q"': 2}},
            "nullCount": {"a.b": {'q"': 1}, "l": 2, "st": {"x": 0}},
        }
    )
    rows, found = read_bounds(
        texts(stats, None, "{}"),
        {("a.b", 'q"'): pa.int64(), ("a",): pa.int64(), ("l",): pa.list_(pa.int64()), ("st",): pa.string()},
    )
    assert rows.to_pylist() == [3, None, None]
    nested = found["a.b", 'q"']
    assert [each.to_pylist() for each in (nested.low, nested.high, nested.nulls)] == [
        [1, None, None],
        [2, None, None],
        [1, None, None],
    ]
    assert found["a",].low.to_pylist() == [None, None, None], "names are case-sensitive"
    assert found["l",].nulls.to_pylist() == [None, None, None], "those of a list can be those of its elements"
    assert found["st",].nulls.to_pylist() == [None, None, None]


@pytest.mark.parametrize(
    "text",
    [None, "", " ", "x", "[]", "5", "null", '{"numRecords":4} {"numRecords":5}', '}, {"s":{"numRecords":1}',
     '{"numRecords":3.5}', '{"numRecords":true}', '{"numRecords":"3"}', "{", '{"numRecords":9223372036854775808}'],
)  # fmt: skip
def test_a_damaged_text_is_unknown_and_does_not_shift_its_neighbours(text: str | None) -> None:
    good = [f'{{"numRecords":{number}}}' for number in range(3)]
    assert read_row_counts(texts(good[0], text, good[1], text, "{\n}", good[2])).to_pylist() == [
        0,
        None,
        1,
        None,
        None,
        2,
    ]


def test_damaged_texts_among_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    # Pieces have some hundred texts; some are refused and halved.
    monkeypatch.setattr(statistics_reader, "_PIECE_BYTES", 10_000)
    monkeypatch.setattr(statistics_reader, "_SMALL_PIECE", 10)
    values = [f'{{"numRecords":{number},"minValues":{{"c":{number}}}}}' for number in range(2000)]
    damaged = {3: None, 1000: "{", 1001: None, 1999: None}
    spelled = [damaged.get(number, text) for number, text in enumerate(values)]
    all_texts = pa.chunked_array([spelled[:5], spelled[5:]], pa.string())
    rows, found = read_bounds(all_texts, {("c",): pa.int64()})
    expected = [None if number in damaged else number for number in range(2000)]
    assert rows.to_pylist() == found["c",].low.to_pylist() == expected


def test_no_files() -> None:
    rows, found = read_bounds(pa.chunked_array([], pa.string()), {("c",): pa.date32()})
    assert (len(rows), len(found["c",].low), found["c",].high.type) == (0, 0, pa.date32())


def test_few_texts_are_read_like_many() -> None:
    """Some writers write a bare NaN, which is not JSON."""
    odd = [
        '{"numRecords":3,"minValues":{"a":NaN}}',
        '{"numRecords":4,"maxValues":{"a":-Infinity}}',
        None,
        '{"numRecords":5}',
    ]
    few, many = (read_row_counts(texts(*odd * times)).to_pylist() for times in (1, 100))
    assert few * 100 == many
    assert few == [3, 4, None, 5]
