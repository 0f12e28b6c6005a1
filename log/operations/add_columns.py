"""Staging new columns: the schema changes, no file does, and rows that are there have null in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import ConfigurationError, UnsupportedFeatureError
from tidelog.log.format import properties
from tidelog.log.format.actions import Metadata, Protocol
from tidelog.log.format.column_mapping import highest_id, mapped
from tidelog.log.format.protocol import allows, has_change_data_feed
from tidelog.log.format.schema import columns_of, has_timestamp_ntz, to_schema_string
from tidelog.log.operations.create_table import require_distinct
from tidelog.log.read.changes import change_schema
from tidelog.log.state.head import Head
from tidelog.log.system import System


def stage_add_columns(head: Head, path: str, system: System, fields: Any) -> Staged | None:
    """The table has `fields`, a schema or several fields of Arrow, behind its own columns; None without any field.

    Raises ConfigurationError for a name that is taken or a column that cannot be null, SchemaMismatchError for a type
    that Delta does not have, UnsupportedFeatureError for one that the table's protocol does not allow.
    """
    new = _fields_of(fields)
    if not new:
        return None
    old = columns_of(head.metadata, path)
    for field in new:
        _require_addable(field, old)
    whole = pa.schema([*old, *new])
    require_distinct(list(whole), "the table")
    if has_change_data_feed(head.protocol, head.metadata):
        change_schema(whole, "cdc")
    require_timestamps(head.protocol, pa.schema(new), path)
    added = msgspec.json.decode(to_schema_string(pa.schema(new)))["fields"]
    return Staged(
        operation="ADD COLUMNS",
        operation_class=OperationClass.NONE,
        metadata=_with_fields(head.metadata, added, system),
        parameters={"columns": msgspec.json.encode([{"column": field} for field in added]).decode()},
    )


def require_timestamps(protocol: Protocol, new: pa.Schema, path: str) -> None:
    """Raise UnsupportedFeatureError for a timestamp without a zone where the protocol does not allow any."""
    if has_timestamp_ntz(new) and not allows(protocol, "timestampNtz"):
        raise UnsupportedFeatureError(
            "a timestamp without a zone needs the table feature timestampNtz, which the table's protocol does not name",
            advice="add a timestamp with a zone, or add the feature first with an engine that does so, such as "
            "delta-spark: ALTER TABLE ... SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')",
            path=path,
            features="timestampNtz",
        )


def _fields_of(fields: Any) -> list[pa.Field]:
    if isinstance(fields, Iterable) and not isinstance(fields, pa.Field):
        found = list(fields)
        if all(isinstance(field, pa.Field) for field in found):
            return found
    raise ConfigurationError(
        f"{fields!r} are no fields",
        advice="give a pyarrow schema or a list of fields, such as [pa.field('n', pa.int64())]",
    )


def _require_addable(field: pa.Field, table: pa.Schema) -> None:
    if not field.nullable:
        raise ConfigurationError(
            f"the column {field.name!r} cannot be added as one that is never null: rows that are there have no value",
            advice="leave nullable=False out",
        )
    whole, _, inner = field.name.partition(".")
    parent = next((known for known in table if known.name.lower() in {field.name.lower(), whole.lower()}), None)
    if parent is not None and pt.is_struct(parent.type) and (inner or pt.is_struct(field.type)):
        raise ConfigurationError(
            f"{field.name!r} would change the struct {parent.name!r}, and a field cannot be added to a struct",
            advice="add a column of its own",
        )


def _with_fields(metadata: Metadata, added: list[dict[str, Any]], system: System) -> Metadata:
    """The metadata with more fields; those that are there stay as their writer spelled them."""
    schema = msgspec.json.decode(metadata.schema_string)
    configuration = dict(metadata.configuration)
    if configuration.get(properties.COLUMN_MAPPING_MODE, "none") != "none":
        last = max(int(configuration.get(properties.COLUMN_MAPPING_MAX_ID, 0)), highest_id(schema["fields"]))
        added, last = mapped(added, last, lambda: f"col-{system.uuid()}")
        configuration[properties.COLUMN_MAPPING_MAX_ID] = str(last)
    schema_string = msgspec.json.encode({**schema, "fields": [*schema["fields"], *added]}).decode()
    return msgspec.structs.replace(metadata, schema_string=schema_string, configuration=configuration)
