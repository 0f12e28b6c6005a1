"""Batches of change records, as `tidelog.streaming.capture` makes them: what an upsert does not know is done here.

Beside the columns of the table a row has those of CONTROL. Rows that could not be read are told apart. A truncate
deletes what is older than it. A row whose values the source left out gets them from the batch, or from the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import StructType

from tidelog.log import Snapshot, Transaction
from tidelog.log.arrays import BoolArray
from tidelog.log.errors import ConfigurationError, DataError, SchemaMismatchError, UnsupportedFeatureError
from tidelog.log.operations.upsert import KeyMatcher
from tidelog.log.read.keys import Keys
from tidelog.streaming import spark_versions
from tidelog.streaming.executors.collected import collected
from tidelog.streaming.executors.plain_frame import arrow_schema, quoted, widens
from tidelog.streaming.executors.spark_upsert import newest_rows_of_frame
from tidelog.streaming.sink.dead_letters import REASON

OPERATION, ORDER, TRANSACTION, UNCHANGED, RAW = "_op", "_order", "_transaction", "_unchanged", "_raw"
CONTROL = (OPERATION, ORDER, TRANSACTION, UNCHANGED, REASON, RAW)
"""The columns of a change record beside those of its table."""
UPSERTS, DELETES, TRUNCATES = "u", "d", "t"
_LEFT_OUT = "the source left out the value of {}, and the table has no row with this key that could keep it"

_DEAD_LETTERS = "pass dead_letters=, a sink or a path that takes such records, or correct the schema"


@dataclass(frozen=True, slots=True)
class Captured:
    """A batch: the rows to apply, and those that could not be read.

    Without columns beside those of CONTROL there is nothing to apply: no record said what the columns are.
    `truncated` is the order of the newest truncate, None if there is none. If some values are left out, `_unchanged`
    is a map from the names of their columns to the order of the record of the batch that they are taken from, or null.
    """

    rows: DataFrame
    unread: DataFrame
    count: int
    reason: str | None
    truncated: str | None
    has_left_out: bool

    @property
    def has_columns(self) -> bool:
        """Whether the rows have columns for a table."""
        return has_columns(self.rows)

    @property
    def needs_table(self) -> bool:
        """Whether the rows are not complete without those of the table."""
        return self.truncated is not None or self.has_left_out

    def without(self, kept: Collection[str]) -> DataFrame:
        """The rows without the columns that tell of the record alone, except those that are kept."""
        return self.rows if TRANSACTION in kept else self.rows.drop(TRANSACTION)

    def require_read(self) -> None:
        """Raise DataError if a row could not be read."""
        if self.count:
            raise DataError(
                f"{self.count} change records of the batch cannot be applied; of one of them {self.reason}",
                advice=_DEAD_LETTERS,
            )

    def told_apart(
        self, rows: DataFrame, others: DataFrame, keys: Sequence[str], transaction: Transaction | None
    ) -> tuple[DataFrame, DataFrame]:
        """The newest rows of keys that can be applied, and all other rows of the batch, with a column REASON."""
        others = others.unionByName(self.unread.drop(UNCHANGED), allowMissingColumns=True)
        if not self.has_left_out:
            return rows, others
        rows, unknown = _known_and_unknown(rows, keys, transaction)
        return rows, others.drop(UNCHANGED).unionByName(unknown, allowMissingColumns=True)

    def known(self, rows: DataFrame, keys: Sequence[str], transaction: Transaction | None) -> DataFrame:
        """The newest rows of keys. Raises DataError if one leaves out a value that nothing has."""
        rows, unknown = _known_and_unknown(newest_rows_of_frame(rows, keys, [ORDER]), keys, transaction)
        first = unknown.select(REASON).first()
        if first is not None:
            raise DataError(first[0], advice=_DEAD_LETTERS)
        return rows

    def completed(self, rows: DataFrame, keys: Sequence[str], snapshot: Snapshot) -> DataFrame:
        """The rows with the values that they leave out, and deletions of what the table has and a truncate deletes."""
        if self.has_left_out:
            rows = _with_old_values(rows, keys, snapshot)
        return rows if self.truncated is None else _with_deletions(rows, self.truncated, keys, snapshot)


def has_columns(frame: DataFrame) -> bool:
    """Whether change records have columns beside those of CONTROL."""
    return not set(frame.columns) <= set(CONTROL)


@contextmanager
def captured(frame: DataFrame, keys: Sequence[str]) -> Iterator[Captured]:
    """The batch, computed once within the block. Raises SchemaMismatchError if it has not the columns of CONTROL."""
    for name in CONTROL:
        if name not in frame.columns:
            raise SchemaMismatchError(
                f"the batch lacks the column {name!r}, which change records have",
                advice="pass what capture.debezium or another function of tidelog.streaming.capture returns",
                column=name,
            )
    held = frame.persist()
    try:
        is_bad = F.col(REASON).isNotNull()
        row = held.agg(
            F.count_if(is_bad).alias("bad"),
            F.min(REASON).alias("reason"),
            F.max(F.when(~is_bad & (F.col(OPERATION) == TRUNCATES), F.col(ORDER))).alias("truncated"),
            F.count_if(~is_bad & (F.size(UNCHANGED) > 0)).alias("left_out"),
        ).first()
        if row is None:
            raise AssertionError(frame)  # an aggregate has a row
        rows = held.where(~is_bad & (F.col(OPERATION) != TRUNCATES)).drop(REASON, RAW)
        has_left_out = row["left_out"] > 0
        if has_left_out:
            _require_no_variant(rows)
        rows = _folded(rows, keys) if has_left_out else rows.drop(UNCHANGED)
        if row["truncated"] is not None:
            rows = _deleted_before(rows, row["truncated"], keys)
        # Without any, Spark needs no job to find that out again.
        letters = held.where(is_bad) if row["bad"] else held.where(F.lit(False))  # noqa: FBT003 - a value
        yield Captured(rows, letters, row["bad"], row["reason"], row["truncated"], has_left_out)
    finally:
        held.unpersist()


def _require_no_variant(rows: DataFrame) -> None:
    for field in rows.schema:
        if '"variant"' in field.json():
            raise UnsupportedFeatureError(
                f"the source left out a value, and with the column {field.name!r}, a variant, it cannot be kept",
                advice="declare the column as STRING",
                features="variantType",
            )


def _deleted_before(rows: DataFrame, truncated: str, keys: Sequence[str]) -> DataFrame:
    """The rows, of which those that are older than a truncate are deletions at its time."""
    is_older, columns = F.col(ORDER) < truncated, []
    changed = {OPERATION: F.lit(DELETES), ORDER: F.lit(truncated)}
    if UNCHANGED in rows.columns:  # a map, and a deletion leaves out nothing
        changed[UNCHANGED] = F.map_filter(UNCHANGED, lambda name, order: F.lit(False))  # noqa: ARG005, FBT003 - a value
    for field in rows.schema:
        name = field.name
        if name in keys:
            columns.append(F.col(quoted(name)))
            continue
        value = changed.get(name, F.lit(None).cast(field.dataType))
        columns.append(F.when(is_older, value).otherwise(F.col(quoted(name))).alias(name))
    return rows.select(*columns)


def _folded(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows with the values that they leave out and an older row of the batch has."""
    older = Window.partitionBy(*(F.col(quoted(name)) for name in keys)).orderBy(ORDER)
    older = older.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    columns, entries = [], []
    for field in rows.schema:
        name = field.name
        if name in keys or name in CONTROL:
            columns.append(F.col(quoted(name)))
            continue
        is_left_out = F.array_contains(UNCHANGED, F.lit(name))
        gives = (F.col(OPERATION) == UPSERTS) & ~is_left_out
        given = F.struct(F.col(ORDER).alias("order"), F.col(quoted(name)).alias("value"))
        newest = F.last(F.when(gives, given), ignorenulls=True).over(older)
        columns.append(F.when(is_left_out, newest["value"]).otherwise(F.col(quoted(name))).alias(name))
        entry = F.struct(F.lit(name).alias("key"), newest["order"].alias("value"))
        entries.append(F.when(is_left_out, entry))
    origins = F.map_from_entries(F.array_compact(F.array(*entries)))
    return rows.select(*columns, origins.alias("origins")).drop(UNCHANGED).withColumnRenamed("origins", UNCHANGED)


