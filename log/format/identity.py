"""Identity columns: the high-water mark, which is the last value that an engine generated."""

from __future__ import annotations

from typing import Any

import msgspec

from tidelog.log.format.column_mapping import Field, lasting_name

_STEP = "delta.identity.step"
_MARK = "delta.identity.highWaterMark"


def with_high_water_marks(older: str, newer: str) -> str:
    """The schema `older` (a `schemaString`) with the high-water marks of `newer`, where these are further.

    A value below a mark may have been generated before. With the lower mark it would be generated again.
    """
    if _MARK not in newer:
        return older
    marks = {lasting_name(field): field["metadata"][_MARK] for field in _fields(newer) if _MARK in _metadata(field)}
    schema = msgspec.json.decode(older)
    fields = [_marked(field, marks.get(lasting_name(field))) for field in schema["fields"]]
    return older if fields == schema["fields"] else msgspec.json.encode({**schema, "fields": fields}).decode()


def _marked(field: Field, mark: int | None) -> Field:
    metadata = _metadata(field)
    if mark is None or _STEP not in metadata:
        return field
    further = max if metadata[_STEP] > 0 else min
    return {**field, "metadata": {**metadata, _MARK: further(mark, metadata.get(_MARK, mark))}}


def _fields(schema_string: str) -> list[Field]:
    fields: list[Field] = msgspec.json.decode(schema_string)["fields"]
    return fields


def _metadata(field: Field) -> dict[str, Any]:
    return field.get("metadata") or {}
