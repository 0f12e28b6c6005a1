"""The errors for rows that break a rule, with the values of the first such row.

Rows can be secret, so only the columns of the rule are shown, and of a long value only its start.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log import predicate
from tidelog.log.errors import ConstraintViolationError, PredicateError
from tidelog.log.predicate.tree import clipped
from tidelog.log.rules.declared import Check, Length

_MOST_COLUMNS = 8
_LONGEST_VALUE = 40


def require_true(check: Check, holds: pa.BooleanArray, rows: pa.Table, path: str) -> None:
    """Raise ConstraintViolationError if the condition does not hold for a row."""
    if holds.false_count:
        what = f"the {check.kind} {check.name!r}"
        raise ConstraintViolationError(
            f"{_count(holds)} violate {what} of {path}: {clipped(check.expression)}",
            advice="correct these rows, or leave them out; a condition that is null counts as violated",
            path=path,
            constraint=check.name,
            expression=clipped(check.expression),
            row=_first(holds, rows, _columns(check.expression, rows.schema)),
        )


def require_generated(
    column: str, expression: str, equal: pa.BooleanArray, rows: pa.Table, computed: pa.ChunkedArray | None, path: str
) -> None:
    """Raise ConstraintViolationError if the data has another value than the expression of a generated column."""
    if equal.false_count:
        names = [column, *(name for name in _columns(expression, rows.schema) if name != column)]
        wanted = "" if computed is None else f" (it must be {_shown(computed[_place(equal)])})"
        raise ConstraintViolationError(
            f"{_count(equal)} have another value in the generated column {column!r} of {path} than "
            f"{clipped(expression)}{wanted}",
            advice="leave the column out of the data: it is computed then",
            column=column,
            path=path,
            constraint=column,
            expression=clipped(expression),
            row=_first(equal, rows, names),
        )


def require_short(rule: Length, fits: pa.BooleanArray, rows: pa.Table, path: str) -> None:
    """Raise ConstraintViolationError if a text is too long for its column."""
    if fits.false_count:
        kind = f"varchar({rule.limit})"
        raise ConstraintViolationError(
            f"{_count(fits)} have a text in the column {rule.column!r} of {path} that is too long for {kind}",
            advice="shorten these texts, or leave the rows out",
            column=rule.column,
            path=path,
            constraint=rule.column,
            expression=kind,
            row=_first(fits, rows, [rule.column]),
        )


def _count(holds: pa.BooleanArray) -> str:
    return f"{holds.false_count} of {len(holds)} rows"


def _place(holds: pa.BooleanArray) -> int:
    return int(pc.index(holds, False).as_py())


def _first(holds: pa.BooleanArray, rows: pa.Table, names: Sequence[str]) -> str:
    place = _place(holds)
    return ", ".join(f"{name}={_shown(rows[name][place])}" for name in names[:_MOST_COLUMNS])


def _columns(expression: str, schema: pa.Schema) -> list[str]:
    """The table's columns that the expression reads."""
    try:
        found = frozenset(predicate.columns(predicate.parse(expression, schema)))
    except PredicateError:  # Spark evaluated it
        found = predicate.words(expression) or frozenset()
    return [name for name in schema.names if name in found or name.lower() in found]


def _shown(value: pa.Scalar) -> str:
    try:
        text = repr(value.as_py()) if pa.types.is_nested(value.type) or _is_text(value.type) else str(value)
    except (ValueError, OverflowError):  # Python has no such date or time
        text = str(value)
    if not value.is_valid:
        return "null"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
