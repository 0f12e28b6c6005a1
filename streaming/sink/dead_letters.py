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
from tidelog.streaming.executors.plain_frame import quoted
from tidelog.streaming.executors.spark_upsert import newest_rows_of_frame

# The column that says what is wrong with a row.
REASON = "_reason"
_TIED = "several rows have this key, and none of them is the newest"


@contextmanager
def apart(
    frame: DataFrame, keys: Sequence[str], order: Sequence[str], partition_columns: Collection[str]
) -> Iterator[tuple[DataFrame, DataFrame]]:
    """The newest row of each key, and the rows that cannot be applied, with a column REASON.

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
    newest = newest_rows_of_frame(frame.where(reason.isNull()), names, order)
    count = F.count(F.lit(1)).over(Window.partitionBy(*map(quoted, names)))
    known = newest.withColumn(REASON, F.when(count > 1, F.lit(_TIED)))
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
