"""Schema evolution: add the columns and struct fields that data has and the table lacks, and widen the others.

Old rows have null in what is new. A column gets the wider type of the data if the table has
`delta.enableTypeWidening`; else its type never changes, and data that does not fit it is an error of the write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.format import properties, type_widening
from tidelog.log.format.actions import Metadata
from tidelog.log.format.column_mapping import Field, highest_used_id, mapped
from tidelog.log.format.row_tracking import require_names_stay_free
from tidelog.log.format.schema import (
    SPARK_TYPE,
    delta_type,
    from_schema_string,
    is_list,
    primitive_of,
    require_depth,
    require_typed,
    to_schema_string,
)
from tidelog.log.format.type_widening import TypeChange
from tidelog.log.operations.add_columns import needs_timestamp_ntz, timestamp_ntz_error
from tidelog.log.operations.create_table import require_distinct
from tidelog.log.read.changes import change_schema
from tidelog.log.rules.declared import declared
from tidelog.log.state.head import Head
from tidelog.log.system import System


def evolved(head: Head, path: str, system: System, data: pa.Schema) -> Metadata | None:
    """The table's metadata with what is new or wider in `data`; None if nothing is. All that is new is nullable.

    Names are compared without case. Raises SchemaMismatchError for a column that has only nulls and no type, or a type
    that a table cannot hold, ConfigurationError for a name that the change feed or row tracking needs, or that
    occurs twice, UnsupportedFeatureError for a type that the table's protocol does not allow.
    """
    require_depth(data)
    schema = msgspec.json.decode(head.metadata.schema_string)
    widens = type_widening.is_enabled(head.protocol, head.metadata)
    fixed = fixed_columns(head.metadata, path) if widens else frozenset[str]()
    merge = _Merge(head.metadata, schema["fields"], path, system, fixed)
    fields = merge.fields(schema["fields"], _optional(data), "", widens=widens)
    if not merge.added and not merge.widened:
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


def wider_types(metadata: Metadata, path: str, system: System, data: pa.Schema) -> Mapping[str, pa.DataType | None]:
    """The columns, and `column.field`, for which the data has a wider type, and the type that would hold both.

    None for a column whose type stays in any case: see `fixed_columns`.
    """
    fields = msgspec.json.decode(metadata.schema_string)["fields"]
    possible, allowed = (
        _Types(metadata, fields, path, system, fixed) for fixed in (frozenset[str](), fixed_columns(metadata, path))
    )
    for merge in (possible, allowed):
        merge.fields(fields, list(data), "", widens=True)
    return {name: allowed.widened.get(name) for name in possible.widened}


def fixed_columns(metadata: Metadata, path: str) -> frozenset[str]:
    """The columns, in lower case, whose types never change.

    An expression can have another outcome with a wider type, and old rows have the outcome of the narrow one: so it is
    with those that a rule reads or computes. The text of a float in a partition's name is another number as a double.
    """
    rules = declared(metadata, path)
    texts = [*(rule.expression for rule in rules.checks), *(rule.expression for rule in rules.generated)]
    own = {rule.column.lower() for rule in rules.generated} | {rule.column.lower() for rule in rules.identities}
    for field in msgspec.json.decode(metadata.schema_string)["fields"]:
        name = field["name"].lower()
        is_read = any(reads_column(text, name) for text in texts)
        if is_read or (field["type"] == "float" and field["name"] in metadata.partition_columns):
            own.add(name)
    return frozenset(own)


def reads_column(expression: str, name: str) -> bool:
    """Whether an expression of a rule may read a column: its text has the name, in any case."""
    spelled = re.escape(name.lower().replace("`", "``"))
    return re.search(rf"(?<!\w){spelled}(?!\w)", expression.lower()) is not None


class _Merge:
    """Merges the data's fields into the table's; the JSON of existing fields changes only where a type is widened.

    `fixed` are the columns, in lower case, whose types stay. `widened` are the new types of columns and of their
    fields, by dotted names.
    """

    def __init__(
        self, metadata: Metadata, fields: list[Field], path: str, system: System, fixed: frozenset[str]
    ) -> None:
        self.is_mapping = metadata.configuration.get(properties.COLUMN_MAPPING_MODE, "none") != "none"
        self.last_id = highest_used_id(metadata, fields, path)
        self.added: list[Field] = []
        self.widened: dict[str, pa.DataType] = {}
        self._system = system
        self._fixed = fixed

    def fields(self, known: list[Field], data: list[pa.Field], where: str, *, widens: bool) -> list[Field]:
        """The table's fields, followed by those that only the data has."""
        merged = list(known)
        places = {field["name"].lower(): place for place, field in enumerate(known)}
        for field in data:
            place = places.get(field.name.lower())
            if place is None:
                merged += self._new(field, f"{where}{field.name}")
                continue
            found = known[place]
            stays = not widens or (not where and found["name"].lower() in self._fixed)
            changes: list[TypeChange] | None = None if stays else []
            kind = self._kind(found["type"], field.type, f"{where}{found['name']}", (), changes)
            merged[place] = type_widening.with_changes({**found, "type": kind}, changes or ())
        return merged

    def _kind(
        self, known: Any, data: pa.DataType, where: str, inside: Sequence[str], changes: list[TypeChange] | None
    ) -> Any:
        """The table's type, with new fields added to the structs in it, and widened: `changes` gets what was changed.

        Without `changes` nothing is widened. `inside` leads from the column or field to this type, and `where` from the
        table's top.
        """
        if isinstance(known, str):
            return self._wider(known, data, where, inside, changes)
        if known["type"] == "struct" and pt.is_struct(data):
            fields = self.fields(known["fields"], _optional(data), f"{where}.", widens=changes is not None)
            return {**known, "fields": fields}
        if known["type"] == "array" and is_list(data):
            parts = {"elementType": ("element", data.value_type)}
        elif known["type"] == "map" and pt.is_map(data):
            parts = {"valueType": ("value", data.item_type)}
            if isinstance(known["keyType"], str):
                parts["keyType"] = ("key", data.key_type)
        else:
            return known
        inner = {
            key: self._kind(known[key], kind, f"{where}.{part}", (*inside, part), changes)
            for key, (part, kind) in parts.items()
        }
        return {**known, **inner}

    def _wider(
        self, known: str, data: pa.DataType, where: str, inside: Sequence[str], changes: list[TypeChange] | None
    ) -> str:
        kind = None if changes is None else type_widening.wider(primitive_of(known), data)
        if kind is None or changes is None:
            return known
        self.widened[where] = kind
        changes.append(TypeChange(inside, known, str(delta_type(kind, where))))
        return changes[-1].after

    def _new(self, field: pa.Field, full: str) -> list[Field]:
        require_typed(field, full)
        # Data does not say how long the texts of the column may be.
        field = field.with_metadata({key: text for key, text in (field.metadata or {}).items() if key != SPARK_TYPE})
        fields: list[Field] = msgspec.json.decode(to_schema_string(pa.schema([field])))["fields"]
        if self.is_mapping:
            fields, self.last_id = mapped(fields, self.last_id, lambda _: f"col-{self._system.uuid()}")
        self.added += fields
        return fields


class _Types(_Merge):
    """Leaves new columns and fields out."""

    def _new(self, field: pa.Field, full: str) -> list[Field]:  # noqa: ARG002 - as in _Merge
        return []


def _optional(fields: pa.Schema | pa.StructType) -> list[pa.Field]:
    return [field.with_nullable(True) for field in fields]  # noqa: FBT003 - pyarrow's signature
