"""Checkpoints with sidecars (V2), for tables with the feature `v2Checkpoint`: what they cost follows what has changed.

A sidecar holds some of the live files, or the tombstones. The checkpoint itself has everything else, and names its
sidecars. The next checkpoint reuses the sidecars that no commit has touched since. If files were removed from a
sidecar, a new one takes its place, so files keep their order. New files go into a sidecar at the end, which absorbs the
small ones before it. Once many files are at the end, all sidecars are rewritten, grouped by partition.

A sidecar that is used again can be old, and a clean-up deletes old sidecars that no checkpoint names. A process that
was paused for longer than the log's retention could name one that is gone. So once a checkpoint is written, its
sidecars are looked up, and without them it is deleted. Readers of a checkpoint that lacks one use an older checkpoint
that does not name it, or the commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.arrays import BoolArray
from tidelog.log.errors import CorruptLogError, HistoryExpiredError
from tidelog.log.format import filenames
from tidelog.log.format.actions import AddFile, Commit, RemoveFile, Sidecar
from tidelog.log.format.paths import canonical
from tidelog.log.format.protocol import may_have_sidecars
from tidelog.log.state import checkpoint_reader, checkpoint_writer, commits, files, head
from tidelog.log.state.checkpoint_reader import BOUNDS_TAG, FILES_TAG, HEAD_KEY, VERSION_TAG
from tidelog.log.state.checkpoint_writer import GROUPED_FILES
from tidelog.log.state.files import FileState
from tidelog.log.state.head import Head, Totals
from tidelog.log.state.loader import HeadFold
from tidelog.log.state.segment import CheckpointFiles, Segment, find_segment
from tidelog.log.storage import Store
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)

# The tags of the bytes of a sidecar's live files, and of one whose files are not grouped with the others.
_BYTES_TAG, _LATER_TAG = "tidelog.bytes", "tidelog.later"
# If a larger share of the files is in such sidecars, or in changed ones, all sidecars are rewritten.
_MOST_LATER, _MOST_CHANGED = 0.25, 0.5
# Beyond this many commits, replaying them costs more than writing all files.
_MOST_COMMITS = 1000
_SIDECAR = pa.struct(
    [
        ("path", pa.string()),
        ("sizeInBytes", pa.int64()),
        ("modificationTime", pa.int64()),
        ("tags", pa.map_(pa.string(), pa.string())),
    ]
)


def suits(table_head: Head) -> bool:
    """Whether checkpoints of the table are written with sidecars: it has the feature, and is large."""
    totals = table_head.totals
    return totals is not None and totals.num_files > GROUPED_FILES and may_have_sidecars(table_head.protocol)


@dataclass(slots=True)
class _NewSidecars:
    """Sidecars that are written for a checkpoint, and made durable together."""

    store: Store
    system: System
    version: int
    paths: list[str] = field(default_factory=list)

    def add(
        self,
        adds: pa.Table = files.EMPTY.adds,
        removes: pa.Table = files.EMPTY.removes,
        *,
        bounds: str | None = None,
        later: bool = False,
    ) -> Sidecar:
        """Write one with these live files or tombstones. `bounds` are the statistics of the partition values."""
        table = checkpoint_writer.stacked(
            {"remove": checkpoint_writer.nested(removes), "add": checkpoint_writer.nested(adds)}
        )
        content = checkpoint_writer.parquet_of(table, [0], {}, self.version)
        name = f"{self.system.uuid()}.parquet"
        path = f"{filenames.SIDECAR_FOLDER}/{name}"
        with self.store.create_unsynced(path) as file:
            file.write(content)
        self.paths.append(path)
        size_bytes = pc.sum(adds["size"]).as_py() or 0
        tags: dict[str, str | None] = {VERSION_TAG: str(self.version), FILES_TAG: str(adds.num_rows)}
        tags[_BYTES_TAG] = str(size_bytes)
        tags |= {BOUNDS_TAG: bounds} if bounds else {}
        tags |= {_LATER_TAG: "true"} if later else {}
        return Sidecar(name, len(content), self.system.now_ms(), tags)

    def sync(self) -> None:
        """Make them durable."""
        self.store.sync(self.paths)


def write_whole(store: Store, table_head: Head, state: FileState, system: System) -> None:
    """Write a checkpoint of the head's version, all of whose sidecars are new. An existing one is left alone."""
    with suppress(FileNotFoundError):
        store.modified_ms(filenames.checkpoint_path(table_head.version))
        return
    new = _NewSidecars(store, system, table_head.version)
    adds, bounds = checkpoint_writer.grouped(state, table_head.metadata, store.url)
    length = checkpoint_writer.group_rows(adds.num_rows)

    def written(start: int) -> Sidecar:
        return new.add(adds.slice(start, length), bounds=bounds[start // length] if bounds else None)

    sidecars = checkpoint_reader.for_each(store, written, range(0, adds.num_rows, length))
    if state.removes.num_rows:
        sidecars.append(new.add(removes=state.removes))
    new.sync()
    _put(store, table_head, sidecars)


def write_changes(store: Store, version: int, before_ms: int, system: System) -> Head | None:
    """Write a checkpoint of `version` that uses the sidecars of the one before it again. Returns its head.

    Leaves out tombstones from before `before_ms`. Returns None, and leaves no checkpoint, if there is none to build on
    or if it is better to rewrite all sidecars.
    """
    try:
        segment = find_segment(store, version)
        base = segment.checkpoint
        if base is None or not 0 < len(segment.commit_versions) <= _MOST_COMMITS:
            return None
        return _write_changes(store, segment, base, before_ms, system)
    except (CorruptLogError, HistoryExpiredError) as error:  # a clean-up can have deleted commits meanwhile
        _LOGGER.warning("rewriting all sidecars of %s: %s", store.url, error)
        return None


def _write_changes(
    store: Store, segment: Segment, base: CheckpointFiles, before_ms: int, system: System
) -> Head | None:
    old = _own_sidecars(store, base)
    if not old:
        return None
    fold = HeadFold(store)
    fold.begin(segment, base)
    new_commits: list[Commit] = []
    named = 0
    for block in fold.through(commits.commit_blocks(store, segment.commit_versions)):
        new_commits += block
        named += sum(len(_of_files(commit)) for commit in block)
        if named > _MOST_CHANGED * sum(map(_count, old)):
            return None
    folded = fold.head(segment.version, None)
    if not suits(folded) or _come_back(new_commits):
        return None
    live = [sidecar for sidecar in old if _count(sidecar)]
    tombstones = [sidecar for sidecar in old if not _count(sidecar)]
    changed = _changed(store, live, base.version, new_commits)
    if sum(_count(sidecar) for sidecar in live if sidecar.path in changed) > _MOST_CHANGED * sum(map(_count, live)):
        return None
    return _Changes(store, base, folded, new_commits, before_ms, system).write(live, changed, tombstones)


@dataclass(frozen=True, slots=True)
class _Part:
    """A sidecar that is to be written."""

    adds: pa.Table
    bounds: str | None = None
    later: bool = False


@dataclass(frozen=True, slots=True)
class _Changes:
    """The changes since the checkpoint `base`."""

    store: Store
    base: CheckpointFiles
    head: Head
    commits: list[Commit]
    before_ms: int
    system: System

    def write(
        self, live: Sequence[Sidecar], changed: dict[str, set[str]], tombstones: Sequence[Sidecar]
    ) -> Head | None:
        """Write the next checkpoint. Returns None if all sidecars should be rewritten.

        `changed` are the paths of the `live` sidecars with files that the commits name, and the paths of these.
        """
        parts: list[Sidecar | _Part] = []
        for sidecar in live:
            if sidecar.path not in changed:
                parts.append(sidecar)
                continue
            before = FileState(self._read(sidecar).adds, files.EMPTY.removes)
            left = files.apply(before, self._about(changed[sidecar.path])).adds
            if left.num_rows:
                tags = sidecar.tags or {}
                # The bounds still hold for what is left, and for another version of a file.
                parts.append(_Part(left, tags.get(BOUNDS_TAG), later=_LATER_TAG in tags))
        old = pa.concat_tables([files.EMPTY.removes, *(self._read(sidecar).removes for sidecar in tombstones)])
        state = files.apply(FileState(files.EMPTY.adds, old), self.commits)
        placed = pa.array(sorted(set().union(*changed.values())), pa.string())
        added = state.adds.filter(pc.invert(pc.is_in(_canonical(state.adds["path"]), placed)))
        later = self._merged(parts, added)
        if later.num_rows:
            parts.append(_Part(later, later=True))
        ungrouped = sum(_count(part) for part in parts if _is_later(part))
        if self.head.metadata.partition_columns and ungrouped > _MOST_LATER * sum(map(_count, parts)):
            return None
        return self._written(parts, state.removes)

    def _written(self, parts: Sequence[Sidecar | _Part], removes: pa.Table) -> Head | None:
        new = _NewSidecars(self.store, self.system, self.head.version)
        kept = [
            new.add(part.adds, bounds=part.bounds, later=part.later) if isinstance(part, _Part) else part
            for part in parts
        ]
        dead = files.drop_expired_tombstones(FileState(files.EMPTY.adds, removes), self.before_ms).removes
        if dead.num_rows:
            kept.append(new.add(removes=dead))
        new.sync()
        totals = Totals(sum(map(_count, kept)), sum(_number(sidecar, _BYTES_TAG) for sidecar in kept))
        counted = head.with_totals(self.head, totals)
        return counted if _put(self.store, counted, kept) else None

    def _merged(self, parts: list[Sidecar | _Part], adds: pa.Table) -> pa.Table:
        """The new files, and before them those of the last sidecars in `parts` that are small, which are taken out."""
        found, count = [adds], adds.num_rows
        while parts and _is_later(parts[-1]) and _count(parts[-1]) <= min(2 * count, GROUPED_FILES):
            last = parts.pop()
            found.insert(0, last.adds if isinstance(last, _Part) else self._read(last).adds)
            count += found[0].num_rows
        return pa.concat_tables(found)

    def _read(self, sidecar: Sidecar) -> FileState:
        return checkpoint_reader.read_sidecar(self.store, sidecar, self.base.version)

    def _about(self, paths: set[str]) -> list[Commit]:
        """The commits, with only their actions about these paths."""
        return [
            Commit(
                commit.version, commit.info, tuple(each for each in _of_files(commit) if canonical(each.path) in paths)
            )
            for commit in self.commits
        ]


def _of_files(commit: Commit) -> list[AddFile | RemoveFile]:
    return [*commit.adds, *commit.removes]


def _own_sidecars(store: Store, base: CheckpointFiles) -> list[Sidecar]:
    """The sidecars of a checkpoint, if tidelog wrote all of them."""
    if len(base.names) != 1 or not base.names[0].endswith(".parquet"):
        return []
    found = checkpoint_reader.read_sidecars(store, base)
    return found if all(FILES_TAG in (sidecar.tags or {}) for sidecar in found) else []


def _count(part: Sidecar | _Part) -> int:
    """How many live files are in a sidecar of tidelog's."""
    return part.adds.num_rows if isinstance(part, _Part) else _number(part, FILES_TAG)


def _is_later(part: Sidecar | _Part) -> bool:
    return part.later if isinstance(part, _Part) else _LATER_TAG in (part.tags or {})


def _number(sidecar: Sidecar, tag: str) -> int:
    text = (sidecar.tags or {}).get(tag) or ""
    return int(text) if text.isdecimal() else 0


def _canonical(paths: pa.ChunkedArray) -> pa.Array:
    return pa.array([canonical(path) for path in paths.to_pylist()], pa.string())


def _come_back(new_commits: Iterable[Commit]) -> bool:
    """Whether a file was removed by one commit and added by a later one: it gets a new place, at the end."""
    gone: set[str] = set()
    for commit in new_commits:
        adds = {canonical(add.path) for add in commit.adds}
        if adds & gone:
            return True
        gone |= {canonical(remove.path) for remove in commit.removes} - adds
    return False


def _changed(store: Store, live: Sequence[Sidecar], version: int, new_commits: Iterable[Commit]) -> dict[str, set[str]]:
    """The sidecars with files that the commits name, and the paths of these files."""
    texts = {canonical(action.path) for commit in new_commits for action in _of_files(commit)}
    named = pa.array(sorted(texts), pa.string())
    hashes = np.sort(files.path_hashes(pa.chunked_array([named])))

    def of(sidecar: Sidecar) -> set[str]:
        paths = checkpoint_reader.read_live_paths(store, sidecar, version)
        maybe: BoolArray = files.is_among(files.path_hashes(paths), hashes)
        return texts.intersection(map(canonical, paths.filter(pa.array(maybe)).to_pylist()))

    found = checkpoint_reader.for_each(store, of, live)
    return {sidecar.path: paths for sidecar, paths in zip(live, found, strict=True) if paths}


def _put(store: Store, table_head: Head, sidecars: Sequence[Sidecar]) -> bool:
    """Write the checkpoint itself, and the pointer to it. Returns whether there is one now."""
    totals = table_head.totals
    assert totals is not None, "files are counted before they are written"
    rows = pa.array([_row(sidecar) for sidecar in sidecars], _SIDECAR)
    table = checkpoint_writer.head_table(table_head, files.EMPTY, {"sidecar": rows})
    known = checkpoint_writer.files_known(table_head, totals)
    facts = {**checkpoint_writer.commit_anchors(store, table_head), HEAD_KEY: known}
    content = checkpoint_writer.parquet_of(table, [0], facts, table_head.version)
    path = filenames.checkpoint_path(table_head.version)
    try:
        store.put_if_absent(path, content)
    except FileExistsError:
        return True
    there = {status.name for status in store.list(filenames.SIDECAR_FOLDER)}
    if not there.issuperset(sidecar.path for sidecar in sidecars):
        _LOGGER.warning("deleting the checkpoint of version %d of %s: a sidecar is gone", table_head.version, store.url)
        store.delete(path)
        return False
    checkpoint_writer.point_to(store, table_head.version, table.num_rows, len(content), totals.num_files)
    return True


def _row(sidecar: Sidecar) -> dict[str, object]:
    return {**msgspec.to_builtins(sidecar), "tags": list((sidecar.tags or {}).items())}
