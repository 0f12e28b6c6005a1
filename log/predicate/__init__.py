"""Predicates: SQL text (Spark's dialect) to a small tree, and from the tree to what evaluates it.

What a text may hold: comparisons, AND/OR/NOT, IN, BETWEEN, IS NULL, LIKE 'prefix%', arithmetic, over the table's
columns (nested ones by dots). Anything else is a PredicateError naming the token. SQL's three-valued logic holds: a row
is kept only where the predicate is true, not where it is null.
"""

from tidelog.log.predicate.arrow import evaluate, to_arrow
from tidelog.log.predicate.parser import parse, require_syntax
from tidelog.log.predicate.tree import (
    And,
    Arithmetic,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    StartsWith,
    Value,
    column_type,
    columns,
)

__all__ = [
    "And",
    "Arithmetic",
    "Column",
    "Comparison",
    "Expression",
    "In",
    "IsNull",
    "Literal",
    "Not",
    "Or",
    "StartsWith",
    "Value",
    "column_type",
    "columns",
    "evaluate",
    "parse",
    "require_syntax",
    "to_arrow",
]
