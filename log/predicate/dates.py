"""Functions of dates and timestamps. All times are in UTC."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.format.schema import TIMESTAMP
from tidelog.log.predicate.rows import Bound, Datum, Kernel, computed, constant_value, is_text_constant, null_of
from tidelog.log.predicate.types import DATE, INT, LONG, TypeMismatch

_DATE_UNITS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MM", "MON"), "month"),
    "WEEK": "week",
}
_UNITS = _DATE_UNITS | {
    **dict.fromkeys(("DAY", "DD"), "day"),
    **{name.upper(): name for name in ("hour", "minute", "second", "millisecond", "microsecond")},
}


def part(kernel: Callable[[Datum], Datum]) -> Kernel:
    """The kernel of a function such as `year`."""
    return lambda values: kernel(values).cast(INT)


def day_of_week(dates: Datum) -> Datum:
    """1 for Sunday to 7 for Saturday."""
    return pc.day_of_week(dates, count_from_zero=False, week_start=7).cast(INT)


def last_day(dates: Datum) -> Datum:
    """The last day of the month."""
    following = pc.ceil_temporal(dates, 1, "month", ceil_is_strictly_greater=True)
    return pc.subtract(following.cast(DATE).cast(INT), 1).cast(INT).cast(DATE)


def days_between(end: Datum, start: Datum) -> Datum:
    """The days from `start` to `end`."""
    return pc.subtract_checked(end.cast(INT), start.cast(INT))


def since_1970(unit: str, micros: int) -> Kernel:
    """The kernel of functions such as `unix_seconds`, which round down."""
    return lambda values: pc.divide(pc.floor_temporal(values, 1, unit).cast(LONG), micros)


def truncated(unit: Bound, moment: Bound) -> Bound:
    """date_trunc(unit, timestamp). Raises TypeMismatch."""
    return _floored(unit, moment, _UNITS, TIMESTAMP)


def truncated_date(date: Bound, unit: Bound) -> Bound:
    """trunc(date, unit). Raises TypeMismatch."""
    return _floored(unit, date, _DATE_UNITS, DATE)


def _floored(unit: Bound, moment: Bound, units: dict[str, str], kind: pa.DataType) -> Bound:
    if pt.is_null(unit.kind):
        return null_of(kind)
    if not is_text_constant(unit):
        raise TypeMismatch(f"name the unit as a text: {', '.join(sorted(units))}")
    name = units.get(str(constant_value(unit)).upper())
    if name is None:
        return null_of(kind)
    return computed(kind, lambda values: pc.floor_temporal(values, 1, name).cast(kind), [moment])
