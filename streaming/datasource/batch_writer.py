"""`df.write.format("tidelog")`: Spark's tasks write the rows, and one process on the driver commits them all at once.

Spark creates the writer while it plans the query. It gives a copy to each task, and another one to `commit`, together
with the tasks' results; all of them run in separate processes. So the writer holds the table's state as of planning,
and the commit is staged on the version that was the newest then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog.log import OperationClass, Table, Transaction, predicate
from tidelog.log.commit.discard import delete_unnamed
from tidelog.log.commit.result import committed
from tidelog.log.conflict.staged import Staged
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import ConfigurationError, RetryableError, TableNotFoundError, TidelogError
from tidelog.log.format.actions import Metadata
from tidelog.log.format.schema import fields_within, require_typed
from tidelog.log.operations.delete_update import require_row_changes
from tidelog.log.operations.overwrite import Overwrite, WrittenFiles, deletes_leave_change_files
from tidelog.log.rules import RowRules
from tidelog.log.state.loader import load
from tidelog.log.state.table_identity import require_same_table
from tidelog.log.storage import open_store
from tidelog.log.system import REAL_SYSTEM, logger
from tidelog.streaming import spark_versions
from tidelog.streaming.datasource.errors_first import error_first
from tidelog.streaming.datasource.write_options import WriteOptions
from tidelog.streaming.executors.tasks import delete_written, file_size, pieces, require_reachable

# Staged by an overwrite that has nothing to replace and no rows; the commit can still record an idempotency key.
_NOTHING = Staged(operation="WRITE", operation_class=OperationClass.NONE, parameters={"mode": "Overwrite"})

_LOGGER = logger(__name__)


@dataclass
class TaskResult(WriterCommitMessage):
    """What one task wrote, or its tidelog error, which is not worth a second attempt."""

    parts: tuple[WrittenFiles, ...] = ()
    error: TidelogError | None = None


class BatchWriter(DataSourceArrowWriter):
    """One append or overwrite of a DataFrame.

    The constructor opens the table, or creates an empty one with the frame's columns, and checks the options and the
    columns. It raises SchemaMismatchError, PredicateError, AppendOnlyError and ConfigurationError.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        frame = spark_versions.columns_to_arrow(schema)
        table = _open_or_create(options, frame)
        transaction = table.begin()
        key = options.idempotency_key
        self._progress = None if key is None else transaction.progress(key)
        self._is_known = key is not None and self._progress is None
        self._metadata = _with_columns_of(options, transaction, frame)
        # One time for all tasks of the write.
        self._options = replace(options, where=predicate.at_time(options.where, REAL_SYSTEM.now_ms))
        self._writer: DataWriter = transaction.writer
        self._rules = RowRules.of(self._writer)
        self._change_files = deletes_leave_change_files(transaction.state.head)
        self._version = transaction.base_version
        self._check(frame)

    @error_first
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        """Write one task's rows, one file or more for each partition. A task that fails deletes its files."""
        if self._is_known:
            for _ in iterator:  # a streaming query with state fails at its next start if its rows are not computed
                pass
            return TaskResult()
        writer = replace(self._writer, written=[])
        try:
            return TaskResult(tuple(self._parts(writer, iterator)))
        except BaseException as error:
            delete_unnamed(writer.store, writer.written)
            if isinstance(error, TidelogError) and not isinstance(error, RetryableError):
                return TaskResult(error=error)
            raise

    @error_first
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the tasks' files. Raises the first error of a task, and the errors of a commit."""
        results = [_result(message) for message in messages]
        parts = [part for result in results for part in result.parts]
        try:
            _require_success(results)
            transaction = self._stage(parts)
        except BaseException:
            self._discard(parts)
            raise
        # From here on the transaction deletes the files itself, but only if no commit can have them.
        outcome = committed(transaction.commit())
        _LOGGER.info("%s is at version %d: %s", self._writer.store.url, outcome.version, outcome.metrics)

    @error_first
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the files of a failed job.

        Spark also calls this after a failed commit, when every task has returned. Then the commit has already deleted
        what can be deleted, and the rest must stay, because the outcome of the commit can be unknown.
        """
        if None in messages:
            self._discard(part for message in messages if message for part in _result(message).parts)

    def _check(self, frame: pa.Schema) -> None:
        """Raise errors about columns and options before any task runs."""
        self._rules.require_fits(frame)
        if self._options.overwrite:
            require_row_changes(self._writer.metadata.configuration, self._writer.store.url)
            self._overwrite(self._writer)

    def _overwrite(self, writer: DataWriter) -> Overwrite:
        options = self._options
        return Overwrite(
            writer,
            options.where,
            dynamic=options.dynamic,
            change_files=self._change_files,
            partitions=options.partitions,
        )

    def _parts(self, writer: DataWriter, batches: Iterator[pa.RecordBatch]) -> Iterator[WrittenFiles]:
        for rows in pieces(batches, file_size(writer)):
            fitting = writer.prepared(self._rules.of_table(rows))
            if self._options.overwrite:
                yield self._overwrite(writer).write(fitting)
            else:
                yield WrittenFiles(tuple(writer.write(fitting)), fitting.num_rows, outside=0, partitions=None)

    def _stage(self, parts: Sequence[WrittenFiles]) -> Transaction:
        transaction = self._begin()
        if not self._options.overwrite or self._is_known:
            transaction.stage_adds([add for part in parts for add in part.adds])
        else:
            transaction.require_row_changes()
            with transaction.working():
                staged = self._overwrite(transaction.writer).staged(transaction.state, *parts) or _NOTHING
                transaction.stage(replace(staged, sees_all=self._options.reads_table))
        return transaction.note(transactions=[] if self._progress is None else [self._progress])

    def _begin(self) -> Transaction:
        """A transaction on the version that was the newest when the query was planned."""
        store = self._writer.store
        state = load(store, self._version)
        advice = "write the frame again; nothing was committed"
        require_same_table(store.url, self._writer.metadata.id, state.head.metadata.id, advice=advice)
        transaction = Transaction(store, state, REAL_SYSTEM, lambda _: None)
        if self._metadata is not None and not self._is_known:
            transaction.adopt_metadata(self._metadata)
        return transaction

    def _discard(self, parts: Iterable[WrittenFiles]) -> None:
        for part in parts:
            delete_written(self._writer, part.adds)
            delete_written(self._writer, part.cdc)


def _open_or_create(options: WriteOptions, frame: pa.Schema) -> Table:
    """The table, or a new empty one with the frame's columns, all nullable."""
    require_reachable(open_store(options.path, options.storage_options))
    nullable = pa.schema([field.with_nullable(True) for field in frame])  # noqa: FBT003 - pyarrow's signature
    _require_typed_elements(nullable, options)
    table = Table.create(
        options.path,
        nullable,
        partition_by=options.partition_by,
        properties=options.properties,
        storage_options=options.storage_options,
        exist_ok=not options.is_new,
    )
    if options.partition_by and options.partition_by != table.partition_by and not options.overwrite_schema:
        own = ",".join(table.partition_by)
        raise ConfigurationError(
            f"{table.path} is partitioned by {list(table.partition_by)}, not by {list(options.partition_by)}",
            advice=f"leave out the option partitionBy{f', or give {own!r}' if own else ''}; to change it, write to "
            "a new table",
        )
    return table


