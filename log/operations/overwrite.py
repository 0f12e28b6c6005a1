"""Stage OVERWRITE and TRUNCATE: replace or delete all rows that are live in a scope when they commit.

The scope is whole partitions, which need not be read. An OVERWRITE by a predicate over other columns deletes the rows
that match it, as DELETE does, and adds the new ones in the same commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa

from tidelog.log import predicate
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Staged
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import ConfigurationError
from tidelog.log.format import statistics
from tidelog.log.format.actions import AddCDCFile, AddFile
from tidelog.log.format.protocol import has_change_data_feed, has_deletion_vectors
from tidelog.log.operations.delete_update import stage_delete
from tidelog.log.predicate import at_time
from tidelog.log.presentable import brief
from tidelog.log.pruning.file_pruning import is_partition_only
from tidelog.log.pruning.partition_scope import Scope, in_partitions, in_scope, partition_rows, partition_scope
from tidelog.log.read.change_files import INSERT
from tidelog.log.state import files
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState
from tidelog.log.state.tombstones import any_counts


def stage_overwrite(
    state: LogState, writer: DataWriter, rows: pa.Table, where: str | None, *, dynamic: bool
) -> Staged | None:
    """Stage replacing all rows in the scope with `rows`; None if there are neither old nor new rows.

    The scope is the rows that `where` selects, or with `dynamic` the partitions of the rows, or else the whole table.
    Replacing the whole table takes the tombstones of deleted rows away, so that their records can be loaded again.
    Raises PredicateError, and ConfigurationError for rows outside `where`.
    """
    where = predicate.at_time(where, writer.system.now_ms)
    overwrite = Overwrite(writer, where, dynamic=dynamic, change_files=deletes_leave_change_files(state.head))
    return overwrite.staged(state, overwrite.write(rows))


def deletes_leave_change_files(head: Head) -> bool:
    """Whether a DELETE writes change rows. Then readers of the feed look at nothing else of its commit."""
    feed = has_change_data_feed(head.protocol, head.metadata)
    return feed and not has_deletion_vectors(head.protocol, head.metadata)


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files written for an overwrite, or for a part of it; picklable.

    `rows` counts the rows, `outside` those that are not in the scope: if there are any, nothing is written.
    `partitions` are the partitions of the rows, in a dynamic overwrite only. `cdc` are their change rows, if needed.
    """

    adds: tuple[AddFile, ...]
    rows: int
    outside: int
    partitions: pa.Table | None
    cdc: tuple[AddCDCFile, ...] = ()


