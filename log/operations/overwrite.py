"""Stage OVERWRITE and TRUNCATE: replace or delete all rows that are live in a scope when they commit."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pyarrow as pa

from tidelog.log import predicate
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Staged
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import ConfigurationError
from tidelog.log.format import statistics
from tidelog.log.format.actions import AddFile
from tidelog.log.predicate import at_time
from tidelog.log.pruning.partition_scope import Scope, in_scope, partition_scope
from tidelog.log.state import files
from tidelog.log.state.loader import LogState


def stage_overwrite(
    state: LogState, writer: DataWriter, rows: pa.Table, where: str | None, *, dynamic: bool
) -> Staged | None:
    """Stage replacing all rows in the scope with `rows`; None if there are neither old nor new rows.

    The scope is the partitions that `where` selects, or with `dynamic` those of the rows, or else the whole table.
    Raises PredicateError, and ConfigurationError for rows outside `where`.
    """
    overwrite = Overwrite(writer, predicate.at_time(where, writer.system.now_ms), dynamic=dynamic)
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
            inside = predicate.Condition(self._scope.predicate, rows.schema).mask(rows).true_count
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
        if not rows and all(statistics.live_rows(add) == 0 for add in files.to_adds(gone)):
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


def _distinct(partitions: pa.Table) -> pa.Table:
    return partitions.group_by(partitions.column_names, use_threads=False).aggregate([])


def _json_list(values: object) -> str:
    return msgspec.json.encode(values).decode()


def stage_truncate(state: LogState, writer: DataWriter, where: str | None) -> Staged | None:
    """Stage deleting every row of the scope; None if there are none. A compaction drops files without live rows."""
    metadata, path = writer.metadata, writer.store.url
    where = at_time(where, writer.system.now_ms)
    scope = partition_scope(where, metadata, path)
    gone = files.to_adds(in_scope(state.files().values, scope, metadata, path))
    rows = [statistics.live_rows(add) for add in gone]
    if not any(count != 0 for count in rows):
        return None
    return Staged(
        operation="TRUNCATE",
        operation_class=OperationClass.OVERWRITE,
        replaces=scope,
        parameters={} if where is None else {"predicate": msgspec.json.encode([where]).decode()},
        metrics={"numRemovedFiles": len(gone), "numDeletedRows": sum(count or 0 for count in rows)},
    )
