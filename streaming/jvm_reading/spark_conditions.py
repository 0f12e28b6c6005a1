"""A predicate as a condition for Spark, with the same outcome for each row as in tidelog.

Translated is only what certainly has it: columns compared with constants of their type, and what joins such
comparisons. The text does not depend on the session's settings, such as its time zone or how it reads quotes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.types as pt

from tidelog.log import predicate
from tidelog.streaming.executors.plain_frame import quoted

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
# Larger integers are not exact as 32-bit floats.
_EXACT = 2**24
_MAX_DIGITS = 38
_NULL = "cast(null as boolean)"


def condition(tree: predicate.Expression, schema: pa.Schema) -> str | None:
    """The predicate as SQL text for Spark; None if it has a part that Spark may evaluate in another way."""
    match tree:
        case predicate.And(left, right):
            return _joined("AND", condition(left, schema), condition(right, schema))
        case predicate.Or(left, right):
            return _joined("OR", condition(left, schema), condition(right, schema))
        case predicate.Not(inner):
            text = condition(inner, schema)
            return None if text is None else f"(NOT {text})"
        case predicate.IsNull(predicate.Column() as column):
            return f"({_name(column)} IS NULL)"
        case predicate.Comparison(symbol, left, right):
            return _comparison(symbol, left, right, schema)
        case predicate.In(predicate.Column() as column, values):
            return _member(column, values, schema)
        case predicate.Column():
            return _name(tree) if pt.is_boolean(predicate.column_type(tree, schema)) else None
        case predicate.Literal(None):
            return _NULL
        case predicate.Literal(bool() as value):
            return str(value).lower()
        case _:
            return None


def _joined(word: str, left: str | None, right: str | None) -> str | None:
    return None if left is None or right is None else f"({left} {word} {right})"


def _comparison(symbol: str, left: predicate.Expression, right: predicate.Expression, schema: pa.Schema) -> str | None:
    columns = [side for side in (left, right) if isinstance(side, predicate.Column)]
    kinds = {predicate.column_type(column, schema) for column in columns}
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    if pt.is_nested(kind) or pt.is_null(kind) or pt.is_binary(kind):
        return None
    if predicate.Literal(None) in (left, right):
        return _NULL
    texts = [_side(side, kind) for side in (left, right)]
    if None in texts:
        return None
    text = f"({texts[0]} {symbol} {texts[1]})"
    if pt.is_floating(kind) and symbol != "!=":
        # In Spark, NaN is equal to itself and above all numbers.
        text = f"({' AND '.join([text, *(f'NOT isnan({_name(column)})' for column in columns)])})"
    return text


def _member(column: predicate.Column, values: Sequence[predicate.Value], schema: pa.Schema) -> str | None:
    kind = predicate.column_type(column, schema)
    if pt.is_nested(kind) or pt.is_null(kind) or pt.is_floating(kind):
        return None
    texts = ["null" if value is None else _constant(value, kind) for value in values]
    known = [text for text in texts if text is not None]
    return f"({_name(column)} IN ({', '.join(known)}))" if known and len(known) == len(texts) else None


def _side(side: predicate.Expression, kind: pa.DataType) -> str | None:
    if isinstance(side, predicate.Column):
        return _name(side)
    return _constant(side.value, kind) if isinstance(side, predicate.Literal) else None


def _name(column: predicate.Column) -> str:
    return ".".join(map(quoted, column.path))


def _constant(value: predicate.Value, kind: pa.DataType) -> str | None:
    """The constant as Spark's SQL, if it has the type of the column, or one whose values all compare exactly."""
    text = None
    if isinstance(value, bool) or pt.is_boolean(kind):
        text = str(value).lower() if isinstance(value, bool) and pt.is_boolean(kind) else None
    elif pt.is_integer(kind):
        text = f"cast('{value}' as bigint)" if isinstance(value, int) else None
    elif pt.is_floating(kind):
        exact = isinstance(value, (float, Decimal)) or (isinstance(value, int) and abs(value) <= _EXACT)
        text = f"cast('{float(value)!r}' as double)" if exact and isinstance(value, (int, float, Decimal)) else None
    elif pt.is_decimal(kind):
        text = _decimal(value, kind)
    elif pt.is_string(kind):
        text = f"cast(X'{value.encode().hex()}' as string)" if isinstance(value, str) else None
    elif pt.is_date(kind) or pt.is_timestamp(kind):
        text = _time(value, kind)
    return text


def _decimal(value: predicate.Value, kind: pa.DataType) -> str | None:
    if not isinstance(value, (int, Decimal)):
        return None
    _, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        return None
    scale = max(0, -exponent)
    whole = max(0, len(digits) + exponent)
    if max(scale, kind.scale) + max(whole, kind.precision - kind.scale) > _MAX_DIGITS:
        return None
    return f"cast('{value:f}' as decimal({max(1, whole + scale)},{scale}))"


def _time(value: predicate.Value, kind: pa.DataType) -> str | None:
    if isinstance(value, str) and pt.is_date(kind) and _DAY.fullmatch(value):
        value = date.fromisoformat(value)
    if pt.is_date(kind):
        return f"DATE '{value}'" if isinstance(value, date) and not isinstance(value, datetime) else None
    if not isinstance(value, datetime) or (value.tzinfo is None) != (kind.tz is None):
        return None
    if kind.tz is None:
        return f"TIMESTAMP_NTZ '{value.isoformat(' ')}'"
    return f"timestamp_micros({(value - _EPOCH) // timedelta(microseconds=1)}L)"
