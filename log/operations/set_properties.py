"""Stage a change of table properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Staged
from tidelog.log.data.writer import check_statistics_columns
from tidelog.log.errors import ConfigurationError, UnsupportedFeatureError
from tidelog.log.format import properties as table_properties
from tidelog.log.format import row_tracking
from tidelog.log.format.actions import Metadata, Protocol
from tidelog.log.format.clustering import require_clusterable
from tidelog.log.format.column_mapping import mapped_by_name
from tidelog.log.format.protocol import (
    FEATURES_BY_PROPERTY,
    allows,
    has_in_commit_timestamps,
    needs,
    requested,
    with_feature,
)
from tidelog.log.format.schema import columns_of, own_names
from tidelog.log.read.changes import change_schema
from tidelog.log.read.keys import check_primary_key, order_columns
from tidelog.log.state.head import Head
from tidelog.log.system import System

_MAPPING = table_properties.COLUMN_MAPPING_MODE
# Properties that users cannot set, and why. Column mapping can be turned on.
_FIXED: Mapping[str, str] = {
    table_properties.COLUMN_MAPPING_MODE: "existing data files name their columns as the mode prescribes",
    table_properties.COLUMN_MAPPING_MAX_ID: "it holds the highest column id ever used",
    table_properties.IN_COMMIT_TIMESTAMP_VERSION: "it records the first version with in-commit timestamps",
    table_properties.FIRST_VERSION: "it records which versions belong to an older table at the same path",
    table_properties.IN_COMMIT_TIMESTAMP_START: "it records the first version with in-commit timestamps",
    row_tracking.ENABLED: "it takes ids for the rows that are there",
    row_tracking.SUSPENDED: "it takes ids for the rows that are there",
    row_tracking.ID_COLUMN: "data files keep row ids in the column that it names",
    row_tracking.VERSION_COLUMN: "data files keep commit versions in the column that it names",
}


def stage_set_properties(
    head: Head, path: str, system: System, changes: Mapping[str, object], *, allow_protocol_upgrade: bool = False
) -> Staged | None:
    """Stage setting the properties in `changes` and removing those whose value is None. None if nothing changes.

    A property that needs a table feature adds it to the protocol's feature lists. If the protocol's versions have no
    such lists, `allow_protocol_upgrade` raises them.

    Raises ConfigurationError for an invalid property, UnsupportedFeatureError if the versions would have to be raised.
    """
    maps = _asks_for_mapping(changes, head.metadata)
    _require_changeable(changes, head.metadata, maps=maps)
    changes = {key: value for key, value in changes.items() if key not in _FIXED or (maps and key == _MAPPING)}
    given = table_properties.validate({key: value for key, value in changes.items() if value is not None})
    texts = {key: text for key, text in given.items() if not table_properties.asks_for_protocol(key)}
    kept = {key: value for key, value in head.metadata.configuration.items() if key not in changes}
    metadata = msgspec.structs.replace(head.metadata, configuration={**kept, **texts})
    if maps:
        metadata = mapped_by_name(metadata)
    require_columns_of_properties(texts, metadata, path)
    asked = requested(head.protocol, given)
    protocol = _protocol_for(texts, asked, path, allow_upgrade=allow_protocol_upgrade)
    if (protocol, metadata) == (head.protocol, head.metadata):
        return None
    staged = Staged(
        operation="SET TBLPROPERTIES",
        operation_class=OperationClass.NONE,
        metadata=metadata,
        protocol=None if protocol == head.protocol else protocol,
        parameters={"properties": msgspec.json.encode(dict.fromkeys(changes) | given).decode()},
    )
    return _with_commit_times(staged, head, protocol, metadata, system)


def _asks_for_mapping(changes: Any, metadata: Metadata) -> bool:
    """Whether the columns are to be mapped, and are not mapped yet. `validate` takes the mode `name` only."""
    asked = changes.get(_MAPPING) if isinstance(changes, Mapping) else None
    is_mapped = metadata.configuration.get(_MAPPING, "none") != "none"
    return isinstance(asked, str) and not is_mapped and asked.strip().lower() != "none"


def _require_changeable(changes: Any, metadata: Metadata, *, maps: bool) -> None:
    table_properties.require_names(changes)
    for key, value in changes.items():
        if value is None and table_properties.asks_for_protocol(key):
            raise ConfigurationError(
                f"{key!r} cannot be removed: it asks for a protocol, which is never lowered",
                advice="drop a table feature with another engine; in delta-spark: ALTER TABLE ... DROP FEATURE",
            )
        present = metadata.configuration.get(key)
        if maps and key == _MAPPING:
            continue
        if key in _FIXED and present != (None if value is None else table_properties.property_text(key, value)):
            raise ConfigurationError(
                f"the table property {key!r} cannot be changed: {_FIXED[key]}",
                advice="use the engine that set up row tracking"
                if "rowtracking" in key.lower()
                else "copy the rows to a new table that has the property from the start",
            )


def require_columns_of_properties(texts: Mapping[str, str], metadata: Metadata, path: str) -> None:
    """Raise ConfigurationError for a property that does not fit the table's columns."""
    schema = columns_of(metadata, path)
    if table_properties.flag(texts, table_properties.ENABLE_CHANGE_DATA_FEED):
        change_schema(schema, "cdc")
    if table_properties.STATISTICS_COLUMNS in texts:
        check_statistics_columns(schema, metadata.partition_columns, texts)
    check_primary_key(schema, texts)
    order_columns(None, schema, texts)
    clusters_by = own_names(table_properties.cluster_by(texts), schema)
    require_clusterable(schema, metadata.partition_columns, clusters_by)


def _protocol_for(texts: Mapping[str, str], protocol: Protocol, path: str, *, allow_upgrade: bool) -> Protocol:
    """The protocol with every table feature that the properties need."""
    for key, feature in FEATURES_BY_PROPERTY.items():
        if needs(texts, key) and not allows(protocol, feature):
            wanted = with_feature(protocol, feature)
            if not allow_upgrade and _versions(wanted) != _versions(protocol):
                raise UnsupportedFeatureError(
                    f"the property {key!r} needs the table feature {feature}, which the table's protocol "
                    f"({_named(protocol)}) does not allow",
                    advice=f"pass allow_protocol_upgrade=True to raise the protocol to {_named(wanted)}; clients "
                    "that do not support these can then no longer use the table",
                    path=path,
                    features=feature,
                )
            protocol = wanted
    return protocol


def _versions(protocol: Protocol) -> tuple[int, int]:
    return protocol.min_reader_version, protocol.min_writer_version


def _named(protocol: Protocol) -> str:
    return f"reader version {protocol.min_reader_version}, writer version {protocol.min_writer_version}"


def _with_commit_times(staged: Staged, head: Head, protocol: Protocol, metadata: Metadata, system: System) -> Staged:
    """Record since when commits contain their time if this commit turns that on; drop the record if it turns it off."""
    before, after = has_in_commit_timestamps(head.protocol, head.metadata), has_in_commit_timestamps(protocol, metadata)
    if before == after:
        return staged
    since = (table_properties.IN_COMMIT_TIMESTAMP_VERSION, table_properties.IN_COMMIT_TIMESTAMP_START)
    configuration = {key: value for key, value in metadata.configuration.items() if key not in since}
    stamp = max(system.now_ms(), head.timestamp_ms + 1) if after else None
    if stamp is not None:
        configuration |= dict(zip(since, (str(head.version + 1), str(stamp)), strict=True))
    metadata = msgspec.structs.replace(metadata, configuration=configuration)
    return replace(staged, metadata=metadata, timestamp_ms=stamp)
