"""Double quotation marks in rules, which engines read in two ways.

Spark's `"Name"` is a text. For engines with standard SQL, such as deltalake, it is the column. The table does not say
which engine wrote a rule, so a rule that could mean either is refused, whether tidelog or Spark would evaluate it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.log.errors import UnsupportedFeatureError
from tidelog.log.predicate import double_quoted
from tidelog.log.predicate.tree import clipped
from tidelog.log.rules.declared import Declared


def ambiguities(rules: Declared, names: list[str], path: str) -> Iterator[UnsupportedFeatureError]:
    """The errors for the rules that have the name of a column in double quotation marks.

    Defaults are not looked at: they cannot read columns.
    """
    for what, expression in _texts(rules):
        found = double_quoted(expression)
        name = next(
            (name for name in names if (_occurs(name, expression) if found is None else name.lower() in found)), None
        )
        if name is not None:
            yield UnsupportedFeatureError(
                f"{what} of {path} has a column's name in double quotation marks, {_quoted(name)}: for Spark and "
                f"tidelog that is a text, for deltalake it is the column ({clipped(expression)})",
                advice="drop the rule, and add it again in Spark, with backquotes around a column's name "
                f"(`{name}`) and single quotation marks around a text; or write with the engine that made it, such "
                "as deltalake",
                path=path,
                features=clipped(expression),
            )


def _texts(rules: Declared) -> Iterator[tuple[str, str]]:
    for check in rules.checks:
        yield f"the {check.kind} {check.name!r}", check.expression
    for rule in rules.generated:
        yield f"the generated column {rule.column!r}", rule.expression


def _occurs(name: str, expression: str) -> bool:
    return _quoted(name).lower() in expression.lower()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
