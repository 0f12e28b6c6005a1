"""Which rows of a key are the newest, by the values of some columns.

Rows are compared column by column. Null is less than every value, and NaN is greater than every number, as in Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.data.grouping import group_numbers
from tidelog.log.data.row_hashes import row_hashes
from tidelog.log.errors import SchemaMismatchError


def are_newest(rows: pa.Table, keys: Sequence[str], order: Sequence[str]) -> BoolArray:
    """Which rows have the greatest values of `order` among those with their key.

    Rows of one key with equal values all do, but of rows that are equal in all columns the first only: what a source
    sends twice is one row.

    Raises SchemaMismatchError for a column that the data lacks, or whose type has no order.
    """
    names, order = present(rows.column_names, keys), present(rows.column_names, order)
    if rows.num_rows <= 1:
        return np.ones(rows.num_rows, dtype=bool)
    codes, of_row = _numbers(rows, names), ranks(rows, order)
    greatest = np.full(int(codes.max()) + 1, -1, dtype=np.int64)
    np.maximum.at(greatest, codes, of_row)
    newest: BoolArray = of_row == greatest[codes]
    places = np.flatnonzero(newest)
    tied = np.bincount(codes[places])[codes[places]] > 1
    if tied.any():
        newest[places[tied][_repeat(rows.take(pa.array(places[tied])), codes[places[tied]])]] = False
    return newest


def _repeat(rows: pa.Table, codes: Int64Array) -> BoolArray:
    """Which rows are equal to one before them, with the same code."""
    columns = [column.combine_chunks() for column in rows.columns]
    identities = np.column_stack([codes, row_hashes(columns, rows.num_rows).view(np.int64).T])
    is_first = np.zeros(len(codes), dtype=bool)
    is_first[np.unique(identities, axis=0, return_index=True)[1]] = True
    return ~is_first


def ranks(rows: pa.Table, order: Sequence[str]) -> Int64Array:
    """For each row the rank of its values, from 0; equal values have the same rank. Raises SchemaMismatchError."""
    columns: dict[str, pa.ChunkedArray] = {}
    for position, name in enumerate(order):
        require_ordered(name, rows[name].type)
        columns[f"{position} is valid"] = pc.is_valid(rows[name])
        if pt.is_floating(rows[name].type):
            columns[f"{position} is NaN"] = pc.is_nan(rows[name])
        columns[str(position)] = rows[name]
    table = pa.table(columns)
    ascending = np.asarray(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names]))
    codes = _numbers(table, table.column_names)[ascending]
    found = np.zeros(len(codes), dtype=np.int64)
    found[ascending[1:]] = np.cumsum(codes[1:] != codes[:-1])
    return found


def present(columns: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The spelling that the data has of the wanted names; case does not matter. Raises SchemaMismatchError."""
    known = {name.lower(): name for name in columns}
    for name in wanted:
        if name.lower() not in known:
            raise SchemaMismatchError(
                f"the data lacks the column {name!r}, by which its rows are found or compared",
                advice=f"choose one of {', '.join(columns)}",
                column=name,
            )
    return [known[name.lower()] for name in wanted]


def require_ordered(name: str, kind: pa.DataType) -> None:
    """Raise SchemaMismatchError if the values of a column's type have no order."""
    if pt.is_nested(kind) or pt.is_null(kind):
        raise SchemaMismatchError(
            f"the column {name!r} is {kind}, which has no order",
            advice="choose a column that is not nested",
            column=name,
        )


def _numbers(rows: pa.Table, names: Sequence[str]) -> Int64Array:
    try:
        return np.asarray(group_numbers(rows, names), dtype=np.int64)
    except pa.ArrowException as error:
        raise SchemaMismatchError(
            f"cannot compare the columns {', '.join(names)}: {error}",
            advice="choose columns that are not nested",
            column=names[0],
        ) from error
