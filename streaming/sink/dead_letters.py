"""Rows of a batch that an upsert cannot apply: those with a null key, and different ones of a key that are equally new.

They would stop a stream for ever. A sink with `dead_letters` gives them to that sink, before it commits the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log.data.ordering import present
from tidelog.log.errors import SchemaMismatchError
from tidelog.log.operations.delete_update import free_name
from tidelog.streaming.executors.plain_frame import arrow_schema, quoted
from tidelog.streaming.executors.spark_upsert import ranked

# The column that says what is wrong with a row.
REASON = "_reason"
_TIED = "several rows have this key, and none of them is the newest"


@contextmanager
def apart(
    frame: DataFrame, keys: Sequence[str], order: Sequence[str], partition_columns: Collection[str]
) -> Iterator[tuple[DataFrame, DataFrame]]:
    """The newest row of each key, and the rows that cannot be applied, with a column REASON.

    Those are all rows of a key of which none is the newest, because an older one must not be taken for it.

    Within the block the batch is computed once. Raises SchemaMismatchError if the data lacks a column or has REASON.
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
    rows = ranked(frame.where(reason.isNull()), names, order, rank)
    newest = F.sum((F.col(rank) == 1).cast("int")).over(Window.partitionBy(*map(quoted, names)))
    rows = rows.withColumn(REASON, F.when(newest > 1, F.lit(_TIED)))
    known = rows.where(F.col(REASON).isNotNull() | (F.col(rank) == 1)).drop(rank)
    held = known.unionByName(frame.where(reason.isNotNull()).withColumn(REASON, reason)).persist()
    try:
        yield held.where(F.col(REASON).isNull()).drop(REASON), held.where(F.col(REASON).isNotNull())
    finally:
        held.unpersist()


def _is_null(name: str, in_partitions: bool) -> Column:  # noqa: FBT001 - of one column
    """Whether a row has a null in a column of the key. In a partition column an empty string is one."""
    column = F.col(quoted(name))
    return column.isNull() | (column.cast("string") == "") if in_partitions else column.isNull()


def _null(name: str) -> Column:
    return F.lit(f"the key column {name} is null")
