"""Column mapping: the ids and physical names that a table which maps its columns gives to new ones.

Source: the Delta protocol, "Column Mapping". Fields are those of a `schemaString`, as plain objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Field: TypeAlias = dict[str, Any]

_ID = "delta.columnMapping.id"
_PHYSICAL_NAME = "delta.columnMapping.physicalName"


def highest_id(fields: Sequence[Field]) -> int:
    """The highest id of any field, nested ones included; 0 without any."""
    ids = [int((field.get("metadata") or {}).get(_ID, 0)) for field in fields]
    return max([0, *ids, *(highest_id(_fields_within(field["type"])) for field in fields)])


def mapped(fields: Sequence[Field], last_id: int, new_name: Callable[[], str]) -> tuple[list[Field], int]:
    """The fields, nested ones included, with ids after `last_id` and physical names; and the last id then."""
    result = []
    for field in fields:
        last_id += 1
        own = {_ID: last_id, _PHYSICAL_NAME: new_name()}
        kind, last_id = _mapped_type(field["type"], last_id, new_name)
        result.append({**field, "type": kind, "metadata": {**(field.get("metadata") or {}), **own}})
    return result, last_id


def _mapped_type(kind: Any, last_id: int, new_name: Callable[[], str]) -> tuple[Any, int]:
    if isinstance(kind, str):
        return kind, last_id
    kind = dict(kind)
    if "fields" in kind:
        kind["fields"], last_id = mapped(kind["fields"], last_id, new_name)
    for inner in ("elementType", "keyType", "valueType"):
        if inner in kind:
            kind[inner], last_id = _mapped_type(kind[inner], last_id, new_name)
    return kind, last_id


def _fields_within(kind: Any) -> list[Field]:
    """The fields of the structs in a type."""
    if isinstance(kind, str):
        return []
    within = list(kind.get("fields", ()))
    for inner in ("elementType", "keyType", "valueType"):
        within += _fields_within(kind.get(inner, ""))
    return within
