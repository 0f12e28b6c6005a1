"""File statistics from a parquet footer, which reads no rows: for files that another writer (Spark's JVM) wrote.

The rules are those of `tidelog.log.format.statistics`. Values that the footer lacks, such as the bounds of a string
column with very long values, are left out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from tidelog.log.format import statistics
from tidelog.log.format.schema import leaf_columns, parquet_columns


@dataclass(frozen=True, slots=True)
class FooterLeaf:
    """A leaf column: its path and the index of its parquet column.

    `column` is None for a list or a map, because the footer counts their elements, not rows.
    """

    path: tuple[str, ...]
    kind: pa.DataType
    column: int | None


def collect_from_footer(
    footer: pq.FileMetaData,
    schema: pa.Schema,
    *,
    leave_out: Collection[str] = (),
    indexed_columns: int = statistics.DEFAULT_INDEXED_COLUMNS,
    only: Collection[tuple[str, ...]] | None = None,
) -> str:
    """The statistics of a data file from its footer and Arrow schema, without the top-level columns `leave_out`.

    See `statistics.collect` for the other arguments.
    """
    return collect_leaves(
        footer, chosen_leaves(schema, leave_out=leave_out, indexed_columns=indexed_columns, only=only)
    )


def chosen_leaves(
    schema: pa.Schema,
    *,
    leave_out: Collection[str] = (),
    indexed_columns: int = statistics.DEFAULT_INDEXED_COLUMNS,
    only: Collection[tuple[str, ...]] | None = None,
) -> list[FooterLeaf]:
    """The leaf columns that get statistics in files with this schema; see `collect_from_footer`."""
    found = (leaf for leaf in _leaves(schema) if leaf.path[0] not in leave_out)
    if only is None:
        return list(islice(found, indexed_columns))
    return [leaf for leaf in found if statistics.is_chosen(leaf.path, only)]


def collect_leaves(footer: pq.FileMetaData, chosen: Iterable[FooterLeaf], *, float_bounds: bool = True) -> str:
    """The statistics of a data file for these of its columns.

    Most writers ignore NaN in a footer's bounds, but it is greater than all numbers. Without `float_bounds`, columns of
    floating numbers have none.
    """
    found = {leaf.path: _of_column(footer, leaf, float_bounds=float_bounds) for leaf in chosen}
    return statistics.encode(footer.num_rows, found)


def footer_bounds(
    footer: pq.FileMetaData, wanted: Mapping[tuple[str, ...], pa.DataType]
) -> dict[tuple[str, ...], tuple[Any, Any]]:
    """The least and the greatest value of those of these leaf columns, with these types, that have bounds."""
    found = {}
    for leaf in _leaves(footer.schema.to_arrow_schema()) if wanted else ():
        if leaf.column is not None and wanted.get(leaf.path) == leaf.kind:
            low, high = _bounds(footer, leaf.column, _groups(footer, leaf.column))
            if low is not None and high is not None:
                found[leaf.path] = low, high
    return found


def _of_column(footer: pq.FileMetaData, leaf: FooterLeaf, *, float_bounds: bool) -> Mapping[str, Any]:
    if leaf.column is None:
        return {}
    groups = _groups(footer, leaf.column)
    found: dict[str, Any] = {}
    if all(group is not None and group.has_null_count for group in groups):
        found["nullCount"] = sum(group.null_count for group in groups)
    if statistics.is_ordered(leaf.kind) and (float_bounds or not pt.is_floating(leaf.kind)):
        low, high = statistics.spelled(leaf.kind, *_bounds(footer, leaf.column, groups))
        found |= {"minValues": low, "maxValues": high}
    return found


def _groups(footer: pq.FileMetaData, column: int) -> list[Any]:
    """The statistics of a column in each row group."""
    return [footer.row_group(number).column(column).statistics for number in range(footer.num_row_groups)]


def _bounds(footer: pq.FileMetaData, column: int, groups: list[Any]) -> tuple[Any, Any]:
    """The minimum and maximum over all row groups; None if a row group lacks them."""
    lows, highs = [], []
    for number, group in enumerate(groups):
        if group is None:
            return None, None
        if group.has_null_count and group.null_count == footer.row_group(number).column(column).num_values:
            continue
        try:
            if not group.has_min_max or not (_is_finite(group.min) and _is_finite(group.max)):
                return None, None
            lows.append(group.min)
            highs.append(group.max)
        except (OverflowError, ValueError):  # a date outside Python's calendar
            return None, None
    return (min(lows), max(highs)) if lows else (None, None)


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _leaves(schema: pa.Schema) -> Iterator[FooterLeaf]:
    """The leaf columns of a file, in the order of its parquet columns."""
    start = 0
    for path, _, field in leaf_columns(schema):
        yield FooterLeaf(path, field.type, None if pt.is_nested(field.type) else start)
        start += sum(1 for _ in parquet_columns([field]))
