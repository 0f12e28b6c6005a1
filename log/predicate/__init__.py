"""Predicates: SQL text in Spark's dialect, parsed into a small tree that Arrow evaluates.

A predicate reads the table's columns (`a.b` for a field of a struct) and follows Spark's ANSI mode. What tidelog does
not evaluate raises PredicateError, with the piece of SQL at fault as `token`. SQL's three-valued logic applies: a row
matches only if the predicate is true, not if it is null.

From text to tree:

- `parser`: SQL text: parsed into the tree within bounds, its words, and the time of a statement in place of
  `current_timestamp()`. Names are resolved against the table's schema.
- `dialect`: Spark's grammar, for sqlglot.
- `builder`: sqlglot's tree to ours: operators, literals, intervals, function names.
- `char_columns`: the spaces that Spark adds to what is compared with a CHAR(n).
- `tree`: the node types, and questions about a tree (columns, depth, SQL text); a tree whose comparisons have Spark's
  order of floating numbers.

From tree to values:

- `evaluation`: a predicate, or the value of an expression, for rows; the types of a tree's parts, and how each is
  computed.
- `rows`: the rows to compute on, and what a bound part is.
- `types`, `casts`: Spark's types, and the conversions between them and from text.
- `conditions`: comparisons, AND, OR, IN, BETWEEN, LIKE, and what chooses by a condition, such as CASE.
- `functions`: the table of functions. `numbers`, with the arithmetic, `texts` and `dates` compute them.
"""

from tidelog.log.predicate.char_columns import MAX_LENGTH
from tidelog.log.predicate.conditions import like_prefix
from tidelog.log.predicate.evaluation import Condition, evaluate, result_type
from tidelog.log.predicate.functions import FUNCTIONS
from tidelog.log.predicate.parser import at_time, double_quoted, parse, require_syntax, update_at_time, words
from tidelog.log.predicate.tree import (
    And,
    Arithmetic,
    Call,
    Case,
    Cast,
    Column,
    Comparison,
    Expression,
    In,
    Interval,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Value,
    backquoted,
    column_nodes,
    column_type,
    columns,
    columns_of_parts,
    nan_ordered,
    parts,
    to_sql,
    with_parts,
)

__all__ = [
    "FUNCTIONS",
    "MAX_LENGTH",
    "And",
    "Arithmetic",
    "Call",
    "Case",
    "Cast",
    "Column",
    "Comparison",
    "Condition",
    "Expression",
    "In",
    "Interval",
    "IsNull",
    "Like",
    "Literal",
    "Not",
    "Or",
    "Value",
    "at_time",
    "backquoted",
    "column_nodes",
    "column_type",
    "columns",
    "columns_of_parts",
    "double_quoted",
    "evaluate",
    "like_prefix",
    "nan_ordered",
    "parse",
    "parts",
    "require_syntax",
    "result_type",
    "to_sql",
    "update_at_time",
    "with_parts",
    "words",
]
