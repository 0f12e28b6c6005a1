"""Clustering: the rows of a group in another order, and the row map that lists their old and new addresses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import pyarrow as pa

from tidelog.compaction_daemon.planning.plan import HILBERT, PlannedGroup
from tidelog.compaction_daemon.rewriting.digests import Digest
from tidelog.compaction_daemon.rewriting.growth import fits, size_of
from tidelog.compaction_daemon.rewriting.inputs import Inputs
from tidelog.compaction_daemon.rewriting.layouts import usual_layouts
from tidelog.compaction_daemon.rewriting.numbers import NarrowArray, narrowest
from tidelog.compaction_daemon.rewriting.orders import ColumnOrder, HilbertOrder, Order
from tidelog.compaction_daemon.rewriting.outputs import delete_files, write_files
from tidelog.compaction_daemon.rewriting.sorting import SortedGroup
from tidelog.compaction_daemon.rewriting.verification import live_positions
from tidelog.log.arrays import UInt64Array
from tidelog.log.data.row_maps import ROW_MAP_COLUMNS
from tidelog.log.data.writer import DataWriter
from tidelog.log.format.actions import AddFile


@dataclass(frozen=True, slots=True)
class Clustered:
    """What was written, and what is needed to verify it.

    `digest` is of the rows as they were read, and `hashes` has their hashes in that order.
    """

    written: list[AddFile]
    row_map: pa.Table
    digest: Digest
    hashes: UInt64Array


def write_clustered(writer: DataWriter, group: PlannedGroup, inputs: Inputs, length: int) -> Clustered:
    """Write the rows in the order that the group asks for, in the first layout that is small enough.

    If there is none, they are in the smallest one: sorting can part equal values, so it may cost space in any layout.
    """
    smallest: list[AddFile] = []
    places: NarrowArray | None = None
    with SortedGroup(inputs, _order(group, inputs)) as ordered:
        for layout in usual_layouts():
            places = np.empty(ordered.digest.rows, dtype=narrowest(ordered.digest.rows))
            try:
                rows = _placed(ordered, places)
                written = write_files(writer, dict(group.partition_values), rows, length, repeat(layout))
            except BaseException:
                delete_files(writer, smallest)
                raise
            larger = written
            if not smallest or size_of(written) < size_of(smallest):
                smallest, larger = written, smallest
            delete_files(writer, larger)
            if fits(group, smallest, writer):
                break
        digest, hashes = ordered.digest, ordered.hashes
    assert places is not None, "there is a layout"
    # Arrow keeps a few hundred MB of what it no longer uses, and what follows needs NumPy's arrays.
    pa.default_memory_pool().release_unused()
    return Clustered(smallest, row_map_of(inputs, places, length), digest, hashes)


def row_map_of(inputs: Inputs, places: NarrowArray, length: int) -> pa.Table:
    """The row map of files with `length` rows each. `places` has each row's place among the rows of all outputs.

    `places` is used up. The map is empty if not each live row has a place. Its columns have the narrowest type that
    holds them, because there are tens of millions of rows.
    """
    rows, physical = len(places), inputs.physical_rows
    number = np.empty(rows, dtype=narrowest(len(physical)))
    position = np.empty(rows, dtype=narrowest(max(physical, default=0)))
    end = 0
    for index, (add, count) in enumerate(zip(inputs.adds, physical, strict=True)):
        live = live_positions(inputs.store, add, count)
        start, end = end, end + len(live)
        if end > rows:
            break
        number[start:end], position[start:end] = index, live
    if end != rows:
        number, position, places = number[:0], position[:0], places[:0]
    length = min(length, max(1, rows))
    output = np.empty(len(places), dtype=narrowest(rows // length))
    np.floor_divide(places, length, out=output, casting="unsafe")
    np.remainder(places, length, out=places)
    return pa.table(dict(zip(ROW_MAP_COLUMNS, (number, position, output, places), strict=True)))


def _order(group: PlannedGroup, inputs: Inputs) -> Order:
    # Along one column, the curve is the order of its ranks.
    on_curve = group.cluster_order == HILBERT and len(group.cluster_by) > 1
    return (HilbertOrder if on_curve else ColumnOrder)(group.cluster_by, inputs.schema.names, inputs.expected_rows)


def _placed(ordered: SortedGroup, places: NarrowArray) -> Iterator[pa.RecordBatch]:
    """The rows in order; the place of each goes to `places`, at its number in the order of reading."""
    place = 0
    for rows in ordered.rows():
        end = place + len(rows.numbers)
        places[rows.numbers] = np.arange(place, end)
        place = end
        yield rows.batch
