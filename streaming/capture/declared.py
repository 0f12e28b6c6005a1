"""What a record says of its columns: its own schema, which Kafka Connect writes beside it.

A schema is judged as a whole before anything of it is used, in Spark's tasks and on the driver alike. So what is not
one makes a dead letter of its record, and gives the rows no columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from tidelog.streaming.capture.values import (
    MOST_SCALE,
    Meaning,
    MisfitError,
    from_json,
    precision_of,
    scale_of,
    value_shown,
)

_NOTHING: Mapping[str, Meaning] = {}
# Oracle has the most columns of a table that a connector reads, 4,096. No type of a database is nested as deep.
MOST_FIELDS, _DEEPEST = 4_096, 32


class SchemaError(MisfitError):
    """A record's schema is none."""


class _Wrapped(msgspec.Struct):
    """A record with its schema, neither of them decoded."""

    schema: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_WRAPPED = msgspec.json.Decoder(_Wrapped)


def parsed(content: bytes) -> tuple[Any, Mapping[str, Meaning] | None]:
    """A record without its schema, and what the schema says. Raises SchemaError, or one of UNREADABLE."""
    try:
        wrapped = _WRAPPED.decode(content)
    except msgspec.ValidationError:
        return from_json(content), None
    if isinstance(wrapped.schema, msgspec.Raw) and isinstance(wrapped.payload, msgspec.Raw):
        return from_json(bytes(wrapped.payload)), declared_columns(bytes(wrapped.schema))
    return from_json(content), None


@lru_cache(maxsize=64)
def declared_columns(schema: bytes) -> Mapping[str, Meaning]:
    """The types that a record's schema gives the columns of `after`; none if it has no `after`. Raises SchemaError."""
    whole = from_json(schema)
    if whole is None:
        return _NOTHING
    after = next((of for of in _fields(whole) if of["field"] == "after"), None)
    if after is None:
        return _NOTHING
    fields = _fields(after)
    for of in fields:
        _require_sound(of, 1)
    return {of["field"]: of for of in fields}


def _fields(of: Any) -> list[dict[str, Any]]:
    """The fields of a struct, each with a name of its own."""
    fields = of.get("fields") if isinstance(of, dict) else of
    if fields is None and isinstance(of, dict):
        return []
    if not isinstance(fields, list) or not all(isinstance(part, dict) for part in fields):
        raise SchemaError(f"its fields are {value_shown(fields)}")
    if len(fields) > MOST_FIELDS:
        raise SchemaError(f"it has {len(fields):,} fields, more than {MOST_FIELDS:,}")
    names = set()
    for part in fields:
        name = part.get("field")
        if type(name) is not str or name in names:
            raise SchemaError(f"a field has the name {value_shown(name)}{' twice' if type(name) is str else ''}")
        names.add(name)
    return fields


def _require_sound(meaning: Any, depth: int) -> None:
    """Raise SchemaError for what does not describe a type."""
    if not isinstance(meaning, dict):
        raise SchemaError(f"it has {value_shown(meaning)} for a type")
    if depth > _DEEPEST:
        raise SchemaError(f"it is nested more than {_DEEPEST} deep")
    for key in ("type", "name"):
        if not isinstance(meaning.get(key), str | None):
            raise SchemaError(f"a {key} is {value_shown(meaning[key])}")
    if not isinstance(meaning.get("parameters"), dict | None):
        raise SchemaError(f"its parameters are {value_shown(meaning['parameters'])}")
    try:
        is_bounded = abs(scale_of(meaning, 0)) <= MOST_SCALE and precision_of(meaning, 0) >= 0
    except (TypeError, ValueError, OverflowError):
        is_bounded = False
    if not is_bounded:
        raise SchemaError(f"its parameters are {value_shown(meaning['parameters'])}")
    for key in ("items", "keys", "values"):
        if meaning.get(key) is not None:
            _require_sound(meaning[key], depth + 1)
    for part in _fields(meaning):
        _require_sound(part, depth + 1)
