"""From a staged transaction to the actions of its commit, on the state that the commit follows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.conflict.staged import RowDelete, Staged
from tidelog.log.dead_rows import read_dead_rows, write_dead_rows
from tidelog.log.format import statistics
from tidelog.log.format.actions import Action, AddFile, DeletionVectorDescriptor, RemoveFile
from tidelog.log.scopes import in_scope
from tidelog.log.state import files
from tidelog.log.state.loader import LogState
from tidelog.log.storage import Store
from tidelog.log.system import System


def actions_of(staged: Staged, state: LogState, store: Store, system: System) -> list[Action]:
    """What the commit says after its commitInfo. May write a file of deletion vectors, durable on return."""
    actions: list[Action] = []
    if staged.protocol is not None:
        actions.append(staged.protocol)
    if staged.metadata is not None:
        actions.append(staged.metadata)
    actions.extend(staged.transactions)
    for group in staged.moves:
        actions.extend(group.inputs)
        actions.extend(group.outputs)
    actions.extend(_row_deletes(staged.deletes, store, system))
    actions.extend(_replaced(staged, state, store, system))
    actions.extend(staged.adds)
    actions.extend(staged.cdc)
    return actions


def _row_deletes(deletes: Sequence[RowDelete], store: Store, system: System) -> list[Action]:
    now_ms = system.now_ms()
    with_vector = [delete for delete in deletes if delete.needs_vector]
    vectors = []
    for delete in with_vector:
        old = delete.file.deletion_vector
        vectors.append(delete.positions | read_dead_rows(store, old) if old else delete.positions)
    actions: list[Action] = []
    for delete in deletes:
        actions.append(delete.file.removed(now_ms, data_change=True))
        actions.extend(delete.survivors or ())
    for delete, vector in zip(with_vector, write_dead_rows(store, system, vectors), strict=True):
        actions.append(_with_vector(delete, vector))
    return actions


def _with_vector(delete: RowDelete, vector: DeletionVectorDescriptor) -> AddFile:
    stats = statistics.widened(delete.file.stats, delete.physical_rows)
    return msgspec.structs.replace(delete.file, deletion_vector=vector, data_change=True, stats=stats)


def _replaced(staged: Staged, state: LogState, store: Store, system: System) -> list[Action]:
    """What an OVERWRITE, TRUNCATE or RESTORE removes and brings back, judged on the newest state."""
    back: list[AddFile] = []
    if staged.restores is not None:
        gone, back_table = difference(state.files().adds, staged.restores)
        back = [msgspec.structs.replace(add, data_change=True) for add in files.to_adds(back_table)]
    elif staged.replaces is not None:
        gone = in_scope(state.files().values, staged.replaces, state.head.metadata, store.url)
    else:
        return []
    now_ms = system.now_ms()
    removes: list[RemoveFile] = [add.removed(now_ms, data_change=True) for add in files.to_adds(gone)]
    return [*removes, *back]


def difference(live: pa.Table, wanted: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The logical files to remove from `live` and to add to it, so that it becomes `wanted`."""
    live_keys, wanted_keys = files.keys(live), files.keys(wanted)
    gone = live.filter(pc.invert(pc.is_in(live_keys, value_set=wanted_keys.combine_chunks())))
    back = wanted.filter(pc.invert(pc.is_in(wanted_keys, value_set=live_keys.combine_chunks())))
    return gone, back
