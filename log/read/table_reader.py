"""A table as its readers see it: loaded at one version, which can be moved to the newest one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Self

import pyarrow as pa

from tidelog.log.conflict.fences import floor_of
from tidelog.log.errors import ConfigurationError, TableNotFoundError
from tidelog.log.format.protocol import require_readable
from tidelog.log.format.schema import columns_of
from tidelog.log.read.absent_table import what_is_there
from tidelog.log.read.commit_changes import ChangeSource
from tidelog.log.read.scan import ArrowReader, Scan, columns_text
from tidelog.log.read.snapshot import Snapshot
from tidelog.log.read.timeline import Timeline, require_version
from tidelog.log.state.background_checkpoint import BackgroundCheckpoint
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.commits import RecentCommits, commits_until_now
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState, load
from tidelog.log.state.table_identity import is_same_commit, require_current, require_not_dropped, require_same_table
from tidelog.log.storage import Store, open_store
from tidelog.log.system import REAL_SYSTEM, System, to_datetime


class TableReader(ArrowReader):
    """What a `Table` does without writing. Spark's Python processes import only this.

    Args:
        store: The store that holds the table's files.
        state: The loaded version.
        system: The clock, sleep and randomness to use; tests replace it.
    """

    def __new__(cls, store: object = None, *_: object, **__: object) -> Self:
        """Refuse a path, which a newcomer passes: a Table is opened or created."""
        if isinstance(store, str | os.PathLike):
            raise ConfigurationError(
                "a Table is not made from its path alone",
                advice="call Table.open(path), or Table.create(path, schema) for a new one",
            )
        return super().__new__(cls)

    def __init__(self, store: Store, state: LogState, system: System = REAL_SYSTEM) -> None:
        require_readable(state.head.protocol, store.url)
        self._store = store
        self._system = system
        self._times = CommitTimes(store)
        self._recent = RecentCommits()
        self._state = state
        # When the loaded version was last seen in the log, by the monotonic clock.
        self._seen_s: float | None = None
        self._checkpoints = BackgroundCheckpoint(store, system, state.head.version)

    @classmethod
    def open(cls, path: str, *, storage_options: Mapping[str, str] | None = None, system: System = REAL_SYSTEM) -> Self:
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
        store = open_store(path, storage_options)
        try:
            return cls._load(store, system)
        except TableNotFoundError as error:
            found = what_is_there(store)
            if found is None:
                raise
            raise TableNotFoundError(f"{error.message}: {found.what}", advice=found.advice, path=store.url) from error

    @classmethod
    def _load(cls, store: Store, system: System = REAL_SYSTEM) -> Self:
        state = load(store)
        require_not_dropped(store.url, state.head)
        loaded = cls(store, state, system)
        loaded._seen_s = system.monotonic_s()
        return loaded

    @property
    def path(self) -> str:
        """The table's path or URL."""
        return self._store.url

    @property
    def id(self) -> str:
        """The table's unique id. A new table at the same path has another one."""
        return self.head.metadata.id

    @property
    def store(self) -> Store:
        """The store that holds the table's files."""
        return self._store

    @property
    def schema(self) -> pa.Schema:
        """The columns, partition columns included."""
        return columns_of(self.head.metadata, self.path)

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns."""
        return self.head.metadata.partition_columns

    @property
    def properties(self) -> Mapping[str, str]:
        """The table properties in the log; defaults are not included."""
        return dict(self.head.metadata.configuration)

    @property
    def version(self) -> int:
        """The loaded ID version."""
        return self.head.version

    @property
    def time_version(self) -> datetime | None:
        """The commit time (UTC) of the newest commit up to `version` that changed rows; None if there is none."""
        stamp = self.head.time_version_ms
        if stamp is None:
            stamp = next((when for commit, when in self.timeline.newest_first() if commit.data_change), None)
        return None if stamp is None else to_datetime(stamp)

    @property
    def transactions(self) -> Mapping[str, int]:
        """The newest version that each application committed, by application id; see `idempotency_key` of `insert`."""
        return {name: transaction.version for name, transaction in self.head.transactions.items()}

    def refresh(self) -> Self:
        """Move to the newest version, in place, and return this table.

        On an object store, a table that finds nothing new looks at its loaded version again only every five minutes. So
        it can take that long to notice that the folder was deleted without `Table.drop`.

        Raises:
            TableReplacedError: The path now holds a different table.
            TableNotFoundError: The table was dropped.
            UnsupportedFeatureError: The newest version requires a feature that tidelog lacks.
        """
        new = commits_until_now(self._store, self.version)
        if not new and self._was_seen_lately():
            return self
        # After reading, because a clean-up deletes oldest first: while this version exists, nothing after it was
        # deleted, so what was read does follow it.
        if is_same_commit(self._store, self.head):
            state = self._state.advance(new) if new else self._state
            recent = RecentCommits(new) if new else self._recent
        else:
            # A clean-up removed the loaded version's commit, or the path holds another table.
            state = load(self._store)
            self._times = CommitTimes(self._store)
            recent = RecentCommits()
        if state is not self._state:
            advice = "open it again; a stream that read the old table needs a new checkpoint"
            require_current(self.path, self.id, state.head, advice=advice)
            require_readable(state.head.protocol, self.path)
            self._state, self._recent = state, recent
        self._seen_s = self._system.monotonic_s()
        return self

    def _was_seen_lately(self) -> bool:
        """Whether the loaded version was seen to be the newest so recently that its commit needs no further look."""
        if self._seen_s is None or not (trusted_s := self._store.trusted_s):
            return False
        return self._system.monotonic_s() - self._seen_s < trusted_s

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

    def get(self, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of the loaded version that have one of the keys, in the order of the keys; see `Snapshot.get`.

        Args:
            keys: A list of dicts such as `[{"id": 7}]`, or a frame with the columns of the key.
            columns: The columns of the result, in this order. None for all columns.
        """
        return self.at().get(keys, columns)

    def to_reader(self) -> pa.RecordBatchReader:
        """Read the rows of the loaded version as a `pyarrow.RecordBatchReader`, as they are consumed."""
        return self.scan().to_reader()

    @property
    def head(self) -> Head:
        """The loaded version without its file list."""
        return self._state.head

    def _now_ms(self) -> int:
        return self._system.now_ms()

    @property
    def change_source(self) -> ChangeSource:
        """What the changes of a commit depend on, beside the commit."""
        return ChangeSource(self._store, self.head.metadata)

    @property
    def timeline(self) -> Timeline:
        """The history up to the loaded version."""
        head = self.head
        return Timeline(
            self._store,
            self._system,
            self._times,
            head.version,
            head.timestamp_ms,
            head.first_version,
            floor_of(head.transactions),
            self._recent,
        )

    def _move_to_committed(self, state: LogState) -> None:
        """Load a version that a writer just committed, and write a checkpoint in the background if one is due."""
        self._move_to_maintained(state)
        self._checkpoints.committed(state.head)

    def _move_to_maintained(self, state: LogState) -> None:
        """Load a version that maintenance just committed, unless a newer one is loaded."""
        if state.head.version > self.version:
            self._state = state
            self._seen_s = self._system.monotonic_s()

    def _facts(self) -> dict[str, object]:
        return {
            "path": self.path,
            "version": self.version,
            "committed": to_datetime(self.head.timestamp_ms).isoformat(),
            "partitioned by": ", ".join(self.partition_by) or "nothing",
        }

    def __repr__(self) -> str:
        partitions = f", partition_by={list(self.partition_by)}" if self.partition_by else ""
        columns = columns_text(self.schema)
        return f"{type(self).__name__}({self.path!r}, version={self.version}, columns={columns}{partitions})"
