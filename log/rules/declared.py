"""The rules that a table's metadata declares."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tidelog.log.errors import CorruptLogError
from tidelog.log.format.actions import Metadata
from tidelog.log.format.properties import CONSTRAINT_PREFIX
from tidelog.log.format.schema import DEFAULT
from tidelog.log.predicate import MAX_LENGTH, at_time

_INVARIANT = "delta.invariants"
_GENERATED = "delta.generationExpression"
_IDENTITY = "delta.identity."
_IDENTITY_START = "delta.identity.start"
_IDENTITY_EXPLICIT = "delta.identity.allowExplicitInsert"
# Spark's, for a column that the schema calls a string.
_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
_LENGTH_TYPE = re.compile(r"(var)?char\(([0-9]{1,9})\)", re.IGNORECASE)


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
class Length:
    """A column of the type varchar(`limit`), and so the most characters of its texts.

    With `pads` it is a char(`limit`): shorter texts get spaces at the end.
    """

    column: str
    limit: int
    pads: bool = False

    @property
    def kind(self) -> str:
        """The type."""
        return f"{'' if self.pads else 'var'}char({self.limit})"


@dataclass(frozen=True, slots=True)
class UnknownType:
    """A column of a type, such as an array of varchar(n), that asks more of a text than tidelog knows."""

    column: str
    kind: str


@dataclass(frozen=True, slots=True)
class Declared:
    """The rules of a table; of a table without rules it is false.

    New rows are refused where there are `unknown_types`.
    """

    checks: tuple[Check, ...] = ()
    generated: tuple[Computed, ...] = ()
    defaults: tuple[Computed, ...] = ()
    identities: tuple[Identity, ...] = ()
    lengths: tuple[Length, ...] = ()
    unknown_types: tuple[UnknownType, ...] = ()

    def __bool__(self) -> bool:
        return any((self.checks, self.generated, self.defaults, self.identities, self.lengths, self.unknown_types))

    def at(self, now_ms: int) -> Declared:
        """The rules with one time in place of `current_timestamp()` and its relatives."""
        checks = tuple(replace(rule, expression=at_time(rule.expression, lambda: now_ms)) for rule in self.checks)
        generated, defaults = (
            tuple(replace(rule, expression=at_time(rule.expression, lambda: now_ms)) for rule in rules)
            for rules in (self.generated, self.defaults)
        )
        return replace(self, checks=checks, generated=generated, defaults=defaults)


def declared(metadata: Metadata, path: str) -> Declared:
    """The rules in the metadata of the table at `path`. Raises CorruptLogError for one that cannot be read."""
    checks = [
        Check("constraint", key.removeprefix(CONSTRAINT_PREFIX), text)
        for key, text in sorted(metadata.configuration.items())
        if key.startswith(CONSTRAINT_PREFIX)
    ]
    text = metadata.schema_string
    if not any(f'"{key}' in text for key in (_INVARIANT, _GENERATED, DEFAULT, _IDENTITY, _LENGTH)):
        return Declared(tuple(checks))
    fields = msgspec.json.decode(text)["fields"]
    checks += _invariants(fields, path)
    lengths = [_length(field) for field in fields if _LENGTH in _of(field)]
    return Declared(
        tuple(checks),
        tuple(_computed(fields, _GENERATED, path)),
        tuple(_computed(fields, DEFAULT, path)),
        tuple(
            Identity(field["name"], _of(field).get(_IDENTITY_EXPLICIT) is True)
            for field in fields
            if _IDENTITY_START in _of(field)
        ),
        tuple(length for length in lengths if isinstance(length, Length)),
        tuple(length for length in lengths if isinstance(length, UnknownType)),
    )


def _computed(fields: list[dict[str, Any]], key: str, path: str) -> Iterator[Computed]:
    for field in fields:
        expression = _of(field).get(key)
        if expression is not None:
            if not isinstance(expression, str):
                raise _unreadable(field["name"], key, path)
            yield Computed(field["name"], expression)


def _length(field: dict[str, Any]) -> Length | UnknownType:
    kind = _of(field)[_LENGTH]
    found = _LENGTH_TYPE.fullmatch(kind) if isinstance(kind, str) and field["type"] == "string" else None
    if found is None or (not found[1] and int(found[2]) > MAX_LENGTH):
        return UnknownType(field["name"], str(kind)[:200])
    return Length(field["name"], int(found[2]), pads=not found[1])


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