def _with_columns_of(options: WriteOptions, transaction: Transaction, frame: pa.Schema) -> Metadata | None:
    """The table's metadata with what the frame's columns change; None if they change nothing.

    The transaction goes on with it.
    """
    columns = pa.schema(map(_optional, frame))
    changes = options.merge_schema and transaction.evolve(columns)
    if options.overwrite_schema:
        changes = transaction.replace_columns(columns, options.partition_by)
    return transaction.state.head.metadata if changes else None


def _optional(field: pa.Field) -> pa.Field:
    """The field, in which anything can be null: that the frame has no nulls says nothing about the next one."""
    kind = field.type
    if pt.is_struct(kind):
        kind = pa.struct(map(_optional, kind))
    elif pt.is_map(kind):
        kind = pa.map_(kind.key_field, _optional(kind.item_field))
    elif pt.is_list(kind):
        kind = pa.list_(_optional(kind.value_field))
    return field.with_type(kind).with_nullable(True)  # noqa: FBT003 - pyarrow's signature


def _require_typed_elements(columns: pa.Schema, options: WriteOptions) -> None:
    """Raise SchemaMismatchError for a new table with elements, fields or values without a type."""
    nested = [field for field in columns if pt.is_nested(field.type)]
    if not any(pt.is_null(inner.type) for field in nested for inner in fields_within(field)):
        return
    try:
        Table.open(options.path, storage_options=options.storage_options)
    except TableNotFoundError:
        for field in nested:
            require_typed(field, field.name)


def _require_success(results: Sequence[TaskResult]) -> None:
    for result in results:
        if result.error is not None:
            raise result.error


def _result(message: WriterCommitMessage | None) -> TaskResult:
    if not isinstance(message, TaskResult):
        raise AssertionError(message)  # noqa: TRY004 - Spark commits only if every task returned one
    return message
