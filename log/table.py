"""The table: open or create it, read any of its versions, write to it."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

import pyarrow as pa

from tidelog.log import history
from tidelog.log.commit import table_identity
from tidelog.log.errors import (
    ConfigurationError,
    CorruptLogError,
    TableExistsError,
    TableNotFoundError,
    TidelogError,
    UnsupportedFeatureError,
)
from tidelog.log.format.protocol import require_readable
from tidelog.log.format.schema import columns_of
from tidelog.log.history import CommitRecord
from tidelog.log.operations import create_table, drop_table
from tidelog.log.operations.keys import key_columns
from tidelog.log.read.changes import ChangeRequest, Changes, change_files_of, require_mode
from tidelog.log.read.scan import Scan, columns_text
from tidelog.log.read.snapshot import Snapshot
from tidelog.log.read.timeline import BEFORE_FIRST, Point, Timeline, require_version
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.commits import commits_after
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState, load, partition_values_at
from tidelog.log.statements import Statements
from tidelog.log.storage import Store, open_store
from tidelog.log.system import REAL_SYSTEM, System, to_datetime
from tidelog.log.transaction import Transaction
from tidelog.log.upkeep import Upkeep

_LOGGER = logging.getLogger(__name__)


class Table(Statements, Upkeep):
    """A table at a path, loaded at one version; `refresh` moves it to the newest.

    Two version axes: the ID version (`version`, +1 for every commit) and the time version (`time_version`, the commit
    time of the newest commit that changed rows; a compaction makes none).
    """

    def __init__(self, store: Store, state: LogState, system: System = REAL_SYSTEM) -> None:
        require_readable(state.head.protocol, store.url)
        self._store = store
        self._system = system
        self._times = CommitTimes(store)
        self._take(state)

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
        """Make an empty table at `path` (a local path, file:// or memory://) and open it.

        Deletion vectors and in-commit timestamps are on unless `properties` turn them off. With `exist_ok` a table
        that is there already is opened instead, whatever its schema. Raises TableExistsError,
        SchemaMismatchError for a schema that Delta cannot hold, ConfigurationError for a bad property.
        """
        store = open_store(path, storage_options)
        if exist_ok:
            try:
                return cls._load(store)
            except TableNotFoundError:
                pass
        drop_table.require_not_dropped(store)
        if not create_table.create(store, schema, partition_by, properties or {}, REAL_SYSTEM) and not exist_ok:
            raise TableExistsError(
                f"there is a table at {store.url} already",
                advice="open it, pass exist_ok=True, or choose another path",
                path=store.url,
            )
        return cls(store, load(store))

    @classmethod
    def open(
        cls, path: str, *, storage_options: Mapping[str, str] | None = None, system: System = REAL_SYSTEM
    ) -> Table:
        """Open the newest version of the table at `path`. Raises TableNotFoundError, CorruptLogError,
        UnsupportedFeatureError.

        `system` replaces the clock, sleep and randomness that the table's work uses, for tests.
        """
        return cls._load(open_store(path, storage_options), system)

    @classmethod
    def _load(cls, store: Store, system: System = REAL_SYSTEM) -> Table:
        try:
            return cls(store, load(store), system)
        except (CorruptLogError, UnsupportedFeatureError) as error:
            drop_table.require_not_dropped(store, error)
            raise

    @classmethod
    def drop(cls, path: str, *, storage_options: Mapping[str, str] | None = None) -> None:
        """End the table at `path` and delete its files; a drop that was interrupted is finished.

        From one commit on nobody reads or writes it, whatever happens to the deletion. Files in the folder that are
        not the table's stay. Raises TableNotFoundError.
        """
        drop_table.drop(open_store(path, storage_options), REAL_SYSTEM)

    @property
    def path(self) -> str:
        """Where the table lies."""
        return self._store.url

    @property
    def id(self) -> str:
        """The table's own id, which another table at the same path would not have."""
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
        """The table properties, as the log holds them."""
        return dict(self._head.metadata.configuration)

    @property
    def version(self) -> int:
        """The ID version that is loaded."""
        return self._head.version

    @property
    def time_version(self) -> datetime | None:
        """The commit time of the newest data-changing commit up to `version`, UTC; None where there is none."""
        stamp = self._head.time_version_ms
        if stamp is None:
            stamp = next((when for commit, when in self.timeline.newest_first() if commit.data_change), None)
        return None if stamp is None else to_datetime(stamp)

    @property
    def transactions(self) -> Mapping[str, int]:
        """The progress of each application that wrote with an id: application id to its newest version."""
        return {name: transaction.version for name, transaction in self._head.transactions.items()}

    def refresh(self) -> Table:
        """Move to the newest version, in place. Raises TableReplacedError where another table lies there now."""
        if self._written_ms != table_identity.written_ms(self._store, self.version):
            # The version that was loaded is gone or another: cleaned up, or another table lies here now.
            state = load(self._store)
            self._times = CommitTimes(self._store)
        else:
            new = list(commits_after(self._store, self.version))
            if not new:
                return self
            state = self._state.advance(new)
        advice = "open it anew; a stream that followed the old one needs a new checkpoint"
        table_identity.require_same_table(self.path, self.id, state.head.metadata.id, advice=advice)
        try:
            require_readable(state.head.protocol, self.path)
        except UnsupportedFeatureError as error:
            drop_table.require_not_dropped(self._store, error)
            raise
        self._take(state)
        return self

    def at(self, *, version: int | None = None, timestamp: datetime | str | None = None) -> Snapshot:
        """The table as it was at an ID version, or at or before a time (aware datetime or ISO-8601 text).

        Without an argument: the loaded version. Raises HistoryExpiredError naming the range for a point outside it.
        """
        if version is not None and timestamp is not None:
            raise ConfigurationError("give a version or a timestamp, not both", advice="leave one out")
        if timestamp is not None:
            version = self.timeline.snapshot_version(timestamp)
        require_version(version)
        if version is None or version == self.version:
            return Snapshot(self._store, self._state, self._times)
        return Snapshot(self._store, load(self._store, version), self._times)

    def history(self, limit: int | None = None) -> list[CommitRecord]:
        """The commits up to the loaded version, newest first, at most `limit`."""
        return list(itertools.islice(history.commit_records(self.timeline), limit))

    def latest_version(self, n: int = 1) -> int:
        """The ID version of the n-th most recent commit (1: the newest)."""
        return self.timeline.nth_version(n)

    def latest_timestamp(self, n: int = 1) -> datetime:
        """The time version of the n-th most recent data-changing commit (1: the newest)."""
        return to_datetime(self.timeline.nth_time_version_ms(n))

    def scan(self, where: str | None = None, columns: Sequence[str] | None = None) -> Scan:
        """The rows of the loaded version; see Snapshot.scan."""
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
        """What happened in (after, until], with the columns `_commit_version` and `_commit_timestamp`.

        An integer is an ID version, a datetime or text a time; without `after` from the table's beginning, without
        `until` up to the newest commit. `mode`:

        - `cdc`: every change, with `_change_type` (insert, update_preimage, update_postimage, delete). An update is a
          delete and an insert where its commit has no change files (`delta.enableChangeDataFeed` was off).
        - `append`: the rows inserted, without `_change_type`; NotAppendOnlyError naming the version that removed or
          changed rows.
        - `net`: one row a key at most, what the interval came to for it; `keys`, or else the table's
          `tidelog.primaryKey`, name the key's columns. Holds all changes of the interval in memory.
          DuplicateKeyError where a key has several rows at once.

        Raises HistoryExpiredError where commits of the interval are gone or not there yet.
        """
        chosen = require_mode(mode)
        self.refresh()
        timeline = self.timeline
        first = BEFORE_FIRST if after is None else timeline.interval_end(after)
        last = self.version if until is None else timeline.interval_end(until)
        values_at = partial(partition_values_at, self._store, self._head.metadata)
        return Changes(
            self._store,
            change_files_of(timeline.between(first, last), chosen, self.path, values_at),
            self.schema,
            self._head.metadata,
            request=ChangeRequest(
                chosen, where, columns, key_columns(keys, self.schema, self.properties) if chosen == "net" else ()
            ),
            complete_until_ms=self._head.timestamp_ms,
        )

    def begin(self) -> Transaction:
        """Begin a transaction on the newest version."""
        self.refresh()
        return Transaction(self._store, self._state, self._system, self._adopt, self._written_ms)

    def __repr__(self) -> str:
        partitions = f", partition_by={list(self.partition_by)}" if self.partition_by else ""
        return f"Table({self.path!r}, version={self.version}, columns={columns_text(self.schema)}{partitions})"

    @property
    def _head(self) -> Head:
        return self._state.head

    def _adopt(self, state: LogState) -> None:
        """Move on to a version that was just committed; whatever fails here, it is durable, and a refresh finds it."""
        if state.head.version > self.version:
            try:
                self._take(state)
            except (TidelogError, OSError) as error:
                _LOGGER.warning("%s stays at version %d until it is refreshed: %s", self.path, self.version, error)

    @property
    def timeline(self) -> Timeline:
        """The history up to the loaded version."""
        return Timeline(self._store, self._system, self._times, self.version, self._head.timestamp_ms)

    def _take(self, state: LogState) -> None:
        self._written_ms = table_identity.written_ms(self._store, state.head.version)
        self._state = state
