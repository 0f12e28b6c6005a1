"""Which Python values a column of a type can hold without loss, and the values that others stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, KeysView, Mapping, Sequence, ValuesView
from datetime import date, datetime, time, timezone
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

LISTS = (Sequence, ValuesView, KeysView, np.ndarray)
"""What can be a list. The elements of a set have no order."""
CONTAINERS = (list, tuple, dict, set, ValuesView, KeysView, np.ndarray)
"""What Arrow makes lists and structs of."""

# Python's own types need no look at their values.
_OWN = frozenset((type(None), bool, int, float, str, bytes, bytearray, Decimal, date, datetime, list, tuple, dict))
# Digits of a second below a microsecond, and the hour that follows a date, in ISO-8601.
_FINE_SECONDS = re.compile(r"[.,]\d{7}")
_HAS_TIME = re.compile(r"[T ]\d\d")
# The units of NumPy's datetimes that are dates.
_DATE_UNITS = frozenset("YMWD")
_FINE = "round it to microseconds, such as by .floor('us')"


class UnfitError(Exception):
    """A value does not fit its column."""

    def __init__(self, advice: str = "") -> None:
        super().__init__(advice)
        self.advice = advice


class Judge(NamedTuple):
    """How to judge the values of a column.

    `exact` are the types of which Arrow converts each value without loss, or refuses it. `convert` makes a value of
    another type one of these, or raises UnfitError. `check` looks at all of them in the end: it returns the place of
    the first that does not fit, and advice; no advice if all fit.
    """

    exact: frozenset[type]
    convert: Callable[[Any, pa.DataType], Any]
    check: Callable[[list[Any]], tuple[int, str]] | None = None


# --- values that stand for others -------------------------------------------------------------------------------------


def is_native(kind: type) -> bool:
    """Whether values of the type are Python's own. Those of other types may stand for such: see `native`."""
    return kind in _OWN


def native(value: Any) -> Any:
    """The value of Python that one of NumPy, pandas or Arrow stands for; any other value as it is."""
    if isinstance(value, np.ndarray):
        return value if value.ndim else native(value[()])
    if isinstance(value, np.datetime64):
        return _from_numpy(value)
    if isinstance(value, np.generic):
        return value if isinstance(value, np.timedelta64) else value.item()
    if isinstance(value, pa.Scalar):
        try:
            return value.as_py()
        except (ValueError, OverflowError):  # a date or time that Python has no object for
            return value
    if type(value).__module__.startswith("pandas."):
        if type(value).__name__ in {"NAType", "NaTType"}:
            return None
        return value.tolist() if hasattr(value, "tolist") else value
    if hasattr(value, "__arrow_c_array__") and not isinstance(value, (Mapping, Sequence)):
        return pa.array(value).to_pylist()
    if hasattr(value, "__arrow_c_stream__") and not isinstance(value, (Mapping, Sequence)):
        return pa.chunked_array(value).to_pylist()
    return value


def _from_numpy(value: np.datetime64) -> Any:
    """A date or a datetime without a zone; as it is if Python has none for it."""
    if np.isnat(value):
        return None
    if np.datetime_data(value.dtype)[0] in _DATE_UNITS:
        day = value.astype("M8[D]").item()
        return day if isinstance(day, date) else value
    micros = value.astype("M8[us]")
    moment = micros.item()
    return moment if micros == value and isinstance(moment, datetime) else value


# --- judges -----------------------------------------------------------------------------------------------------------


def judge_of(kind: pa.DataType) -> Judge:
    """How to judge the values of a column of this type, which is not nested."""
    for is_kind, judge in _JUDGES:
        if is_kind(kind):
            return judge
    return _ZONED if kind.tz else _UNZONED


def _instance(*kinds: type) -> Callable[[Any, pa.DataType], Any]:
    """The value, if it is of a class derived from one of these. To Python a bool is an int; here it is not."""

    def convert(value: Any, _: pa.DataType) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise UnfitError
        return value

    return convert


def _integer(value: Any, _: pa.DataType) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UnfitError
    return int(value)


