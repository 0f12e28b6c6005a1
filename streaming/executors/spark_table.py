"""DELETE, UPDATE, UPSERT and OVERWRITE run by Spark's executors, for tables and data beyond one machine.

The driver plans and commits as `tidelog.log.Table` does, with the same code: it prunes the files, shares them out, and
stages what comes back. Each task reads its files with their rows' positions, evaluates the predicate, and writes what
is new. To the driver come the positions (one Roaring bitmap a file), the places of an update's images, and the names
and statistics of the files written, the keys of an upsert; never another column of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tidelog.log import Committed, Table, Transaction
from tidelog.log.internals import (
    AddFile,
    DataWriter,
    LogState,
    Overwrite,
    Stage,
    Staged,
    WrittenFiles,
    committed,
    conform,
    join_parts,
    predicate,
    prune_values,
    stage_delete,
    stage_part,
    stage_update,
    to_adds,
    without_progress,
)
from tidelog.streaming.executors.session import context_of
from tidelog.streaming.executors.spark_upsert import SparkUpsert
from tidelog.streaming.executors.tasks import (
    file_size,
    pieces,
    require_frame,
    require_reachable,
    run,
    run_on_rows,
    shares_of,
)


def table(spark: SparkSession, path: str, *, storage_options: Mapping[str, str] | None = None) -> SparkTable:
    """The table at `path`, whose rows `spark`'s executors find, change and write.

    All of them must reach `path`; `storage_options` go to them with the tasks. Raises TableNotFoundError,
    ConfigurationError for a table in this process's memory, PrerequisiteError for a Spark that is too old or Connect.
    """
    return SparkTable(context_of(spark), Table.open(path, storage_options=storage_options))


class SparkTable:
    """The writing methods of `tidelog.log.Table` that find or write rows, with the same results and errors."""

    def __init__(self, context: SparkContext, opened: Table) -> None:
        require_reachable(opened.store)
        self._context = context
        self._table = opened

    @property
    def path(self) -> str:
        """Where the table lies."""
        return self._table.path

    def delete(self, where: str) -> Committed:
        """Delete the rows for which the SQL text `where` is true; see Table.delete."""
        return self._change_rows(where, partial(stage_delete, where=where))

    def update(self, where: str, set: Mapping[str, str]) -> Committed:  # noqa: A002 - SQL's own word
        """Give the rows for which `where` is true new values; see Table.update.

        A task holds the changed rows of its files (64 MiB of them, or one larger file) in memory.
        """
        return self._change_rows(where, partial(stage_update, where=where, assignments=set))

    def upsert(self, data: DataFrame, *, keys: Sequence[str] = (), delete_where: str | None = None) -> Committed:
        """Put the rows of `data` in the place of those with the same key; see Table.upsert.

        The data is read once and written by its tasks; its keys go to the driver, and from there to all tasks.
        ConfigurationError for more than 10 million of them.
        """
        require_frame(data)
        # Kept by the executors from the first job on, for a statement that runs again: computed anew, the data could
        # have other rows. Where an executor is lost the statement fails.
        upsert = SparkUpsert(self._context, data.localCheckpoint(eager=False), keys, delete_where)
        return self._statement(upsert.stage)

    def overwrite(self, data: DataFrame, *, where: str | None = None, dynamic: bool = False) -> Committed:
        """Replace the table, the partitions `where`, or with `dynamic` those of the data; see Table.overwrite.

        Each of the data's tasks writes a file for each partition that it has rows in: repartition a frame of many
        partitions by the table's own first.
        """
        require_frame(data)
        transaction = self._table.begin()
        transaction.require_row_changes()
        writer = transaction.writer
        overwrite = Overwrite(writer, where, dynamic=dynamic)
        conform(to_arrow_schema(data.schema, timezone="UTC").empty_table(), writer.schema)
        parts = run_on_rows(data, partial(_write_rows, writer, where, dynamic))
        return committed(transaction.stage(overwrite.staged(transaction.state, *parts)).commit())

    def _change_rows(self, where: str, stage: Stage) -> Committed:
        def stage_parts(state: LogState, writer: DataWriter) -> Staged:
            head = without_progress(state.head)
            # A text that no row could be judged by is an error before any task runs.
            nothing = stage_part(head, writer, stage, ())
            work = partial(stage_part, head, writer, stage)
            return join_parts(nothing, run(self._context, work, shares_of(_candidates(state, writer, where))))

        return self._statement(stage_parts)

    def _statement(self, stage: Stage) -> Committed:
        def staged(transaction: Transaction) -> Transaction:
            transaction.require_row_changes()
            return transaction.stage(stage(transaction.state, transaction.writer))

        return self._table.statement(staged)


def _candidates(state: LogState, writer: DataWriter, where: str) -> list[AddFile]:
    """The files that may hold rows for which `where` is true."""
    tree = predicate.parse(where, writer.schema)
    return to_adds(prune_values(state.files().values, tree, writer.schema, writer.metadata).files)


def _write_rows(
    writer: DataWriter,
    where: str | None,
    dynamic: bool,  # noqa: FBT001 - partial's arguments go by their places
    batches: Iterator[pa.RecordBatch],
) -> Iterator[WrittenFiles]:
    """One task's share of an OVERWRITE, a part for each file's worth of rows."""
    overwrite = Overwrite(writer, where, dynamic=dynamic)
    for rows in pieces(batches, file_size(writer)):
        yield overwrite.write(writer.prepared(conform(rows, writer.schema)))
