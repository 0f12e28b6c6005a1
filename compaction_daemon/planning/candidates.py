"""The live files that a plan decides on, as columns: a table can have a million small ones."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.compaction_daemon.planning.history import ScopeKey
from tidelog.compaction_daemon.planning.plan import OLDEST_TAG
from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.data.grouping import group_numbers
from tidelog.log.format import hive_paths, partition_values
from tidelog.log.read.debt import SMALL_SHARE
from tidelog.log.state.files import FileValues

# The number of physical rows of a file whose statistics have no count.
UNKNOWN = -1
# The share of dead rows from which on a file is worth a rewrite.
MIN_DEAD_SHARE = 0.1


# The largest float that is a number of 63 bits.
_LARGEST = float(2**63 - 1024)


@dataclass(frozen=True)
class Files:
    """The live files of the partitions asked for, in log order; every array has one entry for each.

    `scopes` numbers their partitions from 0, in the order of their first files; `named` are the numbers of the
    partitions that the caller named, UNKNOWN for one without files. `rows` are physical rows, and only known where
    `dead_rows` is above 0. `unclustered` are files that the columns of the request have yet to cluster, and `misplaced`
    those outside of the table's partition folders.
    """

    table: pa.Table
    scopes: Int64Array
    named: Int64Array
    sizes: Int64Array
    times: Int64Array
    small: BoolArray
    dead_rows: Int64Array
    rows: Int64Array
    unclustered: BoolArray
    misplaced: BoolArray

    @cached_property
    def num_scopes(self) -> int:
        """The number of partitions."""
        return int(self.scopes.max()) + 1 if len(self.scopes) else 0

    @cached_property
    def dead_bytes(self) -> Int64Array:
        """The bytes of dead rows, if all rows of a file are equally large; 0 if its rows are not counted."""
        share = np.where(self.rows > 0, self.dead_rows / np.maximum(self.rows, 1), 0.0)
        return (self.sizes * np.minimum(share, 1.0)).astype(np.int64)

    @cached_property
    def all_dead(self) -> BoolArray:
        """Files without a live row, as far as is known."""
        return np.asarray((self.rows > 0) & (self.rows == self.dead_rows))

    def worth(self, *, purge: bool) -> BoolArray:
        """Files that MAJOR rewrites even by themselves: unclustered and misplaced ones, and those with many dead rows.

        With a purge any dead row is enough. Dead rows of an unknown share count as many.
        """
        many = (self.dead_rows > 0) & (purge | (self.rows <= 0) | (self.dead_rows >= MIN_DEAD_SHARE * self.rows))
        return np.asarray(self.unclustered | self.misplaced | many)

    def first_of(self, scopes: Int64Array) -> Int64Array:
        """The first file of each of these partitions."""
        first = np.zeros(self.num_scopes, dtype=np.int64)
        first[self.scopes[::-1]] = np.arange(len(self.scopes))[::-1]
        return first[scopes]

    def sum_by_scope(self, values: Int64Array | BoolArray) -> Int64Array:
        """The sum over the files of each partition."""
        sums = np.bincount(self.scopes, weights=values, minlength=self.num_scopes)
        return np.minimum(sums, _LARGEST).astype(np.int64)  # a log can claim any sizes


def files_of(
    table: pa.Table,
    partition_columns: tuple[str, ...],
    target: int,
    tags: Mapping[str, str] | None,
    named: Collection[ScopeKey] = (),
    *,
    in_folders: bool = False,
) -> Files:
    """The files of `table`, a table of the schema ADD.

    `partition_columns` are physical names. `tags` are tags of which clustered files have one; None if any file will do.
    With `in_folders`, files outside of partition folders are misplaced.
    """
    sizes = _numbers(table["size"])
    dead = _numbers(pc.fill_null(pc.struct_field(table["deletionVector"], "cardinality"), 0))
    scopes, numbers = _scopes(table["partitionValues"], partition_columns, named)
    return Files(
        table,
        scopes,
        numbers,
        sizes,
        _numbers(table["modificationTime"]),
        sizes < math.ceil(target * SMALL_SHARE),
        dead,
        row_counts(table, dead > 0),
        np.zeros(len(sizes), dtype=bool) if tags is None else ~_has_tag(table, tags),
        hive_paths.are_misplaced(table, partition_columns) if in_folders else np.zeros(len(sizes), dtype=bool),
    )


def oldest_times(table: pa.Table, times: Int64Array) -> Int64Array:
    """The commit time of the oldest rows in each file, in ms: from its OLDEST_TAG, or else the file's own."""
    tags, known = partition_values.decode_column(table["tags"], OLDEST_TAG, pa.int64())
    usable = pc.and_(known, pc.fill_null(pc.greater_equal(tags, 0), False))  # noqa: FBT003 - a value
    return np.where(_flags(usable), _numbers(pc.fill_null(tags, 0)), times)


def row_counts(table: pa.Table, wanted: BoolArray) -> Int64Array:
    """The physical rows of the wanted files, UNKNOWN for the rest: to decode statistics is the slow part of a plan."""
    rows = np.full(table.num_rows, UNKNOWN, dtype=np.int64)
    if wanted.any():
        counts = FileValues(table.filter(pa.array(wanted))).rows()
        rows[wanted] = _numbers(pc.fill_null(counts, UNKNOWN))
    return rows


def _scopes(
    maps: pa.ChunkedArray, partition_columns: tuple[str, ...], named: Collection[ScopeKey]
) -> tuple[Int64Array, Int64Array]:
    """The number of each file's partition, and of the named ones.

    A file whose action lacks a value holds it itself, so it is in another partition than files with null.
    """
    extra = pa.array([list(scope) for scope in named], maps.type)
    both = pa.chunked_array([*maps.chunks, extra])
    columns = {}
    for name in partition_columns:
        texts, present = partition_values.texts_of_column(both, name)
        is_empty = pc.equal(texts, "")
        columns[f"v{name}"] = pc.if_else(is_empty, None, texts) if pc.any(is_empty).as_py() else texts
        columns[f"k{name}"] = present
    if not columns:
        return np.zeros(len(maps), dtype=np.int64), np.full(len(named), 0 if len(maps) else UNKNOWN, dtype=np.int64)
    numbers = _numbers(group_numbers(pa.table(columns), list(columns)))
    scopes, found = numbers[: len(maps)], numbers[len(maps) :]
    return scopes, np.where(found <= (scopes.max() if len(scopes) else UNKNOWN), found, UNKNOWN)


def _has_tag(table: pa.Table, tags: Mapping[str, str]) -> BoolArray:
    """Which files have one of these tags."""
    found = np.zeros(table.num_rows, dtype=bool)
    for name, tag in tags.items():
        texts, _ = partition_values.texts_of_column(table["tags"], name)
        found |= _flags(pc.fill_null(pc.equal(texts, tag), False))  # noqa: FBT003 - a value
    return found


def _numbers(column: pa.ChunkedArray) -> Int64Array:
    return np.asarray(column.combine_chunks().to_numpy(zero_copy_only=False), dtype=np.int64)


def _flags(column: pa.ChunkedArray) -> BoolArray:
    return np.asarray(column.combine_chunks().to_numpy(zero_copy_only=False), dtype=bool)
