"""Filters that Spark pushes into a scan, as a predicate of tidelog's.

Spark applies its filters again to the rows that it gets, so a filter may stay out of the predicate. What is in it keeps
every row that Spark keeps: only comparisons that mean the same in both are translated. Floating-point numbers are not,
since NaN is equal to itself and above all numbers in Spark only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from py4j.java_gateway import JavaObject

from tidelog.streaming.executors.plain_frame import quoted

COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
JOINS = {"And": "AND", "Or": "OR"}
_NULLS = {"IsNull": "IS NULL", "IsNotNull": "IS NOT NULL"}
# Far within what a predicate may have.
_MOST_VALUES = 1_000
_MOST_FILTERS = 100
_DEEPEST = 10
_LONGEST = 100_000
# Before it, java.sql.Date and java.sql.Timestamp are of another calendar; after it, years have five digits.
_FIRST_YEAR, _LAST_YEAR = 1900, 9999
_FIRST_GREGORIAN = 1583


def predicate_of(filters: Iterable[Any], schema: pa.Schema) -> str | None:
    """A predicate over columns of `schema` that is true for each row that passes all of Spark's filters.

    None if it would leave nothing out.
    """
    texts = [text for text in (_text(item, schema) for item in filters) if text is not None][:_MOST_FILTERS]
    joined = " AND ".join(texts)
    return joined if joined and len(joined) <= _LONGEST else None


def exact_predicate(filters: Iterable[Any], schema: pa.Schema) -> str | None:
    """A predicate that is true for just the rows that pass all of Spark's filters; None if there may be none."""
    texts = [_value_test(item, schema) or _text(item, schema) for item in filters]
    return None if not texts or None in texts else " AND ".join(map(str, texts))


def one_partition(filters: Iterable[Any], schema: pa.Schema, names: Sequence[str]) -> pa.Table | None:
    """The partition whose value in each of the columns `names` the filters give; None if they say something else."""
    values: dict[str, Any] = {}
    for item in filters:
        kind = item.getClass().getSimpleName()
        name = _column(item.attribute(), schema) if kind in {"EqualTo", "EqualNullSafe", "IsNull"} else None
        if name is None or name in values:
            return None
        values[name] = None if kind == "IsNull" else item.value()
    if values.keys() != set(names):
        return None
    try:
        return pa.table([pa.array([values[name]], schema.field(name).type) for name in names], list(names))
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None


def _value_test(item: Any, schema: pa.Schema) -> str | None:
    """A test of a column for one value, of the types that `_text` leaves out; None if it is another filter.

    A partition by its value is one: Spark has written its name and its value, and nothing else.
    """
    kind = item.getClass().getSimpleName()
    if kind not in {"EqualTo", "EqualNullSafe"}:
        return None
    name = _column(item.attribute(), schema)
    value = item.value()
    if name is None or value is None:
        return None
    column, text = schema.field(name).type, None
    if pt.is_floating(column) and isinstance(value, float):
        if math.isnan(value):
            return f"coalesce(isnan({quoted(name)}), false)"
        text = (
            f"CAST('{value!r}' AS {'FLOAT' if pt.is_float32(column) else 'DOUBLE'})" if math.isfinite(value) else None
        )
    elif pt.is_string(column) and isinstance(value, str):
        text = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    elif isinstance(value, JavaObject):
        text = _old_time(value, column)
    return None if text is None else f"({quoted(name)} {COMPARISONS[kind]} {text})"


def _old_time(value: Any, kind: pa.DataType) -> str | None:
    """A day of the calendar of today, or a time without a zone."""
    java = value.getClass().getName()
    if pt.is_date(kind) and java in {"java.sql.Date", "java.time.LocalDate"}:
        day = value.toLocalDate() if java == "java.sql.Date" else value
        return f"DATE '{day.toString()}'" if _FIRST_GREGORIAN <= day.getYear() <= _LAST_YEAR else None
    if pt.is_timestamp(kind) and kind.tz is None and java == "java.time.LocalDateTime":
        return f"CAST('{value.toString()}' AS TIMESTAMP_NTZ)" if 0 < value.getYear() <= _LAST_YEAR else None
    return None


