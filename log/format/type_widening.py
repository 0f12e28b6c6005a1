"""Type widening: when a column may get a wider type, and how a schema records that it did.

Old data files keep the narrow type, and readers convert their values. So no value may change, and the types that a
column has had stay in its metadata, under `delta.typeChanges`; those of elements, keys and values at the column or
field that has them.

Source: the Delta protocol, "Type Widening". It also has changes that data alone should not cause: from an integer to a
double or a decimal, and from a date to a timestamp. Files of such a table are read, but `wider` does not make one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.format import properties
from tidelog.log.format.actions import Metadata, Protocol
from tidelog.log.format.column_mapping import Field, lasting_name

_FEATURES = frozenset({"typeWidening", "typeWidening-preview"})
TYPE_CHANGES = "delta.typeChanges"
_MOST_DIGITS = 38


def is_enabled(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether a writer may give a column a wider type."""
    is_listed = not _FEATURES.isdisjoint(protocol.writer_features or ())
    return is_listed and properties.flag(metadata.configuration, properties.ENABLE_TYPE_WIDENING)


def wider(known: pa.DataType, found: pa.DataType) -> pa.DataType | None:
    """The type of the same family that holds the values of both types, if it is wider than `known`; else None.

    The families are integers, floating point, and decimals, whose digits before and after the point both count.
    """
    if pt.is_decimal(known) and pt.is_decimal(found):
        scale = max(known.scale, found.scale)
        digits = scale + max(known.precision - known.scale, found.precision - found.scale)
        if digits > _MOST_DIGITS or (digits, scale) == (known.precision, known.scale):
            return None
        return pa.decimal128(digits, scale)
    for is_kind in (pt.is_signed_integer, pt.is_floating):
        if is_kind(known) and is_kind(found) and found.bit_width > known.bit_width:
            return found
    return None


class TypeChange(NamedTuple):
    """A type that became another one: of a field itself, or of what is at the `path` in its lists and maps."""

    path: Sequence[str]
    before: str
    after: str


def with_changes(field: Field, changes: Sequence[TypeChange]) -> Field:
    """The field of a schema with more type changes in its metadata."""
    if not changes:
        return field
    metadata = field.get("metadata") or {}
    entries = []
    for path, before, after in changes:
        entry = {"fromType": before, "toType": after}
        entries.append({**entry, "fieldPath": ".".join(path)} if path else entry)
    return {**field, "metadata": {**metadata, TYPE_CHANGES: [*metadata.get(TYPE_CHANGES, []), *entries]}}


def with_types_of(older: str, newer: str) -> str:
    """The schema `older` with the wider types that its columns have got since, up to the schema `newer`.

    There are data files with values of the wider type, which a reader of the history reads.
    """
    if TYPE_CHANGES not in newer:
        return older
    schema = msgspec.json.decode(older)
    fields = list(_widened(schema["fields"], msgspec.json.decode(newer)["fields"]))
    return older if fields == schema["fields"] else msgspec.json.encode({**schema, "fields": fields}).decode()


def _widened(older: Sequence[Field], newer: Sequence[Field]) -> Iterator[Field]:
    by_name = {lasting_name(field): field for field in newer}
    for field in older:
        now = by_name.get(lasting_name(field))
        changes = [] if now is None else (now.get("metadata") or {}).get(TYPE_CHANGES, [])
        kind = field["type"] if now is None else _kept(field["type"], now["type"], changes, ())
        if kind == field["type"]:
            yield field
        else:
            metadata = {**(field.get("metadata") or {}), **({TYPE_CHANGES: changes} if changes else {})}
            yield {**field, "type": kind, "metadata": metadata}


def _kept(older: Any, newer: Any, changes: Sequence[dict[str, str]], path: Sequence[str]) -> Any:
    """The type `newer`, as far as changes have led to it from the type `older`."""
    if isinstance(older, str) or isinstance(newer, str):
        place = ".".join(path)
        had = [change["fromType"] for change in changes if change.get("fieldPath", "") == place]
        return newer if isinstance(newer, str) and older in had else older
    if older["type"] != newer["type"]:
        return older
    if older["type"] == "struct":
        return {**older, "fields": list(_widened(older["fields"], newer["fields"]))}
    inner = {"elementType": "element", "keyType": "key", "valueType": "value"}
    return {
        key: _kept(kind, newer[key], changes, (*path, inner[key])) if key in inner else kind
        for key, kind in older.items()
    }
