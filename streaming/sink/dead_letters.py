"""Rows of a batch that an upsert cannot apply: those with a null key, and different ones of a key that are equally new.

They would stop a stream for ever. A sink with `dead_letters` gives them to that sink, before it commits the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log import Table
from tidelog.log.data.ordering import present
from tidelog.log.errors import SchemaMismatchError
from tidelog.log.operations.delete_update import free_name
from tidelog.log.predicate import Literal, to_sql
from tidelog.log.statements import run_statement
from tidelog.streaming.executors.plain_frame import arrow_schema, quoted
from tidelog.streaming.executors.spark_upsert import ranked
from tidelog.streaming.sink.settings import SinkSettings

# The column that says what is wrong with a row.
REASON = "_reason"
_TIED = "several rows have this key, and none of them is the newest"


@contextmanager
def apart(
    frame: DataFrame,
    keys: Sequence[str],
    order: Sequence[str],
    partition_columns: Collection[str],
    beside: Collection[str] = (),
) -> Iterator[tuple[DataFrame, DataFrame]]:
    """The newest row of each key, and the rows that cannot be applied, with a column REASON.

    Those are all rows of a key of which none is the newest, because an older one must not be taken for it. Rows that
    differ only in the columns `beside` are equal.

    The frame is read twice, so its rows must be kept somewhere: a row that is computed again can be another one, and
    then it is in both parts, or in none. Raises SchemaMismatchError if the data lacks a column or has REASON.
    """
    if REASON in {name.lower() for name in frame.columns}:
        raise SchemaMismatchError(
            f"the data has a column {REASON!r}, a name that dead letters use for what is wrong with a row",
            advice="rename the column",
            column=REASON,
        )
    names = present(frame.columns, keys)
    lowered = {name.lower() for name in partition_columns}
    reason = F.coalesce(*(F.when(_is_null(name, name.lower() in lowered), _null(name)) for name in names))
    rank = free_name(arrow_schema(frame))
    rows = ranked(frame.where(reason.isNull()), names, order, rank, beside)
    newest = F.sum((F.col(rank) == 1).cast("int")).over(Window.partitionBy(*map(quoted, names)))
    rows = rows.withColumn(REASON, F.when(newest > 1, F.lit(_TIED)))
    known = rows.where(F.col(REASON).isNotNull() | (F.col(rank) == 1)).drop(rank)
    held = known.unionByName(frame.where(reason.isNotNull()).withColumn(REASON, reason)).persist()
    try:
        yield held.where(F.col(REASON).isNull()).drop(REASON), held.where(F.col(REASON).isNotNull())
    finally:
        held.unpersist()


def add_missing(settings: SinkSettings, rows: pa.Table, by: Sequence[str]) -> None:
    """Add rows to the table of dead letters which a sink has given their batch, except those that the table has.

    By its ledger the sink would skip them. `by` are texts and bytes that tell rows apart; the first one is a text.
    """
    if not rows.num_rows:
        return
    place = by[0]

    def add() -> None:
        table = Table.open(settings.path, storage_options=settings.storage_options)
        least, greatest = (to_sql(Literal(text.as_py())) for text in pc.min_max(rows[place]).values())
        between = f"{place} >= {least} AND {place} <= {greatest}"
        there = {tuple(row.values()) for row in table.scan(between, list(by)).to_arrow().to_pylist()}
        is_new = [tuple(row.values()) not in there for row in rows.select(list(by)).to_pylist()]
        if not any(is_new):
            return
        transaction = table.begin()
        if settings.schema_evolution:
            transaction.evolve(rows.schema)
        transaction.insert(rows.filter(pa.array(is_new)))
        transaction.commit()

    run_statement(add, settings.path)


def _is_null(name: str, in_partitions: bool) -> Column:  # noqa: FBT001 - of one column
    """Whether a row has a null in a column of the key. In a partition column an empty string is one."""
    column = F.col(quoted(name))
    return column.isNull() | (column.cast("string") == "") if in_partitions else column.isNull()


def _null(name: str) -> Column:
    return F.lit(f"the key column {name} is null")
