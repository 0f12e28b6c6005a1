"""The tests that cannot apply to tidelog, beside those that say themselves that they look into Spark's table."""

from __future__ import annotations

from tests.spark_suites.run import CANCELLED, Outcome

# By words in the name of a test.
_ADDED_DEFAULT = "a column is added with a DEFAULT that old rows have as well: the Delta format cannot say that"
_REASONS = (
    ("added column with default value", _ADDED_DEFAULT),
    ("update table with expression-based default values", _ADDED_DEFAULT),
    (
        "char/varchar columns",
        "fields of structs have the types CHAR and VARCHAR, whose lengths a table keeps for whole columns only",
    ),
    (
        "no auto-schema-evolution capability - with evolution clause",
        "a property of Spark's in-memory table takes away its ability to evolve",
    ),
)


def reason(outcome: Outcome) -> str | None:
    """Why a test is left out; None if it should pass."""
    if outcome.kind == CANCELLED:
        return None
    return next((why for words, why in _REASONS if words in outcome.test), None)
