"""An operation staged in shares: each looks into some of the table's files, and the parts make one transaction.

For DELETE and UPDATE, whose work on one file says nothing about another: done over shares of the files that may hold
matching rows, anywhere, it comes to the same as done over all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from tidelog.log.conflict.staged import RowDelete, Staged, UpdateImages
from tidelog.log.data.writer import DataWriter
from tidelog.log.format.actions import AddCDCFile, AddFile
from tidelog.log.state import files
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState

Stage: TypeAlias = Callable[[LogState, DataWriter], Staged]


def stage_part(head: Head, writer: DataWriter, stage: Stage, adds: Sequence[AddFile]) -> Staged:
    """What `stage` makes of a table that has these files only; with none of them, an operation that matches nothing."""
    return stage(state_of(head, writer, adds), writer)


def state_of(head: Head, writer: DataWriter, adds: Sequence[AddFile]) -> LogState:
    """The state of a table that has these files only."""
    only = files.FileState(files.add_table(adds), files.EMPTY.removes) if adds else files.EMPTY
    return LogState(writer.store, head, only, ())


def without_progress(head: Head) -> Head:
    """The head without what each application wrote of itself, which can be long and no share needs."""
    return replace(head, transactions={}, domains={})


def join_parts(first: Staged, parts: Iterable[Staged]) -> Staged:
    """The parts of one operation as one: what they kill and write together, what they count added up."""
    deletes: list[RowDelete] = list(first.deletes)
    adds: list[AddFile] = list(first.adds)
    cdc: list[AddCDCFile] = list(first.cdc)
    metrics = dict(first.metrics)
    for part in parts:
        deletes += (_moved_on(delete, len(adds)) for delete in part.deletes)
        adds += part.adds
        cdc += part.cdc
        for name, count in part.metrics.items():
            metrics[name] = metrics.get(name, 0) + count
    return replace(first, deletes=tuple(deletes), adds=tuple(adds), cdc=tuple(cdc), metrics=metrics)


def _moved_on(delete: RowDelete, count: int) -> RowDelete:
    """The delete, where so many files of other parts come before those that hold its images."""
    if delete.images is None:
        return delete
    return replace(delete, images=UpdateImages(delete.images.adds + count, delete.images.positions))
