"""The columns and partition columns of a table replaced by others, as an OVERWRITE of all its rows may do."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from tidelog.log.data.writer import check_partition_columns
from tidelog.log.errors import ConfigurationError
from tidelog.log.format import properties
from tidelog.log.format.actions import Metadata
from tidelog.log.format.column_mapping import highest_used_id, mapped
from tidelog.log.format.row_tracking import require_names_stay_free
from tidelog.log.format.schema import columns_of, require_depth, table_schema, to_schema_string
from tidelog.log.operations.add_columns import needs_timestamp_ntz, timestamp_ntz_error
from tidelog.log.operations.create_table import require_columns
from tidelog.log.operations.schema_evolution import reads_column
from tidelog.log.operations.set_properties import require_columns_of_properties
from tidelog.log.rules.declared import declared
from tidelog.log.state.head import Head
from tidelog.log.system import System


def replaced_columns(
    head: Head, path: str, system: System, columns: pa.Schema, partition_by: Sequence[str]
) -> Metadata | None:
    """The table's metadata with these columns, partitioned by these; None if it has them already.

    The columns are the same if their names and types are, and if they ask for no other comment, nor that one cannot be
    null. Then, without `partition_by`, the partitions stay, too. The
    properties stay, and the rules of columns go with them. In a table that maps columns, each gets a new id, so that
    no old file has it.

    Raises ConfigurationError for a constraint or a property that needs a column of the table that is not there then,
    SchemaMismatchError for columns that a table cannot hold, UnsupportedFeatureError for a type that the table's
    protocol does not allow.
    """
    require_columns(columns)
    require_depth(columns)
    old, new = columns_of(head.metadata, path), table_schema(columns)
    is_same = old.names == new.names and all(map(_is_same, old, new))
    partitions = head.metadata.partition_columns if is_same and not partition_by else tuple(partition_by)
    if is_same and partitions == head.metadata.partition_columns:
        return None
    check_partition_columns(new, list(partitions))
    _require_constraints(head.metadata, old, new, path)
    schema = msgspec.json.decode(head.metadata.schema_string if is_same else to_schema_string(new))
    if needs_timestamp_ntz(head.protocol, schema["fields"], path):
        how = "set the table property 'delta.feature.timestampNtz' to 'supported' first"
        raise timestamp_ntz_error(path, how)
    configuration = dict(head.metadata.configuration)
    if not is_same and configuration.get(properties.COLUMN_MAPPING_MODE, "none") != "none":
        known = msgspec.json.decode(head.metadata.schema_string)["fields"]
        last = highest_used_id(head.metadata, known, path)
        schema["fields"], last = mapped(schema["fields"], last, lambda _: f"col-{system.uuid()}")
        configuration[properties.COLUMN_MAPPING_MAX_ID] = str(last)
    metadata = msgspec.structs.replace(
        head.metadata,
        schema_string=msgspec.json.encode(schema).decode(),
        partition_columns=partitions,
        configuration=configuration,
    )
    require_columns_of_properties(configuration, metadata, path)
    require_names_stay_free(head.metadata, metadata)
    return metadata


def _is_same(old: pa.Field, new: pa.Field) -> bool:
    asks_for_more = not (new.metadata or {}).items() <= (old.metadata or {}).items()
    return old.type == new.type and (new.nullable or not old.nullable) and not asks_for_more


def _require_constraints(metadata: Metadata, old: pa.Schema, new: pa.Schema, path: str) -> None:
    """Raise ConfigurationError for a constraint that reads a column which goes, or gets another type."""
    kept = {field.name.lower(): field.type for field in new}
    gone = [field.name for field in old if kept.get(field.name.lower()) != field.type]
    for rule in declared(metadata, path).checks:
        name = next((name for name in gone if reads_column(rule.expression, name)), None)
        if name is not None and rule.kind == "constraint":
            raise ConfigurationError(
                f"the column {name!r} of {path} cannot be replaced: the constraint {rule.name!r} reads it "
                f"({rule.expression})",
                advice="drop the constraint first",
            )
