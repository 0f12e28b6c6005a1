"""The sink: a `foreachBatch` function that commits each micro-batch exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from tidelog.log.errors import ConfigurationError, TidelogError
from tidelog.log.operations.merge_rules import ALL
from tidelog.log.storage import open_store
from tidelog.streaming.executors.prerequisites import require_jvm, require_spark
from tidelog.streaming.executors.session import stopped_quietly
from tidelog.streaming.monitoring.batch_log import failures_logged, publish
from tidelog.streaming.monitoring.batch_report import BatchReport
from tidelog.streaming.sink.batch import Batch, SinkParts
from tidelog.streaming.sink.settings import APPEND, AUTO, ERROR, SinkSettings, arguments_known, sink_settings
from tidelog.streaming.sink.throttle import Throttle


class Sink:
    """A `foreachBatch` function that commits each micro-batch of a stream to a table, exactly once.

    Guaranteed:

    - A crash at any point leaves the whole batch in the table or nothing of it, and after a restart each batch is there
      once. The commit that adds the rows also records the batch: the query id of the streaming checkpoint, the batch
      number and a fingerprint of the source offsets. A batch that Spark replays is recognised and skipped.
    - A sink name belongs to the query that first uses it: the first batch claims it, even if it is empty. A new query
      under a known name (the checkpoint was deleted), a known batch number with other offsets (the checkpoint was
      restored), or a later batch under a name that is not claimed (the table was lost, or the path or the name is
      another one than before) is a CheckpointResetError, and nothing is written. If two copies of one query run, only
      one of them commits a batch.
    - Data files are fsynced before the commit, and so is the commit. An empty batch after the first commits nothing.

    Args:
        path: The table: a local path, or the URL of an object store. If there is no table, the query's first batch
            creates it with its columns, all nullable.
        name: Name of this sink in the table, up to 100 letters, digits, dots, dashes and underscores. Two sinks on one
            table, in one query or in two, need two names.
        mode: `append`; `upsert`, by `keys`; or `overwrite-partitions`, which replaces the partitions that the batch has
            rows in.
        keys: Key columns of an upsert. Default: the table's property `tidelog.primaryKey`, which a table that the sink
            creates gets from `keys`.
        other_keys: Whether `keys` may differ from the table's `tidelog.primaryKey`. By default a batch is then refused,
            because an upsert replaces all rows that are equal in its keys.
        order_by: Upsert only: one or more columns that say which of two rows of a key is newer, compared in turn; null
            is less than every value. Default: the table's property `tidelog.orderBy`; `()` for no order. Of a batch the
            newest row of a key counts. By the first of these columns, up to one that the table lacks, it is also
            compared with the row that the table has, and with the newest deletion of the key within
            `tidelog.tombstoneRetention`: an older row has no effect. Of two that are equal the later batch counts.
            Without an order a later batch always counts, and a key with different rows in one batch is a
            DuplicateKeyError.
        delete_where: Upsert only: a SQL predicate over the batch's columns, such as `"op = 'd'"`. A row for which it is
            true deletes its key.
        columns: Upsert only: `all`, or `partial`: rows of the table keep their values in columns that the batch does
            not have; see `Table.upsert`. The driver then writes every batch.
        adopt_txn: Continue a stream that another engine wrote to this table, on that stream's checkpoint: its
            application id in the table's log. The batch that it committed last is skipped if Spark replays it.
        partition_by: Partition columns of a table that the sink creates. For an existing table: leave it out, or give
            the table's own.
        properties: Table properties of a table that the sink creates.
        storage_options: Credentials and endpoint of the object store. They are never logged.
        checkpoint: The query's `checkpointLocation`: an absolute local path, or the URL of an object store that
            `storage_options` open as well. The sink then identifies its batches by the files there, and not by asking
            Spark. Spark Connect needs it.
        schema_evolution: True adds the batch's new columns to the table, in the commit that adds the rows. If the table
            has `delta.enableTypeWidening`, its columns also get the wider types that the batch has. By default a new
            column, or a value that does not fit, is a SchemaMismatchError.
        writer: `driver` collects a batch and writes it in the driver; it must fit `spark.driver.maxResultSize`. `spark`
            writes on the executors. `auto` (default) starts with `spark` and then chooses by the size of the batch
            before: the driver for up to 100,000 rows and 16 MiB of files, or 20,000 rows and 4 MiB on a cluster.
        on_reset: `error` (default) refuses a batch after the checkpoint was deleted or restored, or the table lost.
            `adopt` commits it as a new one and binds the name to this query; use it for one batch, after checking that
            no row is lost or comes twice.
        throttle: Slow the stream down while the table has many small files. Default: never.
        dead_letters: Upsert only: a Sink in mode `append`, on another table, for the rows that cannot be applied: those
            with a null key, and all rows of a key of which none is the newest. It gets them with a column `_reason`,
            before this sink commits the others. By default such a batch is a SchemaMismatchError or a
            DuplicateKeyError, and the stream stops.
        captured: Upsert only: the batches are change records that `tidelog.streaming.capture` made, and of their
            columns besides `_order` a new table has these. `capture.sink` sets it, and what goes with it.
        append_complete: Append only: whether to append each batch of a query with `outputMode("complete")`, which has
            all rows of its result again. By default that is a ConfigurationError. Pass True if your function leaves
            only new rows in the batch, or if the table should keep every result and a column says which is which.

    Attributes:
        last: The BatchReport of the newest batch that succeeded; None before the first.
        settings: The arguments, normalised: `path` is the URL of a store.

    Raises:
        ConfigurationError: An argument is invalid or does not go with another one.
        PredicateError: `delete_where` is not a supported SQL predicate. Its columns are checked against each batch.
        PrerequisiteError: PySpark is older than 4.0; or, without a `checkpoint`, no JVM runs yet and Java 17 or later
            is missing.
        StoreNotSupportedError: tidelog does not support the store of `path`.

    Example:
        query = df.writeStream.foreachBatch(Sink(path)).option("checkpointLocation", c).start()
    """

    @arguments_known
    def __init__(  # noqa: PLR0913 - the public signature
        self,
        path: str,
        *,
        name: str = "default",
        mode: str = APPEND,
        keys: Sequence[str] = (),
        other_keys: bool = False,
        order_by: str | Sequence[str] | None = None,
        delete_where: str | None = None,
        columns: str = ALL,
        adopt_txn: str | None = None,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, object] | None = None,
        storage_options: Mapping[str, str] | None = None,
        schema_evolution: bool = False,
        writer: str = AUTO,
        on_reset: str = ERROR,
        throttle: Throttle | None = None,
        checkpoint: str | None = None,
        dead_letters: Sink | None = None,
        captured: Sequence[str] | None = None,
        append_complete: bool = False,
    ) -> None:
        require_spark()
        _require_dead_letters(dead_letters, path)
        settings = sink_settings(
            path,
            name=name,
            mode=mode,
            keys=keys,
            other_keys=other_keys,
            order_by=order_by,
            delete_where=delete_where,
            columns=columns,
            adopt_txn=adopt_txn,
            partition_by=partition_by,
            properties=properties,
            storage_options=storage_options,
            schema_evolution=schema_evolution,
            writer=writer,
            on_reset=on_reset,
            throttle=throttle,
            checkpoint=checkpoint,
            dead_letters=dead_letters,
            captured=captured,
            append_complete=append_complete,
        )
        if checkpoint is None:  # else it can be for Spark Connect, which needs no Java in this process
            require_jvm()
        self.last: BatchReport | None = None
        self._parts = SinkParts(settings)

    @property
    def settings(self) -> SinkSettings:
        """The arguments, normalised."""
        return self._parts.settings

    def __repr__(self) -> str:
        return repr(self.settings)

    def __getstate__(self) -> SinkSettings:
        """The arguments alone: Spark Connect calls a copy of the sink, in a process beside the server."""
        return self.settings

    def __setstate__(self, settings: SinkSettings) -> None:
        self.last = None
        self._parts = SinkParts(settings)

    def __call__(self, batch_df: DataFrame, batch_id: int) -> None:
        """Commit one micro-batch. Spark calls this, in the query's own thread.

        An error of tidelog's is raised without the frames of its internals, which the log record of the failure has,
        and Spark shows its message first. A batch that failed is safe to run again.

        Args:
            batch_df: The rows of the micro-batch.
            batch_id: Its number, as Spark gives it.

        Raises:
            NotInStreamError: Not called by a streaming query, or on a thread that is not a `pyspark.InheritableThread`,
                or on Spark Connect without a `checkpoint`.
            CheckpointResetError: The checkpoint was deleted, restored or copied, or the table is not the one that the
                query wrote before; nothing was written.
            FencedError: Another query has taken over the sink's name; stop this one.
            ConcurrentTransactionException: Another copy of this query committed the batch.
            SchemaMismatchError: The batch does not fit the table's columns.
            DuplicateKeyError: Several rows of an upsert have the same key, and `order_by` does not decide.
            PredicateError: `delete_where` names a column that the batch lacks.
            ConfigurationError: The query has no checkpointLocation; or the table or the driver does not allow what the
                arguments ask for; or `checkpoint` is not the query's own: it belongs to another query, or is not at
                this batch.
            TableReplacedError: The table at the path is not the one that this sink began with.
            CommitContentionError, StoreUnavailableError: Run the batch again; nothing was committed.
            CommitStateUnknownError: The commit may be durable. Run the batch again: it is skipped if it is.
        """
        settings = self.settings
        try:
            with (
                failures_logged(sink=settings.name, path=settings.path, batch_id=batch_id),
                stopped_quietly(batch_df.sparkSession),
            ):
                self.last = Batch(self._parts, batch_df, batch_id).run()
                publish(self.last)
        except TidelogError as error:
            # Spark shows the traceback, not the exception, and a traceback starts with the cause.
            raise error.with_traceback(None) from Exception(
                f"batch {batch_id} of sink {settings.name!r} for {settings.path} failed\n{error}"
            )


def _require_dead_letters(given: object, path: str) -> None:
    if given is None:
        return
    if not isinstance(given, Sink):
        raise ConfigurationError(
            f"dead_letters must be a Sink, not {type(given).__name__}", advice="pass Sink(path, name='dead-letters')"
        )
    other = given.settings
    if other.mode != APPEND:
        raise ConfigurationError(
            f"dead_letters has mode={other.mode!r}, and rows that have no key can only be appended",
            advice=f"leave its mode out, which is {APPEND!r}",
        )
    if other.path == open_store(path, other.storage_options).url:
        raise ConfigurationError("dead_letters writes to the same table", advice="give it a table of its own")
