"""Parse SQL text in Spark's dialect into the tree, within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tidelog.log.errors import PredicateError
from tidelog.log.predicate.bounds import require_bounded
from tidelog.log.predicate.moment import at_time
from tidelog.log.predicate.tree import Expression, clipped, depth

if TYPE_CHECKING:
    import sqlglot

# Python stops at a thousand nested calls, and each level needs up to three.
_MAX_DEPTH = 100


def parse(text: str, schema: pa.Schema) -> Expression:
    """The tree of `text`, with columns resolved against `schema`. As in Spark, case does not matter.

    Raises PredicateError.
    """
    return _tree(text, schema)


def require_syntax(text: str) -> None:
    """Raise PredicateError if `text` is not a predicate that tidelog supports, whatever the columns are."""
    _tree(at_time(text, lambda: 0), None)


def _tree(text: str, schema: pa.Schema | None) -> Expression:
    if not isinstance(text, str):
        raise PredicateError(
            f"a predicate must be SQL text, not {type(text).__name__}", advice='write a string such as "k > 5"'
        )
    require_bounded(text)
    import sqlglot  # noqa: PLC0415 - takes a tenth of a second, which programs without predicates save

    from tidelog.log.predicate.builder import Builder  # noqa: PLC0415 - imports sqlglot
    from tidelog.log.predicate.dialect import DIALECT  # noqa: PLC0415 - imports sqlglot

    try:
        tree = sqlglot.parse_one(text, dialect=DIALECT)
        found = Builder(text, schema).build(tree)
        too_deep = depth(found) > _MAX_DEPTH
    except sqlglot.errors.SqlglotError as error:
        raise _syntax_error(text, error) from error
    except RecursionError:
        too_deep = True
    if too_deep:
        raise PredicateError(
            "the predicate is nested too deeply", advice="use fewer parentheses and shorter sums", token=clipped(text)
        )
    return found


def _syntax_error(text: str, error: sqlglot.errors.SqlglotError) -> PredicateError:
    advice = "write a condition over columns in Spark's SQL, such as \"k > 5 AND day = '2024-01-01'\""
    if not text.strip():
        return PredicateError("the predicate cannot be parsed: it is empty", advice=advice)
    places = getattr(error, "errors", None)  # only of errors that the parser itself found
    near = (
        f" near {clipped(places[0]['highlight'])!r} (line {places[0]['line']}, column {places[0]['col']})"
        if places
        else ""
    )
    return PredicateError(f"the predicate cannot be parsed{near}", advice=advice, token=clipped(text))
