"""The rows of one micro-batch, collected or as a DataFrame, staged into a transaction by the sink's mode.

After a conflict the same rows can be staged again into another transaction.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from tidelog.log import Transaction, predicate
from tidelog.log.conflict.staged import Staged
from tidelog.log.data.writer import DataWriter
from tidelog.log.format import partition_values, properties
from tidelog.log.format.actions import AddFile
from tidelog.log.format.schema import physical_name
from tidelog.log.operations.keys import key_columns
from tidelog.log.operations.overwrite import Overwrite, WrittenFiles
from tidelog.log.state.loader import LogState
from tidelog.log.storage import open_store
from tidelog.streaming.executors import hadoop
from tidelog.streaming.executors.frame_files import write_frame
from tidelog.streaming.executors.plain_frame import arrow_schema
from tidelog.streaming.executors.session import is_connect, parallelism
from tidelog.streaming.executors.spark_upsert import SparkUpsert
from tidelog.streaming.executors.tasks import delete_written
from tidelog.streaming.sink.advice import sink_advice
from tidelog.streaming.sink.deduplication import newest_rows, newest_rows_of_frame
from tidelog.streaming.sink.settings import APPEND, DRIVER, OVERWRITE_PARTITIONS, SPARK, UPSERT, SinkSettings
from tidelog.streaming.sink.writer_choice import WriterChoice


class BatchRows(Protocol):
    """The rows of a batch. `count` is their number, known once they are staged; `writer` is `driver` or `spark`."""

    count: int
    writer: str

    def stage(self, transaction: Transaction) -> None:
        """Stage the rows; does nothing if there are none. Raises the errors of the transaction's methods."""


class CollectedRows:
    """Rows collected to the driver."""

    def __init__(self, settings: SinkSettings, rows: pa.Table) -> None:
        self.count = rows.num_rows
        self.writer = DRIVER
        self._settings = settings
        self._rows = rows

    def stage(self, transaction: Transaction) -> None:
        """See BatchRows."""
        if not self.count:
            return
        settings = self._settings
        _evolve(settings, transaction, self._rows.schema)
        with sink_advice(settings, self._rows.schema, transaction.schema):
            if settings.mode == APPEND:
                transaction.insert(self._rows)
            elif settings.mode == OVERWRITE_PARTITIONS:
                transaction.overwrite(self._rows, dynamic=True)
            else:
                self._upsert(transaction)

    def _upsert(self, transaction: Transaction) -> None:
        settings, rows = self._settings, self._rows
        keys = key_columns(settings.keys, transaction.schema, transaction.properties)
        if settings.order_by:
            rows = newest_rows(rows, keys, settings.order_by)
            self.count = rows.num_rows
        rows = rows.drop_columns(_only_for_order(settings, rows.schema, transaction.schema))
        transaction.upsert(rows, keys=keys, delete_where=settings.delete_where)


class FrameRows:
    """Rows that stay on Spark's executors."""

    def __init__(self, settings: SinkSettings, frame: DataFrame, choice: WriterChoice, *, few_files: bool) -> None:
        self.count = 0
        self.writer = SPARK
        self._settings = settings
        self._frame = frame
        self._choice = choice
        self._few_files = few_files
        self._upsert: SparkUpsert | None = None
        # Checked before the table is created. An upsert is written in Python by the tasks, and so is a batch if Spark's
        # own writer cannot reach the store; with writer="spark" that is an error. On Spark Connect that writer would
        # need other settings in a session that is not ours alone.
        store = open_store(settings.path, settings.storage_options)
        self._by_jvm = (
            settings.mode != UPSERT
            and not is_connect(frame.sparkSession)
            and hadoop.can_write(frame.sparkSession, store, required=not choice.may_change)
        )

    def stage(self, transaction: Transaction) -> None:
        """See BatchRows."""
        data = arrow_schema(self._frame)
        _evolve(self._settings, transaction, data)
        if self._settings.mode != APPEND:
            transaction.require_row_changes()  # before any file is written
        with sink_advice(self._settings, data, transaction.schema):
            if self._settings.mode == UPSERT:
                transaction.stage(self._upserted(transaction.state, transaction.writer))
                return
            adds = self._write(transaction.writer)
        if not adds:
            return
        if self._settings.mode == APPEND:
            transaction.stage_adds(adds)
            return
        try:
            transaction.stage(_staged_overwrite(transaction.state, transaction.writer, adds, self.count))
        except BaseException:
            delete_written(transaction.writer, adds)
            raise

    def _write(self, writer: DataWriter) -> list[AddFile]:
        target = properties.size_bytes(writer.metadata.configuration, properties.TARGET_FILE_SIZE)
        tasks = self._choice.files(target)
        if tasks is not None and not self._few_files:
            tasks = max(tasks, parallelism(self._frame.sparkSession))
        adds, self.count = write_frame(
            self._frame,
            writer,
            by_jvm=self._by_jvm,
            max_tasks=tasks,
            rows_per_file=self._choice.rows_per_file(target),
        )
        return adds

    def _upserted(self, state: LogState, writer: DataWriter) -> Staged | None:
        settings = self._settings
        if self._upsert is None:
            keys = key_columns(settings.keys, writer.schema, writer.metadata.configuration)
            frame = self._frame
            if settings.order_by:
                frame = newest_rows_of_frame(frame, keys, settings.order_by)
            frame = frame.drop(*_only_for_order(settings, arrow_schema(frame), writer.schema))
            self._upsert = SparkUpsert(frame.sparkSession, frame, keys, settings.delete_where)
        staged = self._upsert.stage(state, writer)
        self.count = staged.metrics["numSourceRows"]
        return None if staged.is_empty else staged


def _staged_overwrite(state: LogState, writer: DataWriter, adds: list[AddFile], count: int) -> Staged | None:
    """Replace the partitions that these files belong to with the files."""
    columns = []
    for name in writer.metadata.partition_columns:
        field = writer.schema.field(name)
        texts = [add.partition_values.get(physical_name(field)) for add in adds]
        columns.append(pa.array([partition_values.from_text(text, field.type) for text in texts], field.type))
    fields = [writer.schema.field(name) for name in writer.metadata.partition_columns]
    partitions = pa.table(columns, schema=pa.schema(fields))
    return Overwrite(writer, None, dynamic=True).staged(state, WrittenFiles(tuple(adds), count, 0, partitions))


def _evolve(settings: SinkSettings, transaction: Transaction, data: pa.Schema) -> None:
    """Add the data's new columns to the table, except those that only `order_by` or `delete_where` read."""
    if settings.schema_evolution:
        control = {name.lower() for name in (*settings.order_by, *_read_by_delete_where(settings, data))}
        transaction.evolve(pa.schema([field for field in data if field.name.lower() not in control]))


def _only_for_order(settings: SinkSettings, data: pa.Schema, table: pa.Schema) -> list[str]:
    """The data's columns that only `order_by` reads and the table lacks."""
    known = {name.lower() for name in (*table.names, *_read_by_delete_where(settings, data))}
    wanted = {name.lower() for name in settings.order_by}
    return [name for name in data.names if name.lower() in wanted - known]


def _read_by_delete_where(settings: SinkSettings, data: pa.Schema) -> set[str]:
    if settings.delete_where is None:
        return set()
    return set(predicate.columns(predicate.parse(settings.delete_where, data)))
