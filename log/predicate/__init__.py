"""Predicates: SQL text in Spark's dialect, parsed into a small tree that Arrow evaluates.

A predicate may hold comparisons, AND/OR/NOT, IN, BETWEEN, IS NULL, LIKE 'prefix%' and arithmetic over the table's
columns (`a.b` for a field of a struct). Anything else raises PredicateError, with the piece of SQL at fault as `token`.
SQL's three-valued logic applies: a row matches only if the predicate is true, not if it is null.

- `parser`: SQL text to the tree. Names are resolved against the table's schema.
- `tree`: the node types, and simple questions about a tree (columns, depth, SQL text).
- `constants`: which value of a column's type a constant stands for.
- `arrow`: the tree to Arrow expressions, and values computed for each row.
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
    column_nodes,
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
    "column_nodes",
    "column_type",
    "columns",
    "evaluate",
    "parse",
    "require_syntax",
    "to_arrow",
]
