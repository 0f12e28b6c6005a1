"""Number the rows of a table by the values of some columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt


def group_numbers(table: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    """The number of each row's group by the columns `names` (int64, from 0 in the order of the groups' first rows).

    Null is equal to null, NaN to NaN and -0.0 to 0.0, as in Spark's `groupBy`.
    """
    codes = pa.chunked_array([pa.repeat(pa.scalar(0, pa.int64()), table.num_rows)])
    for name in names:
        column = comparable(table[name])
        values = column.unique()
        if len(values) == 1:
            continue
        digit = pc.index_in(column, value_set=values).cast(pa.int64())
        codes = pc.add(pc.multiply(codes, len(values)), digit)
        # Renumbered after each column, so that the product over many columns cannot overflow.
        codes = pc.index_in(codes, value_set=codes.unique()).cast(pa.int64())
    return codes


def comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with 0.0 for -0.0."""
    return pc.add(column, pa.scalar(0, column.type)) if pt.is_floating(column.type) else column
