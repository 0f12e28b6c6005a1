"""Stage an operation in parts, over some of the table's files each, and join the parts to one transaction.

This works for DELETE and UPDATE, which handle each file independently: split over the files that can have matching
rows, on any machine, they give the same result as on all files at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from tidelog.log.commit.burial import joined_changes
from tidelog.log.conflict.staged import RowDelete, Staged, UpdateImages
from tidelog.log.data.writer import DataWriter
from tidelog.log.format.actions import AddCDCFile, AddFile
from tidelog.log.state import files
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState

Stage: TypeAlias = Callable[[LogState, DataWriter], Staged]


def stage_part(head: Head, writer: DataWriter, stage: Stage, adds: pa.Table = files.EMPTY.adds) -> Staged:
    """Run `stage` on a table that has only the files `adds`, with the schema ADD. Without files it matches nothing."""
    return stage(state_of(head, writer, adds), writer)


def state_of(head: Head, writer: DataWriter, adds: pa.Table = files.EMPTY.adds) -> LogState:
    """The state of a table that has only the files `adds`, with the schema ADD."""
    return LogState(writer.store, head, files.FileState(adds, files.EMPTY.removes), ())


def without_progress(head: Head) -> Head:
    """The head without transaction ids and domain metadata, which can be long and which no part needs."""
    return replace(head, transactions={}, domains={})


def join_parts(writer: DataWriter, first: Staged, parts: Iterable[Staged]) -> Staged:
    """Join the parts of one operation: their deletes and files, with metrics added up."""
    deletes: list[RowDelete] = list(first.deletes)
    adds: list[AddFile] = list(first.adds)
    cdc: list[AddCDCFile] = list(first.cdc)
    metrics = dict(first.metrics)
    tombstones, is_computed = [first.tombstones], first.is_computed
    for part in parts:
        tombstones.append(part.tombstones)
        is_computed = is_computed or part.is_computed
        deletes += (_shifted(delete, len(adds)) for delete in part.deletes)
        adds += part.adds
        cdc += part.cdc
        for name, count in part.metrics.items():
            metrics[name] = metrics.get(name, 0) + count
    return replace(
        first,
        deletes=tuple(deletes),
        adds=tuple(adds),
        cdc=tuple(cdc),
        metrics=metrics,
        is_computed=is_computed,
        tombstones=joined_changes(writer.store, writer.system, writer.metadata, tombstones),
    )


def _shifted(delete: RowDelete, count: int) -> RowDelete:
    """The delete with the indices of its images' files shifted by `count` files of earlier parts."""
    if delete.images is None:
        return delete
    return replace(delete, images=UpdateImages(delete.images.adds + count, delete.images.positions))
