"""One row a key out of a batch that has several: the newest, by columns that say which is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from tidelog.log.errors import SchemaMismatchError
from tidelog.log.internals import Int64Array, free_name, group_numbers
from tidelog.streaming.executors.plain_frame import arrow_schema, quoted


def newest_rows(rows: pa.Table, keys: Sequence[str], order_by: Sequence[str]) -> pa.Table:
    """The rows of each key with the greatest values of `order_by`, compared in turn; a null is less than any value.

    Several rows of one key that have the same ones stay: which of them is meant nothing tells. Raises
    SchemaMismatchError for a column that is not there, or that has no order.
    """
    names, order = _present(rows.column_names, keys), _present(rows.column_names, order_by)
    if rows.num_rows <= 1:
        return rows
    codes, ranks = _numbers(rows, names), _ranks(rows, order)
    greatest = np.full(int(codes.max()) + 1, -1, dtype=np.int64)
    np.maximum.at(greatest, codes, ranks)
    return rows.filter(pa.array(ranks == greatest[codes]))


def newest_rows_of_frame(frame: DataFrame, keys: Sequence[str], order_by: Sequence[str]) -> DataFrame:
    """As `newest_rows`, by Spark."""
    names, order = _present(frame.columns, keys), _present(frame.columns, order_by)
    for name in order:
        _require_ordered(name, arrow_schema(frame).field(name).type)
    window = Window.partitionBy(*map(quoted, names)).orderBy(*(F.col(quoted(name)).desc_nulls_last() for name in order))
    place = free_name(arrow_schema(frame))
    return frame.withColumn(place, F.rank().over(window)).where(F.col(place) == 1).drop(place)


def _ranks(rows: pa.Table, order: Sequence[str]) -> Int64Array:
    """For each row the place of its values among all that there are; equal ones share a place."""
    columns: dict[str, pa.ChunkedArray] = {}
    for place, name in enumerate(order):
        _require_ordered(name, rows[name].type)
        columns[f"{place} is there"] = pc.is_valid(rows[name])
        if pt.is_floating(rows[name].type):
            columns[f"{place} NaN"] = pc.is_nan(rows[name])  # above all numbers, as in Spark
        columns[str(place)] = rows[name]
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
            f"the columns {', '.join(names)} cannot be compared: {error}",
            advice="choose plain columns",
            column=names[0],
        ) from error


def _present(columns: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The columns of these names, whose case does not matter."""
    known = {name.lower(): name for name in columns}
    for name in wanted:
        if name.lower() not in known:
            raise SchemaMismatchError(
                f"the data lacks the column {name!r}, by which its rows are compared",
                advice=f"the columns are {', '.join(columns)}",
                column=name,
            )
    return [known[name.lower()] for name in wanted]


def _require_ordered(name: str, kind: pa.DataType) -> None:
    if pt.is_nested(kind) or pt.is_null(kind):
        raise SchemaMismatchError(
            f"the column {name!r} is {kind}, which has no order", advice="order by a plain column", column=name
        )
