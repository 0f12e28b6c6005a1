"""DELETE, UPDATE, UPSERT, OVERWRITE and compactions on Spark's executors, for tables too large for one machine.

The driver plans and commits with the same code as `tidelog.log.Table`: it prunes the files, shares them out, and stages
the results. Each task reads its files together with the row positions, evaluates the predicate, and writes new files.
Back to the driver go row positions (one Roaring bitmap per file), the places of an update's images, the names and
statistics of new files, and the keys of an upsert, but no other column of any row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidelog.log import Committed, Table, Transaction, predicate
from tidelog.log.commit.result import committed
from tidelog.log.conflict.staged import Staged
from tidelog.log.data.writer import DataWriter
from tidelog.log.operations.delete_update import stage_delete, stage_update
from tidelog.log.operations.merge_rules import ALL, Rule
from tidelog.log.operations.overwrite import Overwrite, WrittenFiles, deletes_leave_change_files
from tidelog.log.operations.staged_parts import Stage, join_parts, stage_part, without_progress
from tidelog.log.pruning.file_pruning import prune_state
from tidelog.log.read.key_index import narrowed
from tidelog.log.read.keys import key_columns, order_columns
from tidelog.log.rules import RowRules
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState
from tidelog.log.system import REAL_SYSTEM
from tidelog.streaming.executors.collected import collected
from tidelog.streaming.executors.computed_once import computed_once
from tidelog.streaming.executors.plain_frame import arrow_schema, typed_voids
from tidelog.streaming.executors.ruled_frame import ruled
from tidelog.streaming.executors.session import prepare_session
from tidelog.streaming.executors.spark_executor import SparkExecutor
from tidelog.streaming.executors.spark_upsert import SparkUpsert, newest_rows_of_frame
from tidelog.streaming.executors.tasks import (
    FilePart,
    file_parts,
    file_size,
    pieces,
    require_frame,
    require_reachable,
    run,
    run_on_rows,
)

if TYPE_CHECKING:
    from tidelog.compaction_daemon.compaction.compaction_report import CompactionReport
    from tidelog.compaction_daemon.planning.request import Budget


def table(spark: SparkSession, path: str, *, storage_options: Mapping[str, str] | None = None) -> SparkTable:
    """Open a table whose rows Spark's executors delete, update, upsert, overwrite and compact.

    For tables and data too large for one machine.

    Args:
        spark: A Spark session, classic or Spark Connect.
        path: A local path or an fsspec URL. This process and all executors must reach it.
        storage_options: Credentials and endpoints of the store. Spark sends them to the executors with the tasks.

    Returns:
        The table, opened at its newest version.

    Raises:
        TableNotFoundError: There is no table at the path.
        ConfigurationError: The table is in this process's memory, or `spark` is not a Spark session.
        PrerequisiteError: Java or Spark is missing or too old.

    Example:
        events = table(spark, "/data/events")
        events.delete("day < '2024-01-01'")
        events.upsert(spark.read.parquet("/arrived"), keys=["id"])
    """
    prepare_session(spark)
    return SparkTable(spark, Table.open(path, storage_options=storage_options))


class SparkTable:
    """A table whose rows Spark's executors change; `tidelog.streaming.table(spark, path)` opens it.

    Its methods have the arguments, predicates, results and errors of the same methods of `tidelog.log.Table`. A
    statement is one commit, or none if it fails. If another commit could change which rows match, `delete`, `update`
    and `upsert` start again on the newest version, up to 3 times. Spark runs a failed task again; files that no commit
    names are left to `vacuum`.

    Args:
        spark: The session.
        opened: The table. Executors must be able to reach it.

    Raises:
        ConfigurationError: The table is in this process's memory.
    """

    def __init__(self, spark: SparkSession, opened: Table) -> None:
        require_reachable(opened.store)
        self._spark = spark
        self._table = opened

    @property
    def path(self) -> str:
        """The table's path."""
        return self._table.path

    def delete(self, where: str) -> Committed:
        """Delete the rows for which `where` is true. A task reads up to 64 MiB or 64 files, or one larger file.

        Args:
            where: An SQL predicate; see `Table.delete`.

        Returns:
            The commit, with its version and metrics.

        Raises:
            PredicateError: The predicate is invalid; raised before any task runs.
            AppendOnlyError: The table only takes appends.
            ConflictError: Another commit won each attempt.
        """
        where = predicate.at_time(where, REAL_SYSTEM.now_ms)
        return self._change_rows(where, partial(stage_delete, where=where))

    def update(self, where: str, set: Mapping[str, str]) -> Committed:  # noqa: A002 - SQL's word
        """Set new values in the rows for which `where` is true.

        A task reads up to 64 MiB or 64 files, or one larger file, and holds the rows it changes in memory.

        Args:
            where: An SQL predicate; see `Table.update`.
            set: The new values: column names to SQL expressions over the old row.

        Returns:
            The commit, with its version and metrics.

        Raises:
            PredicateError: The predicate or an expression is invalid; raised before any task runs.
            SchemaMismatchError: A new value does not fit its column.
            AppendOnlyError: The table only takes appends.
            ConflictError: Another commit won each attempt.
        """
        where, fixed = predicate.update_at_time(where, set, REAL_SYSTEM.now_ms)
        return self._change_rows(where, partial(stage_update, where=where, assignments=fixed))

    def upsert(  # noqa: PLR0913 - the public signature
        self,
        data: DataFrame,
        *,
        keys: Sequence[str] = (),
        delete_where: str | None = None,
        other_keys: bool = False,
        order_by: str | Sequence[str] | None = None,
        columns: str = ALL,
        when_matched: Sequence[Rule] = (),
        when_not_matched: Sequence[Rule] = (),
        when_not_matched_by_source: Sequence[Rule] = (),
    ) -> Committed:
        """Replace the table's rows that have a key of the data with the data's rows, and add rows with new keys.

        The data's tasks write its rows. Its keys go to the driver, and from there to all tasks. Of more than 2 million
        rows no key goes to the driver: Spark sorts them by their keys, and each task has a range of them.

        The executors compute the data once and keep it until the end (`localCheckpoint`), so that a statement that
        starts again writes the same rows. If one is lost, the statement fails and commits nothing. With
        `columns="partial"` or rules it is `Table.upsert` with these: the driver collects the data, and holds the rows
        of the table that change.

        Args:
            data: The new rows. Each key can occur only once, unless there is an order.
            keys: The key's columns, by default those of the table property `tidelog.primaryKey`.
            delete_where: An SQL predicate over the data's columns; a row for which it is true deletes its key.
            other_keys: Whether the keys may differ from `tidelog.primaryKey`; see `Table.upsert`.
            order_by: Columns of the table that say which of two rows of a key is newer, by default those of
                `tidelog.orderBy`; see `Table.upsert`.
            columns: `all`, or `partial`; see `Table.upsert`.
            when_matched: Rules for rows of the table with a key of the data; see `Table.upsert`.
            when_not_matched: Rules for rows of the data with a new key.
            when_not_matched_by_source: Rules for rows of the table whose key the data does not have.

        Returns:
            The commit, with its version and metrics.

        Raises:
            ConfigurationError: No keys are given or known, or they are not the table's primary key.
            SchemaMismatchError: The data is not a Spark DataFrame, does not fit the table, or has a null in a key.
            DuplicateKeyError: The data has several rows of one key.
            PredicateError: `delete_where` is invalid.
            WriteVerificationError: The files written do not have the number of rows that Spark counted.
            AppendOnlyError: The table only takes appends.
            ConflictError: Another commit won each attempt.
        """
        require_frame(data)
        data = self._typed(data)
        if columns != ALL or when_matched or when_not_matched or when_not_matched_by_source:
            return self._table.upsert(
                collected(data),
                keys=keys,
                delete_where=delete_where,
                other_keys=other_keys,
                order_by=order_by,
                columns=columns,
                when_matched=when_matched,
                when_not_matched=when_not_matched,
                when_not_matched_by_source=when_not_matched_by_source,
            )
        return self._upserted(data, keys, delete_where, other_keys=other_keys, order_by=order_by)

    def upsert_once(self, data: DataFrame, keys: Sequence[str], delete_where: str | None = None) -> Committed:
        """An upsert of a MERGE: by any keys, without an order.

        Raises DuplicateKeyError if the table has several rows of a key, each of which a MERGE changes.
        """
        return self._upserted(self._typed(data), keys, delete_where, other_keys=True, order_by=(), one_row_each=True)

    def _upserted(
        self,
        data: DataFrame,
        keys: Sequence[str],
        delete_where: str | None,
        *,
        other_keys: bool,
        order_by: str | Sequence[str] | None,
        one_row_each: bool = False,
    ) -> Committed:
        # A statement that starts again must see the same rows, and computing the data again could give others.
        delete_where = predicate.at_time(delete_where, REAL_SYSTEM.now_ms)
        with computed_once(data) as held:
            count = held.count()
            names = key_columns(keys, self._table.schema, self._table.properties)
            order = order_columns(order_by, self._table.schema, self._table.properties)
            rows = newest_rows_of_frame(held, names, order) if order else held
            options: dict[str, Any] = {"other_keys": other_keys, "order_by": order, "rows": count}
            options["one_row_each"] = one_row_each
            return self._statement(SparkUpsert(self._spark, rows, keys, delete_where, **options).stage)

    def overwrite(self, data: DataFrame, *, where: str | None = None, dynamic: bool = False) -> Committed:
        """Replace the whole table, the rows that match `where`, or the partitions of the data.

        Where `where` reads more than partition columns, tasks also delete the matching rows.

        Each of the data's tasks writes one file or more for each partition that it has rows in, so repartition data of
        many partitions by the table's partition columns first.

        Args:
            data: The new rows.
            where: An SQL predicate; all rows of the data must fulfil it.
            dynamic: Replace the partitions that the data has rows in.

        Returns:
            The commit, with its version and metrics.

        Raises:
            SchemaMismatchError: The data is not a Spark DataFrame, or does not fit the table.
            PredicateError: `where` is invalid.
            ConfigurationError: `where` and `dynamic` are both given, the table has no partitions for `dynamic`, or rows
                of the data are outside `where`.
            AppendOnlyError: The table only takes appends.
            ConflictError: Another commit won the race.
        """
        require_frame(data)
        where = predicate.at_time(where, REAL_SYSTEM.now_ms)
        transaction = self._table.begin()
        transaction.require_row_changes()
        writer = transaction.writer
        changes = deletes_leave_change_files(transaction.state.head)
        overwrite = Overwrite(writer, where, dynamic=dynamic, change_files=changes)
        frame, rules = ruled(typed_voids(data, writer.schema), writer)
        rules.require_fits(arrow_schema(frame))
        with transaction.working():
            parts = run_on_rows(frame, partial(_write_rows, rules, where, dynamic, changes))
            deleted = None
            if overwrite.reads and where is not None and not any(part.outside for part in parts):
                stage: Stage = partial(stage_delete, where=where, buries=False)
                deleted = self._in_parts(where, stage)(transaction.state, writer)
            transaction.stage(overwrite.staged(transaction.state, *parts, deleted=deleted))
        return committed(transaction.commit())

    def compact(  # noqa: D417 - CompactionRequest describes the other arguments
        self,
        level: str = "minor",
        *,
        where: str | None = None,
        growth: float = 1.0,
        cluster_by: Sequence[str] = (),
        purge: bool = False,
        cluster_order: str | None = None,
        budget: Budget | None = None,
    ) -> CompactionReport:
        """Rewrite files without a change of rows. Each task rewrites one group: `Table.compact` with a SparkExecutor.

        `level`, `where`, `growth`, `cluster_by`, `purge` and `cluster_order` are those of a `CompactionRequest`.

        Args:
            budget: The most to take on, as for `Table.compact`.

        Returns:
            What was done.

        Raises:
            ConfigurationError: An argument is wrong.
            PredicateError: `where` is invalid or uses another column.
            WorkerLostError: Spark could not finish a task, and nothing was committed.
            CompactionVerificationError: A rewrite does not hold the rows that it read. Its group was not committed.
        """
        with SparkExecutor(self._spark) as executor:
            return self._table.compact(
                level,
                where=where,
                growth=growth,
                cluster_by=cluster_by,
                purge=purge,
                cluster_order=cluster_order,
                executor=executor,
                budget=budget,
            )

    def _typed(self, data: DataFrame) -> DataFrame:
        """The data for the newest version. Raises SchemaMismatchError for a type that no table can hold."""
        typed = typed_voids(data, self._table.refresh().schema)
        arrow_schema(typed)
        return typed

    def _change_rows(self, where: str, stage: Stage) -> Committed:
        return self._statement(self._in_parts(where, stage))

    def _in_parts(self, where: str, stage: Stage) -> Stage:
        """The operation, staged by tasks over the files that can have rows for which `where` is true."""

        def stage_parts(state: LogState, writer: DataWriter) -> Staged:
            head = without_progress(state.head)
            # Fails before any task runs if the predicate is invalid.
            nothing = stage_part(head, writer, stage)
            work = partial(_stage_part, head, writer, stage)
            return join_parts(writer, nothing, run(self._spark, work, file_parts(candidates(state, writer, where))))

        return stage_parts

    def _statement(self, stage: Stage) -> Committed:
        def staged(transaction: Transaction) -> Transaction:
            transaction.require_row_changes()
            with transaction.working():
                return transaction.stage(stage(transaction.state, transaction.writer))

        return self._table.statement(staged)


def candidates(state: LogState, writer: DataWriter, where: str) -> pa.Table:
    """The files that can have rows for which `where` is true."""
    tree = predicate.parse(where, writer.schema)
    files = prune_state(state, tree, writer.schema, writer.metadata).files
    return narrowed(writer.store, writer.indexed_key, files, tree, writer.schema).files


def _stage_part(head: Head, writer: DataWriter, stage: Stage, part: FilePart) -> Staged:
    return stage_part(head, writer, stage, part.rows)


def _write_rows(
    rules: RowRules,
    where: str | None,
    dynamic: bool,  # noqa: FBT001 - partial passes it by position
    change_files: bool,  # noqa: FBT001 - as above
    batches: Iterator[pa.RecordBatch],
) -> Iterator[WrittenFiles]:
    """Write one task's rows of an OVERWRITE, one part for each file's worth of rows."""
    writer = rules.writer
    overwrite = Overwrite(writer, where, dynamic=dynamic, change_files=change_files)
    for rows in pieces(batches, file_size(writer)):
        yield overwrite.write(writer.prepared(rules.of_table(rows)))
