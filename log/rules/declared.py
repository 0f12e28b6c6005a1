"""The rules that a table's metadata declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tidelog.log.errors import CorruptLogError
from tidelog.log.format.actions import Metadata
from tidelog.log.format.properties import CONSTRAINT_PREFIX
from tidelog.log.predicate import at_time

_INVARIANT = "delta.invariants"
_GENERATED = "delta.generationExpression"
_DEFAULT = "CURRENT_DEFAULT"
_IDENTITY = "delta.identity."
_IDENTITY_START = "delta.identity.start"
_IDENTITY_EXPLICIT = "delta.identity.allowExplicitInsert"


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that must be true for each new row: a constraint by its name, an invariant by its column's."""

    kind: str
    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class Computed:
    """A column with an expression that computes it: a generated column, or one with a default."""

    column: str
    expression: str


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity column, and whether data can give its values."""

    column: str
    explicit: bool


@dataclass(frozen=True, slots=True)
class Declared:
    """The rules of a table; of a table without rules it is false."""

    checks: tuple[Check, ...] = ()
    generated: tuple[Computed, ...] = ()
    defaults: tuple[Computed, ...] = ()
    identities: tuple[Identity, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.checks or self.generated or self.defaults or self.identities)

    def at(self, now_ms: int) -> Declared:
        """The rules with one time in place of `current_timestamp()` and its relatives."""
        checks = tuple(replace(rule, expression=at_time(rule.expression, lambda: now_ms)) for rule in self.checks)
        generated, defaults = (
            tuple(replace(rule, expression=at_time(rule.expression, lambda: now_ms)) for rule in rules)
            for rules in (self.generated, self.defaults)
        )
        return Declared(checks, generated, defaults, self.identities)


def declared(metadata: Metadata, path: str) -> Declared:
    """The rules in the metadata of the table at `path`. Raises CorruptLogError for one that cannot be read."""
    checks = [
        Check("constraint", key.removeprefix(CONSTRAINT_PREFIX), text)
        for key, text in sorted(metadata.configuration.items())
        if key.startswith(CONSTRAINT_PREFIX)
    ]
    text = metadata.schema_string
    if not any(f'"{key}' in text for key in (_INVARIANT, _GENERATED, _DEFAULT, _IDENTITY)):
        return Declared(tuple(checks))
    fields = msgspec.json.decode(text)["fields"]
    checks += _invariants(fields, path)
    return Declared(
        tuple(checks),
        tuple(_computed(fields, _GENERATED, path)),
        tuple(_computed(fields, _DEFAULT, path)),
        tuple(
            Identity(field["name"], _of(field).get(_IDENTITY_EXPLICIT) is True)
            for field in fields
            if _IDENTITY_START in _of(field)
        ),
    )


def _computed(fields: list[dict[str, Any]], key: str, path: str) -> Iterator[Computed]:
    for field in fields:
        expression = _of(field).get(key)
        if expression is not None:
            if not isinstance(expression, str):
                raise _unreadable(field["name"], key, path)
            yield Computed(field["name"], expression)


def _invariants(fields: list[dict[str, Any]], path: str, where: str = "") -> Iterator[Check]:
    """The invariants of the fields, and of those in structs, lists and maps."""
    for field in fields:
        name = f"{where}{field['name']}"
        text = _of(field).get(_INVARIANT)
        if text is not None:
            try:
                expression = msgspec.json.decode(text)["expression"]["expression"]
            except (msgspec.DecodeError, KeyError, TypeError) as error:
                raise _unreadable(name, _INVARIANT, path) from error
            if not isinstance(expression, str):
                raise _unreadable(name, _INVARIANT, path)
            yield Check("invariant", name, expression)
        yield from _inner_invariants(field["type"], path, name)


def _inner_invariants(kind: Any, path: str, where: str) -> Iterator[Check]:
    if isinstance(kind, Mapping):
        yield from _invariants(kind.get("fields", []), path, f"{where}.")
        for inner in ("elementType", "keyType", "valueType"):
            yield from _inner_invariants(kind.get(inner), path, where)


def _of(field: Mapping[str, Any]) -> Mapping[str, Any]:
    return field.get("metadata") or {}


def _unreadable(column: str, key: str, path: str) -> CorruptLogError:
    return CorruptLogError(
        f"{key} of the column {column!r} cannot be read",
        advice="set it again with the engine that made the table",
        path=path,
    )
