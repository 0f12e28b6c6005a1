"""The actions of a commit, from a staged transaction and the state that the commit follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from tidelog.log.commit.restored_files import difference, require_restorable
from tidelog.log.commit.row_ids import with_new_ids
from tidelog.log.conflict.staged import RowDelete, Staged
from tidelog.log.data import row_maps
from tidelog.log.data.deletion_vectors import read_dead_rows, write_dead_rows
from tidelog.log.errors import CompactionVerificationError
from tidelog.log.format import deletion_vector, paths, statistics
from tidelog.log.format.actions import Action, AddFile, RemoveFile
from tidelog.log.format.lineage import Lineage
from tidelog.log.format.paths import canonical
from tidelog.log.pruning.partition_scope import in_scope
from tidelog.log.state import files
from tidelog.log.state.loader import LogState
from tidelog.log.storage import Store
from tidelog.log.system import System


@dataclass(frozen=True, slots=True)
class Prepared:
    """The actions of a commit after its commitInfo; `written` are the small files that only this attempt names."""

    actions: list[Action]
    lineage: Lineage | None
    written: tuple[str, ...]


def prepare(staged: Staged, state: LogState, store: Store, system: System) -> Prepared:
    """Prepare the commit of `staged` on `state`. Writes deletion vectors and row maps, durable on return.

    Raises CompactionVerificationError if a row map is not stored as it was written.
    """
    vectors = _Vectors(store, system)
    now_ms = system.now_ms()
    actions: list[Action] = []
    if staged.protocol is not None:
        actions.append(staged.protocol)
    if staged.metadata is not None:
        actions.append(staged.metadata)
    actions.extend(staged.domains)
    actions.extend(staged.transactions)
    if staged.fence is not None:
        actions.append(staged.fence)
    for group in staged.moves:
        actions.extend(group.inputs)
        actions.extend(vectors.without_dead(group.outputs, staged.dead))
    actions.extend(_left_behind(staged.moved, vectors, now_ms))
    for delete in staged.deletes:
        actions.append(delete.file.removed(now_ms, data_change=True))
        actions.extend(delete.survivors or ())
        if delete.needs_vector:
            vectors.add(delete, data_change=True)
    actions.extend(_replaced(staged, state, store, system))
    actions.extend(vectors.without_dead(staged.adds, staged.dead))
    actions.extend(staged.cdc)
    prepared = _finished(staged, actions, vectors, store, system)
    return replace(prepared, actions=with_new_ids(prepared.actions, staged, state, store))


def _finished(staged: Staged, actions: list[Action], vectors: _Vectors, store: Store, system: System) -> Prepared:
    """Write the pending vectors and the row maps. Raises CompactionVerificationError."""
    if not actions and not vectors.pending:
        return Prepared([], None, ())
    written = []
    groups = []
    for group in staged.moves:
        lineage = group.lineage
        if group.row_map is not None:
            path = _written_row_map(group.row_map, store, system)
            lineage = msgspec.structs.replace(lineage, row_map=path)
            written.append(path)
        groups.append(lineage)
    actions += vectors.write()
    return Prepared(actions, Lineage(tuple(groups)) if groups else None, (*written, *vectors.written))


def _written_row_map(row_map: pa.Table, store: Store, system: System) -> str:
    """Write a row map. With a wrong one, later changes would hit the wrong rows, so it is read back."""
    path = row_maps.write_row_map(store, system, row_map)
    if row_maps.is_stored(store, path, row_map):
        return path
    raise CompactionVerificationError(
        f"a compaction of {store.url} was refused: its row map {path} does not hold what was written to it",
        advice="nothing was committed and no row is lost; check the storage, and compact again",
        path=store.url,
    )


def _left_behind(moved: Sequence[RowDelete], vectors: _Vectors, now_ms: int) -> list[Action]:
    """Take rows out of another compaction's files. A file with no live row left is removed."""
    actions: list[Action] = []
    for delete in moved:
        actions.append(delete.file.removed(now_ms, data_change=False))
        if not delete.kills_all:
            vectors.add(delete, data_change=False)
    return actions


class _Vectors:
    """The deletion vectors of one commit, which share one file."""

    def __init__(self, store: Store, system: System) -> None:
        self.written: tuple[str, ...] = ()
        self.pending: list[tuple[AddFile, BitMap64]] = []
        self._store = store
        self._system = system

    def add(self, delete: RowDelete, *, data_change: bool) -> None:
        """Keep the file, with a vector of these rows and of those that were already dead."""
        old = delete.file.deletion_vector
        dead = delete.positions | read_dead_rows(self._store, old) if old else delete.positions
        stats = statistics.widened(delete.file.stats, delete.physical_rows)
        self.pending.append((msgspec.structs.replace(delete.file, data_change=data_change, stats=stats), dead))

    def without_dead(self, adds: Sequence[AddFile], dead: Mapping[str, BitMap64]) -> Iterator[AddFile]:
        """New files without dead rows. Files with some become `pending`; files with only dead rows are dropped."""
        for add in adds:
            rows = dead.get(canonical(add.path))
            if not rows:
                yield add
                continue
            count = statistics.num_records(add.stats) or 0
            if len(rows) < count:
                stats = statistics.widened(add.stats, count)
                self.pending.append((msgspec.structs.replace(add, stats=stats), rows))

    def write(self) -> list[AddFile]:
        """Write the vectors, durable on return, and return the files with them."""
        descriptors = write_dead_rows(self._store, self._system, [dead for _, dead in self.pending])
        for descriptor in descriptors[:1]:
            stored = deletion_vector.location(descriptor)
            self.written = () if isinstance(stored, bytes) else (paths.to_storage_path(stored.path),)
        return [
            msgspec.structs.replace(add, deletion_vector=descriptor)
            for (add, _), descriptor in zip(self.pending, descriptors, strict=True)
        ]


def _replaced(staged: Staged, state: LogState, store: Store, system: System) -> list[Action]:
    """The removes and adds of an OVERWRITE, TRUNCATE or RESTORE on the newest state."""
    back: list[AddFile] = []
    if staged.restores is not None:
        removed, back_table = difference(state.files().adds, staged.restores)
        back = [msgspec.structs.replace(add, data_change=True) for add in files.to_adds(back_table)]
        # A vacuum can have announced to delete them since they were staged.
        require_restorable(store, back, int(staged.parameters["version"]), state.head)
    elif staged.replaces is not None:
        removed = in_scope(state.files().values, staged.replaces, state.head.metadata, store.url)
    else:
        return []
    now_ms = system.now_ms()
    removes: list[RemoveFile] = [add.removed(now_ms, data_change=True) for add in files.to_adds(removed)]
    return [*removes, *back]