class Overwrite:
    """An OVERWRITE in two steps: `write`, which can run on parts of the rows in parallel, and `staged`.

    With `change_files` (see `deletes_leave_change_files`), rows that replace matching ones get change rows, too.
    `partitions`, a row for each, are a scope in place of `where`. Raises PredicateError, and ConfigurationError for a
    `where` or `dynamic` that does not fit the table.
    """

    def __init__(
        self,
        writer: DataWriter,
        where: str | None,
        *,
        dynamic: bool,
        change_files: bool = False,
        partitions: pa.Table | None = None,
    ) -> None:
        self._writer = writer
        self._change_files = change_files
        self._where = where
        self._names = list(writer.metadata.partition_columns)
        if dynamic and (where is not None or not self._names):
            fault = "both where and dynamic are given" if where is not None else "the table is not partitioned"
            raise ConfigurationError(
                f"cannot overwrite the partitions of the data: {fault}",
                advice="leave one of the two out" if where is not None else "overwrite the whole table",
            )
        self._dynamic = dynamic
        self._tree = None if where is None else predicate.parse(where, writer.schema)
        # The rows to replace are looked for, unless they are whole partitions.
        self.reads = self._tree is not None and not is_partition_only(self._tree, writer.metadata)
        self._scope = Scope() if self.reads else partition_scope(where, writer.metadata, writer.store.url)
        if partitions is not None:
            self._scope = Scope(partitions=partitions)

    def write(self, rows: pa.Table) -> WrittenFiles:
        """Write rows that `DataWriter.prepared` returned, if all of them are in the scope."""
        inside = rows.num_rows
        if self._tree is not None:
            inside = predicate.Condition(self._tree, rows.schema).mask(rows).true_count
        elif self._scope.partitions is not None:
            inside = int(in_partitions(rows.select(self._names), self._scope.partitions).sum())
        partitions = _distinct(rows.select(self._names)) if self._dynamic else None
        if inside < rows.num_rows:
            return WrittenFiles((), rows.num_rows, rows.num_rows - inside, partitions)
        cdc = self._writer.write_changes([(INSERT, rows)]) if self.reads and self._change_files else []
        return WrittenFiles(tuple(self._writer.write(rows)), rows.num_rows, 0, partitions, tuple(cdc))

    def staged(self, state: LogState, *parts: WrittenFiles, deleted: Staged | None = None) -> Staged | None:
        """The operation with the rows of all `parts`; None if there is nothing to do.

        `deleted` is the DELETE of the rows to replace, if it `reads` and they are known already. Raises
        ConfigurationError for rows outside the scope.
        """
        rows, outside = sum(part.rows for part in parts), sum(part.outside for part in parts)
        if outside:
            raise ConfigurationError(
                f"{outside} of {rows} rows are outside {self._described()}",
                advice="filter the data, or widen the predicate",
            )
        if self.reads and self._where is not None:
            # An overwrite leaves no tombstones: what it replaces may come again.
            return self._in_place_of(
                deleted or stage_delete(state, self._writer, self._where, buries=False), parts, rows
            )
        writer, scope = self._writer, self._scope
        if self._dynamic:
            found = [part.partitions for part in parts if part.partitions is not None]
            none = writer.schema.empty_table().select(self._names)
            scope = Scope(partitions=_distinct(pa.concat_tables([none, *found])))
        gone = in_scope(state, scope, writer.metadata, writer.store.url)
        is_empty = not rows and all(statistics.live_rows(add) == 0 for add in files.to_adds(gone))
        if is_empty and not _lifts_tombstones(state, writer, scope):
            return None
        adds = tuple(add for part in parts for add in part.adds)
        return Staged(
            operation="WRITE",
            operation_class=OperationClass.OVERWRITE,
            adds=adds,
            replaces=scope,
            parameters=self._parameters(),
            metrics={**_output(adds, rows), "numRemovedFiles": gone.num_rows},
        )

    def _in_place_of(self, deleted: Staged, parts: Sequence[WrittenFiles], rows: int) -> Staged | None:
        """The DELETE of the matching rows, with the new rows."""
        if not rows and not deleted.deletes:
            return None
        adds = tuple(add for part in parts for add in part.adds)
        return replace(
            deleted,
            operation="WRITE",
            adds=adds,
            cdc=(*deleted.cdc, *(change for part in parts for change in part.cdc)),
            replaces_matches=True,
            parameters=self._parameters(),
            metrics={**deleted.metrics, **_output(adds, rows)},
        )

    def _described(self) -> str:
        if self._scope.partitions is None:
            return f"where={self._where!r}"
        return f"the partition {brief(self._scope.partitions.to_pylist())}"

    def _parameters(self) -> dict[str, str]:
        parameters = {"mode": "Overwrite", "partitionBy": _json_list(self._names)}
        if self._where is not None:
            parameters["predicate"] = self._where
        if self._dynamic:
            parameters["partitionOverwriteMode"] = "dynamic"
        return parameters


def _output(adds: Sequence[AddFile], rows: int) -> dict[str, int]:
    return {"numFiles": len(adds), "numOutputRows": rows, "numOutputBytes": sum(add.size for add in adds)}


def _lifts_tombstones(state: LogState, writer: DataWriter, scope: Scope) -> bool:
    """Whether replacing the scope takes tombstones away: the commit of a whole table does, even of an empty one."""
    return scope == Scope() and any_counts(writer.store, state.head, writer.system.now_ms())


def _distinct(partitions: pa.Table) -> pa.Table:
    return partitions.group_by(partitions.column_names, use_threads=False).aggregate([])


def live_partitions(state: LogState, path: str) -> pa.Table:
    """The partitions that have rows, one row each, with the partition columns. Raises CorruptLogError."""
    metadata = state.head.metadata
    return _distinct(partition_rows(state, metadata, path))


def _json_list(values: object) -> str:
    return msgspec.json.encode(values).decode()


def stage_truncate(
    state: LogState, writer: DataWriter, where: str | None, partitions: pa.Table | None = None
) -> Staged | None:
    """Stage deleting every row of the scope, and all tombstones if that is the whole table; None if there are none.

    The scope is what `where` selects, or the `partitions`, a row for each. A compaction drops files without live rows.
    """
    metadata, path = writer.metadata, writer.store.url
    where = at_time(where, writer.system.now_ms)
    scope = partition_scope(where, metadata, path) if partitions is None else Scope(partitions=partitions)
    gone = files.to_adds(in_scope(state, scope, metadata, path))
    rows = [statistics.live_rows(add) for add in gone]
    if not any(count != 0 for count in rows) and not _lifts_tombstones(state, writer, scope):
        return None
    return Staged(
        operation="TRUNCATE",
        operation_class=OperationClass.OVERWRITE,
        replaces=scope,
        parameters={} if where is None else {"predicate": msgspec.json.encode([where]).decode()},
        metrics={"numRemovedFiles": len(gone), "numDeletedRows": sum(count or 0 for count in rows)},
    )
