"""Stage OVERWRITE, TRUNCATE and RESTORE, which replace all rows that are live in their scope when they commit."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from tidelog.log import predicate
from tidelog.log.commit.restored_files import difference, require_files
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Staged
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import ConfigurationError
from tidelog.log.format import statistics
from tidelog.log.format.actions import AddFile, Metadata
from tidelog.log.pruning.partition_scope import Scope, in_scope, partition_scope
from tidelog.log.state import files
from tidelog.log.state.loader import LogState
from tidelog.log.storage import Store

# Properties that a restore keeps, because later commits and files depend on them.
_KEPT = re.compile(r"delta\.(enableInCommitTimestamps|inCommitTimestampEnablement\w+|columnMapping\..+)")


def stage_overwrite(
    state: LogState, writer: DataWriter, rows: pa.Table, where: str | None, *, dynamic: bool
) -> Staged | None:
    """Stage replacing all rows in the scope by `rows`; None if there are neither old nor new rows.

    The scope is the partitions that `where` selects, or with `dynamic` those of the rows, or else the whole table.
    Raises PredicateError, and ConfigurationError for rows outside `where`.
    """
    overwrite = Overwrite(writer, where, dynamic=dynamic)
    return overwrite.staged(state, overwrite.write(rows))


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files written for an overwrite, or for a part of it; picklable.

    `rows` counts the rows, `outside` those that are not in the scope: if there are any, nothing is written.
    `partitions` are the partitions of the rows, in a dynamic overwrite only.
    """

    adds: tuple[AddFile, ...]
    rows: int
    outside: int
    partitions: pa.Table | None


class Overwrite:
    """An OVERWRITE in two steps: `write`, which can run on parts of the rows in parallel, and `staged`.

    Raises PredicateError, and ConfigurationError for a `where` or `dynamic` that does not fit the table.
    """

    def __init__(self, writer: DataWriter, where: str | None, *, dynamic: bool) -> None:
        self._writer = writer
        self._where = where
        self._names = list(writer.metadata.partition_columns)
        if dynamic and (where is not None or not self._names):
            fault = "both where and dynamic are given" if where is not None else "the table is not partitioned"
            raise ConfigurationError(
                f"cannot overwrite the partitions of the data: {fault}",
                advice="leave one of the two out" if where is not None else "overwrite the whole table",
            )
        self._dynamic = dynamic
        self._scope = partition_scope(where, writer.metadata, writer.store.url)

    def write(self, rows: pa.Table) -> WrittenFiles:
        """Write rows that `DataWriter.prepared` returned, if all of them are in the scope."""
        inside = rows.num_rows
        if self._scope.predicate is not None:
            inside = rows.filter(predicate.to_arrow(self._scope.predicate, rows.schema)).num_rows
        partitions = _distinct(rows.select(self._names)) if self._dynamic else None
        adds = self._writer.write(rows) if inside == rows.num_rows else []
        return WrittenFiles(tuple(adds), rows.num_rows, rows.num_rows - inside, partitions)

    def staged(self, state: LogState, *parts: WrittenFiles) -> Staged | None:
        """The operation with the rows of all `parts`; None if there is nothing to do.

        Raises ConfigurationError for rows outside the scope.
        """
        rows, outside = sum(part.rows for part in parts), sum(part.outside for part in parts)
        if outside:
            raise ConfigurationError(
                f"{outside} of {rows} rows are outside where={self._where!r}",
                advice="filter the data, or widen the predicate",
            )
        writer, scope = self._writer, self._scope
        if self._dynamic:
            found = [part.partitions for part in parts if part.partitions is not None]
            none = writer.schema.empty_table().select(self._names)
            scope = Scope(partitions=_distinct(pa.concat_tables([none, *found])))
        gone = in_scope(state.files().values, scope, writer.metadata, writer.store.url)
        if not rows and not gone.num_rows:
            return None
        adds = tuple(add for part in parts for add in part.adds)
        parameters = {"mode": "Overwrite", "partitionBy": _json_list(self._names)}
        if self._where is not None:
            parameters["predicate"] = self._where
        if self._dynamic:
            parameters["partitionOverwriteMode"] = "dynamic"
        return Staged(
            operation="WRITE",
            operation_class=OperationClass.OVERWRITE,
            adds=adds,
            replaces=scope,
            parameters=parameters,
            metrics={
                "numFiles": len(adds),
                "numOutputRows": rows,
                "numOutputBytes": sum(add.size for add in adds),
                "numRemovedFiles": gone.num_rows,
            },
        )


def stage_truncate(state: LogState, metadata: Metadata, path: str, where: str | None) -> Staged | None:
    """Stage deleting every row of the scope; None if there are no rows."""
    scope = partition_scope(where, metadata, path)
    gone = in_scope(state.files().values, scope, metadata, path)
    if not gone.num_rows:
        return None
    return Staged(
        operation="TRUNCATE",
        operation_class=OperationClass.OVERWRITE,
        replaces=scope,
        parameters={} if where is None else {"predicate": _json_list([where])},
        metrics={"numRemovedFiles": gone.num_rows, "numDeletedRows": _live_rows(files.to_adds(gone))},
    )


def stage_restore(store: Store, current: LogState, target: LogState) -> Staged | None:
    """Stage restoring the rows, schema and properties of `target`; None if they are the same.

    Raises HistoryExpiredError if files of the target are gone, ConfigurationError if the target has another column
    mapping or partitioning.
    """
    gone, back = difference(current.files().adds, target.files().adds)
    metadata = _restored_metadata(current.head.metadata, target.head.metadata)
    if not gone.num_rows and not back.num_rows and metadata is None:
        return None
    returning, leaving = files.to_adds(back), files.to_adds(gone)
    require_files(store, returning, target.head.version, current.head.version)
    return Staged(
        operation="RESTORE",
        operation_class=OperationClass.OVERWRITE,
        restores=target.files().adds,
        metadata=metadata,
        parameters={"version": str(target.head.version)},
        metrics={
            "numRestoredFiles": len(returning),
            "restoredFilesSize": sum(add.size for add in returning),
            "numRemovedFiles": len(leaving),
            "removedFilesSize": sum(add.size for add in leaving),
        },
    )


def _distinct(partitions: pa.Table) -> pa.Table:
    return partitions.group_by(partitions.column_names, use_threads=False).aggregate([])


def _restored_metadata(current: Metadata, target: Metadata) -> Metadata | None:
    """The target's schema and properties, except for those that a restore keeps; None if nothing changes."""
    mode = "delta.columnMapping.mode"
    if current.configuration.get(mode, "none") != target.configuration.get(mode, "none"):
        raise ConfigurationError(
            "that version has another column mapping mode than the table has now", advice="restore a later version"
        )
    kept = {key: value for key, value in current.configuration.items() if _KEPT.fullmatch(key)}
    own = {key: value for key, value in target.configuration.items() if not _KEPT.fullmatch(key)}
    if (current.partition_columns, current.id) != (target.partition_columns, target.id):
        raise ConfigurationError(
            "that version has other partition columns or another table id than the table has now",
            advice="restore a later version",
        )
    restored = msgspec.structs.replace(
        current, schema_string=target.schema_string, configuration={**own, **kept}, description=target.description
    )
    return None if restored == current else restored


def _live_rows(adds: list[AddFile]) -> int:
    dead = sum(add.deletion_vector.cardinality for add in adds if add.deletion_vector)
    return sum(statistics.num_records(add.stats) or 0 for add in adds) - dead


def _json_list(values: object) -> str:
    return msgspec.json.encode(values).decode()
