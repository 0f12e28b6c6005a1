"""The table: create or open it, read any of its versions, write to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import pyarrow as pa

from tidelog.log import history
from tidelog.log.errors import ConfigurationError, TableExistsError, TableNotFoundError
from tidelog.log.format.protocol import require_readable
from tidelog.log.format.schema import columns_of
from tidelog.log.history import CommitRecord
from tidelog.log.operations import create_table, drop_table
from tidelog.log.operations.keys import key_columns
from tidelog.log.predicate import at_time
from tidelog.log.read.changes import ChangeRequest, Changes, changes_of, require_mode
from tidelog.log.read.commit_changes import ChangeSource
from tidelog.log.read.scan import Scan, columns_text
from tidelog.log.read.snapshot import Snapshot
from tidelog.log.read.timeline import Point, Timeline, require_version
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.commits import commits_until_now
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState, load
from tidelog.log.state.segment import is_there
from tidelog.log.state.table_identity import is_same_commit, require_current, require_not_dropped, require_same_table
from tidelog.log.statements import Statements
from tidelog.log.storage import Store, open_store
from tidelog.log.system import REAL_SYSTEM, System, to_datetime
from tidelog.log.transaction import Transaction
from tidelog.log.upkeep import Upkeep


class Table(Statements, Upkeep):
    """A table at a path, loaded at one version. Get one with `Table.create` or `Table.open`.

    Reads show the loaded version until `refresh` moves to the newest one. A writing method refreshes the table first.
    There are two version axes. The ID version (`version`) increases by one with every commit. The time version
    (`time_version`) is the commit time of the newest commit that changed rows; a compaction does not change it.

    Args:
        store: The store that holds the table's files.
        state: The loaded version.
        system: The clock, sleep and randomness to use; tests replace it.
    """

    def __init__(self, store: Store, state: LogState, system: System = REAL_SYSTEM) -> None:
        require_readable(state.head.protocol, store.url)
        self._store = store
        self._system = system
        self._times = CommitTimes(store)
        self._state = state

    @classmethod
    def create(
        cls,
        path: str,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, object] | None = None,
        storage_options: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> Table:
        """Create an empty table at `path` and open it.

        Args:
            path: Where to create the table:

                - a local path (`/data/events`, `events`, `~/events`) or `file:///data/events`: a disk, or a mounted
                  file system with hard links
                - `memory://name`: the memory of this process, for tests
                - `s3://bucket/folder` or `s3a://`: Amazon S3 and compatible servers; needs `tidelog[s3]`
                - `gs://bucket/folder` or `gcs://`: Google Cloud Storage; needs `tidelog[gcs]`
                - `az://container/folder`, `abfs://container/folder` or
                  `abfss://container@account.dfs.core.windows.net/folder`: Azure Storage; needs `tidelog[azure]`
            schema: The columns, partition columns included.
            partition_by: The partition columns. At least one column of the schema must not be one.
            properties: Table properties; values are text, numbers or booleans. A new table gets
                `delta.enableDeletionVectors` = true, `delta.enableInCommitTimestamps` = true,
                `delta.enableExpiredLogCleanup` = false and `delta.checkpointInterval` = 100 unless given here. The
                defaults of the rest: `delta.logRetentionDuration` = 30 days, `delta.deletedFileRetentionDuration` =
                7 days, `delta.enableChangeDataFeed` = false, `delta.appendOnly` = false,
                `delta.dataSkippingNumIndexedCols` = 32, `tidelog.targetFileSize` = 128 MiB, `tidelog.minorSpan` =
                1 day, `tidelog.maxTransactionTime` = 1 day, `tidelog.consumerTimeToLive` = 7 days,
                `tidelog.conflictPolicy` = delta-table, `tidelog.metadataRetry` = true, no `tidelog.primaryKey`.
            storage_options: Arguments of the object store's fsspec file system (of s3fs, gcsfs or adlfs), such as
                `endpoint_url`, `key` and `secret`. The environment provides what is not given. A local path and
                `memory://` need none and ignore them.
            exist_ok: If there is a table at `path` already, open it, whatever its schema.

        Raises:
            TableExistsError: There is a table at `path` already.
            SchemaMismatchError: Delta cannot hold the schema, or the partition columns do not fit it.
            ConfigurationError: A property or another argument is wrong, or the store's Python package is missing.
            StoreNotSupportedError: tidelog does not support the store.
            StoreAccessError, PathNotWritableError: Access to the store or the path was denied.
            StoreUnavailableError: The store does not answer.

        Example:
            >>> schema = pa.schema([("id", pa.int64()), ("day", pa.date32())])
            >>> table = Table.create("/data/events", schema, partition_by=["day"])
        """
        store = open_store(path, storage_options)
        if exist_ok:
            try:
                return cls._load(store)
            except TableNotFoundError:
                pass
        state = create_table.create(store, schema, partition_by, properties or {}, REAL_SYSTEM)
        if state is not None:
            return cls(store, state)
        if not exist_ok:
            raise TableExistsError(
                f"there is already a table at {store.url}",
                advice="open it with Table.open, pass exist_ok=True, or choose another path",
                path=store.url,
            )
        return cls._load(store)

    @classmethod
    def open(
        cls, path: str, *, storage_options: Mapping[str, str] | None = None, system: System = REAL_SYSTEM
    ) -> Table:
        """Open the newest version of the table at `path`.

        Args:
            path: A local path, `file://`, `memory://`, `s3://` (`s3a://`), `gs://` (`gcs://`), `az://`, `abfs://` or
                `abfss://` URL; `Table.create` describes each form.
            storage_options: Arguments of the object store's fsspec file system (of s3fs, gcsfs or adlfs), such as
                `endpoint_url`, `key` and `secret`. The environment provides what is not given.
            system: The clock, sleep and randomness to use; tests replace it.

        Raises:
            TableNotFoundError: There is no table at `path`.
            UnsupportedFeatureError: Reading the table requires a feature that tidelog lacks.
            CorruptLogError: The log is damaged or incomplete.
            ConfigurationError, StoreNotSupportedError, StoreAccessError, StoreUnavailableError: As for `Table.create`.

        Example:
            >>> table = Table.open("s3://bucket/events", storage_options={"endpoint_url": "https://minio.example:9000"})
        """
        return cls._load(open_store(path, storage_options), system)

    @classmethod
    def _load(cls, store: Store, system: System = REAL_SYSTEM) -> Table:
        state = load(store)
        require_not_dropped(store.url, state.head)
        return cls(store, state, system)

    @classmethod
    def drop(cls, path: str, *, storage_options: Mapping[str, str] | None = None) -> None:
        """Drop the table at `path` and delete its data files, or finish a drop that was interrupted.

        The drop is one commit: after it tidelog finds no table at the path, other engines find an empty one that they
        cannot write, and writers that are still at work are refused. The log stays, because a new table at the path
        goes on with its version numbers. Files in the folder that do not belong to the table stay as well.

        Args:
            path: Where the table is, as for `Table.create`.
            storage_options: As for `Table.create`.

        Raises:
            TableNotFoundError: There is no table at `path`.
            StoreUnavailableError, PathNotWritableError: The commit failed, or a file could not be deleted after it.
                Call `drop` again.
            CommitStateUnknownError: The table may or may not be dropped. Call `drop` again.
            ConflictError, CommitContentionError: Other writers came first each time. Nothing was dropped.
        """
        drop_table.drop(open_store(path, storage_options), REAL_SYSTEM)

    @property
    def path(self) -> str:
        """The table's path or URL."""
        return self._store.url

    @property
    def id(self) -> str:
        """The table's unique id. A new table at the same path has another one."""
        return self._head.metadata.id

    @property
    def store(self) -> Store:
        """The store that holds the table's files."""
        return self._store

    @property
    def schema(self) -> pa.Schema:
        """The columns, partition columns included."""
        return columns_of(self._head.metadata, self.path)

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns."""
        return self._head.metadata.partition_columns

    @property
    def properties(self) -> Mapping[str, str]:
        """The table properties in the log; defaults are not included."""
        return dict(self._head.metadata.configuration)

    @property
    def version(self) -> int:
        """The loaded ID version."""
        return self._head.version

    @property
    def time_version(self) -> datetime | None:
        """The commit time (UTC) of the newest commit up to `version` that changed rows; None if there is none."""
        stamp = self._head.time_version_ms
        if stamp is None:
            stamp = next((when for commit, when in self.timeline.newest_first() if commit.data_change), None)
        return None if stamp is None else to_datetime(stamp)

    @property
    def transactions(self) -> Mapping[str, int]:
        """The newest version that each application committed, by application id; see `idempotency_key` of `insert`."""
        return {name: transaction.version for name, transaction in self._head.transactions.items()}

    def refresh(self) -> Table:
        """Move to the newest version, in place, and return this table.

        Raises:
            TableReplacedError: The path now holds a different table.
            TableNotFoundError: The table was dropped.
            UnsupportedFeatureError: The newest version requires a feature that tidelog lacks.
        """
        new = commits_until_now(self._store, self.version) if is_same_commit(self._store, self._head) else None
        if new is not None and (not new or is_there(self._store, self.version)):
            state = self._state.advance(new) if new else self._state
        else:
            # A clean-up removed the loaded version's commit, or the path holds another table.
            state = load(self._store)
            self._times = CommitTimes(self._store)
        advice = "open it again; a stream that read the old table needs a new checkpoint"
        require_current(self.path, self.id, state.head, advice=advice)
        require_readable(state.head.protocol, self.path)
        self._state = state
        return self

    def at(self, *, version: int | None = None, timestamp: datetime | str | None = None) -> Snapshot:
        """A snapshot of the table at a version or a time; the loaded version by default.

        The changes since a snapshot are `changes(after=snapshot.version)`: `after` is exclusive, unlike Delta's
        `startingVersion`, which is inclusive.

        Args:
            version: An ID version.
            timestamp: An aware datetime or ISO-8601 text with a zone. Commits at exactly this time are included.

        Raises:
            HistoryExpiredError: The version or time is outside the retained history; the error names its range.
        """
        if version is not None and timestamp is not None:
            raise ConfigurationError("both a version and a timestamp were given", advice="leave one out")
        if timestamp is not None:
            version = self.timeline.snapshot_version(timestamp)
        require_version(version)
        if version is None or version == self.version:
            return Snapshot(self._store, self._state, self._times, self._system)
        self.timeline.require_own(version)
        state = load(self._store, version)
        require_same_table(self.path, self.id, state.head.metadata.id, advice="open it again")
        return Snapshot(self._store, state, self._times, self._system)

    def history(self, limit: int | None = None) -> list[CommitRecord]:
        """The commits up to the loaded version, newest first.

        Args:
            limit: How many commits to return at most; None for all that are retained.

        Raises:
            ConfigurationError: `limit` is not a whole number from 0 on.
        """
        return list(history.commit_records(self.timeline, limit))

    def latest_version(self, n: int = 1) -> int:
        """The ID version of the n-th newest commit; 1 is the newest.

        As `changes(after=...)` it is exclusive, unlike Delta's inclusive `startingVersion`.

        Raises:
            HistoryExpiredError: Fewer than `n` commits are retained.
        """
        return self.timeline.nth_version(n)

    def latest_timestamp(self, n: int = 1) -> datetime:
        """The time version (UTC) of the n-th newest commit that changed rows; 1 is the newest.

        As `changes(after=...)` it is exclusive, unlike Delta's inclusive `startingTimestamp`.

        Raises:
            HistoryExpiredError: Fewer than `n` such commits are retained.
        """
        return to_datetime(self.timeline.nth_time_version_ms(n))

    def scan(self, where: str | None = None, columns: Sequence[str] | None = None) -> Scan:
        """The rows of the loaded version.

        Args:
            where: SQL text; only rows for which it is true are read. None for all rows.
            columns: The columns to read, in this order. None for all columns.
        """
        return self.at().scan(where, columns)

    def changes(
        self,
        *,
        after: Point | None = None,
        until: Point | None = None,
        mode: str = "cdc",
        where: str | None = None,
        columns: Sequence[str] | None = None,
        keys: Sequence[str] = (),
    ) -> Changes:
        """Refresh the table and return the changes in the interval (after, until].

        The result has the columns `_commit_version` and `_commit_timestamp`. An integer is an ID version; an aware
        datetime or ISO-8601 text is a time. One end can be a version and the other a time.

        Args:
            after: The starting point. It is exclusive, unlike Delta's `startingVersion`, which is inclusive: `after=5`
                begins with version 6, as Delta's `startingVersion=6` does. None begins with the first commit.
            until: The end, inclusive. None ends with the newest commit.
            mode: Which changes to return:

                - `cdc`: every change, with `_change_type` (`insert`, `update_preimage`, `update_postimage` or
                  `delete`); rows that a commit rewrote unchanged are no changes
                - `append`: the inserted rows, without `_change_type`; a commit that removed or changed rows is an error
                - `net`: the net effect, at most one row per key; a large interval needs space for a temporary file
            where: SQL text over the columns of the result; only changes for which it is true are returned.
            columns: The columns to return, in this order. None for all columns.
            keys: The key columns for `net`; by default those of `tidelog.primaryKey`.

        Raises:
            HistoryExpiredError: Commits of the interval are no longer retained, or do not exist yet.
            NotAppendOnlyError: In mode `append` a commit removed or changed rows; the error names its version.
            DuplicateKeyError: In mode `net` a key has several rows at once. Raised by reading the result.
            PredicateError, ConfigurationError: `where` or another argument is wrong, or `until` lies before `after`.

        Example:
            >>> last = table.version
            >>> table.changes(after=last).to_arrow()  # what was committed since
        """
        chosen = require_mode(mode)
        self.refresh()
        timeline = self.timeline
        interval = timeline.interval(after, until)
        return Changes(
            self._store,
            changes_of(timeline.between(interval.after, interval.until), chosen, self.change_source),
            self.schema,
            self._head.metadata,
            request=ChangeRequest(
                chosen,
                at_time(where, self._now_ms),
                columns,
                key_columns(keys, self.schema, self.properties) if chosen == "net" else (),
            ),
            complete_until_ms=interval.complete_until_ms,
        )

    def begin(self) -> Transaction:
        """Refresh the table, and begin a transaction on the newest version."""
        self.refresh()
        return Transaction(self._store, self._state, self._system, self._move_to_committed)

    def __repr__(self) -> str:
        partitions = f", partition_by={list(self.partition_by)}" if self.partition_by else ""
        return f"Table({self.path!r}, version={self.version}, columns={columns_text(self.schema)}{partitions})"

    def _now_ms(self) -> int:
        return self._system.now_ms()

    @property
    def head(self) -> Head:
        """The loaded version without its file list."""
        return self._state.head

    @property
    def _head(self) -> Head:
        return self._state.head

    def _move_to_committed(self, state: LogState) -> None:
        """Load a version that was just committed, unless a newer one is loaded."""
        if state.head.version > self.version:
            self._state = state

    @property
    def change_source(self) -> ChangeSource:
        """What the changes of a commit depend on, beside the commit."""
        return ChangeSource(self._store, self._head.metadata)

    @property
    def timeline(self) -> Timeline:
        """The history up to the loaded version."""
        head = self._head
        return Timeline(self._store, self._system, self._times, head.version, head.timestamp_ms, head.first_version)
