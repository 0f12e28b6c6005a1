"""Column mapping: assign ids and physical names to new columns.

Source: the Delta protocol, "Column Mapping". Fields are the plain objects of a `schemaString`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from tidelog.log.errors import CorruptLogError
from tidelog.log.format import properties
from tidelog.log.format.actions import Metadata

Field: TypeAlias = dict[str, Any]

_ID = "delta.columnMapping.id"
PHYSICAL_NAME = "delta.columnMapping.physicalName"


def lasting_name(field: Field) -> str:
    """The name by which a column is known even if it is renamed."""
    return str((field.get("metadata") or {}).get(PHYSICAL_NAME, field["name"]))


def highest_id(fields: Sequence[Field]) -> int:
    """The highest id of any field, including nested ones; 0 if no field has an id."""
    ids = [int((field.get("metadata") or {}).get(_ID, 0)) for field in fields]
    return max([0, *ids, *(highest_id(_fields_within(field["type"])) for field in fields)])


def highest_used_id(metadata: Metadata, fields: Sequence[Field], path: str) -> int:
    """The highest id that the table at `path` has ever used; 0 if it does not map columns. Raises CorruptLogError."""
    if metadata.configuration.get(properties.COLUMN_MAPPING_MODE, "none") == "none":
        return 0
    text = metadata.configuration.get(properties.COLUMN_MAPPING_MAX_ID, "0")
    try:
        return max(int(text), highest_id(fields))
    except (TypeError, ValueError) as error:
        raise CorruptLogError(
            f"the ids of columns in the table {path} cannot be read: {error}",
            advice="correct them with the engine that set up column mapping",
            path=path,
        ) from error


def mapped(fields: Sequence[Field], last_id: int, new_name: Callable[[Field], str]) -> tuple[list[Field], int]:
    """Give all fields, including nested ones, ids after `last_id` and physical names.

    Returns the new fields and the last id assigned.
    """
    result = []
    for field in fields:
        last_id += 1
        own = {_ID: last_id, PHYSICAL_NAME: new_name(field)}
        kind, last_id = _mapped_type(field["type"], last_id, new_name)
        result.append({**field, "type": kind, "metadata": {**(field.get("metadata") or {}), **own}})
    return result, last_id


def _mapped_type(kind: Any, last_id: int, new_name: Callable[[Field], str]) -> tuple[Any, int]:
    if isinstance(kind, str):
        return kind, last_id
    kind = dict(kind)
    if "fields" in kind:
        kind["fields"], last_id = mapped(kind["fields"], last_id, new_name)
    for inner in ("elementType", "keyType", "valueType"):
        if inner in kind:
            kind[inner], last_id = _mapped_type(kind[inner], last_id, new_name)
    return kind, last_id


def asks_for_mapping(configuration: Mapping[str, str]) -> bool:
    """Whether columns are mapped by their names in data files."""
    return configuration.get(properties.COLUMN_MAPPING_MODE, "none").strip().lower() == "name"


def mapped_by_name(metadata: Metadata) -> Metadata:
    """The metadata of a table that maps its columns from now on: each has in data files the name that it has now."""
    schema = msgspec.json.decode(metadata.schema_string)
    fields, last_id = mapped(schema["fields"], 0, lambda field: str(field["name"]))
    own = {properties.COLUMN_MAPPING_MODE: "name", properties.COLUMN_MAPPING_MAX_ID: str(last_id)}
    return msgspec.structs.replace(
        metadata,
        schema_string=msgspec.json.encode({**schema, "fields": fields}).decode(),
        configuration={**metadata.configuration, **own},
    )


def _fields_within(kind: Any) -> list[Field]:
    """The fields of all structs within a type."""
    if isinstance(kind, str):
        return []
    within = list(kind.get("fields", ()))
    for inner in ("elementType", "keyType", "valueType"):
        within += _fields_within(kind.get(inner, ""))
    return within
