"""The rows of one micro-batch: who writes them into files, and how the sink's mode stages them into a transaction.

`driver`: the rows are collected and the driver writes one file for each partition. For few rows that is several times
faster than a Spark job that writes files. `spark`: the tasks write, and the rows never come to the driver. After a
conflict the same rows can be staged again into another transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import DataFrame

from tidelog.log import Transaction, predicate
from tidelog.log.commit.discard import discard
from tidelog.log.conflict.staged import Staged
from tidelog.log.data.ordering import are_newest
from tidelog.log.data.type_names import sql_type
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import ConfigurationError, DuplicateKeyError, SchemaMismatchError, UnsupportedFeatureError
from tidelog.log.format import partition_values, properties
from tidelog.log.format.actions import AddFile
from tidelog.log.format.schema import physical_name
from tidelog.log.operations.overwrite import Overwrite, WrittenFiles
from tidelog.log.read.changes import OWN_COLUMNS
from tidelog.log.state.loader import LogState
from tidelog.log.storage import Store, open_store
from tidelog.log.storage.memory import MemoryStore
from tidelog.log.system import logger
from tidelog.streaming.executors import hadoop
from tidelog.streaming.executors.collected import collected
from tidelog.streaming.executors.frame_files import DictionaryUse, write_frame
from tidelog.streaming.executors.plain_frame import arrow_schema
from tidelog.streaming.executors.ruled_frame import only_in_spark
from tidelog.streaming.executors.session import is_connect, is_local, parallelism
from tidelog.streaming.executors.spark_upsert import MAX_KEYS, SparkUpsert, newest_rows_of_frame
from tidelog.streaming.executors.tasks import delete_written
from tidelog.streaming.sink.settings import APPEND, AUTO, DRIVER, OVERWRITE_PARTITIONS, SPARK, UPSERT, SinkSettings
from tidelog.streaming.sink.target import require_not_of_feed

_LOGGER = logger(__name__)

_TOO_LARGE = "spark.driver.maxResultSize"
# The sinks whose order has columns that their table lacks, which is said once.
_said: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True)
class _MostCollected:
    """The largest batch that the driver writes: its rows, and the bytes of its files."""

    rows: int
    size_bytes: int


# On a local master, collecting moves bytes within one machine; on a cluster, over the network to a driver that may have
# other work.
_LOCAL = _MostCollected(100_000, 16 * 2**20)
_CLUSTER = _MostCollected(20_000, 4 * 2**20)
# More than a file ever has. Spark takes the number as 64 bits, and the target size can be any.
_MOST_ROWS = 2**31


class WriterChoice:
    """Who writes a batch of one sink, by the size of the newest batch that was written, which it remembers."""

    def __init__(self, writer: str, store: Store) -> None:
        # Executors cannot reach this process's memory.
        self._fixed = DRIVER if isinstance(store, MemoryStore) else None if writer == AUTO else writer
        self._rows: int | None = None
        self._size_bytes = 0
        self.dictionaries = DictionaryUse()

    def choose(self, *, local: bool) -> str:
        """`driver` or `spark`; `local`: Spark runs on a local master.

        The first batch can have any size, so Spark writes it.
        """
        if self._fixed is not None:
            return self._fixed
        limits = _LOCAL if local else _CLUSTER
        small = self._rows is not None and self._rows <= limits.rows and self._size_bytes <= limits.size_bytes
        return DRIVER if small else SPARK

    @property
    def newest_rows(self) -> int | None:
        """The rows of the newest batch that was written; None before the first."""
        return self._rows

    @property
    def may_change(self) -> bool:
        """Whether Spark may write a batch that turns out to be too large for the driver."""
        return self._fixed is None

    def wrote(self, rows: int, size_bytes: int) -> None:
        """Remember the size of a batch that was written."""
        self._rows, self._size_bytes = rows, size_bytes

    def files(self, target_bytes: int) -> int | None:
        """How many files of the target size the newest batch would fill; None before the first."""
        return None if self._rows is None else max(1, -(-self._size_bytes // target_bytes))

    def rows_per_file(self, target_bytes: int) -> int | None:
        """How many of the newest batch's rows fit a file of the target size; None if that is unknown."""
        if not self._rows or not self._size_bytes:
            return None
        return max(1, min(target_bytes * self._rows // self._size_bytes, _MOST_ROWS))


class BatchRows(Protocol):
    """The rows of a batch. `count` is their number, known once they are staged; `writer` is `driver` or `spark`."""

    count: int
    writer: str

    def stage(self, transaction: Transaction) -> None:
        """Stage the rows; does nothing if there are none. Raises the errors of the transaction's methods."""


def reads_twice(settings: SinkSettings, frame: DataFrame, choice: WriterChoice) -> bool:
    """Whether Spark writes the frame as an upsert that reads it twice.

    It counts the rows of a first batch, which can have any size, and looks at the keys of many rows once more to share
    them out to its tasks. A batch that turns out to have so many is kept by `SparkUpsert`.
    """
    if settings.mode != UPSERT or choice.choose(local=is_local(frame.sparkSession)) != SPARK:
        return False
    return choice.newest_rows is None or choice.newest_rows > MAX_KEYS


def rows_of_batch(
    settings: SinkSettings, frame: DataFrame, choice: WriterChoice, writer: DataWriter | None, *, few_files: bool
) -> BatchRows:
    """The batch's rows, collected to the driver if they are few; `writer` is the table's, None if there is none yet."""
    local = is_local(frame.sparkSession)
    beyond = () if writer is None else only_in_spark(frame, writer)
    if choice.choose(local=local) == SPARK or (choice.may_change and beyond):
        return FrameRows(settings, frame, choice, few_files=few_files)
    if beyond:
        raise UnsupportedFeatureError(
            f"a rule of {settings.path} needs {beyond[0]!r}, which the driver cannot evaluate: it has a "
            "function that tidelog lacks, or depends on the session's time zone, which is not UTC",
            advice="leave writer out, or pass writer='spark'",
            path=settings.path,
            features=beyond[0],
        )
    try:
        return CollectedRows(settings, collected(frame))
    except Exception as error:
        if _TOO_LARGE not in str(error):
            raise
        if not choice.may_change:
            raise ConfigurationError(
                "the batch exceeds spark.driver.maxResultSize, so the driver cannot collect it",
                advice="leave writer out, raise spark.driver.maxResultSize, or limit the source's batches",
            ) from error
        _LOGGER.info("a batch for %s exceeds spark.driver.maxResultSize: Spark writes it", settings.path)
        return FrameRows(settings, frame, choice, few_files=few_files)


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
        with _sink_advice(settings, self._rows.schema, transaction):
            if settings.mode == APPEND:
                transaction.insert(self._rows)
            elif settings.mode == OVERWRITE_PARTITIONS:
                transaction.overwrite(self._rows, dynamic=True)
            else:
                self._upsert(transaction)

    def _upsert(self, transaction: Transaction) -> None:
        settings, rows = self._settings, self._rows
        keys = settings.keys_of(transaction.schema, transaction.properties)
        order = settings.order_of(transaction.schema, transaction.properties)
        if order:
            rows = rows.filter(pa.array(are_newest(rows, keys, order)))
            self.count = rows.num_rows
        rows = rows.drop_columns(_only_for_order(settings, rows.schema, transaction.schema))
        transaction.upsert(
            rows,
            keys=keys,
            delete_where=settings.delete_where,
            other_keys=settings.other_keys,
            order_by=_order_across(settings, transaction.schema, transaction.properties),
            columns=settings.columns,
        )


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
        self._by: tuple[list[str], list[str]] = ([], [])
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
        with _sink_advice(self._settings, data, transaction):
            if self._settings.mode == UPSERT:
                with transaction.working():
                    transaction.stage(self._upserted(transaction.state, transaction.writer))
                return
            adds = self._write(transaction.writer)
        if not adds:
            return
        if self._settings.mode == APPEND:
            transaction.stage_adds(adds)
            return
        try:
            with transaction.working():
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
            dictionaries=self._choice.dictionaries,
        )
        return adds

    def _upserted(self, state: LogState, writer: DataWriter) -> Staged | None:
        settings = self._settings
        keys = settings.keys_of(writer.schema, writer.metadata.configuration)
        configuration = writer.metadata.configuration
        order = settings.order_of(writer.schema, configuration)
        if self._upsert is None or (keys, order) != self._by:
            self._by, frame = (keys, order), self._frame
            if order:
                frame = newest_rows_of_frame(frame, keys, order)
            frame = frame.drop(*_only_for_order(settings, arrow_schema(frame), writer.schema))
            self._upsert = SparkUpsert(
                frame.sparkSession,
                frame,
                keys,
                settings.delete_where,
                other_keys=settings.other_keys,
                order_by=_order_across(settings, writer.schema, configuration),
                rows=frame.count() if self._choice.newest_rows is None else self._choice.newest_rows,
            )
        staged = self._upsert.stage(state, writer)
        self.count = staged.metrics["numSourceRows"]
        if staged.is_empty and staged.tombstones is None:
            discard(writer.store, staged)
            return None
        return staged


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
    """Give the table what is new or wider in the data, except columns that only `order_by` or `delete_where` read.

    Raises SchemaMismatchError for a column of a change feed.
    """
    known = {name.lower() for name in transaction.schema.names}
    if any(name.lower() in OWN_COLUMNS for name in data.names):
        require_not_of_feed(data, known | columns_read(settings, data))
    if settings.schema_evolution:
        control = {name.lower() for name in (*(settings.order_by or ()), *_read_by_delete_where(settings, data))}
        transaction.evolve(pa.schema([field for field in data if field.name.lower() not in control - known]))


def _order_across(settings: SinkSettings, schema: pa.Schema, configuration: Mapping[str, str]) -> list[str]:
    """The columns of the order that the table has. Says once if it lacks some, which then order one batch only."""
    found, all_columns = settings.order_in(schema, configuration), settings.order_of(schema, configuration)
    if len(found) < len(all_columns) and (settings.path, settings.name) not in _said:
        _said.add((settings.path, settings.name))
        _LOGGER.info(
            "%s has no column %r, so it orders the rows of one batch, and not those of different batches",
            settings.path,
            all_columns[len(found)],
        )
    return found


def _only_for_order(settings: SinkSettings, data: pa.Schema, table: pa.Schema) -> list[str]:
    """The data's columns that only `order_by` reads and the table lacks."""
    known = {name.lower() for name in (*table.names, *_read_by_delete_where(settings, data))}
    wanted = {name.lower() for name in settings.order_by or ()}
    return [name for name in data.names if name.lower() in wanted - known]


def columns_read(settings: SinkSettings, data: pa.Schema) -> set[str]:
    """The columns that the sink's settings name, in lower case."""
    named = (*settings.keys, *(settings.order_by or ()), *settings.partition_by, *(settings.captured or ()))
    return {name.lower() for name in (*named, *_read_by_delete_where(settings, data))}


def _read_by_delete_where(settings: SinkSettings, data: pa.Schema) -> set[str]:
    if settings.delete_where is None:
        return set()
    return set(predicate.columns(predicate.parse(settings.delete_where, data)))


@contextmanager
def _sink_advice(settings: SinkSettings, data: pa.Schema, transaction: Transaction) -> Iterator[None]:
    """Replace the advice of errors about rows with the columns of `data`."""
    try:
        yield
    except DuplicateKeyError as error:
        has_order = bool(settings.order_of(transaction.schema, transaction.properties))
        advice = (
            "the order has the same value in these rows: add a column that differs, or pass dead_letters="
            if has_order
            else "pass order_by=, the column whose greatest value marks the newest row of a key"
        )
        raise DuplicateKeyError(error.message, advice=advice, **error.fields) from error
    except SchemaMismatchError as error:
        better = _advice_on(error.column, settings, data, transaction)
        if better is None:
            raise
        raise SchemaMismatchError(error.message, advice=better, **error.fields) from error


def _advice_on(column: str, settings: SinkSettings, data: pa.Schema, transaction: Transaction) -> str | None:
    """What to do about a column of the data that the table cannot take as it is, if schema evolution can."""
    if not settings.schema_evolution and column in _new_columns(data, transaction.schema):
        return "pass schema_evolution=True to add it to the table, or drop it from the data"
    wider = transaction.wider_types(data)
    if column not in wider:
        return None
    kind = wider[column]
    if kind is None:
        return (
            "cast it in the data if that loses nothing; the column keeps its type, because a rule of the table reads "
            "it, or the table is partitioned by it"
        )
    steps = []
    if not properties.flag(transaction.properties, properties.ENABLE_TYPE_WIDENING):
        steps.append(f"set the table property {properties.ENABLE_TYPE_WIDENING}")
    if not settings.schema_evolution:
        steps.append("pass schema_evolution=True")
    if not steps:
        return None
    return f"cast it in the data if that loses nothing; or, to make the column {sql_type(kind)}, {' and '.join(steps)}"


def _new_columns(data: pa.Schema, table: pa.Schema) -> set[str]:
    """The columns of the data, and nested fields as `column.field`, that the table lacks; case does not matter."""
    known = {name.lower() for field in table for name in _dotted_names(field, "")}
    return {name for field in data for name in _dotted_names(field, "") if name.lower() not in known}


def _dotted_names(field: pa.Field, where: str) -> Iterator[str]:
    """The dotted name of the field and of all fields in it, as a SchemaMismatchError names them."""
    full = f"{where}{field.name}"
    yield full
    yield from _inner_names(field.type, full)


def _inner_names(kind: pa.DataType, where: str) -> Iterator[str]:
    if pt.is_struct(kind):
        for child in kind:
            yield from _dotted_names(child, f"{where}.")
    elif pt.is_map(kind):
        yield from _inner_names(kind.key_type, f"{where}.key")
        yield from _inner_names(kind.item_type, f"{where}.value")
    elif pt.is_list(kind) or pt.is_large_list(kind):
        yield from _inner_names(kind.value_type, f"{where}.element")
