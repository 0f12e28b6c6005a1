"""The rules of an upsert that does not simply replace rows: what happens to a row, and under which condition.

They are those of SQL's MERGE. A rule is a pair of a condition and an action; of the rules of a kind, the first one
whose condition is true for a row is applied. A row that no rule selects stays as it is, or is not inserted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from tidelog.log.errors import ConfigurationError
from tidelog.log.predicate import at_time
from tidelog.log.presentable import brief

Rule: TypeAlias = tuple[str | None, str | Mapping[str, str]]
"""A condition, as SQL text over `source` and `target`, or None for all rows; and an action."""

ALL, PARTIAL = "all", "partial"


class Act(StrEnum):
    """What a rule does with a row."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


_ACTIONS = {
    "when_matched": (Act.UPDATE, Act.DELETE),
    "when_not_matched": (Act.INSERT,),
    "when_not_matched_by_source": (Act.DELETE,),
}
# Which kinds of rules can have new values, as a dict.
_WITH_VALUES = {
    "when_matched": Act.UPDATE,
    "when_not_matched": Act.INSERT,
    "when_not_matched_by_source": Act.UPDATE,
}


@dataclass(frozen=True, slots=True)
class RowRule:
    """One rule. `values` are the new values, by column; None if the action takes all columns of the source."""

    condition: str | None
    act: Act
    values: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class MergeRules:
    """The rules of one statement; each text's time is fixed (`predicate.at_time`).

    With `reads_all` the source was read from the table itself, so any other change of rows is a conflict.
    """

    matched: Sequence[RowRule] = field(default=())
    not_matched: Sequence[RowRule] = field(default=())
    by_source: Sequence[RowRule] = field(default=())
    reads_all: bool = False

    def __bool__(self) -> bool:
        return bool(self.matched or self.not_matched or self.by_source)


def merge_rules(
    matched: Sequence[Rule], not_matched: Sequence[Rule], by_source: Sequence[Rule], now: Callable[[], int]
) -> MergeRules:
    """The rules as a caller gave them. Raises ConfigurationError for one that is none."""
    now = functools.cache(now)
    given = (("when_matched", matched), ("when_not_matched", not_matched), ("when_not_matched_by_source", by_source))
    of_matched, of_new, of_old = (tuple(_actions(name, rules, now)) for name, rules in given)
    return MergeRules(of_matched, of_new, of_old)


def require_one_way(
    rules: MergeRules | None, columns: str, delete_where: str | None, order_by: str | Sequence[str] | None
) -> None:
    """Raise ConfigurationError if arguments of an upsert do not go together."""
    if columns not in (ALL, PARTIAL):
        raise ConfigurationError(f"columns cannot be {brief(columns)}", advice=f"use {ALL!r} or {PARTIAL!r}")
    given = {f"columns={PARTIAL!r}": columns == PARTIAL, "delete_where": delete_where is not None, "order_by": order_by}
    others = [name for name, is_given in given.items() if is_given]
    if rules and others:
        raise ConfigurationError(
            f"{' and '.join(others)} and rules such as when_matched are both given",
            advice="say all of it with rules, such as ('source.at >= target.at', 'update'); 'delete' is an action, too",
        )


def _actions(name: str, rules: Sequence[Rule], now: Callable[[], int]) -> list[RowRule]:
    words = " or ".join([*(repr(str(act)) for act in _ACTIONS[name]), "a dict of columns and SQL expressions"])
    if not isinstance(rules, list | tuple):
        raise ConfigurationError(
            f"{name} must be a list of rules (got {brief(rules)})", advice="pass [(condition, action), ...]"
        )
    found = []
    for rule in rules:
        if not isinstance(rule, list | tuple) or len(rule) != 2:  # noqa: PLR2004 - a pair
            raise ConfigurationError(
                f"a rule of {name} must be a pair of a condition and an action (got {brief(rule)})",
                advice="pass (condition, action), with None as the condition for all rows",
            )
        condition, action = rule
        if condition is not None and not isinstance(condition, str):
            raise ConfigurationError(
                f"a condition of {name} must be SQL text or None (got {brief(condition)})",
                advice='write one such as "source.at >= target.at"',
            )
        if isinstance(action, Mapping):
            values = {str(column): at_time(text, now) for column, text in action.items()}
            _require_values(name, values)
            found.append(RowRule(at_time(condition, now), _WITH_VALUES[name], values))
        elif action in _ACTIONS[name]:
            found.append(RowRule(at_time(condition, now), Act(action)))
        else:
            raise ConfigurationError(f"an action of {name} cannot be {brief(action)}", advice=f"use {words}")
    return found


def _require_values(name: str, values: Mapping[str, Any]) -> None:
    if not values:
        raise ConfigurationError(
            f"an action of {name} sets no column", advice="pass a dict such as {'price': 'source.price'}"
        )
    for column, text in values.items():
        if not isinstance(text, str):
            raise ConfigurationError(
                f"the new value of {column!r} must be SQL text (got {type(text).__name__})",
                advice="SQL quotes strings, as in \"'text'\"",
            )
