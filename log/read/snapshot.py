"""A snapshot: the table at one version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.errors import CorruptLogError
from tidelog.log.format import protocol
from tidelog.log.format.schema import columns_of
from tidelog.log.predicate import at_time
from tidelog.log.pruning.partition_scope import in_scope, partition_scope
from tidelog.log.read.keyed_rows import rows_of_keys
from tidelog.log.read.scan import ArrowReader, Scan, columns_text
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.loader import LogState
from tidelog.log.storage import Store
from tidelog.log.system import REAL_SYSTEM, System, to_datetime


class Snapshot(ArrowReader):
    """The table at one ID version, unaffected by later commits; made by `Table.at`.

    A snapshot is immutable. It loads the list of files when that is first needed. Reading rows fails with
    CorruptLogError (DataFileMissingError) once a vacuum has deleted files of the version.

    Example:
        >>> snapshot = table.at(version=12)
        >>> snapshot.num_rows, snapshot.timestamp
        >>> snapshot.scan("price > 100").to_arrow()

    """

    def __init__(
        self, store: Store, state: LogState, times: CommitTimes | None = None, system: System = REAL_SYSTEM
    ) -> None:
        """`times` are the table's commit times, if the caller has loaded them already."""
        protocol.require_readable(state.head.protocol, store.url)
        self._times = times or CommitTimes(store)
        self._store = store
        self._state = state
        self._system = system

    @property
    def state(self) -> LogState:
        """The state of the log that the snapshot shows, for tidelog's other packages."""
        return self._state

    @property
    def version(self) -> int:
        """The ID version."""
        return self._state.head.version

    @property
    def timestamp(self) -> datetime:
        """The commit time of the version, UTC."""
        head = self._state.head
        if protocol.has_in_commit_timestamps(head.protocol, head.metadata):
            return to_datetime(head.timestamp_ms)
        # File times can go backwards; with all earlier ones they are corrected to increase.
        return to_datetime(max(self._times.at(head.version), head.timestamp_ms))

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns, including partition columns."""
        return columns_of(self._state.head.metadata, self._store.url)

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The names of the partition columns; empty for a table without partitions."""
        return self._state.head.metadata.partition_columns

    @property
    def properties(self) -> Mapping[str, str]:
        """The table properties in the log: strings, without defaults."""
        return MappingProxyType(self._state.head.metadata.configuration)

    def files(self, where: str | None = None) -> pa.Table:
        """List the live files, one row each, in log order.

        Args:
            where: SQL over partition columns; only files of partitions for which it is true are listed.

        Returns:
            A table with the columns of the Delta protocol's `add` action, such as `path`, `size` (bytes),
            `partitionValues` and `stats`.

        Raises:
            PredicateError: If `where` is invalid, uses a column that does not partition the table, or fails for a
                partition.
            CorruptLogError: If `where` is given and a file's partition value is unreadable.

        """
        if where is None:
            return self._state.files().adds
        metadata = self._state.head.metadata
        scope = partition_scope(at_time(where, self._system.now_ms), metadata, self._store.url)
        return in_scope(self._state, scope, metadata, self._store.url)

    @property
    def num_files(self) -> int:
        """The number of live files."""
        totals = self._state.head.totals
        return self.files().num_rows if totals is None else totals.num_files

    @property
    def num_rows(self) -> int:
        """The number of live rows, from the files' statistics.

        Raises:
            CorruptLogError: If another writer left a file without a row count; `scan().count()` counts its rows.

        """
        rows = self._state.files().values.live_rows()
        if rows.null_count:
            raise CorruptLogError(
                f"the statistics of a file of {self._store.url} have no row count",
                advice="count the rows with scan().count()",
                path=self._store.url,
            )
        return pc.sum(rows).as_py() or 0

    def scan(self, where: str | None = None, columns: Sequence[str] | None = None) -> Scan:
        """Read rows of this version.

        Args:
            where: SQL text; only rows for which it is true are read. None reads all rows.
            columns: The columns to read, in this order. None reads all columns.

        Returns:
            A `Scan`, which reads nothing before its rows are requested.

        Raises:
            PredicateError: If `where` is invalid or a column does not exist.

        """
        return Scan(self._store, self._state, self.schema, at_time(where, self._system.now_ms), columns)

    def get(self, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows that have one of the keys.

        Files are left out by their statistics. Of the others, the columns of the keys are read, and more only of rows
        that are found.

        Args:
            keys: A list of dicts such as `[{"id": 7}]`, an Arrow table, or another frame that `insert` takes. Its
                columns are those of the key, which need not be the primary key. A key can occur several times.
            columns: The columns of the result, in this order. None for all columns.

        Returns:
            The rows in the order of their keys. A key without a row gives none, one with several rows gives all of
            them.

        Raises:
            SchemaMismatchError: A key has a null, a value of another type, or a column that the table does not have.
            ConfigurationError: The keys have no columns, or a nested one; or a column in `columns` does not exist.

        Example:
            >>> table.get([{"id": 7}, {"id": 9}], columns=["id", "price"])
        """
        return rows_of_keys(self._store, self._state, self.schema, keys, columns)

    def to_reader(self) -> pa.RecordBatchReader:
        """Read the rows as a `pyarrow.RecordBatchReader`, as they are consumed."""
        return self.scan().to_reader()

    def _facts(self) -> dict[str, object]:
        # The number of rows would need the list of files.
        return {
            "path": self._store.url,
            "version": self.version,
            "committed": self.timestamp.isoformat(),
            "partitioned by": ", ".join(self.partition_by) or "nothing",
        }

    def __repr__(self) -> str:
        return f"Snapshot({self._store.url!r}, version={self.version}, columns={columns_text(self.schema)})"
