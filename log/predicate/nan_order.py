"""Spark's order of floating numbers: NaN equals itself, and is above all others.

Rules of a table have this order, so that tidelog and Spark agree about a row. A caller's predicates do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidelog.log.predicate.tree import (
    And,
    Call,
    Case,
    Comparison,
    Expression,
    IsNull,
    Literal,
    Not,
    Or,
    parts,
    with_parts,
)


def nan_ordered(expression: Expression) -> Expression:
    """The expression with all of its comparisons in Spark's order.

    `In` has constants only, and none is NaN, so its meaning is the same in both.
    """
    expression = with_parts(expression, [nan_ordered(part) for part in parts(expression)])
    match expression:
        case Comparison():
            return replace(expression, nan_is_greatest=True)
        case Case(operand, branches, otherwise) if operand is not None:
            return Case(None, tuple((_compared("=", operand, test), found) for test, found in branches), otherwise)
        case Call("between", (value, low, high)):
            return And(_compared(">=", value, low), _compared("<=", value, high))
        case Call("in", (value, *others)):
            return _any_of([_compared("=", value, other) for other in others])
        case Call("nullif", (value, other)):
            return Case(None, ((_compared("=", value, other), Literal(None)),), value)
        case Call("<=>", (left, right)):
            neither_null = And(Not(IsNull(left)), Not(IsNull(right)))
            return Or(And(IsNull(left), IsNull(right)), And(neither_null, _compared("=", left, right)))
        case _:
            return expression


def _compared(symbol: str, left: Expression, right: Expression) -> Comparison:
    return Comparison(symbol, left, right, nan_is_greatest=True)


def _any_of(tests: Sequence[Expression]) -> Expression:
    """Whether one is true, as a tree that is not deep."""
    if len(tests) == 1:
        return tests[0]
    middle = len(tests) // 2
    return Or(_any_of(tests[:middle]), _any_of(tests[middle:]))
