"""What a commit says: its actions and commitInfo, from a staged transaction and the state that the commit follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tidelog import __version__
from tidelog.log.commit.burial import buried_again
from tidelog.log.conflict.fences import horizon_of
from tidelog.log.conflict.staged import RowDelete, Staged
from tidelog.log.data import row_maps
from tidelog.log.data.deletion_vectors import read_dead_rows, write_dead_rows
from tidelog.log.data.reader import DataFile, physical_rows
from tidelog.log.errors import CompactionVerificationError, ConfigurationError, HistoryExpiredError
from tidelog.log.format import commit_info, deletion_vector, paths, properties, row_tracking, statistics
from tidelog.log.format.actions import Action, AddFile, CommitInfo, FileKey, RemoveFile, SetTransaction
from tidelog.log.format.lineage import Lineage
from tidelog.log.format.paths import canonical
from tidelog.log.format.protocol import has_in_commit_timestamps
from tidelog.log.format.row_tracking import preserves_ids
from tidelog.log.format.tombstone_list import TOMBSTONES, TombstoneChange, TombstoneFile, TombstoneList
from tidelog.log.pruning.partition_scope import Scope, in_scope
from tidelog.log.state import files
from tidelog.log.state.commits import read_commit
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState
from tidelog.log.state.tombstones import any_counts, has_file, tombstones_of
from tidelog.log.storage import Store
from tidelog.log.system import System


@dataclass(frozen=True, slots=True)
class Prepared:
    """The actions of a commit after its commitInfo; `written` are the small files that only this attempt names."""

    actions: list[Action]
    lineage: Lineage | None
    written: tuple[str, ...]
    tombstones: TombstoneList | None = None


def prepare(staged: Staged, state: LogState, store: Store, system: System, now_ms: int) -> Prepared:
    """Prepare the commit of `staged` on `state`, in which files leave the table at `now_ms`.

    Writes deletion vectors and row maps, durable on return. Raises CompactionVerificationError if a row map is not
    stored as it was written.
    """
    vectors = _Vectors(store, system)
    actions: list[Action] = []
    if staged.protocol is not None:
        actions.append(staged.protocol)
    if staged.metadata is not None:
        actions.append(staged.metadata)
    actions.extend(staged.domains)
    actions.extend(staged.transactions)
    if staged.fence is not None:
        actions.append(staged.fence)
    change, buried = staged.tombstones, list[str]()
    if change is not None and change.rows_differ:
        metadata = staged.metadata or state.head.metadata
        change, buried = buried_again(store, system, state.head, metadata, change, staged.deletes)
    if change is None:
        tombstones = _without_tombstones(staged, state.head, store, now_ms)
    else:
        tombstones = _tombstones(staged, change, state.head, store, now_ms)
    if tombstones is not None:
        actions.append(SetTransaction(TOMBSTONES, state.head.version + 1, state.head.next_timestamp_ms(now_ms)))
    for group in staged.moves:
        actions.extend(group.inputs)
        actions.extend(vectors.without_dead(group.outputs, staged.dead))
    actions.extend(_left_behind(staged.moved, vectors, now_ms))
    for delete in staged.deletes:
        actions.append(delete.file.removed(now_ms, data_change=True))
        actions.extend(delete.survivors or ())
        if delete.needs_vector:
            vectors.add(delete, data_change=True)
    actions.extend(_replaced(staged, state, store, now_ms))
    actions.extend(vectors.without_dead(staged.adds, staged.dead))
    actions.extend(staged.cdc)
    prepared = _finished(staged, actions, vectors, store, system)
    return replace(
        prepared,
        actions=with_new_ids(prepared.actions, staged, state, store),
        written=(*prepared.written, *buried),
        tombstones=tombstones,
    )


def _tombstones(staged: Staged, change: TombstoneChange, head: Head, store: Store, now_ms: int) -> TombstoneList | None:
    """The tombstones after the commit; None if it does not change them."""
    if not change.written and change.restored is None:
        return None
    if change.restored is not None:
        # A vacuum can have announced to delete them since they were staged.
        require_tombstones(store, change.restored, int(staged.parameters["version"]), head, now_ms)
    before, known = head.transactions.get(TOMBSTONES), tombstones_of(store, head, now_ms)
    if change.restored is not None and set(change.restored) == set(known):
        return None
    return TombstoneList(
        change.after(known),
        None if change.own is None else change.own.path,
        None if before is None else before.version,
    )


def _without_tombstones(staged: Staged, head: Head, store: Store, now_ms: int) -> TombstoneList | None:
    """The empty list, if the commit replaces the whole table and there are tombstones that it takes away."""
    if staged.replaces != Scope() or not any_counts(store, head, now_ms):
        return None
    return TombstoneList((), previous=head.transactions[TOMBSTONES].version)


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
    if vectors.pending:
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
        if not dead:
            yield from adds
            return
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


def _replaced(staged: Staged, state: LogState, store: Store, now_ms: int) -> list[Action]:
    """The removes and adds of an OVERWRITE, TRUNCATE or RESTORE on the newest state."""
    back: list[AddFile] = []
    if staged.restores is not None:
        removed, back_table = difference(state.files().adds, staged.restores)
        back = [msgspec.structs.replace(add, data_change=True) for add in files.to_adds(back_table)]
        # A vacuum can have announced to delete them since they were staged.
        require_restorable(store, back, int(staged.parameters["version"]), state.head)
    elif staged.replaces is not None:
        removed = in_scope(state, staged.replaces, staged.metadata or state.head.metadata, store.url)
    else:
        return []
    again = {canonical(add.path) for add in back}
    removes = [_gone(add, now_ms, is_back=canonical(add.path) in again) for add in files.to_adds(removed)]
    changes = staged.restores is not None or staged.adds or staged.metadata is not None or staged.protocol is not None
    if not changes and not any(remove.data_change for remove in removes):
        return []  # other commits have emptied the scope
    return [*removes, *back]


def _gone(add: AddFile, now_ms: int, *, is_back: bool) -> RemoveFile:
    """The remove of a file. Without a live row it changes no rows, unless the file comes back with another vector."""
    return add.removed(now_ms, data_change=is_back or statistics.live_rows(add) != 0)


# --- the commitInfo before the actions --------------------------------------------------------------------------------

_PRESERVED = "delta.rowTracking.preserved"
ENGINE = f"tidelog/{__version__}"


def commit_info_of(
    staged: Staged, head: Head, txn_id: str, now_ms: int, record: dict[str, Any], metrics: Mapping[str, int]
) -> CommitInfo:
    """The commitInfo of a commit on `head`; `record` goes under the key `tidelog`.

    Raises ConfigurationError if the clock is outside the years 1970 to 9999.
    """
    protocol = staged.protocol or head.protocol
    metadata = staged.metadata or head.metadata
    stamp = head.next_timestamp_ms(now_ms) if staged.timestamp_ms is None else staged.timestamp_ms
    if not 0 <= stamp <= commit_info.MAX_TIMESTAMP_MS:
        # Readers ignore such a time, so the versions' times would no longer increase.
        raise ConfigurationError(
            f"the time of the commit would be {stamp} ms after 1970, which is not in the years 1970 to 9999",
            advice="correct the clock; nothing was committed",
        )
    info: CommitInfo = {"timestamp": stamp}
    if has_in_commit_timestamps(protocol, metadata):
        info = {"inCommitTimestamp": stamp, **info}
    # An engine that reads row ids trusts them over this commit only if it says that it kept them.
    tags = {"tags": {_PRESERVED: "true"}} if preserves_ids(metadata) else {}
    return info | {
        "operation": staged.operation,
        "operationParameters": dict(staged.parameters),
        **({"readVersion": head.version} if head.version >= 0 else {}),
        "isolationLevel": "SnapshotIsolation" if staged.moves else "WriteSerializable",
        "isBlindAppend": staged.is_blind_append,
        "operationMetrics": {name: str(value) for name, value in metrics.items()},
        "engineInfo": ENGINE,
        "txnId": txn_id,
        **tags,
        "tidelog": record,
    }


def metrics_of(staged: Staged, actions: Sequence[Action]) -> dict[str, int]:
    """The staged metrics, with the file counts taken from the actions: a rebase can have changed them."""
    removes = [action for action in actions if isinstance(action, RemoveFile)]
    adds = [action for action in actions if isinstance(action, AddFile)]
    removed, added = removes, adds
    if removes and adds:
        gone, there = {canonical(remove.path) for remove in removes}, {canonical(add.path) for add in adds}
        removed = [remove for remove in removes if canonical(remove.path) not in there]
        added = [add for add in adds if canonical(add.path) not in gone]
    counted = {
        "numRemovedFiles": len(removed),
        "numRemovedBytes": sum(remove.size or 0 for remove in removed),
        "numAddedFiles": len(added),
        "numAddedBytes": sum(add.size for add in added),
        "numDeletionVectorsAdded": len(adds) - len(added),
    }
    return {name: counted.get(name, value) for name, value in staged.metrics.items()}


# --- row tracking: ids and commit versions for the files that a commit adds -------------------------------------------
#
# The ids follow the table's high-water mark, and a commit version is the number of the commit's own version. Both
# depend on the version that the commit follows, so they are assigned at each attempt.


def with_new_ids(actions: Sequence[Action], staged: Staged, state: LogState, store: Store) -> list[Action]:
    """The actions of a commit on `state`, with ids for the rows of each file that has none yet, and the new mark.

    A file that was in the table before keeps its ids and its commit version. A table without row tracking gets the
    actions as they are. Raises CorruptLogError if the table's mark is unusable, or new ids would repeat old ones.
    """
    head = state.head
    if not row_tracking.assigns_ids(staged.protocol or head.protocol, staged.metadata or head.metadata):
        return list(actions)
    old = mark = row_tracking.high_water_mark(head.domains, store.url)
    if any(isinstance(action, AddFile) and action.base_row_id is None for action in actions):
        _require_unused(mark, actions, state, store.url)
    tracked: list[Action] = []
    for action in actions:
        if not isinstance(action, AddFile):
            tracked.append(action)
            continue
        add = action
        if add.base_row_id is None:
            add = msgspec.structs.replace(add, base_row_id=mark + 1)
            rows = statistics.num_records(add.stats)
            # A file of another engine that a RESTORE brings back can lack statistics.
            mark += physical_rows(store, DataFile.of(add)) if rows is None else rows
        if add.default_row_commit_version is None:
            add = msgspec.structs.replace(add, default_row_commit_version=head.version + 1)
        tracked.append(add)
    return tracked if mark == old else [*tracked, row_tracking.mark_action(mark)]


def _require_unused(mark: int, actions: Sequence[Action], state: LogState, path: str) -> None:
    """Raise CorruptLogError if ids above the mark are in use, as far as that shows without the table's list of files.

    That list is read only for a table with files and without a mark: one to which the feature was added later, once.
    """
    known = [action.base_row_id for action in actions if isinstance(action, AddFile | RemoveFile)]
    highest = max((row_id for row_id in known if row_id is not None), default=-1)
    totals = state.head.totals
    if row_tracking.DOMAIN not in state.head.domains and (totals is None or totals.num_files):
        live = pc.max(state.files().adds["baseRowId"]).as_py()
        highest = highest if live is None else max(highest, live)
    row_tracking.require_mark(mark, highest, path)


# --- the files that a RESTORE removes and brings back -----------------------------------------------------------------


def difference(live: pa.Table, wanted: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The logical files to remove from `live`, and those to add to it, to get `wanted`."""
    live_keys, wanted_keys = files.keys(live), files.keys(wanted)
    removed = live.filter(pc.invert(pc.is_in(live_keys, value_set=wanted_keys.combine_chunks())))
    added = wanted.filter(pc.invert(pc.is_in(wanted_keys, value_set=live_keys.combine_chunks())))
    return removed, added