def _number(value: Any, kind: pa.DataType) -> float:
    return float(value) if isinstance(value, float) else _integer(value, kind)


def _binary(value: Any, _: pa.DataType) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise UnfitError
    return bytes(value)


def _whole_float32(values: list[Any]) -> tuple[int, str]:
    """Python's floats are rounded to float32, because Python lacks it; integers must be exact."""
    if int in set(map(type, values)):
        for number, value in enumerate(values):
            # Arrow refuses integers that not even a float64 holds.
            if isinstance(value, int) and 2**24 < abs(value) <= 2**53 and int(np.float32(value)) != value:
                return number, "pass a float if it may be rounded"
    return 0, ""


def _date(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, str):
        return _from_iso(value, kind)
    if isinstance(value, datetime):
        if value.tzinfo is not None or value.time() != time() or getattr(value, "nanosecond", False):
            raise UnfitError("pass its .date() if its time does not count")
        return value.date()
    if not isinstance(value, date):
        raise UnfitError(_FINE if isinstance(value, np.datetime64) else "")
    return value


def _moment(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, str):
        return _from_iso(value, kind)
    if not isinstance(value, datetime):
        raise UnfitError(_FINE if isinstance(value, np.datetime64) else "")
    if getattr(value, "nanosecond", False):
        raise UnfitError(_FINE)
    # pandas would warn of nanoseconds, which it has none of here.
    return value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value


def _zones(values: list[Any], *, zoned: bool) -> tuple[int, str]:
    """A datetime without a zone is no moment, and one with a zone is more than a column without one can hold."""
    zones = set(map(attrgetter("tzinfo"), filter(None, values)))
    if zones == {None} and not zoned:
        return 0, ""
    if zoned and all(isinstance(zone, (timezone, ZoneInfo)) for zone in zones):
        return 0, ""
    for number, value in enumerate(values):
        if value is not None and (value.utcoffset() is not None) != zoned:
            if zoned:
                return number, "give it its time zone: .replace(tzinfo=datetime.UTC) if it is in UTC"
            return number, "take its time zone away: the column is without one"
    return 0, ""


def _from_iso(text: str, kind: pa.DataType) -> Any:
    """A date or time from its ISO-8601 text. One with a zone has an offset or `Z`, one without a zone has none."""
    moment = None
    try:
        if pt.is_date(kind):
            return date.fromisoformat(text)
        moment = datetime.fromisoformat(text)
    except ValueError:
        pass
    # Python would leave out the digits below a microsecond, and take a date for its midnight.
    if moment is None or _FINE_SECONDS.search(text) or not _HAS_TIME.search(text):
        example = "2026-01-31" if pt.is_date(kind) else "2026-01-31T12:30:00"
        raise UnfitError(f"write it in ISO-8601, such as {example}{'Z' if pt.is_timestamp(kind) and kind.tz else ''}")
    if (moment.tzinfo is None) == (kind.tz is None):
        return moment
    if kind.tz is None:
        raise UnfitError("leave out the time zone: the column is without one")
    raise UnfitError("add the offset from UTC, such as +01:00 or Z")


def _judge(
    kinds: Sequence[type],
    convert: Callable[[Any, pa.DataType], Any] | None = None,
    check: Callable[[list[Any]], tuple[int, str]] | None = None,
) -> Judge:
    return Judge(frozenset((type(None), *kinds)), convert or _instance(*kinds), check)


_ZONED = _judge([datetime], _moment, partial(_zones, zoned=True))
_UNZONED = _judge([datetime], _moment, partial(_zones, zoned=False))
_JUDGES: tuple[tuple[Callable[[pa.DataType], bool], Judge], ...] = (
    (pt.is_integer, _judge([int], _integer)),
    (pt.is_float32, _judge([int, float], _number, _whole_float32)),
    (pt.is_floating, _judge([int, float], _number)),
    (pt.is_string, _judge([str])),
    (pt.is_binary, _judge([bytes, bytearray], _binary)),
    (pt.is_boolean, _judge([bool])),
    (pt.is_decimal, _judge([int, Decimal])),
    (pt.is_date, _judge([date], _date)),
    (pt.is_null, _judge([])),
)
