"""Conforming data to a table's schema: what is cast, and what is an error."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from tests.log.support import memory_store, new_table
from tidelog.log.data.conform import conform, hold, without_index
from tidelog.log.data.python_rows import to_table
from tidelog.log.errors import SchemaMismatchError

UTC = dt.UTC
ZONED, NTZ = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def to_arrow_table(data: Any, schema: pa.Schema) -> pa.Table:
    """All of `data` as an Arrow table with exactly `schema`, as an insert reads it."""
    held = hold(data)
    return conform(without_index(held, schema), schema) if isinstance(held, pa.Table) else to_table(held, schema)


def one(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("c", kind)])


# --- columns ---------------------------------------------------------------------------------------------------------


def test_columns_match_by_name_and_missing_ones_are_null() -> None:
    data = pa.table({"s": ["x"], "n": [1]})
    assert to_arrow_table(data, SCHEMA).to_pylist() == [{"n": 1, "s": "x"}]
    assert to_arrow_table(pa.table({"s": ["x"]}), SCHEMA).to_pylist() == [{"n": None, "s": "x"}]
    assert to_arrow_table([{"s": "x"}, {"n": 2}], SCHEMA).to_pylist() == [{"n": None, "s": "x"}, {"n": 2, "s": None}]


def test_names_match_without_case() -> None:
    assert to_arrow_table(pa.table({"N": [1], "S": ["x"]}), SCHEMA).to_pylist() == [{"n": 1, "s": "x"}]
    assert to_arrow_table([{"N": 1, "S": "x"}], SCHEMA).to_pylist() == [{"n": 1, "s": "x"}]


@pytest.mark.parametrize("names", [["n", "extra"], ["n", "n"], ["n", "N"]])
def test_unknown_and_duplicate_columns_are_named(names: list[str]) -> None:
    data = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=names)
    with pytest.raises(SchemaMismatchError) as raised:
        to_arrow_table(data, SCHEMA)
    assert raised.value.fields["column"] == names[1]


def test_an_unknown_dict_key_is_named() -> None:
    with pytest.raises(SchemaMismatchError) as raised:
        to_arrow_table([{"n": 1}, {"n": 2, "extra": 3}], SCHEMA)
    assert raised.value.fields["column"] == "extra"


@pytest.mark.parametrize(
    "data", [None, 5, "text", b"bytes", {"n": [1]}, [1, 2], [("n", 1)], [{"n": 1}, None], object()]
)
def test_data_without_rows_is_an_error(data: Any) -> None:
    with pytest.raises(SchemaMismatchError):
        to_arrow_table(data, SCHEMA)


# --- values that fit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array([1], pa.int8()), pa.int64(), [1]),
        (pa.array([200], pa.uint8()), pa.int16(), [200]),
        (pa.array([7], pa.int64()), pa.int8(), [7]),
        (pa.array([1], pa.int64()), pa.float64(), [1.0]),
        (pa.array([1], pa.int64()), pa.decimal128(25, 2), [Decimal("1.00")]),
        (pa.array([Decimal("1.5")]), pa.decimal128(9, 3), [Decimal("1.500")]),
        (pa.array([1.5], pa.float32()), pa.float64(), [1.5]),
        (pa.array(["x"], pa.large_string()), pa.string(), ["x"]),
        (pa.array(["x"]).dictionary_encode(), pa.string(), ["x"]),
        (pa.DictionaryArray.from_arrays([0, None], pa.array(["x"], pa.string_view())), pa.string(), ["x", None]),
        (pa.array([b"x"], pa.large_binary()), pa.binary(), [b"x"]),
        (pa.array([None], pa.null()), pa.string(), [None]),
        (pa.array([None], pa.null()), pa.bool_(), [None]),
        (
            pa.array([1_000], pa.timestamp("ms", tz="Europe/Berlin")),
            ZONED,
            [dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)],
        ),
        (pa.array([1_000], pa.timestamp("ns")), NTZ, [dt.datetime(1970, 1, 1, 0, 0, 0, 1)]),  # noqa: DTZ001
        (pa.array([dt.date(2020, 1, 1)], pa.date64()), pa.date32(), [dt.date(2020, 1, 1)]),
        (pa.array([[1]], pa.large_list(pa.int32())), pa.list_(pa.int64()), [[1]]),
        (pa.array([{"x": 1}], pa.struct([("x", pa.int32())])), pa.struct([("x", pa.int64())]), [{"x": 1}]),
    ],
    ids=str,
)
def test_values_are_cast_if_nothing_is_lost(values: pa.Array, kind: pa.DataType, expected: list[Any]) -> None:
    found = to_arrow_table(pa.table({"c": values}), one(kind))
    assert found.schema.equals(one(kind))
    assert found["c"].to_pylist() == expected


# --- values that do not fit ------------------------------------------------------------------------------------------

MISFITS = [
    (pa.array([300], pa.int64()), pa.int8()),
    (pa.array([2**63], pa.uint64()), pa.int64()),
    (pa.array([1.0], pa.float64()), pa.int64()),
    (pa.array([1e300], pa.float64()), pa.decimal128(9, 2)),
    (pa.array([Decimal("1.555")]), pa.decimal128(9, 2)),
    (pa.array([Decimal("123456.00")]), pa.decimal128(5, 2)),
    (pa.array([2**60 + 1], pa.int64()), pa.float64()),
    (pa.array(["1"]), pa.int64()),
    (pa.array(["2020-01-01"]), pa.date32()),
    (pa.array([1]), pa.string()),
    (pa.array([True]), pa.int64()),
    (pa.array([1]), pa.bool_()),
    (pa.array(["true"]), pa.bool_()),
    (pa.array([1]), ZONED),
    (pa.array([1]), pa.date32()),
    (pa.array([0], NTZ), ZONED),
    (pa.array([0], ZONED), NTZ),
    (pa.array([1], pa.timestamp("ns", tz="UTC")), ZONED),
    (pa.array([1], ZONED), pa.date32()),
    (pa.array([1e300]), pa.float32()),
    (pa.array([[1]]), pa.int64()),
    (pa.array([b"\xff"]), pa.string()),
    # Nested types follow the same rules.
    (pa.array([{"x": "1"}]), pa.struct([("x", pa.int64())])),
    (pa.array([{"x": 1}]), pa.struct([("x", pa.string())])),
    (pa.array([["1"]]), pa.list_(pa.int64())),
    (pa.array([[1.0]]), pa.list_(pa.int64())),
    (pa.array([[("k", "1")]], pa.map_(pa.string(), pa.string())), pa.map_(pa.string(), pa.int64())),
    (pa.array([{"x": 0}], pa.struct([("x", NTZ)])), pa.struct([("x", ZONED)])),
    (pa.array([{"x": 1, "y": 2}]), pa.struct([("x", pa.int64())])),
]


@pytest.mark.parametrize(("values", "kind"), MISFITS, ids=[f"{values.type}->{kind}" for values, kind in MISFITS])
def test_casts_that_lose_or_change_values_are_errors(values: pa.Array, kind: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError) as raised:
        to_arrow_table(pa.table({"c": values}), one(kind))
    assert raised.value.fields["column"].split(".")[0] == "c"


ROW_MISFITS: list[tuple[Any, pa.DataType]] = [
    ("1", pa.int64()),
    (1.5, pa.int64()),
    (1, pa.string()),
    (2**63, pa.int64()),
    (300, pa.int8()),
    (Decimal("1.555"), pa.decimal128(9, 2)),
    ("x", pa.bool_()),
    (True, pa.int64()),
    (1, pa.bool_()),
    (True, pa.string()),
    ({"x": "1"}, pa.struct([("x", pa.int64())])),
    (["1"], pa.list_(pa.int64())),
    (dt.datetime(2020, 1, 1, 12, 30, tzinfo=UTC), pa.date32()),
    (dt.date(2020, 1, 1), ZONED),
    (1e300, pa.float32()),
    (float("nan"), pa.int64()),
    ({"x": 1.5}, pa.struct([("x", pa.int64())])),
    ([1.5], pa.list_(pa.int64())),
    (dt.datetime(2020, 1, 1), ZONED),  # noqa: DTZ001 - without a zone on purpose
    (dt.datetime(2020, 1, 1, tzinfo=UTC), NTZ),
]


@pytest.mark.parametrize(("value", "kind"), ROW_MISFITS, ids=[f"{value!r}->{kind}" for value, kind in ROW_MISFITS])
def test_dicts_follow_the_same_rules(value: Any, kind: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError) as raised:
        to_arrow_table([{"c": None}, {"c": value}], one(kind))
    assert raised.value.fields["column"].split(".")[0] == "c"


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (pa.date32(), "2026-01-31", dt.date(2026, 1, 31)),
        (ZONED, "2026-01-31T12:30:00Z", dt.datetime(2026, 1, 31, 12, 30, tzinfo=dt.UTC)),
        (ZONED, "2026-01-31 13:30:00.000001+01:00", dt.datetime(2026, 1, 31, 12, 30, 0, 1, dt.UTC)),
        (NTZ, "2026-01-31T12:30:00.25", dt.datetime(2026, 1, 31, 12, 30, 0, 250_000)),  # noqa: DTZ001 - no zone
    ],
)
def test_dicts_may_have_dates_and_times_as_iso_text(kind: pa.DataType, text: str, expected: object) -> None:
    rows = [{"c": text}, {"c": None}, {"c": expected}]
    assert to_arrow_table(rows, one(kind))["c"].to_pylist() == [expected, None, expected]
    nested = to_arrow_table([{"c": [{"a": text}]}], one(pa.list_(pa.struct([("a", kind)]))))
    assert nested["c"].to_pylist() == [[{"a": expected}]]


@pytest.mark.parametrize(
    ("kind", "text", "advice"),
    [
        (pa.date32(), "31.1.2026", "such as 2026-01-31"),
        (pa.date32(), "2026-01-31T00:00:00", "such as 2026-01-31"),
        (pa.date32(), "2026-02-30", "such as 2026-01-31"),
        (ZONED, "2026-01-31", "such as 2026-01-31T12:30:00Z"),
        (ZONED, "yesterday", "such as 2026-01-31T12:30:00Z"),
        (ZONED, "2026-01-31T12:30:00", "add the offset from UTC"),
        (NTZ, "2026-01-31T12:30:00Z", "leave out the time zone"),
        (NTZ, "2026-01-31T12:30:00.1234567", "such as 2026-01-31T12:30:00"),
        (NTZ, "", "such as 2026-01-31T12:30:00"),
    ],
)
def test_other_texts_are_no_dates_and_times(kind: pa.DataType, text: str, advice: str) -> None:
    with pytest.raises(SchemaMismatchError, match=r"column 'c' is .* in the table but the text") as error:
        to_arrow_table([{"c": text}], one(kind))
    assert advice in error.value.advice
    assert error.value.column == "c"


def test_an_unknown_struct_field_is_an_error() -> None:
    with pytest.raises(SchemaMismatchError):
        to_arrow_table([{"c": {"x": 1, "lost": 2}}], one(pa.struct([("x", pa.int64())])))


# --- nulls -----------------------------------------------------------------------------------------------------------

REQUIRED = pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])


@pytest.mark.parametrize(
    "data", [[{"n": None}], [{"s": "x"}], pa.table({"s": ["x"]}), pa.table({"n": pa.array([1, None], pa.int64())})]
)
def test_nulls_in_a_required_column_are_errors(data: Any) -> None:
    with pytest.raises(SchemaMismatchError) as raised:
        to_arrow_table(data, REQUIRED)
    assert raised.value.fields["column"] == "n"


def test_data_with_the_right_schema_is_still_checked_for_nulls() -> None:
    null_inside = pa.Table.from_arrays([pa.array([None], pa.int64()), pa.array(["x"])], schema=REQUIRED)
    with pytest.raises(SchemaMismatchError):
        to_arrow_table(null_inside, REQUIRED)


NESTED_REQUIRED = [
    (pa.struct([pa.field("x", pa.int64(), nullable=False)]), {"x": None}),
    (pa.list_(pa.field("element", pa.int64(), nullable=False)), [1, None]),
    (pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)), [("k", None)]),
]


@pytest.mark.parametrize(("kind", "value"), NESTED_REQUIRED, ids=["struct", "array", "map"])
def test_nulls_in_required_nested_values_are_errors(kind: pa.DataType, value: Any) -> None:
    table = new_table(memory_store(), one(kind))
    with pytest.raises(SchemaMismatchError):
        table.insert([{"c": value}])


@pytest.mark.parametrize(("kind", "_"), NESTED_REQUIRED, ids=["struct", "array", "map"])
def test_a_null_parent_of_required_values_is_allowed(kind: pa.DataType, _: Any) -> None:
    table = new_table(memory_store(), one(kind))
    table.insert([{"c": None}])
    assert table.scan().to_arrow().to_pylist() == [{"c": None}]


def test_a_pandas_index_is_not_a_column() -> None:
    table = new_table(memory_store(), SCHEMA)
    table.insert(pd.DataFrame({"n": [2, 1], "s": ["a", "b"]}).sort_values("n"))
    assert table.scan().to_arrow()["n"].to_pylist() == [1, 2]
