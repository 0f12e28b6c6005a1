"""Random UPDATEs, DELETEs and MERGEs, made of the everyday expressions."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa

from tests.streaming.datasource.everyday_expressions import (
    CONDITIONS,
    SCHEMA,
    VALUES,
    WITH_SUBQUERY,
    WITH_UDF,
    of_source,
)
from tests.streaming.datasource.second_opinion import Assignments, Clause, Delete, Merge, Statement, Update

ON = [
    "t.id = s.id",
    "t.id = s.id",
    "s.id = t.id AND t.i > 0",
    "t.id = s.id AND s.flag",
    "t.id = s.id AND t.p = s.p",
    "t.id <=> s.id",
    "t.id = abs(s.id)",
    "t.id >= s.id AND t.id < s.id + 2",
    "t.id = s.id AND upper(t.s) = upper(s.s)",
    "t.s = s.s AND t.i = s.i",
    "t.id = s.id OR t.id = s.i + 100",
    "false",
]
_OF_BOTH = ["t.f < s.f", "t.s <> s.s", "s.n > t.n", "NOT (t.p <=> s.p)"]
_MOST_COLUMNS = 5
_SIMPLE_CONDITIONS = [
    "t.i > 2",
    "t.i BETWEEN 1 AND 3 OR t.s = 'a'",
    "t.id IN (1, 4, 7, 20)",
    "t.p = 'a' AND t.i <= 3",
    "t.s IS NULL",
    "NOT t.flag",
    "t.price >= 5.00",
    "t.d < DATE'2026-01-10'",
    "t.place.city = 'Rome'",
    "t.s LIKE 'a%'",
]
_SIMPLE_VALUES = {
    "p": ["'c'", "t.s", "NULL"],
    "i": ["7", "t.b", "NULL"],
    "n": ["t.n + 1", "t.i", "t.n * 2"],
    "s": ["upper(t.p)", "concat(t.s, 'x')", "NULL", "'it''s'"],
    "f": ["t.f", "1.5D", "NULL"],
    "flag": ["t.i > 2", "true"],
    "d": ["DATE'2026-05-01'", "t.d"],
}


class Drawn:
    """Draws statements for a table with these columns, some of which the table computes itself."""

    def __init__(self, chosen: random.Random, schema: pa.Schema, computed: Sequence[str] = ()) -> None:
        self._chosen = chosen
        self._missing = [name for name in SCHEMA.names if name not in schema.names]
        self._columns = [name for name in schema.names if name not in computed]
        # UPDATE SET * and INSERT * would set the computed columns.
        self._has_stars = not computed

    def statement(self) -> Statement:
        """One of them."""
        kind = self._chosen.choice(["update", "update", "delete", "merge", "merge"])
        if kind == "merge":
            return self.merge()
        where = self._where([*CONDITIONS, *WITH_SUBQUERY, *WITH_UDF])
        return Delete(where) if kind == "delete" else Update(self._values(plain=False), where)

    def simple(self) -> Statement:
        """One that tidelog's predicates can express."""
        kind = self._chosen.choice(["update", "delete", "merge", "upsert"])
        where = self._chosen.choice(_SIMPLE_CONDITIONS)
        names = [name for name in _SIMPLE_VALUES if name in self._columns]
        given = {name: self._chosen.choice(_SIMPLE_VALUES[name]) for name in self._chosen.sample(names, 2)}
        if kind == "update":
            return Update(given, where)
        if kind == "delete":
            return Delete(where)
        if kind == "upsert":
            gone = [Clause("coalesce(s.i > 3, false)", None)]
            kept = Clause("NOT coalesce(s.i > 3, false)", "*")
            return Merge("t.id = s.id", [*gone, Clause(None, "*")], [kept])
        updated = {name: self._chosen.choice([value, f"s.{name}"]) for name, value in given.items()}
        deleted = [Clause(self._chosen.choice(_SIMPLE_CONDITIONS), None)] * self._chosen.randint(0, 1)
        others = [Clause(where, self._chosen.choice([None, given]))] * self._chosen.randint(0, 1)
        return Merge("t.id = s.id", [*deleted, Clause(None, updated)], [Clause("s.i > 1", "*")], others)

    def merge(self) -> Merge:
        """A MERGE, mostly by key, with up to three clauses of each kind."""
        matched = [Clause(when, self._action("ts")) for when in self._whens("ts")]
        new = [Clause(when, self._inserted()) for when in self._whens("s")]
        others = [Clause(when, self._action("t")) for when in self._whens("t")]
        if not (matched or new or others):
            matched = [Clause(None, None)]
        return Merge(self._chosen.choice(ON), matched, new, others)

    def known(self, expressions: Sequence[str]) -> list[str]:
        """Those that read no column that the table lacks."""
        return [each for each in expressions if not any(f"t.{name}" in each for name in self._missing)]

    def _where(self, conditions: Sequence[str]) -> str | None:
        first, second = self._chosen.choices(self.known(conditions), k=2)
        joined = [first, first, first, f"({first}) AND ({second})", f"({first}) OR ({second})", f"NOT ({first})", None]
        return self._chosen.choice(joined)

    def _whens(self, sides: str) -> list[str | None]:
        """The conditions of some clauses, of which only the last one can have none."""
        count = self._chosen.choice([0, 1, 1, 2, 3] if sides == "ts" else [0, 0, 1, 2])
        return [self._when(sides, is_last=place == count - 1) for place in range(count)]

    def _when(self, sides: str, *, is_last: bool) -> str | None:
        if is_last and self._chosen.random() < 0.6:
            return None
        if sides == "ts" and self._chosen.random() < 0.3:
            return self._chosen.choice(_OF_BOTH)
        condition = self._chosen.choice(self.known(CONDITIONS))
        return of_source(condition) if self._chosen.choice(sides) == "s" else condition

    def _action(self, sides: str) -> Assignments | str | None:
        kind = self._chosen.choice(["delete", "update", "update", "star"])
        if kind == "delete":
            return None
        if kind == "star" and "s" in sides and self._has_stars:
            return "*"
        return self._values(plain=True, sides=sides)

    def _inserted(self) -> Assignments | str:
        if self._has_stars and self._chosen.random() < 0.6:
            return "*"
        return {"id": "s.id", **self._values(plain=True, sides="s", whole=True)}

    def _values(self, *, plain: bool, sides: str = "t", whole: bool = False) -> Assignments:
        """New values of some columns, of which those of MERGE have no subquery and no Python."""
        names = [name for name in VALUES if name.partition(".")[0] in self._columns and not (whole and "." in name)]
        found: dict[str, str] = {}
        for name in self._chosen.sample(names, self._chosen.randint(1, _MOST_COLUMNS)):
            column, _, is_field = name.partition(".")
            if column in found or (not is_field and any(other.startswith(f"{name}.") for other in found)):
                continue
            given = [each for each in self.known(VALUES[name]) if not plain or is_plain(each)]
            value = self._chosen.choice(given)
            found[name] = of_source(value) if self._chosen.choice(sides) == "s" else value
        return found


def is_plain(expression: str) -> bool:
    """Whether it has neither a subquery nor a function in Python."""
    return not any(part in expression for part in ("SELECT", "plus_one(", "shout(", "sum_of("))
