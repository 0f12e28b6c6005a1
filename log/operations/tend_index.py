"""Keep a table's key index small and whole: cover files without a run, merge runs, delete those that nobody needs.

None of it is a commit, and none of it changes rows: an index that nobody tends only gets slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.arrays import BoolArray
from tidelog.log.cleanup.pieces import Pieces
from tidelog.log.data.indexed_key import IndexedKey
from tidelog.log.data.key_runs import (
    FileKeys,
    KeyRun,
    UnusableRunError,
    are_some_without_room,
    forget,
    merge_runs,
    new_run_path,
    open_runs,
    run_paths,
    useless_runs,
    write_run,
)
from tidelog.log.data.reader import DataFile, read_batches
from tidelog.log.data.run_head import MOST_HEAD_BYTES
from tidelog.log.errors import TidelogError
from tidelog.log.format import properties
from tidelog.log.format.schema import columns_of
from tidelog.log.state.files import to_adds
from tidelog.log.state.loader import LogState
from tidelog.log.storage import Store
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)

# Runs whose sizes differ by less than this factor are merged, once there are so many of them. Few large runs make
# lookups fast, and many small ones are merged seldom.
_FACTOR = 8
_LARGE = 2**21
_OF_SMALL, _OF_LARGE = 4, 2
# How large the keys are that are read for one run, in memory.
_BYTES_AT_ONCE = 2**26


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What was done for a key index: files that it covers now, runs that became one, runs that were deleted.

    `runs` is how many there are.
    """

    covered: int = 0
    merged: int = 0
    deleted: int = 0
    runs: int = 0

    @property
    def did_anything(self) -> bool:
        """Whether something was written or deleted."""
        return bool(self.covered or self.merged or self.deleted)


def tend_index(
    store: Store, state: LogState, system: System, *, reads: bool = True, most_entries: int | None = None
) -> Pieces[IndexReport]:
    """Do what is due for the key index of a table at a version, which may be an older one by the time it is done.

    Without `reads`, no data file is read, and files without a run stay so. Runs of more than `most_entries` are not
    merged.

    A file or a run that cannot be read is left for the next time. Raises StoreUnavailableError, PathNotWritableError.
    """
    metadata = state.head.metadata
    key = IndexedKey.of(metadata, columns_of(metadata, store.url))
    if key is None:
        return IndexReport(deleted=_delete_all(store))
    files = state.files().adds
    runs = open_runs(store, key)
    dead = [run for run, live in _live(runs, files) if not live.any()]
    deleted = _deleted(store, state, system, dead, useless_runs(store, key))
    yield
    # A run that is not open can cover the files that seem to have none.
    reads = reads and not are_some_without_room(store, key)
    covered = (yield from _cover(store, state, system, key, runs)) if reads else 0
    merged = 0
    alive = [(run, live) for run, live in _live(open_runs(store, key), files) if live.any()]
    for group in _groups([pair for pair in alive if most_entries is None or len(pair[0]) <= most_entries]):
        merged += yield from _merged(store, system, key, group)
    return IndexReport(covered, merged, deleted, len(open_runs(store, key)))


# A run, and which of its files are live.
_Pair: TypeAlias = tuple[KeyRun, BoolArray]


def _live(runs: Sequence[KeyRun], files: pa.Table) -> list[_Pair]:
    if not runs:
        return []
    paths = pa.chunked_array([run.paths for run in runs], pa.string())
    is_live = np.asarray(pc.is_in(paths, value_set=files["path"].combine_chunks()))
    ends = np.cumsum([len(run.rows) for run in runs])
    return list(zip(runs, np.split(is_live, ends[:-1]), strict=True))


def _deleted(store: Store, state: LogState, system: System, dead: Sequence[KeyRun], useless: Sequence[str]) -> int:
    """Delete runs of no live file, and what is no run of this table, if no transaction can be about to commit them.

    So it is if their files have left the table, or if they are old.
    """
    longest_ms = properties.duration_ms(state.head.metadata.configuration, properties.MAX_TRANSACTION_TIME)
    removed = state.files().removes
    gone = [run.path for run, has_left in _live(dead, removed) if has_left.all()]
    count = 0
    for path in [*(run.path for run in dead), *useless]:
        try:
            if path in gone or store.modified_ms(path) < system.now_ms() - longest_ms:
                store.delete(path)
                count += 1
        except FileNotFoundError:
            continue
    return count