def _text(item: Any, schema: pa.Schema, depth: int = 0) -> str | None:
    """A filter as a predicate with the same value for each row; None if there may be none."""
    kind = item.getClass().getSimpleName()
    if depth > _DEEPEST:
        return None
    if kind in JOINS:
        parts = _chain(item, kind)
        texts = [] if parts is None else [_text(part, schema, depth + 1) for part in parts]
        return f"({f' {JOINS[kind]} '.join(map(str, texts))})" if texts and None not in texts else None
    if kind == "Not":
        inner = _text(item.child(), schema, depth + 1)
        return None if inner is None else f"(NOT {inner})"
    if kind not in COMPARISONS and kind not in _NULLS and kind != "In":
        return None
    name = _column(item.attribute(), schema)
    if name is None:
        return None
    if kind in _NULLS:
        return f"({quoted(name)} {_NULLS[kind]})"
    column = schema.field(name).type
    if kind == "In":
        values = item.values()
        if not 0 < len(values) <= _MOST_VALUES:
            return None
        texts = [_constant(value, column) for value in values]
        return None if None in texts else f"({quoted(name)} IN ({', '.join(map(str, texts))}))"
    text = _constant(item.value(), column)
    return None if text is None else f"({quoted(name)} {COMPARISONS[kind]} {text})"


def _column(name: str, schema: pa.Schema) -> str | None:
    """The column of a filter; None for a field of a struct, which Spark writes with a dot, and for what may be one.

    A scan of the catalog has names in backquotes where Spark's parser needs them, one of Spark's own names has not.
    """
    plain = name[1:-1].replace("``", "`") if len(name) > 1 and name[0] == name[-1] == "`" else None
    if plain is None:
        return name if name in schema.names and "." not in name else None
    return plain if plain in schema.names and name not in schema.names else None


def _chain(item: Any, kind: str) -> list[Any] | None:
    """The parts of a chain of ANDs, or of ORs, in their order; None if they are too many."""
    parts: list[Any] = []
    ahead = [item]
    while ahead:
        part = ahead.pop()
        if part.getClass().getSimpleName() == kind:
            ahead += [part.right(), part.left()]
        else:
            parts.append(part)
        if len(parts) + len(ahead) > _MOST_FILTERS:
            return None
    return parts


def _constant(value: Any, kind: pa.DataType) -> str | None:
    if isinstance(value, bool):
        return str(value).lower() if pt.is_boolean(kind) else None
    if pt.is_integer(kind):
        return f"({value})" if isinstance(value, int) else None
    if pt.is_decimal(kind):
        return f"({value:f})" if isinstance(value, Decimal) and value.is_finite() else None
    if pt.is_string(kind):
        return _string(value) if isinstance(value, str) else None
    if isinstance(value, JavaObject):
        return _time(value, kind)
    return None


def _string(value: str) -> str | None:
    """The text in quotes, unless it has a character that a quoted text writes in another way."""
    return f"'{value}'" if value.isprintable() and not {"'", '"', "\\"}.intersection(value) else None


def _time(value: Any, kind: pa.DataType) -> str | None:
    java = value.getClass().getName()
    if pt.is_date(kind) and java in {"java.sql.Date", "java.time.LocalDate"}:
        day = value.toLocalDate() if java == "java.sql.Date" else value
        return f"DATE '{day.toString()}'" if _FIRST_YEAR <= day.getYear() <= _LAST_YEAR else None
    if pt.is_timestamp(kind) and kind.tz is not None and java in {"java.sql.Timestamp", "java.time.Instant"}:
        moment = value.toInstant() if java == "java.sql.Timestamp" else value
        text = moment.toString()
        is_plain = len(text) <= len("2026-01-31T12:00:00.123456Z") and text[:4].isdigit()
        return f"TIMESTAMP '{text}'" if is_plain and int(text[:4]) >= _FIRST_YEAR else None
    return None
