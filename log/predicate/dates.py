"""Functions of dates and timestamps. All times are in UTC."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.format.schema import TIMESTAMP
from tidelog.log.predicate.casts import converted
from tidelog.log.predicate.rows import (
    Bound,
    Datum,
    Kernel,
    as_array,
    computed,
    constant_value,
    is_text_constant,
    null_of,
)
from tidelog.log.predicate.tree import Interval
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


# --- moved by days, months and intervals ------------------------------------------------------------------------------


def shifted(symbol: str, moment: Bound, interval: Interval) -> Bound:
    """A date or timestamp plus an interval. Raises TypeMismatch."""
    if symbol not in ("+", "-") or not (pt.is_date(moment.kind) or pt.is_timestamp(moment.kind)):
        raise TypeMismatch("an interval can only be added to a date or timestamp, or subtracted from one")
    if interval.months:
        return add_months(moment, interval.months)
    if pt.is_date(moment.kind):
        if interval.microseconds is None:
            return computed(DATE, lambda days: _moved(days, interval.days, INT), [moment], fallible=True)
        moment = converted(moment, TIMESTAMP)
    step = interval.total_microseconds
    return computed(moment.kind, lambda values: _moved(values, step, LONG), [moment], fallible=True)


def add_days(date: Bound, days: Bound, *, subtract: bool = False) -> Bound:
    """A date some days later, or earlier. Raises TypeMismatch."""
    if days.kind.equals(LONG) or not (pt.is_integer(days.kind) or pt.is_null(days.kind)):
        raise TypeMismatch("the days are an INT: CAST them")
    kernel = pc.subtract_checked if subtract else pc.add_checked
    return computed(
        DATE, lambda first, step: kernel(first.cast(INT), step).cast(DATE), [date, converted(days, INT)], fallible=True
    )


def add_months(moment: Bound, months: int) -> Bound:
    """A date or timestamp some months later; a day that the month lacks becomes its last day."""
    return computed(moment.kind, lambda values: months_later(values, months), [moment], fallible=True)


def months_later(values: Datum, months: Datum | int) -> Datum:
    """The kernel of `add_months`."""
    scalar = isinstance(values, pa.Scalar) and not isinstance(months, pa.Array)
    count = next((len(each) for each in (values, months) if isinstance(each, pa.Array)), 1)
    column = as_array(values, count)
    kind = column.type
    steps = months if isinstance(months, int) else as_array(months, count)
    valid = pc.is_valid(column) if isinstance(steps, int) else pc.and_(pc.is_valid(column), pc.is_valid(steps))
    step = steps if isinstance(steps, int) else np.asarray(pc.fill_null(steps, 0)).astype(np.int64)
    days = np.asarray(pc.fill_null(column.cast(DATE, safe=False).cast(INT), 0)).astype("datetime64[D]")
    month = days.astype("datetime64[M]")
    first = month + step
    lengths = ((first + 1).astype("datetime64[D]") - first.astype("datetime64[D]")).astype(np.int64)
    day = np.minimum((days - month.astype("datetime64[D]")).astype(np.int64), lengths - 1)
    moved = first.astype("datetime64[D]").astype(np.int64) + day
    mask = ~np.asarray(valid)
    if pt.is_date(kind):
        found = pa.array(moved, LONG, mask=mask).cast(INT).cast(DATE)
    else:
        distance = pa.array(moved - days.astype(np.int64), LONG, mask=mask)
        micros = pc.multiply_checked(distance, 86_400_000_000)
        found = pc.add_checked(column.cast(LONG), micros).cast(kind)
    return found[0] if scalar else found


def _moved(values: Datum, step: int, kind: pa.DataType) -> Datum:
    return pc.add_checked(values.cast(kind), pa.scalar(step, kind)).cast(values.type)
