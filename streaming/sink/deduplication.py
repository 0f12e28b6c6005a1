"""Keep the newest row of each key in a batch, by the values of the `order_by` columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from tidelog.log.arrays import Int64Array
from tidelog.log.data.grouping import group_numbers
from tidelog.log.errors import SchemaMismatchError
from tidelog.log.operations.row_matcher import free_name
from tidelog.streaming.executors.plain_frame import arrow_schema, quoted


def newest_rows(rows: pa.Table, keys: Sequence[str], order_by: Sequence[str]) -> pa.Table:
    """For each key the rows with the greatest values of `order_by`, compared column by column; null is the least.

    Rows of one key with equal values all stay, since none of them is newer. Raises SchemaMismatchError for a column
    that the data lacks, or whose type has no order.
    """
    names, order = _present(rows.column_names, keys), _present(rows.column_names, order_by)
    if rows.num_rows <= 1:
        return rows
    codes, ranks = _numbers(rows, names), _ranks(rows, order)
    greatest = np.full(int(codes.max()) + 1, -1, dtype=np.int64)
    np.maximum.at(greatest, codes, ranks)
    return rows.filter(pa.array(ranks == greatest[codes]))


def newest_rows_of_frame(frame: DataFrame, keys: Sequence[str], order_by: Sequence[str]) -> DataFrame:
    """The same as `newest_rows`, computed by Spark."""
    names, order = _present(frame.columns, keys), _present(frame.columns, order_by)
    for name in order:
        _require_ordered(name, arrow_schema(frame).field(name).type)
    window = Window.partitionBy(*map(quoted, names)).orderBy(*(F.col(quoted(name)).desc_nulls_last() for name in order))
    rank = free_name(arrow_schema(frame))
    return frame.withColumn(rank, F.rank().over(window)).where(F.col(rank) == 1).drop(rank)


def _ranks(rows: pa.Table, order: Sequence[str]) -> Int64Array:
    """For each row the rank of its values, from 0; equal values have the same rank."""
    columns: dict[str, pa.ChunkedArray] = {}
    for position, name in enumerate(order):
        _require_ordered(name, rows[name].type)
        columns[f"{position} is valid"] = pc.is_valid(rows[name])
        if pt.is_floating(rows[name].type):
            columns[f"{position} is NaN"] = pc.is_nan(rows[name])  # NaN is greater than all numbers, as in Spark
        columns[str(position)] = rows[name]
    table = pa.table(columns)
    ascending = np.asarray(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names]))
    codes = _numbers(table, table.column_names)[ascending]
    ranks = np.zeros(len(codes), dtype=np.int64)
    ranks[ascending[1:]] = np.cumsum(codes[1:] != codes[:-1])
    return ranks


def _numbers(rows: pa.Table, names: Sequence[str]) -> Int64Array:
    try:
        return np.asarray(group_numbers(rows, names), dtype=np.int64)
    except pa.ArrowException as error:
        raise SchemaMismatchError(
            f"cannot compare the columns {', '.join(names)}: {error}",
            advice="choose columns that are not nested",
            column=names[0],
        ) from error


def _present(columns: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The data's spelling of the wanted names; case does not matter."""
    known = {name.lower(): name for name in columns}
    for name in wanted:
        if name.lower() not in known:
            raise SchemaMismatchError(
                f"the data lacks the column {name!r}, which its rows are compared by",
                advice=f"choose one of {', '.join(columns)}",
                column=name,
            )
    return [known[name.lower()] for name in wanted]


def _require_ordered(name: str, kind: pa.DataType) -> None:
    if pt.is_nested(kind) or pt.is_null(kind):
        raise SchemaMismatchError(
            f"the column {name!r} is {kind}, which has no order",
            advice="choose a column that is not nested",
            column=name,
        )
