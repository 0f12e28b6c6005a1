"""Properties of Delta that tidelog cannot honour: why they are refused, what to do, and which values ask for nothing.

They are refused when they are set. A table that another engine gave one is read and, where its protocol allows it,
written as before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

_OFF = frozenset({"false"})


@dataclass(frozen=True, slots=True)
class RefusedProperty:
    """Why a property is refused. Values in `harmless`, in lower case, ask for nothing and are taken."""

    reason: str
    advice: str
    harmless: Collection[str] = _OFF


_ICEBERG = RefusedProperty(
    "tidelog's files do not keep the promise that they can be read as Iceberg",
    "turn it on with an engine that supports it; tidelog then only reads the table",
)
_ROW_TRACKING = RefusedProperty(
    "it takes ids for the rows that are there, which tidelog does not give them",
    "set up row tracking with another engine, such as delta-spark; tidelog then keeps the ids",
)
_COORDINATED = RefusedProperty(
    "commits would go through a coordinator, which tidelog does not ask",
    "use the table through its coordinator",
    frozenset(),
)
_REDIRECT = RefusedProperty(
    "tidelog does not follow a table to another place", "move the table with the engine that redirects it", frozenset()
)
_IN_FILES = RefusedProperty(
    "tidelog leaves partition columns out of its files", "leave it out, or write the table with another engine"
)
_RECORDED = RefusedProperty("it is a record that the log keeps by itself", "leave it out", frozenset())

REFUSED: Mapping[str, RefusedProperty] = {
    **{f"delta.enableIcebergCompatV{number}": _ICEBERG for number in (1, 2, 3)},
    "delta.universalFormat.enabledFormats": RefusedProperty(_ICEBERG.reason, _ICEBERG.advice, frozenset({""})),
    "delta.enableRowTracking": _ROW_TRACKING,
    "delta.rowTrackingSuspended": _ROW_TRACKING,
    "delta.rowTracking.materializedRowIdColumnName": _RECORDED,
    "delta.rowTracking.materializedRowCommitVersionColumnName": _RECORDED,
    "delta.coordinatedCommits.commitCoordinator-preview": _COORDINATED,
    "delta.coordinatedCommits.commitCoordinatorConf-preview": _COORDINATED,
    "delta.coordinatedCommits.tableConf-preview": _COORDINATED,
    "delta.redirectReaderWriter-preview": _REDIRECT,
    "delta.redirectWriterOnly-preview": _REDIRECT,
    "delta.enableMaterializePartitionColumnsFeature": _IN_FILES,
    "delta.writePartitionColumnsToParquet": _IN_FILES,
    "delta.inCommitTimestampEnablementVersion": _RECORDED,
    "delta.inCommitTimestampEnablementTimestamp": _RECORDED,
    "delta.columnMapping.maxColumnId": _RECORDED,
    "delta.columnMapping.mode": RefusedProperty(
        "tidelog maps columns by their names only",
        "set it to name; a table that another engine made with ids is read and written",
        frozenset({"none", "name"}),
    ),
    "delta.compatibility.symlinkFormatManifest.enabled": RefusedProperty(
        "tidelog writes no manifests, so those who read by them would miss its commits",
        "leave it out, and let the readers read the table itself",
    ),
    "delta.enableChangeDataCapture": RefusedProperty(
        "it is the old name of delta.enableChangeDataFeed", "set delta.enableChangeDataFeed"
    ),
    "delta.enableVariantShredding": RefusedProperty("tidelog does not shred variants", "leave it out"),
    "delta.requireCheckpointProtectionBeforeVersion": RefusedProperty(
        "clean-up by tidelog does not know of such versions", "drop the feature with the engine that sets it", {"0"}
    ),
    "delta.isolationLevel": RefusedProperty(
        "in tidelog the conflict policy of the table decides that",
        "set tidelog.conflictPolicy to serializable, or to write-serializable",
        frozenset(),
    ),
}