def _delete_all(store: Store) -> int:
    """Delete all runs of a table that has no index any more. A writer that does not know it yet leaves one."""
    paths = run_paths(store)
    for path in paths:
        store.delete(path)
    return len(paths)


def _cover(store: Store, state: LogState, system: System, key: IndexedKey, runs: Sequence[KeyRun]) -> Pieces[int]:
    """Write runs for the live files that have none. Returns the number of files."""
    files = state.files()
    known = files.values.rows()
    paths = pa.chunked_array([run.paths for run in runs], pa.string()).combine_chunks()
    is_open = pc.and_(pc.invert(pc.is_in(files.adds["path"], value_set=paths)), pc.is_valid(known))
    waiting: list[FileKeys] = []
    size = covered = 0
    for add in to_adds(files.adds.filter(is_open)):
        found = _keys_of(store, DataFile.of(add), key, state)
        if found is not None:
            waiting.append(found)
            size += found.rows.nbytes
        if size >= _BYTES_AT_ONCE:
            covered += _written(store, system, key, waiting)
            waiting, size = [], 0
        yield
    return covered + _written(store, system, key, waiting)


def _written(store: Store, system: System, key: IndexedKey, files: Sequence[FileKeys]) -> int:
    """Write a run. Returns the number of its files: 0 if their keys do not fit into memory."""
    if not files:
        return 0
    try:
        write_run(store, new_run_path(system), key, files)
    except (pa.ArrowException, MemoryError) as error:
        _LOGGER.warning("the keys of %d files of %s have no run: %s", len(files), store.url, error)
        return 0
    return len(files)


def _keys_of(store: Store, file: DataFile, key: IndexedKey, state: LogState) -> FileKeys | None:
    """What a run needs of all rows of a file, dead ones included; None if it cannot be read."""
    table = columns_of(state.head.metadata, store.url)
    schema = pa.schema([table.field(name).with_nullable(True) for name in key.stored])  # noqa: FBT003 - pyarrow's signature
    whole = msgspec.structs.replace(file, deletion_vector=None)
    try:
        return FileKeys(file.path, pa.Table.from_batches(read_batches(store, whole, schema), schema))
    except (TidelogError, OSError, pa.ArrowException) as error:
        _LOGGER.warning("the keys of %s of %s cannot be read: %s", file.path, store.url, error)
        return None


def _groups(runs: Sequence[_Pair]) -> Iterator[list[_Pair]]:
    """The runs to merge with each other: those of about the same size, if there are enough, and not too large."""
    tiers: dict[int, list[_Pair]] = {}
    for run, live in runs:
        tier, size = 0, len(run)
        while size >= _FACTOR:
            tier, size = tier + 1, size // _FACTOR
        tiers.setdefault(tier, []).append((run, live))
    for found in tiers.values():
        if len(found) >= (_OF_LARGE if max(len(run) for run, _ in found) >= _LARGE else _OF_SMALL):
            yield from (group for group in _of_one_head(found) if len(group) > 1)


def _of_one_head(runs: Sequence[_Pair]) -> Iterator[list[_Pair]]:
    """The runs in groups whose heads fit into one."""
    group: list[_Pair] = []
    size = 0
    for run, live in sorted(runs, key=lambda pair: pair[0].head_bytes):
        if group and size + run.head_bytes > MOST_HEAD_BYTES:
            yield group
            group, size = [], 0
        group.append((run, live))
        size += run.head_bytes
    yield group


def _merged(store: Store, system: System, key: IndexedKey, group: Sequence[_Pair]) -> Pieces[int]:
    """Merge runs, and delete them. Returns how many there were."""
    runs, kept = [run for run, _ in group], []
    seen: set[str] = set()
    for run, live in group:
        # Two runs can cover one file: one is enough.
        paths = run.paths.to_pylist()
        kept.append(live & np.array([path not in seen for path in paths], dtype=bool))
        seen.update(paths)
    try:
        yield from merge_runs(store, new_run_path(system), key, runs, kept)
    except UnusableRunError as error:
        _LOGGER.warning("%s; its files are read again", error)
        if error.is_final:
            forget(store, key, error.path)
        return 0
    for run in runs:
        store.delete(run.path)
    return len(runs)
