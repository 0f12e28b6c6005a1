"""The table: open or create it, read any of its versions, write to it."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa

from tidelog.log import history
from tidelog.log.commit import table_identity
from tidelog.log.commit.result import CommitRecord, Committed, Superseded, record_of
from tidelog.log.data import conform
from tidelog.log.errors import (
    ConfigurationError,
    ConflictError,
    CorruptLogError,
    TableExistsError,
    TableNotFoundError,
    TidelogError,
    UnsupportedFeatureError,
)
from tidelog.log.format.protocol import require_readable
from tidelog.log.format.schema import columns_of
from tidelog.log.operations import create_table, drop_table
from tidelog.log.operations.keys import key_columns
from tidelog.log.read.changes import ChangeRequest, Changes, change_files_of, require_mode
from tidelog.log.read.debt import Debt, debt_of
from tidelog.log.read.scan import Scan
from tidelog.log.read.snapshot import Snapshot
from tidelog.log.read.timeline import BEFORE_FIRST, Point, Timeline, require_version
from tidelog.log.state import checkpointing
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.commits import commits_after
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState, load, partition_values_at
from tidelog.log.state.segment import list_segment
from tidelog.log.storage import Store, open_store
from tidelog.log.system import REAL, System, to_datetime
from tidelog.log.transaction import Transaction

_LOGGER = logging.getLogger(__name__)

# A statement whose predicate is known can run again on the table as it is; more losses in a row are contention that
# the caller should hear of.
STATEMENT_RETRIES = 3


class Table:
    """A table at a path, loaded at one version; `refresh` moves it to the newest.

    Two version axes: the ID version (`version`, +1 for every commit) and the time version (`time_version`, the commit
    time of the newest commit that changed rows; a compaction makes none).
    """

    def __init__(self, store: Store, state: LogState, system: System = REAL) -> None:
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
        if not create_table.create(store, schema, partition_by, properties or {}, REAL) and not exist_ok:
            raise TableExistsError(
                f"there is a table at {store.url} already",
                advice="open it, pass exist_ok=True, or choose another path",
                path=store.url,
            )
        return cls(store, load(store))

    @classmethod
    def open(cls, path: str, *, storage_options: Mapping[str, str] | None = None) -> Table:
        """Open the newest version of the table at `path`. Raises TableNotFoundError, CorruptLogError,
        UnsupportedFeatureError.
        """
        return cls._load(open_store(path, storage_options))

    @classmethod
    def _load(cls, store: Store) -> Table:
        try:
            return cls(store, load(store))
        except (CorruptLogError, UnsupportedFeatureError) as error:
            drop_table.require_not_dropped(store, error)
            raise

    @classmethod
    def drop(cls, path: str, *, storage_options: Mapping[str, str] | None = None) -> None:
        """End the table at `path` and delete its files; a drop that was interrupted is finished.

        From one commit on nobody reads or writes it, whatever happens to the deletion. Files in the folder that are
        not the table's stay. Raises TableNotFoundError.
        """
        drop_table.drop(open_store(path, storage_options), REAL)

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
        if self._identity != table_identity.written_ms(self._store, self.version):
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
        entries = itertools.islice(history.classified_newest_first(self.timeline), limit)
        return [record_of(entry.commit, entry.timestamp_ms, entry.operation_class) for entry in entries]

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

    def insert(self, data: Any, *, idempotency_key: tuple[str, int] | None = None) -> Committed:
        """Add rows: anything with an Arrow stream (pyarrow, pandas, Polars, DuckDB), or a list of dicts.

        `idempotency_key` is (application id, version); a call with a version that is in the table already, or an
        older one, does nothing. Raises SchemaMismatchError, and what a commit raises.
        """
        return self._commit(self.begin().insert(data, idempotency_key=idempotency_key))

    def delete(self, where: str) -> Committed:
        """Delete the rows for which the SQL text `where` is true.

        Rows die by deletion vectors where the table has them on, else their files are written anew. Run again from the
        start, a few times, where another writer's commit could change which rows match. Raises PredicateError,
        AppendOnlyError, ConflictError.
        """
        return self.statement(lambda transaction: transaction.delete(where))

    def update(self, where: str, set: Mapping[str, str]) -> Committed:  # noqa: A002 - SQL's own word
        """Give the rows for which `where` is true new values: `set` maps columns to SQL expressions of the old row.

        A text is a literal in quotes of its own: `set={"state": "'done'", "tries": "tries + 1"}`. Holds the changed
        rows in memory. Run again as `delete` is. Raises also SchemaMismatchError for a value that does not fit.
        """
        return self.statement(lambda transaction: transaction.update(where, set))

    def upsert(self, data: Any, *, keys: Sequence[str] = (), delete_where: str | None = None) -> Committed:
        """Put the rows of `data` in the place of those with the same key, or add them where the key is new.

        `keys` are the key's columns, by default the table's `tidelog.primaryKey`. A row of the data for which the SQL
        text `delete_where` is true (over the data's columns, of which the table may lack those that only this text
        reads) deletes its key and adds nothing. Holds the data in memory, and where the table keeps a change feed the
        old rows as well. Run again as `delete` is.

        Raises SchemaMismatchError (also for a key that is null), DuplicateKeyError where the data has several rows of
        one key, PredicateError, AppendOnlyError, ConflictError.
        """
        held = conform.hold(data)
        return self.statement(lambda transaction: transaction.upsert(held, keys=keys, delete_where=delete_where))

    def overwrite(self, data: Any, *, where: str | None = None, dynamic: bool = False) -> Committed:
        """Replace the whole table by `data`; with `where` the partitions that it describes (partition columns only);
        with `dynamic` the partitions that the data has rows in.

        What others committed into that scope meanwhile is replaced, too. Raises PredicateError, AppendOnlyError,
        ConfigurationError for rows outside of `where`.
        """
        return self._commit(self.begin().overwrite(data, where=where, dynamic=dynamic))

    def truncate(self, *, where: str | None = None) -> Committed:
        """Delete every row of the table, or of the partitions that `where` describes, without reading them."""
        return self._commit(self.begin().truncate(where=where))

    def restore(self, *, version: int | None = None, timestamp: datetime | str | None = None) -> Committed:
        """Make the table what it was at an ID version or a time, schema and properties included, by a new commit.

        The history stays, and so do the applications' progress and the table's protocol. Raises HistoryExpiredError
        where commits or files of that version are gone.
        """
        return self._commit(self.begin().restore(version=version, timestamp=timestamp))

    def set_properties(self, properties: Mapping[str, object]) -> Committed:
        """Set table properties; one whose value is None is removed. Where nothing changes there is no commit.

        A property that rests on a table feature adds the feature to the protocol's lists. Raises ConfigurationError for
        an unknown property or a bad value, UnsupportedFeatureError where the table's protocol has no such lists.
        """
        return self.statement(lambda transaction: transaction.set_properties(properties))

    def add_columns(self, fields: pa.Schema | Iterable[pa.Field]) -> Committed:
        """Add columns behind the table's own: a schema or fields of Arrow, all nullable. Old rows have null in them.

        No file is read or written. Raises ConfigurationError for a name that is taken (case does not count),
        SchemaMismatchError for a type that Delta does not have, UnsupportedFeatureError for one that the table's
        protocol does not allow.
        """
        held = tuple(fields) if isinstance(fields, Iterable) else fields
        return self.statement(lambda transaction: transaction.add_columns(held))

    def begin(self) -> Transaction:
        """Begin a transaction on the newest version."""
        self.refresh()
        return Transaction(self._store, self._state, self._system, self._adopt, self._identity)

    def checkpoint(self) -> None:
        """Write a checkpoint of the loaded version, so that readers need not replay older commits.

        The version's checksum is compared with what the log itself says; one that is wrong (another writer's, or a
        fault) would keep other engines from writing checkpoints, so it is deleted and a warning logged.
        """
        checkpointing.checkpoint(self._store, self._state, self._system)

    def commits_since_checkpoint(self) -> int:
        """How many commits a reader has to replay on top of the newest checkpoint."""
        return len(list_segment(self._store, self.version).commit_versions)

    def debt(self) -> Debt:
        """Small files, dead rows and log tail of the loaded version: how much compaction and checkpoint would help.

        Lists the version's files when it is first asked, then costs some milliseconds for a million of them.
        """
        return debt_of(self._store, self._state)

    @property
    def _head(self) -> Head:
        return self._state.head

    def statement(self, stage: Callable[[Transaction], Transaction]) -> Committed:
        """Stage an operation on the newest version and commit it; a conflict runs it again from the start, a bounded
        number of times.
        """
        for _ in range(STATEMENT_RETRIES):
            try:
                return self._commit(stage(self.begin()))
            except ConflictError:
                _LOGGER.info("another writer's commit on %s came first: running the statement again", self.path)
        return self._commit(stage(self.begin()))

    def _commit(self, transaction: Transaction) -> Committed:
        outcome = transaction.commit()
        if isinstance(outcome, Superseded):
            raise AssertionError(outcome)  # noqa: TRY004 - only a compaction can be superseded
        return outcome

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
        self._identity = table_identity.written_ms(self._store, state.head.version)
        self._state = state
