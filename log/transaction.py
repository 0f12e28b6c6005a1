"""A transaction: one operation, staged on one version of the table, then committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelog.log.commit import loop
from tidelog.log.commit.discard import deleting_on_error, discard
from tidelog.log.commit.result import Committed, Superseded
from tidelog.log.commit.version_put import require_durable
from tidelog.log.conflict.fences import FLOOR, HORIZON
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import MoveGroup, Staged, move_metrics
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import ConfigurationError
from tidelog.log.format import statistics
from tidelog.log.format.actions import AddFile, Metadata, SetTransaction
from tidelog.log.format.properties import ORDER_BY
from tidelog.log.format.protocol import require_writable
from tidelog.log.format.schema import columns_of
from tidelog.log.format.text import is_unicode
from tidelog.log.format.tombstone_list import TOMBSTONES
from tidelog.log.operations import (
    add_columns,
    alter_table,
    delete_update,
    merge,
    schema_evolution,
    set_properties,
    upsert,
)
from tidelog.log.operations.merge_rules import ALL, PARTIAL, MergeRules, Rule, merge_rules, require_one_way
from tidelog.log.operations.overwrite import stage_overwrite, stage_truncate
from tidelog.log.operations.replace_columns import replaced_columns
from tidelog.log.operations.restore import restore_target, stage_restore
from tidelog.log.operations.upsert_order import OUTDATED
from tidelog.log.presentable import brief
from tidelog.log.read.keys import keys_of_upsert, order_columns
from tidelog.log.rules import RowRules
from tidelog.log.state.loader import LogState
from tidelog.log.state.table_identity import BaseLook, require_not_dropped
from tidelog.log.storage import Store
from tidelog.log.system import System, to_datetime

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


class Transaction:
    """One operation on a table: stage it, then `commit` or `abort`. Both end the transaction.

    Get one with `Table.begin`. A staging method writes the files, which no reader sees before the commit, and returns
    the transaction. A transaction must not be shared by threads.

    Args:
        store: The store that holds the table's files.
        state: The base version.
        system: The clock, sleep and randomness to use.
        on_commit: Called with the version that was committed.
        began_s: When the work on it began, by the monotonic clock; None for now.

    Attributes:
        dropped: After a compaction's commit, the groups that were left out because other commits took their files.

    Raises:
        UnsupportedFeatureError: Writing to the table requires a feature that tidelog lacks.

    Example:
        >>> transaction = table.begin()
        >>> transaction.delete("day < '2024-01-01'").commit()
    """

    def __init__(
        self,
        store: Store,
        state: LogState,
        system: System,
        on_commit: Callable[[LogState], None],
        began_s: float | None = None,
    ) -> None:
        self._base_look = BaseLook(store, state.head, system)
        require_not_dropped(store.url, state.head)
        require_writable(state.head.protocol, state.head.metadata, store.url)
        self._store = store
        # The commit follows `_base`. Operations are staged on `_state`, which differs only by an evolved schema.
        self._base = self._state = state
        self._evolved: Metadata | None = None
        self._is_metadata_due = False
        self._system = system
        self._began_s = system.monotonic_s() if began_s is None else began_s
        self._on_commit = on_commit
        self._staged: Staged | None = None
        self._without_commit: Committed | None = None
        self._ended = False
        self._looks_early = False
        self.dropped: tuple[MoveGroup, ...] = ()

    @property
    def base_version(self) -> int:
        """The version that the operation is staged on."""
        return self._base.head.version

    @property
    def state(self) -> LogState:
        """The base version, with the schema that `evolve` gave it."""
        return self._state

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the table at the base version."""
        return columns_of(self._state.head.metadata, self._store.url)

    @property
    def properties(self) -> Mapping[str, str]:
        """The table properties at the base version."""
        return self._state.head.metadata.configuration

    @property
    def transactions(self) -> Mapping[str, int]:
        """The newest version that each application had committed at the base version, by application id."""
        return {name: entry.version for name, entry in self._state.head.transactions.items()}

    def commits_at_once(self) -> Transaction:
        """Say that the commit follows at once. Then the look at the base version begins while files are written."""
        self._looks_early = True
        return self

    def progress(self, key: tuple[str, int]) -> SetTransaction | None:
        """The action that records an application's progress, for `note`.

        Args:
            key: (application id, version).

        Returns:
            None if the table has this version of the application or a newer one.

        Raises:
            ConfigurationError: The log cannot hold the key.
            CommitStateUnknownError: The table has this version, but a crash of the machine may undo it.
        """
        found = _progress(self.transactions, key, self._system.now_ms())
        if found is None:
            self.require_durable_base()
        return found

    def require_durable_base(self) -> None:
        """Make sure that the base version survives a crash of the machine, before work is skipped because it is there.

        Whoever committed it may have been told that its state is unknown. Raises CommitStateUnknownError.
        """
        head = self._state.head
        require_durable(self._store, head.version, head.commit_id or "")

    @cached_property
    def writer(self) -> DataWriter:
        """The writer of the transaction's data files."""
        folders = self._state.uses_partition_folders()
        return DataWriter(self._store, self._state.head.metadata, self._system, folders)

    def insert(self, data: Any, *, idempotency_key: tuple[str, int] | None = None) -> Transaction:
        """Stage new rows. Arguments and errors as for `Table.insert`."""
        self._require_unstaged()
        rows = RowRules.of(self.writer).rows(data)
        progress = None if idempotency_key is None else self.progress(idempotency_key)
        if idempotency_key is not None and progress is None:
            self._without_commit = self._unchanged()
            return self
        with self.working():
            adds = self.writer.write(rows)
        return self.stage_adds(adds, transactions=[progress] if progress else [])

    def delete(self, where: str) -> Transaction:
        """Stage the deletion of the rows that match `where`. Arguments and errors as for `Table.delete`."""
        self.require_row_changes()
        with self.working():
            return self._keep(delete_update.stage_delete(self._state, self.writer, where))

    def update(self, where: str, set: Mapping[str, str]) -> Transaction:  # noqa: A002 - SQL's own word
        """Stage new values for the rows that match `where`. Arguments and errors as for `Table.update`."""
        self.require_row_changes()
        with self.working():
            return self._keep(delete_update.stage_update(self._state, self.writer, where, set))

    def upsert(  # noqa: PLR0913 - the public signature
        self,
        data: Any,
        *,
        keys: Sequence[str] = (),
        delete_where: str | None = None,
        other_keys: bool = False,
        order_by: str | Sequence[str] | None = None,
        columns: str = ALL,
        when_matched: Sequence[Rule] = (),
        when_not_matched: Sequence[Rule] = (),
        when_not_matched_by_source: Sequence[Rule] = (),
    ) -> Transaction:
        """Stage rows that replace those with the same keys. Arguments and errors as for `Table.upsert`."""
        self.require_row_changes()
        names = keys_of_upsert(keys, self.schema, self.properties, other_keys=other_keys)
        by_kind = (when_matched, when_not_matched, when_not_matched_by_source)
        rules = merge_rules(*by_kind, self._system.now_ms) if any(by_kind) else None
        if rules is not None or columns != ALL:
            require_one_way(rules, columns, delete_where, order_by)
        if rules:
            return self.merge(data, rules, names)
        has_order = order_by is not None or ORDER_BY in self.properties
        order = order_columns(order_by, self.schema, self.properties) if has_order else []
        stage = merge.stage_partial if columns == PARTIAL else upsert.stage_upsert
        metrics = (*upsert.UPSERT_METRICS, OUTDATED) if order else upsert.UPSERT_METRICS
        with self.working():
            return self._keep(stage(self._state, self.writer, data, names, delete_where, order), metrics)

    def merge(self, data: Any, rules: MergeRules, names: Sequence[str]) -> Transaction:
        """Stage an upsert by rules; `names` are its key columns."""
        self.require_row_changes()
        with self.working():
            return self._keep(merge.stage_merge(self._state, self.writer, data, names, rules), upsert.UPSERT_METRICS)

    def overwrite(self, data: Any, *, where: str | None = None, dynamic: bool = False) -> Transaction:
        """Stage the replacement of the table or of partitions. Arguments and errors as for `Table.overwrite`."""
        self.require_row_changes()
        rows = self.writer.prepared(RowRules.of(self.writer).rows(data))
        with self.working():
            return self._keep(stage_overwrite(self._state, self.writer, rows, where, dynamic=dynamic))

    def truncate(self, *, where: str | None = None) -> Transaction:
        """Stage the deletion of all rows of the table or of partitions; see `Table.truncate`."""
        self.require_row_changes()
        return self._keep(stage_truncate(self._state, self.writer, where))

    def restore(self, *, version: int | None = None, timestamp: datetime | str | None = None) -> Transaction:
        """Stage the restoration of an older version. Arguments and errors as for `Table.restore`."""
        self.require_row_changes()
        target = restore_target(self._store, self._system, self._state.head, version, timestamp)
        return self._keep(stage_restore(self._store, self._state, target, self._system.now_ms()))

    def set_properties(self, properties: Mapping[str, object], *, allow_protocol_upgrade: bool = False) -> Transaction:
        """Stage setting table properties, and removing those whose value is None; as `Table.set_properties`."""
        self._require_unstaged()
        head, path, system = self._state.head, self._store.url, self._system
        staged = set_properties.stage_set_properties(
            head, path, system, properties, allow_protocol_upgrade=allow_protocol_upgrade
        )
        return self._keep(staged, ())

    def add_columns(
        self, fields: pa.Schema | Iterable[pa.Field], *, allow_protocol_upgrade: bool = False
    ) -> Transaction:
        """Stage new columns. Arguments and errors as for `Table.add_columns`."""
        self._require_unstaged()
        head, path, system = self._state.head, self._store.url, self._system
        staged = add_columns.stage_add_columns(
            head, path, system, fields, allow_protocol_upgrade=allow_protocol_upgrade
        )
        return self._keep(staged, ())

    def alter(self, changes: Sequence[alter_table.Alteration], violates: Callable[[str], bool]) -> Transaction:
        """Stage changes of the metadata. Arguments and errors as for `stage_alter`."""
        self._require_unstaged()
        head, path, system = self._state.head, self._store.url, self._system
        return self._keep(alter_table.stage_alter(head, path, system, changes, violates), ())

    def stage_adds(self, adds: Sequence[AddFile], *, transactions: Sequence[SetTransaction] = ()) -> Transaction:
        """Stage files of new rows that are already written and durable, with the progress of applications."""
        self._require_unstaged()
        self._staged = Staged(
            operation="WRITE",
            operation_class=OperationClass.INSERT if adds else OperationClass.NONE,
            adds=tuple(adds),
            transactions=tuple(transactions),
            parameters={"mode": "Append"},
            metrics={
                "numFiles": len(adds),
                "numOutputRows": sum(statistics.num_records(add.stats) or 0 for add in adds),
                "numOutputBytes": sum(add.size for add in adds),
            },
        )
        return self

    def require_row_changes(self) -> None:
        """Raise AppendOnlyError if the table forbids changing rows, ConfigurationError if an operation is staged."""
        self._require_unstaged()
        delete_update.require_row_changes(self.properties, self._store.url)

    def evolve(self, data: pa.Schema) -> bool:
        """Add to the table, in the same commit, the columns and struct fields that only `data` has.

        If the table has `delta.enableTypeWidening`, columns, fields, elements, keys and values also get the wider type
        that they have in `data`. Call it before staging the operation.

        Args:
            data: The schema of the data to be written.

        Returns:
            Whether anything is new or wider.

        Raises:
            SchemaMismatchError: A new column has no type, or one that Delta does not have.
            ConfigurationError: A new name is reserved for the change feed or occurs twice.
            UnsupportedFeatureError: The table's protocol does not allow the type of a new column.
        """
        self._require_unstaged()
        metadata = schema_evolution.evolved(self._state.head, self._store.url, self._system, data)
        if metadata is not None:
            self._set_metadata(metadata)
        return metadata is not None

    def replace_columns(self, columns: pa.Schema, partition_by: Sequence[str] = ()) -> bool:
        """Give the table, in the same commit, other columns, and other partition columns.

        Call it before staging an OVERWRITE of the whole table, as rows that stay would have other columns.

        Args:
            columns: The columns. The properties of the table stay.
            partition_by: The partition columns. Without any, they stay if the columns do.

        Returns:
            Whether anything is new.

        Raises:
            ConfigurationError, SchemaMismatchError, UnsupportedFeatureError: As for `replaced_columns`.
        """
        self._require_unstaged()
        head, path, system = self._state.head, self._store.url, self._system
        metadata = replaced_columns(head, path, system, columns, partition_by)
        if metadata is not None:
            self.adopt_metadata(metadata)
        return metadata is not None

    def adopt_metadata(self, metadata: Metadata) -> None:
        """Commit this metadata with the operation, even if it changes no rows.

        That is what `evolve` or `replace_columns` made of the same version in another transaction.
        """
        self._require_unstaged()
        self._set_metadata(metadata)
        self._is_metadata_due = True

    def _set_metadata(self, metadata: Metadata) -> None:
        self._evolved = metadata
        self._state = self._base.with_metadata(metadata)
        for name in ("schema", "writer"):
            self.__dict__.pop(name, None)

    def wider_types(self, data: pa.Schema) -> Mapping[str, pa.DataType | None]:
        """The columns, and `column.field`, that `evolve` would widen if the table had `delta.enableTypeWidening`.

        Args:
            data: The schema of the data to be written.

        Returns:
            The types that they would get, or None for a column whose type stays in any case: a rule of the table reads
            or computes it, or the table is partitioned by it, and it is a float.
        """
        return schema_evolution.wider_types(self._state.head.metadata, self._store.url, self._system, data)

    def note(
        self,
        *,
        transactions: Sequence[SetTransaction] = (),
        read_applications: Collection[str] = (),
        operation: str | None = None,
        parameters: Mapping[str, str] | None = None,
        record: Mapping[str, Any] | None = None,
    ) -> Transaction:
        """Record in the staged commit whose work it is. Does nothing if there is nothing to commit.

        Args:
            transactions: The progress of applications, to be written with the commit. If a winner wrote the progress of
                one of them, the commit is a conflict.
            read_applications: Application ids whose progress by a winner is a conflict as well.
            operation: Another name for the operation, which other engines show. It replaces the name and parameters
                that the operation has.
            parameters: Further operation parameters for other engines to show.
            record: Entries for the `tidelog` object of the commitInfo.
        """
        self._require_open()
        if self._staged is not None:
            self._staged = replace(
                self._staged,
                transactions=(*self._staged.transactions, *transactions),
                read_applications=self._staged.read_applications | frozenset(read_applications),
                operation=operation or self._staged.operation,
                parameters={**({} if operation else self._staged.parameters), **(parameters or {})},
                record={**self._staged.record, **(record or {})},
            )
        return self

    def stage(self, staged: Staged | None) -> Transaction:
        """Stage a row change that was prepared elsewhere, such as on Spark's executors.

        Call `require_row_changes` before the work, and do it on `state` with `writer`.

        Args:
            staged: The change; None if there is nothing to do.
        """
        self.require_row_changes()
        return self._keep(staged)

    def stage_moves(self, groups: Sequence[MoveGroup], *, operation_class: OperationClass) -> Transaction:
        """Stage a compaction: groups of files that the caller rewrote and verified. No rows change."""
        self._require_unstaged()
        self._staged = Staged("OPTIMIZE", operation_class, moves=tuple(groups), metrics=move_metrics(groups))
        return self

    def stage_fence(self, fence: SetTransaction, *, operation: str) -> Transaction:
        """Stage a commit without rows that writes a fence, such as a daemon's epoch. It is refused as with `fenced`."""
        self._require_unstaged()
        self._staged = Staged(operation, OperationClass.NONE, fence=fence)
        return self

    def fenced(self, fence: SetTransaction | None) -> Transaction:
        """Write the epoch of a daemon's lease with what is staged. The commit is refused if the log has a higher one.

        Does nothing without a fence, or if there is nothing to commit.
        """
        if fence is not None and self._staged is not None and not self._staged.is_empty:
            self._staged = replace(self._staged, fence=fence)
        return self

    def commit(self, *, metadata_retry: bool | None = None) -> Committed | Superseded:
        """Commit the staged operation. When this returns `Committed`, the commit is durable.

        If other writers committed first, the operation is rebased over their commits using metadata only, provided
        that running it again would give the same rows.

        Args:
            metadata_retry: Whether to rebase. False applies the table's conflict policy as published: a commit that it
                refuses is a ConflictError. None uses the table property `tidelog.metadataRetry`.

        Returns:
            `Committed`; for a compaction with nothing left to do, `Superseded`.

        Raises:
            ConflictError: Another commit came first, and the operation has to run again.
            CommitContentionError: Other writers won every attempt.
            CommitStateUnknownError: The commit may or may not be durable.
            StoreUnavailableError, PathNotWritableError: The store does not answer, or refuses. Nothing was committed.
            LeaseLostError: The log has a higher epoch than the one given to `fenced`. Nothing was committed.
            HistoryExpiredError: The base version was cleaned up, or a RESTORE needs files from before the horizon.
            CorruptLogError: A file of the log that the commit depends on is damaged.
            TableReplacedError, TableNotFoundError: The path now holds another table, or none. Nothing was committed.
            ConfigurationError: Nothing is staged, or the transaction has ended.
        """
        self._require_open()
        if self._staged is None and self._is_metadata_due:
            self._staged = Staged("WRITE", OperationClass.NONE)
        elif self._without_commit is not None:
            self._ended = True
            return self._without_commit
        if self._staged is None:
            raise ConfigurationError(
                "nothing is staged in this transaction", advice="call a method such as insert(...) before commit()"
            )
        self._ended = True
        if self._staged.is_empty and not self._is_metadata_due:
            discard(self._store, self._staged)
            return self._unchanged()
        staged = self._staged if self._evolved is None else replace(self._staged, metadata=self._evolved)
        result = loop.commit(
            self._store,
            self._base,
            staged,
            self._system,
            metadata_retry=metadata_retry,
            began_s=self._began_s,
            base_look=self._base_look,
        )
        self.dropped = result.dropped
        if result.state is not None:
            self._on_commit(result.state)
        return result.outcome

    def abort(self) -> None:
        """End the transaction without a commit, and delete the files written for it. Does nothing after a commit."""
        if not self._ended and self._staged is not None:
            discard(self._store, self._staged)
        self._ended = True

    @contextmanager
    def working(self) -> Iterator[None]:
        """Read the base version and write files. All that stages rows with its own readers does so within this block.

        If the block fails, the files that `writer` wrote in it are deleted. If it fails because a vacuum has passed the
        base version, which deletes files of it, the error is a TransactionExpiredError. Meanwhile the look at the base
        version can begin.
        """
        if self._looks_early:
            self._base_look.begin()
        staged_class = OperationClass.UPDATE_DELETE
        with loop.missing_files_explained(self._store, self._base.head, staged_class), deleting_on_error(self.writer):
            yield

    def _keep(self, staged: Staged | None, metrics: Collection[str] = ("numFiles", "numOutputRows")) -> Transaction:
        """Keep what an operation staged. None means nothing to do: the result then has zeros for `metrics`."""
        if staged is None:
            self._without_commit = self._unchanged(metrics)
        elif staged.tombstones is not None and staged.is_empty:
            # All records of an upsert are older than what the table has.
            discard(self._store, staged)
            nothing = self._unchanged(staged.metrics)
            counts = {name: staged.metrics[name] for name in ("numSourceRows", OUTDATED) if name in staged.metrics}
            self._without_commit, staged = replace(nothing, metrics={**nothing.metrics, **counts}), None
        self._staged = staged
        return self

    def _unchanged(self, metrics: Collection[str] = ("numFiles", "numOutputRows")) -> Committed:
        head, names = self._state.head, self._staged.metrics if self._staged else metrics
        return Committed(head.version, to_datetime(head.timestamp_ms), metrics=dict.fromkeys(names, 0))

    def _require_open(self) -> None:
        if self._ended:
            raise ConfigurationError("this transaction has ended", advice="start another one with Table.begin()")

    def _require_unstaged(self) -> None:
        self._require_open()
        if self._staged is not None or self._without_commit is not None:
            raise ConfigurationError(
                "an operation is already staged, and a transaction holds only one",
                advice="commit it, and start another transaction with Table.begin()",
            )


def _progress(known: Mapping[str, int], key: tuple[str, int], now_ms: int) -> SetTransaction | None:
    """The action that records `key`, an application id and its version. None if `known` has it or a newer one.

    Raises ConfigurationError if the log cannot hold the key.
    """
    match key:
        case (app_id, _) if app_id in (HORIZON, FLOOR, TOMBSTONES):
            raise ConfigurationError(f"{app_id!r} is tidelog's own application id", advice="choose another one")
        case (str(app_id), int(version)) if (
            app_id and is_unicode(app_id) and not isinstance(version, bool) and abs(version) < 2**63
        ):
            if known.get(app_id, version - 1) >= version:
                return None
            return SetTransaction(app_id=app_id, version=version, last_updated=now_ms)
        case _:
            raise ConfigurationError(
                f"{brief(key)} is not an idempotency key",
                advice="give (application id, version), such as ('daily-load', 7)",
            )
