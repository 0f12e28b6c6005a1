"""Which columns of a data file to write with a dictionary, from a sample of the rows.

A dictionary makes a file smaller if values repeat. If they do not, it takes as much as the values themselves up to its
bound, after which the rest is written plainly, and looking each value up takes half of the time of writing.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.format.schema import parquet_columns

# Blocks of consecutive rows from all over the table: values can repeat soon, or only after many others.
_BLOCKS = 16
_BLOCK_ROWS = 4096
# Of so many values that are chosen at random among 131,072, which is how many numbers of 64 bits the usual dictionary
# holds, this share is different ones. With more, a dictionary would most likely exceed its bound.
_MOST_DISTINCT = 0.8


def with_dictionary(rows: pa.Table) -> list[str]:
    """The leaf columns that a dictionary may make smaller, as parquet names them. Nested ones are always among them."""
    sample = _sample(rows)
    found: list[str] = []
    for field in rows.schema:
        if sample is None or not _is_sampled(field.type) or _repeats(sample[field.name]):
            found += parquet_columns([field])
    return found


def _sample(rows: pa.Table) -> pa.Table | None:
    """Some rows; None if there are so few that a dictionary costs nothing."""
    if rows.num_rows < _BLOCKS * _BLOCK_ROWS:
        return None
    step = rows.num_rows // _BLOCKS
    return pa.concat_tables([rows.slice(number * step, _BLOCK_ROWS) for number in range(_BLOCKS)])


def _is_sampled(kind: pa.DataType) -> bool:
    return not (pt.is_nested(kind) or pt.is_dictionary(kind) or pt.is_boolean(kind) or pt.is_null(kind))


def _repeats(values: pa.ChunkedArray) -> bool:
    present = len(values) - values.null_count
    return bool(pc.count_distinct(values).as_py() <= _MOST_DISTINCT * present)
