"""Schema evolution: add the columns and struct fields that data has and the table lacks.

Old rows have null in them. Types never change: data that does not fit a column's type remains an error of the write.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.errors import SchemaMismatchError
from tidelog.log.format import properties
from tidelog.log.format.actions import Metadata
from tidelog.log.format.column_mapping import Field, highest_used_id, mapped
from tidelog.log.format.row_tracking import require_names_stay_free
from tidelog.log.format.schema import from_schema_string, is_list, require_depth, to_schema_string
from tidelog.log.operations.add_columns import needs_timestamp_ntz, timestamp_ntz_error
from tidelog.log.operations.create_table import require_distinct
from tidelog.log.read.changes import change_schema
from tidelog.log.state.head import Head
from tidelog.log.system import System


def evolved(head: Head, path: str, system: System, data: pa.Schema) -> Metadata | None:
    """The table's metadata plus the columns and fields that are new in `data`, all nullable; None if nothing is new.

    Names are compared without case. Raises SchemaMismatchError for a column that has only nulls and no type, or a type
    that a table cannot hold, ConfigurationError for a name that the change feed or row tracking needs, or that
    occurs twice, UnsupportedFeatureError for a type that the table's protocol does not allow.
    """
    require_depth(data)
    schema = msgspec.json.decode(head.metadata.schema_string)
    merge = _Merge(head.metadata, schema["fields"], path, system)
    fields = merge.fields(schema["fields"], _optional(data), "")
    if not merge.added:
        return None
    text = msgspec.json.encode({**schema, "fields": fields}).decode()
    whole = from_schema_string(text, path=path)
    require_distinct(list(whole), "the table with the data's new columns")
    change_schema(whole, "cdc")
    if needs_timestamp_ntz(head.protocol, merge.added, path):
        raise timestamp_ntz_error(path, "add the column first: add_columns([...], allow_protocol_upgrade=True)")
    configuration = dict(head.metadata.configuration)
    if merge.is_mapping:
        configuration[properties.COLUMN_MAPPING_MAX_ID] = str(merge.last_id)
    metadata = msgspec.structs.replace(head.metadata, schema_string=text, configuration=configuration)
    require_names_stay_free(head.metadata, metadata)
    return metadata


class _Merge:
    """Merges the data's fields into the table's; the JSON of existing fields does not change."""

    def __init__(self, metadata: Metadata, fields: list[Field], path: str, system: System) -> None:
        self.is_mapping = metadata.configuration.get(properties.COLUMN_MAPPING_MODE, "none") != "none"
        self.last_id = highest_used_id(metadata, fields, path)
        self.added: list[Field] = []
        self._system = system

    def fields(self, known: list[Field], data: list[pa.Field], where: str) -> list[Field]:
        """The table's fields, followed by those that only the data has."""
        merged = list(known)
        places = {field["name"].lower(): place for place, field in enumerate(known)}
        for field in data:
            full = f"{where}{field.name}"
            place = places.get(field.name.lower())
            if place is None:
                merged += self._new(field, full)
            else:
                merged[place] = {**known[place], "type": self._kind(known[place]["type"], field.type, full)}
        return merged

    def _kind(self, known: Any, data: pa.DataType, where: str) -> Any:
        """The table's type, with new fields added to the structs in it."""
        if isinstance(known, str):
            return known
        if known["type"] == "struct" and pt.is_struct(data):
            return {**known, "fields": self.fields(known["fields"], _optional(data), f"{where}.")}
        if known["type"] == "array" and is_list(data):
            return {**known, "elementType": self._kind(known["elementType"], data.value_type, f"{where}.element")}
        if known["type"] == "map" and pt.is_map(data):
            return {**known, "valueType": self._kind(known["valueType"], data.item_type, f"{where}.value")}
        return known

    def _new(self, field: pa.Field, full: str) -> list[Field]:
        if pt.is_null(field.type):
            raise SchemaMismatchError(
                f"the data's new column {full!r} has no type, because all of its values are null",
                advice="cast it to the type that the table's column should have, or drop it",
                column=full,
            )
        fields: list[Field] = msgspec.json.decode(to_schema_string(pa.schema([field])))["fields"]
        if self.is_mapping:
            fields, self.last_id = mapped(fields, self.last_id, lambda: f"col-{self._system.uuid()}")
        self.added += fields
        return fields


def _optional(fields: pa.Schema | pa.StructType) -> list[pa.Field]:
    return [field.with_nullable(True) for field in fields]  # noqa: FBT003 - pyarrow's signature
