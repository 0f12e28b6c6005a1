"""A transaction: one operation, staged against one version of the table, then committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelog.log.commit import loop
from tidelog.log.commit.discard import delete_unnamed, discard
from tidelog.log.commit.result import Committed, Superseded
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import MoveGroup, Staged, move_metrics
from tidelog.log.data import conform
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import ConfigurationError
from tidelog.log.format import statistics
from tidelog.log.format.actions import AddFile, Metadata, SetTransaction
from tidelog.log.format.protocol import require_writable
from tidelog.log.format.schema import columns_of
from tidelog.log.operations import add_columns, delete_update, overwrite, schema_evolution, set_properties, upsert
from tidelog.log.operations.keys import key_columns
from tidelog.log.read.timeline import Timeline, require_version
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.loader import LogState, load
from tidelog.log.storage import Store
from tidelog.log.system import System, to_datetime

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


class Transaction:
    """Stage one operation, then `commit` or `abort`; either ends the transaction.

    Files are written while staging; until the commit no reader sees them. Not for use by several threads.
    """

    def __init__(
        self,
        store: Store,
        state: LogState,
        system: System,
        on_commit: Callable[[LogState], None],
        base_written_ms: int | None = None,
    ) -> None:
        require_writable(state.head.protocol, state.head.metadata, store.url)
        self._store = store
        # What the commit follows, and what operations are staged against: the same but for an evolved schema.
        self._base = self._state = state
        self._evolved: Metadata | None = None
        self._system = system
        self._began_s = system.monotonic_s()
        self._on_commit = on_commit
        self._base_written_ms = base_written_ms
        self._staged: Staged | None = None
        self._already: Committed | None = None
        self._ended = False
        self.dropped: tuple[MoveGroup, ...] = ()

    @property
    def base_version(self) -> int:
        """The version that the operation is staged against."""
        return self._base.head.version

    @property
    def state(self) -> LogState:
        """What operations are staged against: the base version, with the schema that `evolve` gave it."""
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
        """The progress of each application at the base version: application id to its newest version."""
        return {name: entry.version for name, entry in self._state.head.transactions.items()}

    def progress(self, key: tuple[str, int]) -> SetTransaction | None:
        """The action that notes an application's progress, (application id, version), for `note`.

        None where the table holds that version of the application, or a later one. Raises ConfigurationError for what
        the log cannot hold.
        """
        match key:
            case (str(app_id), int(version)) if app_id and not isinstance(version, bool) and abs(version) < 2**63:
                known = self.transactions.get(app_id)
                if known is not None and known >= version:
                    return None
                return SetTransaction(app_id=app_id, version=version, last_updated=self._system.now_ms())
            case _:
                raise ConfigurationError(
                    f"{key!r} is no idempotency key", advice="give (application id, version): a text and a whole number"
                )

    @cached_property
    def writer(self) -> DataWriter:
        """Writes data files that this transaction may commit."""
        return DataWriter(self._store, self._state.head.metadata, self._system)

    def insert(self, data: Any, *, idempotency_key: tuple[str, int] | None = None) -> Transaction:
        """Stage new rows. `data`: see the module `tidelog.log.data.conform`; its columns must fit the table's.

        `idempotency_key` is (application id, version): where the table holds that version of the application or a
        later one already, the commit does nothing.
        """
        self._require_unstaged()
        rows = conform.to_arrow_table(data, self.schema)
        progress = None if idempotency_key is None else self.progress(idempotency_key)
        if idempotency_key is not None and progress is None:
            self._already = self._nothing()
            return self
        with self._or_nothing():
            adds = self.writer.write(rows)
        return self.stage_adds(adds, transactions=[progress] if progress else [])

    def delete(self, where: str) -> Transaction:
        """Stage that the rows for which the SQL text `where` is true die."""
        self.require_row_changes()
        with self._or_nothing():
            return self._hold(delete_update.stage_delete(self._state, self.writer, where))

    def update(self, where: str, set: Mapping[str, str]) -> Transaction:  # noqa: A002 - SQL's own word
        """Stage new values for the rows for which `where` is true.

        `set` maps columns to SQL expressions of the old row.
        """
        self.require_row_changes()
        with self._or_nothing():
            return self._hold(delete_update.stage_update(self._state, self.writer, where, set))

    def upsert(self, data: Any, *, keys: Sequence[str] = (), delete_where: str | None = None) -> Transaction:
        """Stage that the rows of `data` take the place of those with their keys; see Table.upsert."""
        self.require_row_changes()
        names = key_columns(keys, self.schema, self.properties)
        with self._or_nothing():
            return self._hold(
                upsert.stage_upsert(self._state, self.writer, data, names, delete_where), upsert.UPSERT_METRICS
            )

    def overwrite(self, data: Any, *, where: str | None = None, dynamic: bool = False) -> Transaction:
        """Stage that `data` takes the place of the table, of the partitions `where`, or of its own ones (`dynamic`)."""
        self.require_row_changes()
        rows = self.writer.prepared(conform.to_arrow_table(data, self.schema))
        with self._or_nothing():
            return self._hold(overwrite.stage_overwrite(self._state, self.writer, rows, where, dynamic=dynamic))

    def truncate(self, *, where: str | None = None) -> Transaction:
        """Stage that every row of the table, or of the partitions `where`, dies."""
        self.require_row_changes()
        return self._hold(overwrite.stage_truncate(self._state, self.writer.metadata, self._store.url, where))

    def restore(self, *, version: int | None = None, timestamp: datetime | str | None = None) -> Transaction:
        """Stage that the table becomes what it was at an ID version or a time."""
        self.require_row_changes()
        if (version is None) == (timestamp is None):
            raise ConfigurationError("a restore needs a version or a timestamp", advice="give exactly one of them")
        require_version(version)
        if timestamp is not None:
            head, times = self._state.head, CommitTimes(self._store)
            timeline = Timeline(self._store, self._system, times, head.version, head.timestamp_ms)
            version = timeline.snapshot_version(timestamp)
        return self._hold(overwrite.stage_restore(self._store, self._state, load(self._store, version)))

    def set_properties(self, properties: Mapping[str, object], *, allow_protocol_upgrade: bool = False) -> Transaction:
        """Stage setting table properties, and removing those whose value is None; see Table.set_properties."""
        self._require_unstaged()
        staged = set_properties.stage_set_properties(
            self._state.head,
            self._store.url,
            self._system,
            properties,
            allow_protocol_upgrade=allow_protocol_upgrade,
        )
        return self._hold(staged, ())

    def add_columns(self, fields: pa.Schema | Iterable[pa.Field]) -> Transaction:
        """Stage that the table has these columns, too."""
        self._require_unstaged()
        return self._hold(add_columns.stage_add_columns(self._state.head, self._store.url, self._system, fields), ())

    def stage_adds(self, adds: Sequence[AddFile], *, transactions: Sequence[SetTransaction] = ()) -> Transaction:
        """Stage files of new rows that are written and durable already; see `note` for the rest."""
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
        """Raise AppendOnlyError if rows of the table may not be changed, ConfigurationError if something is staged."""
        self._require_unstaged()
        delete_update.require_row_changes(self.properties, self._store.url)

    def evolve(self, data: pa.Schema) -> bool:
        """Let the table get, by the same commit, the columns and fields of structs that `data` has besides.

        To be called before anything is staged; returns whether there is any. Raises SchemaMismatchError,
        ConfigurationError, UnsupportedFeatureError.
        """
        self._require_unstaged()
        metadata = schema_evolution.evolved(self._state.head, self._store.url, self._system, data)
        if metadata is None:
            return False
        self._evolved = metadata
        self._state = self._base.with_metadata(metadata)
        for name in ("schema", "writer"):
            self.__dict__.pop(name, None)
        return True

    def note(
        self,
        *,
        transactions: Sequence[SetTransaction] = (),
        read_applications: Collection[str] = (),
        operation: str | None = None,
        parameters: Mapping[str, str] | None = None,
        record: Mapping[str, Any] | None = None,
    ) -> Transaction:
        """Note whose work is staged; where nothing is to be done there is no commit that could say so.

        `transactions` are written with it, and a winner that wrote one of the same application, or one of
        `read_applications`, is a conflict. `parameters` are shown by other engines besides those of the operation, or
        with a name of its own, `operation`, instead of them. `record` goes into the commit's own tidelog object.
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
        """Stage a row change whose work was done elsewhere, such as on Spark's executors, on `state` by `writer`.

        None: there is nothing to do. Call `require_row_changes` before the work.
        """
        self.require_row_changes()
        return self._hold(staged)

    def stage_moves(self, groups: Sequence[MoveGroup], *, operation_class: OperationClass) -> Transaction:
        """Stage a compaction: rewritten groups, verified by the caller. No rows change."""
        self._require_unstaged()
        self._staged = Staged(
            operation="OPTIMIZE",
            operation_class=operation_class,
            moves=tuple(groups),
            metrics=move_metrics(groups),
        )
        return self

    def commit(self, *, metadata_retry: bool | None = None) -> Committed | Superseded:
        """Make the staged operation durable.

        A lost race is rebased by metadata alone where running the operation again would give the same rows. Raises
        ConflictError where not; see `tidelog.log.commit.loop` for the rest. With `metadata_retry=False` the table's
        conflict policy stands as it is published: what it refuses is a ConflictError. None asks the table's property
        `tidelog.metadataRetry`.
        """
        self._require_open()
        if self._already is not None:
            self._ended = True
            return self._already
        if self._staged is None:
            raise ConfigurationError("nothing is staged in this transaction", advice="call insert(...) first")
        self._ended = True
        if self._staged.is_empty:
            return self._nothing()
        staged = self._staged if self._evolved is None else replace(self._staged, metadata=self._evolved)
        result = loop.commit(
            self._store,
            self._base,
            staged,
            self._system,
            base_written_ms=self._base_written_ms,
            metadata_retry=metadata_retry,
            began_s=self._began_s,
        )
        self.dropped = result.dropped
        if result.state is not None:
            self._on_commit(result.state)
        return result.outcome

    def abort(self) -> None:
        """Give the operation up, and delete the files that were written for it. Does nothing after a commit."""
        if not self._ended and self._staged is not None:
            discard(self._store, self._staged)
        self._ended = True

    @contextmanager
    def _or_nothing(self) -> Iterator[None]:
        """An operation that fails while it is staged leaves no file behind."""
        before = len(self.writer.written)
        try:
            yield
        except BaseException:
            delete_unnamed(self._store, self.writer.written[before:])
            raise

    def _hold(self, staged: Staged | None, metrics: Collection[str] = ("numFiles", "numOutputRows")) -> Transaction:
        """Hold what an operation staged; None is an operation that has nothing to do, and zero in all its metrics."""
        if staged is None:
            self._already = self._nothing(metrics)
        self._staged = staged
        return self

    def _nothing(self, metrics: Collection[str] = ("numFiles", "numOutputRows")) -> Committed:
        head = self._state.head
        names = self._staged.metrics if self._staged else metrics
        return Committed(head.version, to_datetime(head.timestamp_ms), metrics=dict.fromkeys(names, 0))

    def _require_open(self) -> None:
        if self._ended:
            raise ConfigurationError("this transaction has ended", advice="begin() another one")

    def _require_unstaged(self) -> None:
        self._require_open()
        if self._staged is not None or self._already is not None:
            raise ConfigurationError(
                "a transaction holds one operation, and one is staged already", advice="commit it and begin() another"
            )
