"""INTERVAL literals: `INTERVAL 3 DAYS`, `INTERVAL '1 day 2 hours'`, `INTERVAL '1-6' YEAR TO MONTH`."""

from __future__ import annotations

import re
from decimal import Decimal

from sqlglot import exp

from tidelog.log.predicate.literals import unsupported
from tidelog.log.predicate.tree import Interval

_MICROS = {
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "year": 12}
_PART = re.compile(r"\s*([+-]?[0-9]{1,12}(?:\.[0-9]{0,9})?)\s*([a-zA-Z]+)\s*")
_YEAR_TO_MONTH = re.compile(r"\s*([+-]?)([0-9]{1,6})-([0-9]{1,2})\s*")
_ADVICE = "write an interval such as INTERVAL 3 DAYS or INTERVAL '1 day 12 hours'"
# Further than the years 1 to 9999 lie apart, and no overflow of 64 bits.
_LONGEST_DAYS = 10_000_000


def interval_of(node: exp.Interval) -> Interval:
    """The value of an interval. Raises PredicateError."""
    amount, unit = node.this, node.args.get("unit")
    if not isinstance(amount, exp.Literal):
        raise unsupported(node, "an interval must be a constant")
    text = str(amount.this)
    if isinstance(unit, exp.IntervalSpan):
        return _spanned(text, unit, node)
    found = _sum(text if unit is None else f"{text} {unit.name}", node)
    if abs(found.days) > _LONGEST_DAYS or abs(found.months) > _LONGEST_DAYS:
        raise unsupported(node, "use a shorter interval")
    return found


def _sum(text: str, node: exp.Interval) -> Interval:
    """The interval that a text such as "1 day 2 hours" stands for."""
    months = days = 0
    micros: int | None = None
    end, units = 0, set()
    while end < len(text):
        part = _PART.match(text, end)
        if not part:
            raise unsupported(node, _ADVICE)
        end = part.end()
        number, name = Decimal(part[1]), part[2].lower()
        name = name[:-1] if name.endswith("s") and len(name) > 1 else name
        whole = number == int(number)
        units.add("months" if name in _MONTHS else "time")
        if name == "second" and (number * _MICROS[name]) % 1 == 0:
            micros = (micros or 0) + int(number * _MICROS[name])
        elif name in _MICROS and whole:
            micros = (micros or 0) + int(number) * _MICROS[name]
        elif name in _DAYS and whole:
            days += int(number) * _DAYS[name]
        elif name in _MONTHS and whole:
            months += int(number) * _MONTHS[name]
        else:
            raise unsupported(node, _ADVICE)
    if len(units) != 1:
        raise unsupported(node, "add months and days to a date one after the other")
    return Interval(months, days, micros)


def _spanned(text: str, unit: exp.IntervalSpan, node: exp.Interval) -> Interval:
    """INTERVAL '1-6' YEAR TO MONTH."""
    found = _YEAR_TO_MONTH.fullmatch(text)
    if (unit.this.name.upper(), unit.expression.name.upper()) != ("YEAR", "MONTH") or not found:
        raise unsupported(node, _ADVICE)
    if int(found[3]) >= 12:  # noqa: PLR2004 - the months of a year
        raise unsupported(node, "the months of such an interval are 0 to 11")
    months = int(found[2]) * 12 + int(found[3])
    return Interval(-months if found[1] == "-" else months)
