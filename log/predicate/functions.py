"""The functions that a predicate can call: their arguments, their types, and how they are computed.

`FUNCTIONS` is the whole list. A plain function is a row of a table: the kinds of its arguments, the type of its result
and a kernel over Arrow's values, which gives null where an argument is null. A function that treats nulls or types in
another way binds its arguments itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.format.schema import TIMESTAMP
from tidelog.log.predicate import conditions, dates, numbers, texts
from tidelog.log.predicate.casts import cast_to
from tidelog.log.predicate.rows import Bound, Kernel, computed, null_of, shared
from tidelog.log.predicate.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    LONG,
    TEXT,
    TypeMismatch,
    is_moment,
    is_number,
)


@dataclass(frozen=True)
class Function:
    """A function, and how many arguments it takes. A greater value of the argument `monotone` never gives less."""

    least: int
    most: int
    bind: Callable[[Sequence[Bound]], Bound]
    monotone: int | None = None


_MANY = 1_000


def _plain(
    kinds: str,
    result: pa.DataType,
    kernel: Kernel,
    *,
    optional: int = 0,
    fallible: bool = False,
    monotone: int | None = None,
) -> Function:
    """A function whose arguments have the kinds named, such as "text int"."""
    names = kinds.split()

    def bind(arguments: Sequence[Bound]) -> Bound:
        converted = [_converted(each, name) for each, name in zip(arguments, names, strict=False)]
        return computed(result, kernel, converted, fallible=fallible)

    return Function(len(names) - optional, len(names), bind, monotone)


def _converted(argument: Bound, name: str) -> Bound:
    """The argument as Spark converts it by itself. Raises TypeMismatch."""
    kind, accepts = _KINDS[name]
    found = cast_to(argument, kind) if pt.is_null(argument.kind) or accepts(argument.kind) else None
    if found is None:
        raise TypeMismatch(f"CAST the value to {'STRING' if name == 'text' else name.upper()}")
    return found


_KINDS: Mapping[str, tuple[pa.DataType, Callable[[pa.DataType], bool]]] = {
    "text": (TEXT, lambda kind: not (pt.is_floating(kind) or pt.is_binary(kind))),
    "int": (INT, lambda kind: pt.is_integer(kind) and not kind.equals(LONG)),
    "double": (DOUBLE, is_number),
    "date": (DATE, lambda kind: is_moment(kind) or pt.is_string(kind)),
    "timestamp": (TIMESTAMP, lambda kind: is_moment(kind) or pt.is_string(kind)),
}


def _of_moment(kernel: Kernel, result: pa.DataType = INT) -> Function:
    """A function of a timestamp, with or without a zone."""

    def bind(arguments: Sequence[Bound]) -> Bound:
        argument = arguments[0]
        if not (pt.is_timestamp(argument.kind)):
            argument = _converted(argument, "timestamp")
        return computed(result, kernel, [argument])

    return Function(1, 1, bind)


def _concat(arguments: Sequence[Bound]) -> Bound:
    return computed(TEXT, texts.concat, [_converted(each, "text") for each in arguments], strict=False)


def _nullif(arguments: Sequence[Bound]) -> Bound:
    left = shared(arguments[0])
    return conditions.choose([conditions.compare("=", left, arguments[1])], [null_of(left.kind)], left)


def _cast_to(kind: pa.DataType) -> Function:
    def bind(arguments: Sequence[Bound]) -> Bound:
        found = cast_to(arguments[0], kind)
        if found is None:
            raise TypeMismatch("CAST it to another type")
        return found

    return Function(1, 1, bind)


_CHOICES = {
    "coalesce": Function(1, _MANY, conditions.coalesce),
    "ifnull": Function(2, 2, conditions.coalesce),
    "nvl": Function(2, 2, conditions.coalesce),
    "nvl2": Function(3, 3, conditions.nvl2),
    "nullif": Function(2, 2, _nullif),
    "if": Function(3, 3, conditions.if_),
    "greatest": Function(2, _MANY, conditions.greatest),
    "least": Function(2, _MANY, conditions.least),
    "<=>": Function(2, 2, conditions.same_or_both_null),
    "between": Function(3, 3, conditions.between),
    "in": Function(2, _MANY, conditions.among),
    "isnull": Function(1, 1, lambda values: computed(BOOLEAN, pc.is_null, values)),
    "isnotnull": Function(1, 1, lambda values: computed(BOOLEAN, pc.is_valid, values)),
    "istrue": Function(1, 1, lambda values: numbers.is_boolean(values[0], wanted=True)),
    "isfalse": Function(1, 1, lambda values: numbers.is_boolean(values[0], wanted=False)),
}
_NUMBERS = {
    "negative": Function(1, 1, lambda values: numbers.negative(values[0])),
    "positive": Function(1, 1, lambda values: numbers.positive(values[0]), monotone=0),
    "abs": Function(1, 1, lambda values: numbers.magnitude(values[0])),
    "sign": Function(1, 1, lambda values: numbers.sign(values[0]), monotone=0),
    "signum": Function(1, 1, lambda values: numbers.sign(values[0]), monotone=0),
    "floor": Function(1, 1, lambda values: numbers.floor(values[0]), monotone=0),
    "ceil": Function(1, 1, lambda values: numbers.ceil(values[0]), monotone=0),
    "ceiling": Function(1, 1, lambda values: numbers.ceil(values[0]), monotone=0),
    "round": Function(1, 2, numbers.rounded, monotone=0),
    "mod": Function(2, 2, lambda values: numbers.arithmetic("%", values[0], None, values[1], None)),
    "pmod": Function(2, 2, numbers.positive_remainder),
    "isnan": Function(1, 1, lambda values: numbers.is_nan(values[0])),
    "sqrt": _plain("double", DOUBLE, pc.sqrt),
}
_TEXTS = {
    "upper": _plain("text", TEXT, texts.upper),
    "ucase": _plain("text", TEXT, texts.upper),
    "lower": _plain("text", TEXT, texts.lower),
    "lcase": _plain("text", TEXT, texts.lower),
    "trim": _plain("text text", TEXT, texts.trim, optional=1),
    "btrim": _plain("text text", TEXT, texts.trim, optional=1),
    "ltrim": _plain("text text", TEXT, texts.ltrim, optional=1),
    "rtrim": _plain("text text", TEXT, texts.rtrim, optional=1),
    **dict.fromkeys(
        ("length", "char_length", "character_length", "len"),
        Function(1, 1, lambda values: texts.length(values[0], lambda value: _converted(value, "text"))),
    ),
    "octet_length": _plain("text", INT, pc.binary_length),
    "concat": Function(1, _MANY, _concat),
    "||": Function(2, _MANY, _concat),
    "substring": _plain("text int int", TEXT, texts.substring, optional=1),
    "substr": _plain("text int int", TEXT, texts.substring, optional=1),
    "left": _plain("text int", TEXT, texts.left),
    "right": _plain("text int", TEXT, texts.right),
    "replace": _plain("text text text", TEXT, texts.replace, optional=1, fallible=True),
    "lpad": _plain("text int text", TEXT, texts.lpad, optional=1, fallible=True),
    "rpad": _plain("text int text", TEXT, texts.rpad, optional=1, fallible=True),
    "padded": Function(2, 2, lambda values: texts.padded(_converted(values[0], "text"), values[1])),
    "reverse": _plain("text", TEXT, pc.utf8_reverse),
    "startswith": _plain("text text", BOOLEAN, texts.startswith),
    "endswith": _plain("text text", BOOLEAN, texts.endswith),
    "contains": _plain("text text", BOOLEAN, texts.contains),
    "instr": _plain("text text", INT, texts.instr),
    "locate": _plain("text text", INT, lambda part, text: texts.instr(text, part)),
    "position": _plain("text text", INT, lambda part, text: texts.instr(text, part)),
}
_DATES = {
    "year": _plain("date", INT, dates.part(pc.year), monotone=0),
    "quarter": _plain("date", INT, dates.part(pc.quarter)),
    "month": _plain("date", INT, dates.part(pc.month)),
    **dict.fromkeys(("day", "dayofmonth"), _plain("date", INT, dates.part(pc.day))),
    "dayofyear": _plain("date", INT, dates.part(pc.day_of_year)),
    "dayofweek": _plain("date", INT, dates.day_of_week),
    "weekday": _plain("date", INT, dates.part(pc.day_of_week)),
    "weekofyear": _plain("date", INT, dates.part(pc.iso_week)),
    "hour": _of_moment(dates.part(pc.hour)),
    "minute": _of_moment(dates.part(pc.minute)),
    "second": _of_moment(dates.part(pc.second)),
    "last_day": _plain("date", DATE, dates.last_day, fallible=True, monotone=0),
    "date_add": Function(2, 2, lambda values: dates.add_days(_converted(values[0], "date"), values[1])),
    "dateadd": Function(2, 2, lambda values: dates.add_days(_converted(values[0], "date"), values[1])),
    "date_sub": Function(2, 2, lambda values: dates.add_days(_converted(values[0], "date"), values[1], subtract=True)),
    "add_months": _plain("date int", DATE, dates.months_later, fallible=True),
    "datediff": _plain("date date", INT, dates.days_between, fallible=True),
    "date_diff": _plain("date date", INT, dates.days_between, fallible=True),
    "trunc": Function(2, 2, lambda values: dates.truncated_date(_converted(values[0], "date"), values[1]), 0),
    "date_trunc": Function(2, 2, lambda values: dates.truncated(values[0], _converted(values[1], "timestamp")), 1),
    "unix_seconds": _plain("timestamp", LONG, dates.since_1970("second", 1_000_000), monotone=0),
    "unix_millis": _plain("timestamp", LONG, dates.since_1970("millisecond", 1_000), monotone=0),
    "unix_micros": _plain("timestamp", LONG, lambda values: values.cast(LONG), monotone=0),
}
_CASTS = {
    "to_date": Function(1, 1, lambda values: _converted(values[0], "date"), monotone=0),
    "to_timestamp": Function(1, 1, lambda values: _converted(values[0], "timestamp"), monotone=0),
    "date": _cast_to(DATE),
    "timestamp": _cast_to(TIMESTAMP),
    "string": _cast_to(TEXT),
    "boolean": _cast_to(BOOLEAN),
    "tinyint": _cast_to(pa.int8()),
    "smallint": _cast_to(pa.int16()),
    "int": _cast_to(INT),
    "bigint": _cast_to(LONG),
    "float": _cast_to(pa.float32()),
    "double": _cast_to(DOUBLE),
}

FUNCTIONS: Mapping[str, Function] = {**_CHOICES, **_NUMBERS, **_TEXTS, **_DATES, **_CASTS}
# How operators are kept in the tree; they cannot be called by these names.
OPERATORS = frozenset({"||", "<=>", "between", "in", "istrue", "isfalse", "padded"})
