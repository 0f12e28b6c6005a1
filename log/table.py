"""The table: create or open it, read any of its versions, write to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from tidelog.log import commit_records
from tidelog.log.commit_records import CommitRecord
from tidelog.log.errors import TableExistsError, TableNotFoundError
from tidelog.log.operations import convert, create_table, drop_table
from tidelog.log.predicate import at_time
from tidelog.log.read.changes import ChangeRequest, Changes, changes_of, require_mode
from tidelog.log.read.keys import key_columns
from tidelog.log.read.timeline import Point
from tidelog.log.statements import Statements
from tidelog.log.storage import open_store
from tidelog.log.system import REAL_SYSTEM
from tidelog.log.upkeep import UpkeepMethods


class Table(Statements, UpkeepMethods):
    """A table at a path, loaded at one version. Get one with `Table.create` or `Table.open`.

    Reads show the loaded version until `refresh` moves to the newest one. A writing method refreshes the table first.
    There are two version axes. The ID version (`version`) increases by one with every commit. The time version
    (`time_version`) is the commit time of the newest commit that changed rows; a compaction does not change it.

    Args:
        store: The store that holds the table's files.
        state: The loaded version.
        system: The clock, sleep and randomness to use; tests replace it.
    """

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
        description: str | None = None,
        defaults: Mapping[str, str] | None = None,
    ) -> Table:
        """Create an empty table at `path` and open it.

        Args:
            path: Where to create the table:

                - a local path (`/data/events`, `events`, `~/events`) or `file:///data/events`: a disk, or a mounted
                  file system with hard links
                - `memory://name`: the memory of this process, for tests
                - `s3://bucket/folder` or `s3a://`: Amazon S3 and compatible servers; needs the extra `s3`
                - `gs://bucket/folder` or `gcs://`: Google Cloud Storage; needs the extra `gcs`
                - `az://container/folder`, `abfs://container/folder` or
                  `abfss://container@account.dfs.core.windows.net/folder`: Azure Storage; needs the extra `azure`
            schema: The columns, partition columns included.
            partition_by: The partition columns. At least one column of the schema must not be one.
            properties: Table properties; values are text, numbers or booleans. A new table gets
                `delta.enableDeletionVectors` = true, `delta.enableInCommitTimestamps` = true,
                `delta.enableExpiredLogCleanup` = false, `tidelog.cleanUp` = true and `delta.checkpointInterval` = 100
                unless given here. The defaults of the rest: `delta.logRetentionDuration` = 30 days,
                `delta.deletedFileRetentionDuration` = 7 days, `delta.enableChangeDataFeed` = false, `delta.appendOnly`
                = false, `delta.dataSkippingNumIndexedCols` = 32, `tidelog.targetFileSize` = 128 MiB,
                `tidelog.minorSpan` = 1 day, `tidelog.maxTransactionTime` = 1 day, `tidelog.consumerTimeToLive` = 7
                days, `tidelog.conflictPolicy` = delta-table, `tidelog.metadataRetry` = true.
            storage_options: Arguments of the object store's fsspec file system (of s3fs, gcsfs or adlfs), such as
                `endpoint_url`, `key` and `secret`. The environment provides what is not given. A local path and
                `memory://` need none and ignore them.
            exist_ok: If there is a table at `path` already, open it, whatever its schema.
            description: A comment on the table.
            defaults: For a column, the SQL of what new rows get that do not name it (feature `allowColumnDefaults`).

        Raises:
            TableExistsError: There is a table at `path` already.
            SchemaMismatchError: Delta cannot hold the schema, or the partition columns do not fit it.
            ConfigurationError: A property or another argument is wrong, the store's Python package is missing, or the
                path holds parquet files or a table of another format, which a clean-up would delete.
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
        state = create_table.create(store, schema, partition_by, properties, REAL_SYSTEM, description, defaults)
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
    def convert(
        cls,
        path: str,
        *,
        partition_by: Sequence[str | pa.Field] = (),
        properties: Mapping[str, object] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Table:
        """Make a table of the folder of parquet files at `path`, without rewriting a file, and open it.

        Version 0 names every file in the folder and its partition folders. Names that begin with `_` or `.` are left
        out, and so are links. If the folder has the log of Spark's streaming file sink (`_spark_metadata`), only what
        that sink committed is taken, and its newest batch becomes the `txn` of the application `_spark_metadata`.

        The columns are those of all files; a file that lacks one has nulls. All are nullable. Where files disagree
        about a type, a longer integer, or a double for a float, is taken; other differences are an error. Statistics
        come from the footers.

        Files that another program adds later are not in the table, and a vacuum can delete them as it does any file
        that no commit names. So `tidelog.cleanUp` is false unless given here.

        Args:
            path: The folder, as for `Table.create`.
            partition_by: The columns of the partition folders, such as `day` for `day=2026-01-31/`. A name gets the
                type long or date if the type gives back the text of each value exactly, and otherwise string (`07` is
                no number). An Arrow field sets the type. If data files have the column, too, the folder's value counts.
            properties: Table properties, with the defaults of `Table.create`, but `tidelog.cleanUp` = false.
            storage_options: As for `Table.create`.

        Raises:
            TableExistsError: There is a table at `path` already, or another program created one meanwhile.
            ConfigurationError: There is no file, the folders are not those of `partition_by`, the folder holds another
                table or is a partition folder of one, or an argument is wrong.
            SchemaMismatchError: A file has a type that Delta or its engines cannot read, two files do not fit (both are
                named), or a partition value does not have the type that was given.
            DataFileDamagedError: A file is not a parquet file.
            DataFileMissingError: A file changed or vanished meanwhile.
            CorruptLogError: `_spark_metadata` is damaged.
            RetryableError: The store prevented the commit.
            CommitStateUnknownError: The commit may or may not be durable.

        Example:
            >>> table = Table.convert("/data/events", partition_by=["day", pa.field("month", pa.int32())])
        """
        store = open_store(path, storage_options)
        state, _ = convert.convert(store, partition_by, properties or {}, REAL_SYSTEM)
        return cls(store, state)

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

    def history(self, limit: int | None = None) -> list[CommitRecord]:
        """The commits up to the loaded version, newest first.

        Args:
            limit: How many commits to return at most; None for all that are retained.

        Raises:
            ConfigurationError: `limit` is not a whole number from 0 on.
        """
        return list(commit_records.commit_records(self.timeline, limit))

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
            columns: The columns to return, in this order. None for all columns. The columns of the change, which
                begin with `_`, come in any case, at the end unless they are named; `-_change_type`,
                `-_commit_version` or `-_commit_timestamp` among the names leaves one out.
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
        commits = timeline.between(interval.after, interval.until)
        return Changes(
            self._store,
            changes_of(commits, chosen, self.change_source, with_statistics=where is not None),
            self.schema,
            self.head.metadata,
            request=ChangeRequest(
                chosen,
                at_time(where, self._now_ms),
                columns,
                key_columns(keys, self.schema, self.properties) if chosen == "net" else (),
            ),
            complete_until_ms=interval.complete_until_ms,
        )
