"""The names of functions, as SQL has them."""

from __future__ import annotations

import difflib

from sqlglot import exp

from tidelog.log.errors import PredicateError
from tidelog.log.predicate.functions import FUNCTIONS, OPERATORS
from tidelog.log.predicate.literals import unsupported
from tidelog.log.predicate.moment import CURRENT
from tidelog.log.predicate.tree import clipped

OWN_SYNTAX = (
    exp.Trim,
    exp.Extract,
    exp.Substring,
    exp.StrPosition,
    exp.CurrentDate,
    exp.CurrentTimestamp,
)
_EXTRACTED = {
    **{name: name.lower() for name in ("YEAR", "QUARTER", "MONTH", "DAY", "DAYOFWEEK", "HOUR", "MINUTE")},
    "WEEK": "weekofyear",
    "DOY": "dayofyear",
    "DOW": "dayofweek",
}
_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim", "BOTH": "trim", "": "trim"}
_PUBLIC = sorted(FUNCTIONS.keys() - OPERATORS)


def call_of(node: exp.Expr) -> tuple[str, list[exp.Expr]]:
    """The name and arguments of a function with a syntax of its own. Raises PredicateError."""
    match node:
        case exp.Trim():
            characters = node.args.get("expression")
            name = _TRIMS[str(node.args.get("position") or "").upper()]
            return name, [node.this] if characters is None else [node.this, characters]
        case exp.Extract():
            part = node.this.name.upper()
            if part not in _EXTRACTED:
                raise unsupported(node, f"extract one of {', '.join(sorted(_EXTRACTED))}")
            return _EXTRACTED[part], [node.expression]
        case exp.Substring():
            given = [node.this, node.args.get("start"), node.args.get("length")]
            return "substring", [each for each in given if each is not None]
        case exp.StrPosition():
            return "instr", [node.this, node.args["substr"]]
        case exp.CurrentDate():
            return "current_date", []
        case _:
            return "current_timestamp", []


def require_function(name: str, arguments: int, node: exp.Expr) -> None:
    """Raise PredicateError unless there is such a function, for so many arguments."""
    if name in CURRENT:
        raise PredicateError(
            f"{name}() has no value here: the time of the statement is not known",
            advice="write a constant, such as TIMESTAMP '2026-01-31 12:00:00Z'",
            token=clipped(node.sql(dialect="spark")),
        )
    found = None if name in OPERATORS else FUNCTIONS.get(name)
    if found is None:
        near = difflib.get_close_matches(name[:100], _PUBLIC, 1)
        known = f"did you mean {near[0]}? " if near else ""
        raise PredicateError(
            f"the function {clipped(name)!r} is not supported in a predicate",
            advice=f"{known}the functions are {', '.join(_PUBLIC)}",
            token=clipped(node.sql(dialect="spark")),
        )
    if not found.least <= arguments <= found.most:
        wanted = str(found.least) if found.least == found.most else f"{found.least} to {found.most}"
        raise PredicateError(
            f"the function {name!r} takes {wanted} arguments, not {arguments}",
            advice="add or leave out arguments",
            token=clipped(node.sql(dialect="spark")),
        )
