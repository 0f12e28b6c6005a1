"""Stage new columns: only the schema changes, and existing rows have null in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import ConfigurationError, UnsupportedFeatureError
from tidelog.log.format import properties
from tidelog.log.format.actions import Metadata, Protocol
from tidelog.log.format.column_mapping import Field, highest_used_id, mapped
from tidelog.log.format.protocol import allows, has_change_data_feed, with_feature
from tidelog.log.format.row_tracking import require_names_stay_free
from tidelog.log.format.schema import (
    columns_of,
    from_schema_string,
    has_timestamp_ntz,
    require_depth,
    to_schema_string,
)
from tidelog.log.operations.create_table import require_distinct
from tidelog.log.read.changes import change_schema
from tidelog.log.state.head import Head
from tidelog.log.system import System


def stage_add_columns(
    head: Head, path: str, system: System, fields: Any, *, allow_protocol_upgrade: bool = False
) -> Staged | None:
    """Stage adding `fields`, an Arrow schema or a list of Arrow fields, after the table's columns. None if it is empty.

    A type that needs a table feature adds it to the protocol if `allow_protocol_upgrade` says so.

    Raises ConfigurationError for a name that exists, also as one of row tracking, or a column that cannot be null,
    SchemaMismatchError for a type that a table cannot hold, UnsupportedFeatureError for a type that the table's
    protocol does not allow.
    """
    new = _fields_of(fields)
    if not new:
        return None
    require_depth(new)
    old = columns_of(head.metadata, path)
    for field in new:
        _require_addable(field, old)
    _require_new(new, old)
    require_distinct(new, "the new columns")
    if has_change_data_feed(head.protocol, head.metadata):
        change_schema(pa.schema([*old, *new]), "cdc")
    added = msgspec.json.decode(to_schema_string(pa.schema(new)))["fields"]
    needs_feature = needs_timestamp_ntz(head.protocol, added, path)
    if needs_feature and not allow_protocol_upgrade:
        raise timestamp_ntz_error(path, "pass allow_protocol_upgrade=True")
    metadata = _with_fields(head.metadata, added, path, system)
    require_names_stay_free(head.metadata, metadata)
    return Staged(
        operation="ADD COLUMNS",
        operation_class=OperationClass.NONE,
        metadata=metadata,
        protocol=with_feature(head.protocol, "timestampNtz") if needs_feature else None,
        parameters={"columns": msgspec.json.encode([{"column": field} for field in added]).decode()},
    )


def needs_timestamp_ntz(protocol: Protocol, new: Sequence[Field], path: str) -> bool:
    """Whether a type among `new`, fields of a `schemaString`, needs the feature `timestampNtz` and lacks it."""
    return not allows(protocol, "timestampNtz") and any(
        has_timestamp_ntz(from_schema_string(msgspec.json.encode({"fields": [field]}).decode(), path=path))
        for field in new
    )


def timestamp_ntz_error(path: str, how: str) -> UnsupportedFeatureError:
    """The error for a timestamp without a zone in a table without the feature; `how` says how to add it."""
    return UnsupportedFeatureError(
        "a timestamp without a time zone needs the table feature timestampNtz, which the table's protocol lacks",
        advice=f"use a timestamp with a time zone, or {how}; clients that do not support the feature can then no "
        "longer use the table",
        path=path,
        features="timestampNtz",
    )


def _fields_of(fields: Any) -> list[pa.Field]:
    if isinstance(fields, Iterable) and not isinstance(fields, pa.Field):
        found = list(fields)
        if all(isinstance(field, pa.Field) for field in found):
            return found
    raise ConfigurationError(
        f"new columns must be a pyarrow schema or a list of pyarrow fields (got {_kind_of(fields)})",
        advice="pass, for example, [pa.field('n', pa.int64())]",
    )


def _kind_of(fields: Any) -> str:
    """The type that was passed instead of a field, for an error."""
    wrong = fields
    if isinstance(fields, (list, tuple)):
        wrong = next(field for field in fields if not isinstance(field, pa.Field))
    return type(wrong).__name__


def _require_addable(field: pa.Field, table: pa.Schema) -> None:
    if not field.nullable:
        raise ConfigurationError(
            f"the new column {field.name!r} must allow nulls, because existing rows have no value for it",
            advice="leave nullable=False out",
        )
    whole, _, inner = field.name.partition(".")
    parent = next((known for known in table if known.name.lower() in {field.name.lower(), whole.lower()}), None)
    if parent is not None and pt.is_struct(parent.type) and (inner or pt.is_struct(field.type)):
        raise ConfigurationError(
            f"cannot add {field.name!r} to the struct {parent.name!r}: only top-level columns can be added",
            advice="add a top-level column with another name",
        )


def _require_new(new: list[pa.Field], table: pa.Schema) -> None:
    known = {name.lower(): name for name in table.names}
    for field in new:
        if field.name.lower() in known:
            raise ConfigurationError(
                f"the table already has a column {known[field.name.lower()]!r} (case does not matter)",
                advice="choose another name",
            )


def _with_fields(metadata: Metadata, added: list[dict[str, Any]], path: str, system: System) -> Metadata:
    """The metadata with more fields; the JSON of existing fields does not change."""
    schema = msgspec.json.decode(metadata.schema_string)
    configuration = dict(metadata.configuration)
    if configuration.get(properties.COLUMN_MAPPING_MODE, "none") != "none":
        last = highest_used_id(metadata, schema["fields"], path)
        added, last = mapped(added, last, lambda _: f"col-{system.uuid()}")
        configuration[properties.COLUMN_MAPPING_MAX_ID] = str(last)
    schema_string = msgspec.json.encode({**schema, "fields": [*schema["fields"], *added]}).decode()
    return msgspec.structs.replace(metadata, schema_string=schema_string, configuration=configuration)