def require_order(schema: pa.Schema, path: str) -> None:
    """Raise ConfigurationError if a table cannot tell which records are newer than its rows."""
    if ORDER not in schema.names:
        raise ConfigurationError(
            f"{path} has no column {ORDER!r}, by which change records are compared with its rows",
            advice=f"add it: table.add_columns([pyarrow.field('{ORDER}', pyarrow.string())]); rows without "
            "it are older than all",
        )


def without_control(frame: DataFrame, kept: Collection[str]) -> DataFrame:
    """The frame with the columns that a table of its rows has."""
    return frame.drop(*(name for name in CONTROL if name not in (ORDER, *kept)))


def _known_and_unknown(
    rows: DataFrame, keys: Sequence[str], transaction: Transaction | None
) -> tuple[DataFrame, DataFrame]:
    """The rows, and those that leave out a value which neither the batch nor the table has."""
    partial = collected(rows.where(F.size(UNCHANGED) > 0))
    is_unknown = np.zeros(partial.num_rows, dtype=bool)
    for number, origins in enumerate(partial[UNCHANGED].to_pylist()):
        is_unknown[number] = any(order is None for _, order in origins)
    if transaction is not None and is_unknown.any():
        is_unknown[is_unknown] = _have_no_row(partial.filter(pa.array(is_unknown)), keys, transaction)
    unknown = partial.filter(pa.array(is_unknown))
    spark = rows.sparkSession
    whole = rows.where(F.size(UNCHANGED) == 0)
    left = _frame(spark, partial.filter(pa.array(~is_unknown)), rows.schema)
    names = F.array_join(F.map_keys(F.map_filter(UNCHANGED, lambda _, order: order.isNull())), ", ")
    before, after = _LEFT_OUT.split("{}")
    reason = F.concat(F.lit(before), names, F.lit(after))
    others = _frame(spark, unknown, rows.schema).withColumn(REASON, reason).drop(UNCHANGED)
    return whole.unionByName(left), others


