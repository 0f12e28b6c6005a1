"""A snapshot: the table as it was at one version, whatever is committed afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.errors import CorruptLogError
from tidelog.log.format import protocol
from tidelog.log.format.schema import columns_of
from tidelog.log.pruning.partition_scope import in_scope, partition_scope
from tidelog.log.read.scan import Scan, columns_text
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.loader import LogState
from tidelog.log.storage import Store
from tidelog.log.system import to_datetime


class Snapshot:
    """The table at one ID version. Immutable; its files are listed when they are first needed."""

    def __init__(self, store: Store, state: LogState, times: CommitTimes | None = None) -> None:
        """`times`: the table's commit times, where a caller has them at hand."""
        protocol.require_readable(state.head.protocol, store.url)
        self._times = times or CommitTimes(store)
        self._store = store
        self._state = state

    @property
    def version(self) -> int:
        """The ID version."""
        return self._state.head.version

    @property
    def timestamp(self) -> datetime:
        """When the version was committed, UTC."""
        head = self._state.head
        if protocol.has_in_commit_timestamps(head.protocol, head.metadata):
            return to_datetime(head.timestamp_ms)
        # By file times, which only all the earlier ones together make increase.
        return to_datetime(max(self._times.at(head.version), head.timestamp_ms))

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns, partition columns included."""
        return columns_of(self._state.head.metadata, self._store.url)

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns."""
        return self._state.head.metadata.partition_columns

    @property
    def properties(self) -> Mapping[str, str]:
        """The table properties, as the log holds them."""
        return MappingProxyType(self._state.head.metadata.configuration)

    def files(self, where: str | None = None) -> pa.Table:
        """The live files, one row each, with the columns of the protocol's `add` action, in log order.

        `where`: only those of the partitions for which this SQL text over partition columns is true. Raises
        PredicateError for another column.
        """
        if where is None:
            return self._state.files().adds
        metadata = self._state.head.metadata
        scope = partition_scope(where, metadata, self._store.url)
        return in_scope(self._state.files().values, scope, metadata, self._store.url)

    @property
    def num_files(self) -> int:
        """How many live files there are."""
        totals = self._state.head.totals
        return self.files().num_rows if totals is None else totals.num_files

    @property
    def num_rows(self) -> int:
        """How many live rows there are, from the files' statistics.

        Raises CorruptLogError where another writer left a file without statistics; `scan().count()` reads them all.
        """
        rows = self._state.files().values.live_rows()
        if rows.null_count:
            raise CorruptLogError(
                f"a file of {self._store.url} has no row count in its statistics",
                advice="count with scan().count()",
                path=self._store.url,
            )
        return pc.sum(rows).as_py() or 0

    def scan(self, where: str | None = None, columns: Sequence[str] | None = None) -> Scan:
        """The rows for which the SQL text `where` is true, with `columns` (None: all of them)."""
        head = self._state.head
        return Scan(self._store, lambda: self._state.files().values, head.metadata, self.schema, where, columns)

    def __repr__(self) -> str:
        return f"Snapshot({self._store.url!r}, version={self.version}, columns={columns_text(self.schema)})"
