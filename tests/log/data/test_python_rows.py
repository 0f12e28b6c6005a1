"""Rows as dicts: a value means the same whatever is in the other rows, and is taken whole or refused."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.log.data.test_conform import to_arrow_table
from tests.log.support import memory_store, new_table
from tests.randomness import seed
from tidelog.log.errors import SchemaMismatchError

ZONED, NTZ = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
NAIVE = dt.datetime(2026, 7, 1, 12)  # noqa: DTZ001 - without a zone on purpose
AWARE = dt.datetime(2026, 7, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
DAY, MIDNIGHT = dt.date(2026, 7, 1), dt.datetime(2026, 7, 1)  # noqa: DTZ001 - as above
FINE = pd.Timestamp("2026-07-01T12:00:00.000000001")


class Few(IntEnum):
    ONE = 1


KINDS = [
    pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(10, 2), pa.string(), pa.binary(), pa.bool_(),
    pa.date32(), ZONED, NTZ,
]  # fmt: skip
# What a value stands for in Python, if that is another.
VALUES: list[tuple[Any, Any]] = [
    *((value, value) for value in (NAIVE, AWARE, DAY, MIDNIGHT, AWARE.astimezone(dt.UTC), "é", "", b"a", True, False)),
    *((value, value) for value in (0, 1, 7, 300, 2**24 + 1, 2**53 + 1, 2**70, 0.5, 1e300, float("inf"))),
    *((value, value) for value in (Decimal("1.50"), Decimal("1.555"), Decimal(10), Decimal("1e9"), None, Few.ONE)),
    (FINE, FINE),
    (pd.Timestamp(AWARE), AWARE),
    (pd.Timestamp(NAIVE), NAIVE),
    (pd.NA, None),
    (pd.NaT, None),
    (np.datetime64("NaT"), None),
    (np.datetime64("2026-07-01T12:00:00", "ns"), NAIVE),
    (np.datetime64("2026-07-01T12:00:00.000000001"), FINE),
    (np.datetime64("2026-07-01"), DAY),
    (np.timedelta64(1, "ns"), dt.timedelta(0)),
    (np.int32(7), 7),
    (np.float32(0.5), 0.5),
    (np.bool_(True), True),
    (np.str_("é"), "é"),
    (np.bytes_(b"a"), b"a"),
    (bytearray(b"a"), b"a"),
    (memoryview(b"a"), b"a"),
    (pa.scalar(7), 7),
    (pa.scalar(AWARE), AWARE),
]
# A column of each shape around values, and the same around what is read.
SHAPES: dict[str, tuple[Callable[[pa.DataType], pa.DataType], Callable[[Any], Any]]] = {
    "plain": (lambda kind: kind, lambda value: value),
    "list": (pa.list_, lambda value: [value]),
    "struct": (lambda kind: pa.struct([("f", kind)]), lambda value: {"f": value}),
    "map": (lambda kind: pa.map_(pa.string(), kind), lambda value: [("k", value)]),
    "list of structs": (lambda kind: pa.list_(pa.struct([("f", kind)])), lambda value: [{"f": value}]),
}


def fits(value: Any, kind: pa.DataType) -> bool:
    """Whether a column can hold a Python value without loss, in the words of Python."""
    if value is None:
        return True
    if pa.types.is_timestamp(kind):
        is_fine = getattr(value, "nanosecond", 0)
        return isinstance(value, dt.datetime) and not is_fine and (value.tzinfo is None) == (kind.tz is None)
    if pa.types.is_date(kind):
        return type(value) is dt.date or value == MIDNIGHT
    if isinstance(value, bool) or pa.types.is_boolean(kind):
        return isinstance(value, bool) and pa.types.is_boolean(kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return type(value) is (str if pa.types.is_string(kind) else bytes)
    if pa.types.is_decimal(kind):
        exact = isinstance(value, (int, Decimal)) and round(Decimal(value), 2) == value
        return exact and abs(value) < 10**8
    if pa.types.is_integer(kind):
        return isinstance(value, int) and abs(value) < 2 ** (kind.bit_width - 1)
    if isinstance(value, int):
        return abs(value) <= 2**53 and int(np.float32(value) if kind.bit_width == 32 else float(value)) == value
    return isinstance(value, float) and not (kind.bit_width == 32 and value == 1e300)


def expected(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, dt.datetime) and pa.types.is_date(kind):
        return value.date()
    return value


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [60, pytest.param(5000, marks=pytest.mark.nightly)])
def test_a_value_is_judged_by_its_column_whatever_the_other_rows_hold(shape: str, count: int) -> None:
    kind_of, around = SHAPES[shape]
    draw = random.Random(seed())
    outcomes = set()
    for _ in range(count):
        kind = draw.choice(KINDS)
        fitting = [pair for pair in VALUES if fits(pair[1], kind)]
        pairs = draw.choices(fitting, k=draw.randint(1, 4))
        if draw.random() < 0.6:
            pairs.insert(draw.randint(0, len(pairs)), draw.choice(VALUES))
        rows = [{"c": around(value)} for value, _ in pairs]
        wrong = [number for number, (_, means) in enumerate(pairs) if not fits(means, kind)]
        outcomes.add(bool(wrong))
        schema = pa.schema([("c", kind_of(kind))])
        if not wrong:
            found = to_arrow_table(rows, schema)["c"].to_pylist()
            assert found == [around(expected(means, kind)) for _, means in pairs], (kind, pairs)
            continue
        with pytest.raises(SchemaMismatchError) as raised:
            to_arrow_table(rows, schema)
        assert f"row {wrong[0]} of the data" in raised.value.message, (kind, pairs)
        assert raised.value.column.split(".")[0] == "c"
    assert outcomes == {True, False}


@pytest.mark.parametrize("count", [60, pytest.param(5000, marks=pytest.mark.nightly)])
def test_objects_of_pandas_are_taken_whole_or_refused(count: int) -> None:
    """A column of objects has one type. Which one, Arrow infers: then each value is what it was."""
    draw = random.Random(seed())
    taken = 0
    for _ in range(count):
        kind = draw.choice(KINDS)
        fitting = [pair for pair in VALUES if fits(pair[1], kind) and not isinstance(pair[0], pa.Scalar)]
        pairs = draw.choices(fitting, k=draw.randint(1, 4))
        if draw.random() < 0.3:
            pairs.insert(draw.randint(0, len(pairs)), draw.choice(VALUES))
        nested = draw.random() < 0.3
        values = [[value] if nested else value for value, _ in pairs]
        frame = pd.DataFrame({"c": pd.Series(values, dtype=object)})
        try:
            found = to_arrow_table(frame, pa.schema([("c", pa.list_(kind) if nested else kind)]))["c"].to_pylist()
        except SchemaMismatchError:
            continue
        taken += 1
        assert all(fits(means, kind) for _, means in pairs), (kind, pairs)
        assert found == [[means] if nested else means for _, means in pairs], (kind, pairs)
    assert taken > count / 10


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([np.array([1, 2.5]), None, [1, 2]], pa.list_(pa.float64()), [[1.0, 2.5], None, [1.0, 2.0]]),
        ([np.array([0.1], "f4"), np.array([], "f4")], pa.list_(pa.float32()), [[pytest.approx(0.1)], []]),
        ([np.array([[1, 2], [3, 4]])], pa.list_(pa.list_(pa.int8())), [[[1, 2], [3, 4]]]),
        ([np.array(["2026-07-01T12:00:00"], "M8[ns]")], pa.list_(NTZ), [[NAIVE]]),
        (
            [np.array([1, None], object), np.ma.array([1, 2], mask=[True, False])],
            pa.list_(pa.int8()),
            [[1, None], [None, 2]],
        ),
        ([{"a": 1}.values(), (2,), range(2)], pa.list_(pa.int64()), [[1], [2], [0, 1]]),
        ([pa.array([1]), pl.Series([2]), pd.Series([3])], pa.list_(pa.int64()), [[1], [2], [3]]),
        ([pa.scalar([1], pa.list_view(pa.int64())), pd.NA], pa.list_(pa.int64()), [[1], None]),
        ([pd.NA, {}, {"f": pd.NA}], pa.struct([("f", pa.int8())]), [None, {"f": None}, {"f": None}]),
    ],
)
def test_values_of_other_libraries_stand_for_those_of_python(values: Any, kind: pa.DataType, expected: Any) -> None:
    found = to_arrow_table([{"c": value} for value in values], pa.schema([("c", kind)]))
    assert found["c"].to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "kind", "row"),
    [
        ([np.array([1]), np.array([2**40])], pa.list_(pa.int8()), 1),
        ([np.array([1.0]), np.array([0.5])], pa.list_(pa.int64()), 0),
        ([np.array([2**24 + 1])], pa.list_(pa.float32()), 0),
        ([np.array([1e300])], pa.list_(pa.float32()), 0),
        ([[1], {1}], pa.list_(pa.int64()), 1),
        ([10**5000], pa.int64(), 0),
        ([{"f": 1}, None, {"f": [1]}], pa.struct([("f", pa.int64())]), 2),
        ([None, [("k", "1"), ("l", 1)], {"m": "1"}], pa.map_(pa.string(), pa.int64()), 1),
        ([NAIVE, FINE], NTZ, 1),
        ([[AWARE], [FINE.tz_localize("UTC")]], pa.list_(ZONED), 1),
    ],
)
def test_the_row_of_a_value_that_does_not_fit_is_named(values: Any, kind: pa.DataType, row: int) -> None:
    with pytest.raises(SchemaMismatchError, match=f"row {row} of the data") as raised:
        to_arrow_table([{"c": value} for value in values], pa.schema([("c", kind)]))
    assert raised.value.column.split(".")[0] == "c"


def test_required_lists_may_be_arrays_of_numpy() -> None:
    required = pa.schema([pa.field("c", pa.list_(pa.int64()), nullable=False)])
    assert to_arrow_table([{"c": np.array([1, 2])}], required)["c"].to_pylist() == [[1, 2]]
    with pytest.raises(SchemaMismatchError, match="cannot be null"):
        to_arrow_table([{"c": np.array([1, 2])}, {"c": None}], required)


def test_a_name_that_is_no_text_is_an_error() -> None:
    for rows in ([{1: "x"}], [{"c": {1: "x"}}]):
        with pytest.raises(SchemaMismatchError, match="must be text, not the int 1"):
            to_arrow_table(rows, pa.schema([("c", pa.struct([("1", pa.string())])), ("1", pa.string())]))


def test_columns_that_only_a_rule_reads_are_not_bent_either() -> None:
    table = new_table(memory_store(), pa.schema([("id", pa.int64()), ("v", ZONED)]))
    rule = (None, {"id": "source.id", "v": "source.w"})
    for values in ([AWARE, NAIVE], [NAIVE, AWARE], [DAY, NAIVE], [b"a", "é"], [FINE]):
        rows = [{"id": number, "w": value} for number, value in enumerate(values)]
        with pytest.raises(SchemaMismatchError) as raised:
            table.upsert(rows, keys=["id"], when_not_matched=[rule])
        assert raised.value.column == "w"


@pytest.mark.parametrize("values", [[1000, Decimal("1.5")], [Decimal("1.5"), 1000]])
def test_integers_beside_decimals_keep_their_digits(values: list[Any]) -> None:
    wanted = [Decimal(value) for value in values]
    schema = pa.schema([("c", pa.decimal128(9, 2))])
    assert to_arrow_table([{"c": value} for value in values], schema)["c"].to_pylist() == wanted
    assert to_arrow_table(pd.DataFrame({"c": pd.Series(values, dtype=object)}), schema)["c"].to_pylist() == wanted


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint64()])
def test_integers_of_arrow_become_decimals_if_they_fit(kind: pa.DataType) -> None:
    schema = pa.schema([("c", pa.decimal128(4, 2))])
    assert to_arrow_table(pa.table({"c": pa.array([99, None], kind)}), schema)["c"].to_pylist() == [Decimal(99), None]
    with pytest.raises(SchemaMismatchError, match="does not fit in precision 4"):
        to_arrow_table(pa.table({"c": pa.array([100], kind)}), schema)
