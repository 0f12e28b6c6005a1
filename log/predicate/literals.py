"""Numbers and type names of SQL text."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from tidelog.log.errors import PredicateError
from tidelog.log.format.schema import TIMESTAMP, TIMESTAMP_NTZ
from tidelog.log.predicate.tree import Value, clipped
from tidelog.log.predicate.types import MAX_DIGITS

_BEYOND_INTEGERS = 2**63
# The digits of the widest decimal that Arrow has.
_MAX_DIGITS = 76
_DEFAULT_DECIMAL = (10, 0)
_TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMPTZ": TIMESTAMP,
    "TIMESTAMPLTZ": TIMESTAMP,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP_NTZ,
}


def number(text: str) -> Value:
    """The value of a number."""
    digits = text.removeprefix("-").lstrip("0")
    if text.removeprefix("-").isdigit():
        # No column holds a number beyond 64 bits, so an approximate value compares correctly.
        whole = int(digits or 0) if len(digits) <= len(str(_BEYOND_INTEGERS)) else 2 * _BEYOND_INTEGERS
        signed = -whole if text.startswith("-") else whole
        return signed if -_BEYOND_INTEGERS <= signed < _BEYOND_INTEGERS else float(text)
    if "e" in text.lower():
        return float(text)
    if len(digits.replace(".", "")) > _MAX_DIGITS:
        raise PredicateError(
            f"the number {clipped(text)} has more than {_MAX_DIGITS} digits",
            advice="no column holds such a number; write fewer digits",
            token=clipped(text),
        )
    return Decimal(text)


def sql_type_of(node: exp.Cast) -> pa.DataType:
    """The type that a CAST names. Raises PredicateError."""
    name = getattr(node.to.this, "name", "")
    if name == "DECIMAL":
        sizes = [int(part.name) if part.name.isdigit() else -1 for part in node.to.expressions]
        digits, scale = (*sizes, *_DEFAULT_DECIMAL[len(sizes) :])
        if not 1 <= digits <= MAX_DIGITS or not 0 <= scale <= digits:
            raise unsupported(node, f"a decimal has up to {MAX_DIGITS} digits")
        return pa.decimal128(digits, scale)
    if name not in _TYPES or node.to.expressions:
        raise unsupported(node, "cast to a number, STRING, BOOLEAN, DATE, TIMESTAMP or TIMESTAMP_NTZ")
    return _TYPES[name]


def unsupported(node: exp.Expr, advice: str | None = None) -> PredicateError:
    """The error for SQL that tidelog does not evaluate."""
    text = clipped(node.sql(dialect="spark"))
    return PredicateError(
        f"{text!r} is not supported in a predicate",
        advice=advice or "use comparisons, AND, OR, NOT, IN, BETWEEN, IS NULL, LIKE, CASE, arithmetic and functions",
        token=text,
    )
