"""Staging a change of table properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Staged
from tidelog.log.data.writer import check_statistics_columns
from tidelog.log.errors import ConfigurationError
from tidelog.log.format import properties as table_properties
from tidelog.log.format.actions import Metadata, Protocol
from tidelog.log.format.protocol import FEATURES_BY_PROPERTY, allows, has_in_commit_timestamps, with_feature
from tidelog.log.format.schema import columns_of
from tidelog.log.read.changes import change_schema
from tidelog.log.state.head import Head
from tidelog.log.system import System

# What no user sets, and why.
_NOT_TO_BE_SET: Mapping[str, str] = {
    table_properties.COLUMN_MAPPING_MODE: "files that are there know their columns in the way of the mode",
    table_properties.COLUMN_MAPPING_MAX_ID: "it counts the columns that there ever were",
    table_properties.IN_COMMIT_TIMESTAMP_VERSION: "it tells since when commits carry their time",
    table_properties.IN_COMMIT_TIMESTAMP_START: "it tells since when commits carry their time",
}


def stage_set_properties(head: Head, path: str, system: System, changes: Mapping[str, object]) -> Staged | None:
    """`changes` are set, a property whose value is None is removed; None where that changes nothing.

    A property that rests on a table feature puts it on the protocol's lists, where the protocol has lists. Raises
    ConfigurationError for a bad property, UnsupportedFeatureError where the protocol cannot have the feature.
    """
    _require_changeable(changes, head.metadata)
    changes = {key: value for key, value in changes.items() if key not in _NOT_TO_BE_SET}
    texts = table_properties.validate({key: value for key, value in changes.items() if value is not None})
    kept = {key: value for key, value in head.metadata.configuration.items() if key not in changes}
    metadata = msgspec.structs.replace(head.metadata, configuration={**kept, **texts})
    _check(texts, metadata, path)
    protocol = _protocol_for(texts, head.protocol, path)
    if (protocol, metadata) == (head.protocol, head.metadata):
        return None
    staged = Staged(
        operation="SET TBLPROPERTIES",
        operation_class=OperationClass.NONE,
        metadata=metadata,
        protocol=None if protocol == head.protocol else protocol,
        parameters={"properties": msgspec.json.encode(dict.fromkeys(changes) | texts).decode()},
    )
    return _with_commit_times(staged, head, protocol, metadata, system)


def _require_changeable(changes: Any, metadata: Metadata) -> None:
    if not isinstance(changes, Mapping) or not all(isinstance(key, str) for key in changes):
        raise ConfigurationError(f"{changes!r} are no properties", advice="give a dict of texts to values")
    for key, value in changes.items():
        present = metadata.configuration.get(key)
        if key in _NOT_TO_BE_SET and present != (None if value is None else str(value)):
            raise ConfigurationError(
                f"the table property {key!r} cannot be changed: {_NOT_TO_BE_SET[key]}",
                advice="copy the rows to a new table that has it from the start",
            )


def _check(texts: Mapping[str, str], metadata: Metadata, path: str) -> None:
    """Raise ConfigurationError for a property that does not go with the table's columns."""
    schema = columns_of(metadata, path)
    if table_properties.flag(texts, table_properties.ENABLE_CHANGE_DATA_FEED):
        change_schema(schema, "cdc")
    if table_properties.STATISTICS_COLUMNS in texts:
        check_statistics_columns(schema, metadata.partition_columns, texts)


def _protocol_for(texts: Mapping[str, str], protocol: Protocol, path: str) -> Protocol:
    for key, feature in FEATURES_BY_PROPERTY.items():
        if table_properties.flag(texts, key) and not allows(protocol, feature):
            protocol = with_feature(protocol, feature, path)
    return protocol


def _with_commit_times(staged: Staged, head: Head, protocol: Protocol, metadata: Metadata, system: System) -> Staged:
    """With the note since when commits carry their time, where this turns that on; without it, where it ends."""
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
