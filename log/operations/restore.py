"""Stage RESTORE: bring back the rows, schema and properties of an earlier version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

import msgspec

from tidelog.log.commit.content import difference, require_restorable, require_tombstones
from tidelog.log.conflict.fences import floor_of
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import ConfigurationError
from tidelog.log.format.actions import DomainMetadata, Metadata
from tidelog.log.format.clustering import CLUSTERING_DOMAIN, clusters_by_nothing
from tidelog.log.format.column_mapping import lasting_name
from tidelog.log.format.identity import with_high_water_marks
from tidelog.log.format.tombstone_list import TombstoneChange
from tidelog.log.format.type_widening import with_types_of
from tidelog.log.read.timeline import Timeline, require_version
from tidelog.log.state import files
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState, load
from tidelog.log.state.tombstones import tombstones_before, tombstones_of
from tidelog.log.storage import Store
from tidelog.log.system import System

# Properties that a restore keeps, because later commits and files depend on them.
_KEPT = re.compile(r"delta\.(enableInCommitTimestamps|inCommitTimestampEnablement\w+|columnMapping\..+)")


def restore_target(
    store: Store, system: System, head: Head, version: int | None, timestamp: datetime | str | None
) -> LogState:
    """The state of the version to restore. Raises ConfigurationError unless one of the two arguments is given."""
    if (version is None) == (timestamp is None):
        given = "neither a version nor a timestamp was" if version is None else "both a version and a timestamp were"
        raise ConfigurationError(f"{given} given to restore", advice="give exactly one of them")
    require_version(version)
    times, floor = CommitTimes(store), floor_of(head.transactions)
    timeline = Timeline(store, system, times, head.version, head.timestamp_ms, head.first_version, floor)
    if timestamp is not None:
        version = timeline.snapshot_version(timestamp)
    elif version is not None:
        timeline.require_own(version)
    return load(store, version)


def stage_restore(store: Store, current: LogState, target: LogState, now_ms: int) -> Staged | None:
    """Stage restoring the rows, schema and properties of `target`; None if they are the same.

    Raises HistoryExpiredError if files of the target are gone, ConfigurationError if the target has another column
    mapping or partitioning.
    """
    gone, back = difference(current.files().adds, target.files().adds)
    metadata = _restored_metadata(current.head.metadata, target.head.metadata)
    domains = _restored_domains(current.head.domains, target.head.domains)
    buried = tombstones_before(store, current.head, target.head, now_ms)
    require_tombstones(store, buried, target.head.version, current.head, now_ms)
    is_same = buried == tombstones_of(store, current.head, now_ms)
    if not gone.num_rows and not back.num_rows and metadata is None and not domains and is_same:
        return None
    returning, leaving = files.to_adds(back), files.to_adds(gone)
    require_restorable(store, returning, target.head.version, current.head)
    return Staged(
        operation="RESTORE",
        operation_class=OperationClass.OVERWRITE,
        restores=target.files().adds,
        metadata=metadata,
        domains=domains,
        tombstones=TombstoneChange(restored=buried),
        parameters={"version": str(target.head.version)},
        metrics={
            "numRestoredFiles": len(returning),
            "restoredFilesSize": sum(add.size for add in returning),
            "numRemovedFiles": len(leaving),
            "removedFilesSize": sum(add.size for add in leaving),
        },
    )


def _restored_domains(
    current: Mapping[str, DomainMetadata], target: Mapping[str, DomainMetadata]
) -> tuple[DomainMetadata, ...]:
    """What the table is clustered by becomes what it was then, as in delta-spark; all other domains stay."""
    if CLUSTERING_DOMAIN not in current:
        return ()
    wanted = target.get(CLUSTERING_DOMAIN, clusters_by_nothing())
    return () if wanted == current[CLUSTERING_DOMAIN] else (wanted,)


def _partitions(metadata: Metadata) -> list[str]:
    """The partition columns by the names that they keep if they are renamed."""
    names = {field["name"]: lasting_name(field) for field in msgspec.json.decode(metadata.schema_string)["fields"]}
    return [names.get(name, name) for name in metadata.partition_columns]


def _restored_metadata(current: Metadata, target: Metadata) -> Metadata | None:
    """The target's schema and properties, but for what a restore keeps, as wider types; None if nothing changes."""
    mode = "delta.columnMapping.mode"
    if current.configuration.get(mode, "none") != target.configuration.get(mode, "none"):
        raise ConfigurationError(
            "that version has another column mapping mode than the table has now", advice="restore a later version"
        )
    kept = {key: value for key, value in current.configuration.items() if _KEPT.fullmatch(key)}
    own = {key: value for key, value in target.configuration.items() if not _KEPT.fullmatch(key)}
    if (_partitions(current), current.id) != (_partitions(target), target.id):
        raise ConfigurationError(
            "that version has other partition columns or another table id than the table has now",
            advice="restore a later version",
        )
    restored = msgspec.structs.replace(
        current,
        schema_string=with_types_of(
            with_high_water_marks(target.schema_string, current.schema_string), current.schema_string
        ),
        partition_columns=target.partition_columns,
        configuration={**own, **kept},
        description=target.description,
    )
    return None if restored == current else restored