def require_restorable(store: Store, adds: list[AddFile], version: int, head: Head) -> None:
    """Raise HistoryExpiredError unless a RESTORE of `version`, committed on `head`, may bring these files back.

    All data files and deletion vectors must exist, and none may be one that a vacuum has announced to delete: one that
    was removed at or before the horizon.
    """
    horizon = horizon_of(head.transactions)
    if adds and version < horizon:
        removed_later: set[FileKey] = set()
        try:
            for number in range(horizon + 1, head.version + 1):
                removed_later.update(remove.key for remove in read_commit(store, number).removes)
        except FileNotFoundError as error:
            what = f"the commits since version {horizon}, which say what vacuum keeps, were cleaned up"
            raise _not_restorable(store, version, head, what, horizon) from error
        doomed = next((add.path for add in adds if add.key not in removed_later), None)
        if doomed is not None:
            what = f"its file {doomed} was removed at or before version {horizon}, and vacuum deletes such files"
            raise _not_restorable(store, version, head, what, horizon)
    names = {paths.to_storage_path(add.path) for add in adds}
    for add in adds:
        stored = deletion_vector.location(add.deletion_vector) if add.deletion_vector else b""
        if not isinstance(stored, bytes):
            names.add(paths.to_storage_path(stored.path))
    for name in sorted(names):
        try:
            store.modified_ms(name)
        except FileNotFoundError as error:
            what = f"its file {name} no longer exists"
            raise _not_restorable(store, version, head, what, max(horizon, version + 1)) from error


def require_tombstones(
    store: Store, files: Sequence[TombstoneFile] | None, version: int, head: Head, now_ms: int
) -> None:
    """Raise HistoryExpiredError unless the tombstones of `version` are there, and no vacuum may delete them."""
    if files is None:
        what = "the commits that say which keys had been deleted were cleaned up"
        raise _not_restorable(store, version, head, what, version + 1)
    known = {file.path for file in tombstones_of(store, head, now_ms)}
    horizon = horizon_of(head.transactions)
    for path in (file.path for file in files if file.path not in known):
        if version < horizon or not has_file(store, path):
            what = f"vacuum deletes, or has deleted, its file {path}"
            raise _not_restorable(store, version, head, what, max(horizon, version + 1))


def _not_restorable(store: Store, version: int, head: Head, why: str, earliest: int) -> HistoryExpiredError:
    return HistoryExpiredError(
        f"version {version} of {store.url} cannot be restored: {why}",
        advice="restore a later version; to let vacuum keep removed files longer, "
        f"increase {properties.DELETED_FILE_RETENTION}",
        path=store.url,
        earliest_version=earliest,
        latest_version=head.version,
    )