def _frame(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """The rows as a frame; PySpark cannot convert a column without chunks."""
    return spark.createDataFrame(rows, schema) if rows.num_rows else spark.createDataFrame([], schema)


def _have_no_row(records: pa.Table, keys: Sequence[str], transaction: Transaction) -> BoolArray:
    """Which records would be applied, but have no live row."""
    writer = transaction.writer
    own = Keys(records, keys, writer.store.url)
    ordered = KeyMatcher(transaction.state, writer, own).ordered(
        records.select([ORDER]), np.zeros(records.num_rows, dtype=bool)
    )
    has_row = np.zeros(records.num_rows, dtype=bool)
    winners = np.flatnonzero(ordered.decision.wins)
    for matches in ordered.matches:
        has_row[winners[matches.places]] = True
    return ordered.decision.wins & ~has_row


def _with_old_values(rows: DataFrame, keys: Sequence[str], snapshot: Snapshot) -> DataFrame:
    partial = collected(rows.where(F.size(UNCHANGED) > 0))
    whole = rows.where(F.size(UNCHANGED) == 0)
    if partial.num_rows:
        filled = _filled(partial, keys, snapshot)
        is_same = filled.schema.types == partial.schema.types
        schema = rows.schema if is_same else spark_versions.columns_from_arrow(filled.schema)
        whole = whole.unionByName(_frame(rows.sparkSession, filled, schema))
    return whole.drop(UNCHANGED)


def _with_deletions(rows: DataFrame, truncated: str, keys: Sequence[str], snapshot: Snapshot) -> DataFrame:
    order = truncated.replace("\\", "\\\\").replace("'", "\\'")
    older = snapshot.scan(f"{ORDER} < '{order}' OR {ORDER} IS NULL", columns=list(keys)).to_arrow()
    if not older.num_rows:
        return rows
    gone = _frame(rows.sparkSession, older, spark_versions.columns_from_arrow(older.schema))
    kinds, columns = arrow_schema(rows), []
    for name in keys:
        # A key of the table can have a wider type than an older record.
        is_wider = widens(kinds.field(name).type, older.schema.field(name).type)
        column = F.col(quoted(name))
        columns.append(column if is_wider else column.cast(rows.schema[name].dataType).alias(name))
    gone = gone.select(*columns)
    gone = gone.withColumns({OPERATION: F.lit(DELETES), ORDER: F.lit(truncated)})
    return rows.unionByName(gone, allowMissingColumns=True)


def _filled(partial: pa.Table, keys: Sequence[str], snapshot: Snapshot) -> pa.Table:
    """Rows with the values that they leave out: the table's, unless the batch has newer ones."""
    own = Keys(partial, keys, "")
    names = [name for name in partial.column_names if name not in CONTROL and name in snapshot.schema.names]
    live = snapshot.get(partial.select(list(keys)), list(dict.fromkeys([*names, ORDER])))
    place_of: dict[int, int] = {}
    orders = live[ORDER].to_pylist()
    for row, place in enumerate(own.places(live).tolist()):
        if place not in place_of or (orders[row] or "") > (orders[place_of[place]] or ""):
            place_of[place] = row
    columns = {name: partial[name].to_pylist() for name in names if name not in keys}
    of_table = {name: live[name].to_pylist() for name in columns}
    for place, origins in enumerate(partial[UNCHANGED].to_pylist()):
        if place not in place_of:
            continue
        found = place_of[place]
        for name, order in origins:
            if name in columns and (order is None or order < (orders[found] or "")):
                columns[name][place] = of_table[name][found]
    return pa.table(
        {
            name: _array(columns[name], partial[name].type, live[name].type) if name in columns else partial[name]
            for name in partial.column_names
        }
    )


def _array(values: list[Any], kind: pa.DataType, of_table: pa.DataType) -> pa.Array:
    """Values in the type that the batch has, or that of the table, which can be a wider one."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError):
        return pa.array(values, of_table)
