"""Predicates: SQL text in Spark's dialect, parsed into a small tree that Arrow evaluates.

A predicate reads the table's columns (`a.b` for a field of a struct) and follows Spark's ANSI mode. What tidelog does
not evaluate raises PredicateError, with the piece of SQL at fault as `token`. SQL's three-valued logic applies: a row
matches only if the predicate is true, not if it is null.

From text to tree:

- `moment`: the time of a statement in place of `current_timestamp()`.
- `words`: the words of a text, whether tidelog evaluates it or not.
- `dialect`: how the text is read: Spark's SQL, by sqlglot.
- `parser`: SQL text to the tree, within `bounds`. Names are resolved against the table's schema.
- `builder`: sqlglot's tree to ours.
- `literals`, `intervals`, `sql_names`: numbers, types, intervals and function names in the text.
- `tree`: the node types, and simple questions about a tree (columns, depth, SQL text).

From tree to values:

- `nan_order`: a tree whose comparisons have Spark's order of floating numbers.
- `evaluation`: a predicate, or the value of an expression, for rows.
- `rows`: the rows to compute on, and what a bound part is.
- `types`, `casts`, `text_casts`, `constants`: Spark's types, and the conversions between them.
- `logic`, `comparisons`, `like`, `choices`, `arithmetic`: the operators.
- `functions`: the table of functions. `texts`, `numbers` and `dates` compute them.
"""

from tidelog.log.predicate.evaluation import Condition, evaluate, result_type
from tidelog.log.predicate.functions import FUNCTIONS
from tidelog.log.predicate.like import prefix as like_prefix
from tidelog.log.predicate.moment import at_time, update_at_time
from tidelog.log.predicate.nan_order import nan_ordered
from tidelog.log.predicate.parser import parse, require_syntax
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
    column_nodes,
    column_type,
    columns,
    columns_of_parts,
    parts,
    with_parts,
)
from tidelog.log.predicate.words import double_quoted, words

__all__ = [
    "FUNCTIONS",
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
    "update_at_time",
    "with_parts",
    "words",
]
