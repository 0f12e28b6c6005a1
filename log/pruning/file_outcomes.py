"""Whether a row of a file can make a predicate true or false, judged by facts about the file.

Each method answers for all files at once. `outcome` says which outcome is asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log import predicate
from tidelog.log.format.actions import Metadata
from tidelog.log.predicate import (
    And,
    Call,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    like_prefix,
)
from tidelog.log.pruning.file_facts import FileFacts
from tidelog.log.state.files import FileValues, Leaf

_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
# A longer IN list is tested as the range that it spans.
_MAX_TESTED_VALUES = 50


class FileOutcomes:
    """What rows of files can give for a predicate."""

    def __init__(self, values: FileValues, schema: pa.Schema, metadata: Metadata) -> None:
        self.values = values
        self._facts = FileFacts(values, schema, metadata)

    def leaves_of(self, expression: Expression) -> list[Leaf]:
        """The leaf columns whose statistics can help to judge `expression`."""
        return self._facts.leaves_of(expression)

    def answer(self, expression: Expression, *, with_statistics: bool) -> pa.BooleanArray:
        """For each file, whether a row can make `expression` true."""
        self._facts.with_statistics = with_statistics
        if with_statistics:
            self.values.load(self.leaves_of(expression))
        return self._may(expression, outcome=True)

    def certainty(self, expression: Expression) -> pa.BooleanArray:
        """For each file, whether `expression` is certainly true for all its rows: no row can make it false or null."""
        self._facts.with_statistics = True
        self.values.load(self.leaves_of(expression))
        return pc.invert(pc.or_(self._may(expression, outcome=False), self._may_have_no_outcome(expression)))

    def _may(  # noqa: PLR0911, PLR0912 - a case for each kind of node
        self, expression: Expression, *, outcome: bool
    ) -> pa.BooleanArray:
        """Whether a row of a file can give `expression` this outcome."""
        facts = self._facts
        if facts.is_exact(expression):
            exact = facts.outcomes(expression)
            if exact is None:
                return facts.always(answer=True)
            wanted = exact if outcome else pc.invert(exact)
            return pc.or_(pc.fill_null(wanted, False), facts.unknown(expression))  # noqa: FBT003 - a value
        match expression:
            case Not(inner):
                return self._may(inner, outcome=not outcome)
            case And(left, right) | Or(left, right):
                both = self._may(left, outcome=outcome), self._may(right, outcome=outcome)
                return pc.and_(*both) if isinstance(expression, And) == outcome else pc.or_(*both)
            case Comparison(symbol, left, right):
                return self._may_compare(symbol, left, right, outcome=outcome)
            case In(inner, values):
                return self._may_be_in(inner, values, outcome=outcome)
            case IsNull(Column() as column) | Call("isnull", (Column() as column,)):
                return facts.may_be_null(column, outcome=outcome)
            case Call("isnotnull", (Column() as column,)):
                return facts.may_be_null(column, outcome=not outcome)
            case Like(Column() as column, pattern, escape):
                return self._may_start(column, *like_prefix(pattern, escape), outcome=outcome)
            case Call("startswith", (Column() as column, Literal(str(prefix)))):
                return self._may_start(column, prefix, True, outcome=outcome)  # noqa: FBT003 - as `like_prefix` has it
            case Column():
                return self._may_compare("=", expression, Literal(outcome), outcome=True)
            case Call(name, arguments):
                return self._may_call(name, arguments, outcome=outcome)
            case _:
                return facts.always(answer=True)

    def _may_call(self, name: str, arguments: Sequence[Expression], *, outcome: bool) -> pa.BooleanArray:
        """Operators that are kept as functions."""
        match name, arguments:
            case "between", (value, low, high):
                both = And(Comparison(">=", value, low), Comparison("<=", value, high))
                return self._may(both, outcome=outcome)
            case "in", (value, *others):
                tests = [self._may(Comparison("=", value, other), outcome=outcome) for other in others]
                return functools.reduce(pc.or_ if outcome else pc.and_, tests)
            case "istrue" | "isfalse", (inner,) if outcome:
                return self._may(inner, outcome=name == "istrue")
            case "<=>", (value, Literal(None)) | (Literal(None), value):
                return self._may(IsNull(value), outcome=outcome)
            case "<=>", (left, right) if outcome and (isinstance(left, Literal) or isinstance(right, Literal)):
                return self._may(Comparison("=", left, right), outcome=True)
            case _:
                return self._facts.always(answer=True)

    def _may_have_no_outcome(self, expression: Expression) -> pa.BooleanArray:
        """Whether a row of a file can make `expression` null, or an error."""
        facts = self._facts
        if facts.is_exact(expression):
            exact = facts.outcomes(expression)
            if exact is None:
                return facts.always(answer=True)
            return pc.or_(pc.is_null(exact), facts.unknown(expression))
        match expression:
            case Not(inner):
                return self._may_have_no_outcome(inner)
            case And(left, right) | Or(left, right):
                return pc.or_(self._may_have_no_outcome(left), self._may_have_no_outcome(right))
            case IsNull(Column()):
                return facts.always(answer=False)
            case Comparison(_, left, right):
                return self._some_null(left, right)
            case In(inner, values):
                return self._some_null(inner, *map(Literal, values))
            case Like(inner, _, _):
                return self._some_null(inner)
            case _:
                return self._some_null(expression)

    def _some_null(self, *parts: Expression) -> pa.BooleanArray:
        """Whether one of the parts can be null, or something else than a column and a constant."""
        facts = self._facts
        if any(part == Literal(None) or not isinstance(part, (Column, Literal)) for part in parts):
            return facts.always(answer=True)
        nulls = [facts.may_be_null(part, outcome=True) for part in parts if isinstance(part, Column)]
        return functools.reduce(pc.or_, nulls, facts.always(answer=False))

    def _may_compare(self, symbol: str, left: Expression, right: Expression, *, outcome: bool) -> pa.BooleanArray:
        facts = self._facts
        if Literal(None) in (left, right):
            return facts.always(answer=False)
        # Bounds ignore NaN, which is unequal to every value and neither below nor above it.
        if (symbol == "!=") == outcome and (facts.is_float(left) or facts.is_float(right)):
            return self._some_value(left, right)
        lows = facts.bound(left, "low"), facts.bound(right, "low")
        highs = facts.bound(left, "high"), facts.bound(right, "high")
        if None in (*lows, *highs):
            return facts.always(answer=True)
        match symbol if outcome else _OPPOSITE[symbol]:
            case "=":
                possible = pc.and_(facts.holds("<=", lows[0], highs[1]), facts.holds(">=", highs[0], lows[1]))
            case "!=":
                possible = pc.or_(facts.holds("<", lows[0], highs[1]), facts.holds(">", highs[0], lows[1]))
            case ("<" | "<=") as below:
                possible = facts.holds(below, lows[0], highs[1])
            case above:
                possible = facts.holds(above, highs[0], lows[1])
        return pc.and_(possible, self._some_value(left, right))

    def _may_be_in(self, inner: Expression, values: Sequence[predicate.Value], *, outcome: bool) -> pa.BooleanArray:
        if len(values) > _MAX_TESTED_VALUES:
            present: list[Any] = [value for value in values if value is not None]
            numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in present)
            texts = all(isinstance(value, str) for value in present) and self._facts.is_text(inner)
            if not outcome or not present or not (numbers or texts):
                return self._facts.always(answer=True)
            low, high = Literal(min(present)), Literal(max(present))
            return self._may(And(Comparison(">=", inner, low), Comparison("<=", inner, high)), outcome=True)
        tests = [self._may(Comparison("=", inner, Literal(value)), outcome=outcome) for value in values]
        return functools.reduce(pc.or_ if outcome else pc.and_, tests)

    def _may_start(self, column: Column, prefix: str, open_end: bool, *, outcome: bool) -> pa.BooleanArray:  # noqa: FBT001
        """Whether a text can begin with `prefix`. With an `open_end`, each such text matches."""
        facts = self._facts
        starts = facts.starts(column, prefix) if facts.is_text(column) else None
        if starts is None:
            return facts.always(answer=True)
        if outcome:
            below = pc.or_(
                facts.holds("<=", facts.bound(column, "low"), Literal(prefix)),
                pc.fill_null(starts[0], True),  # noqa: FBT003 - a value
            )
            possible = pc.and_(facts.holds(">=", facts.bound(column, "high"), Literal(prefix)), below)
        elif open_end:
            possible = pc.fill_null(pc.invert(pc.and_(*starts)), True)  # noqa: FBT003 - a value
        else:
            possible = facts.always(answer=True)
        return pc.and_(possible, self._some_value(column))

    def _some_value(self, *sides: Expression) -> pa.BooleanArray:
        """Whether a row can have a value on each side. A comparison with null is neither true nor false."""
        columns = [column for column in map(self._facts.grows_with, sides) if column is not None]
        conditions = [self._facts.may_be_null(column, outcome=False) for column in columns]
        return functools.reduce(pc.and_, conditions, self._facts.always(answer=True))
