"""Converting partition values to and from text."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.strategies import PRIMITIVES
from tidelog.log.errors import CorruptLogError
from tidelog.log.format.partition_values import folder_text, from_text, is_partitionable, to_text

UTC = dt.UTC
ZONED, NTZ = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
EAST = dt.timezone(dt.timedelta(hours=5, minutes=30))

# Values and their text, from the protocol's table of partition values.
SPELLINGS: list[tuple[Any, pa.DataType, str | None]] = [
    ("US/East=%", pa.string(), "US/East=%"),
    (" ", pa.string(), " "),
    (-5, pa.int8(), "-5"),
    (2**63 - 1, pa.int64(), "9223372036854775807"),
    (0.5, pa.float64(), "0.5"),
    (Decimal("1.00"), pa.decimal128(5, 2), "1.00"),
    (Decimal("1E+3"), pa.decimal128(5, 0), "1000"),
    (Decimal("0E-8"), pa.decimal128(20, 8), "0.00000000"),
    (True, pa.bool_(), "true"),
    (False, pa.bool_(), "false"),
    (dt.date(2020, 1, 2), pa.date32(), "2020-01-02"),
    (dt.date(1, 1, 2), pa.date32(), "0001-01-02"),
    (dt.datetime(1970, 1, 1, 0, 0, 0, 123456, UTC), ZONED, "1970-01-01T00:00:00.123456Z"),
    (dt.datetime(2020, 1, 1, 5, 30, tzinfo=EAST), ZONED, "2020-01-01T00:00:00.000000Z"),
    (dt.datetime(33, 1, 2, tzinfo=UTC), ZONED, "0033-01-02T00:00:00.000000Z"),
    (dt.datetime(2020, 1, 2, 3, 4, 5, 6), NTZ, "2020-01-02 03:04:05.000006"),  # noqa: DTZ001 - the type has no time zone
    (b"abc", pa.binary(), "abc"),
    (None, pa.string(), None),
    (None, pa.int64(), None),
    ("", pa.string(), None),
    (b"", pa.binary(), None),
]
IDS = [f"{kind}-{value!r}" for value, kind, _ in SPELLINGS]


@pytest.mark.parametrize(("value", "kind", "text"), SPELLINGS, ids=IDS)
def test_values_are_written_as_in_the_protocol(value: Any, kind: pa.DataType, text: str | None) -> None:
    assert to_text(value, kind) == text


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        (None, pa.string(), None),
        ("", pa.string(), None),
        ("", pa.int32(), None),
        ("TRUE", pa.bool_(), True),
        ("NaN", pa.float64(), math.nan),
        ("Infinity", pa.float64(), math.inf),
        ("-Infinity", pa.float32(), -math.inf),
        ("1.0E10", pa.float64(), 1e10),
        ("1", pa.decimal128(5, 2), Decimal(1)),
        ("2020-01-02 03:04:05", ZONED, dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2020-01-02 03:04:05.1", ZONED, dt.datetime(2020, 1, 2, 3, 4, 5, 100_000, UTC)),
        ("2020-01-02T03:04:05.123456Z", ZONED, dt.datetime(2020, 1, 2, 3, 4, 5, 123_456, UTC)),
        ("2020-01-02T03:04:05+01:00", ZONED, dt.datetime(2020, 1, 2, 2, 4, 5, tzinfo=UTC)),
        ("2020-01-02 03:04:05.1234", NTZ, dt.datetime(2020, 1, 2, 3, 4, 5, 123_400)),  # noqa: DTZ001
    ],
)
def test_other_writers_spellings_are_read(text: str | None, kind: pa.DataType, value: Any) -> None:
    found = from_text(text, kind)
    assert found == value or (math.isnan(found) and math.isnan(value))


_VALUES = st.sampled_from(list(PRIMITIVES)).flatmap(lambda kind: PRIMITIVES[kind].map(lambda value: (kind, value)))


@given(_VALUES)
def test_any_value_survives_a_round_trip(pair: tuple[pa.DataType, Any]) -> None:
    kind, value = pair
    if isinstance(value, bytes):
        value = value.hex().encode()  # the log can hold only valid text
    scalar = pa.scalar(value, kind)
    found = pa.scalar(from_text(to_text(scalar.as_py(), kind), kind), kind)
    if value in ("", b""):
        assert not found.is_valid, "in the protocol, empty text is null"
    elif isinstance(value, float) and math.isnan(value):
        assert math.isnan(found.as_py())
    else:
        assert found.equals(scalar)


def test_binary_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(UnicodeDecodeError):
        to_text(b"\xff\x00", pa.binary())


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", pa.int32()),
        ("1.5", pa.int32()),
        ("yes", pa.bool_()),
        ("x", pa.float64()),
        ("x", pa.decimal128(5, 2)),
        ("2020-13-01", pa.date32()),
        ("noon", ZONED),
        ("noon", NTZ),
    ],
)
def test_an_invalid_text_is_a_corrupt_log(text: str, kind: pa.DataType) -> None:
    with pytest.raises(CorruptLogError, match=text):
        from_text(text, kind)


def test_only_nested_types_cannot_partition() -> None:
    assert all(is_partitionable(kind) for kind in PRIMITIVES)
    nested = [pa.struct([("a", pa.int64())]), pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64()), pa.null()]
    assert not any(is_partitionable(kind) for kind in nested)


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("1970-01-01T00:00:00.123456Z", ZONED, "1970-01-01 00:00:00.123456"),
        ("2020-01-01T05:30:00+05:30", ZONED, "2020-01-01 00:00:00.000000"),
        ("0033-01-02 00:00:00", ZONED, "0033-01-02 00:00:00.000000"),
        ("2020-01-01 00:00:00.5", NTZ, "2020-01-01 00:00:00.5"),
        ("1970-01-01T00:00:00.123456Z", pa.string(), "1970-01-01T00:00:00.123456Z"),
        (None, ZONED, None),
    ],
)
def test_a_time_in_the_name_of_a_folder_is_in_utc_without_a_zone(
    text: str | None, kind: pa.DataType, expected: str | None
) -> None:
    assert folder_text(text, kind) == expected
