"""The commit times of a table.

With in-commit timestamps, a commit contains its time. Without, the modification time of its file counts. Copying or
restoring a table can put those out of order, so Delta's readers make them increase: each time is at least one
millisecond after the one before. So a time can depend on any commit before it, and anchors (see below) are
what keeps a lookup from looking at all of them.

An anchor counts if its commit's file still has the recorded time. All processes that know the same anchors agree on all
times, even if single files were touched since: the times between two anchors stay between theirs.
"""

from __future__ import annotations

import itertools
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.log.format import commit_info, filenames
from tidelog.log.format.actions import Commit
from tidelog.log.format.filenames import LogFileKind
from tidelog.log.format.text import MALFORMED_JSON
from tidelog.log.state.commits import is_there, read_info
from tidelog.log.state.segment import pointed_version
from tidelog.log.storage import Store
from tidelog.log.system import logger

# --- anchors ----------------------------------------------------------------------------------------------------------
#
# Anchors are some commits whose file times a checkpoint contains, so that a lookup need not look at every commit. The
# time of an anchor is its file's, which does not depend on earlier commits. So the times of the commits from one anchor
# to the next follow from the file times of these alone. In a checkpoint of tidelog, anchors are one entry of the
# parquet file's key-value metadata. Only the footer is read for them, which the file's seal does not prove intact, so
# they have a CRC-32 of their own.

ANCHORS_KEY = "tidelog.commitTimes"

# One listing of an object store has the commits between two anchors, checksums included.
_SPACING = 256
_MAX_ANCHORS = 1024
# More than the largest number of anchors takes.
_MAX_TEXT = 2**17
# More than a parquet footer takes, so that a hostile one does not fill the memory.
_MAX_FOOTER = 2**26
# A parquet file ends with the footer's length and `PAR1`.
_PARQUET_END = 8

_LOGGER = logger(__name__)


class Anchor(NamedTuple):
    """A commit, and its time, which is that of its file, in ms since the epoch."""

    version: int
    time_ms: int


class _Recorded(msgspec.Struct):
    anchors: list[Anchor]
    crc32: int


def read_anchors(store: Store) -> tuple[Anchor, ...]:
    """The anchors in the newest checkpoint; none if it has none, as those of other engines, or cannot be read."""
    version = pointed_version(store)
    if version is None or not 0 <= version <= filenames.MAX_VERSION:
        return ()
    try:
        with store.open_input(filenames.checkpoint_path(version)) as source:
            source.seek(max(0, source.size() - _PARQUET_END))
            if int.from_bytes(source.read(_PARQUET_END)[:4], "little") > _MAX_FOOTER:
                return ()
            text = (pq.read_metadata(source).metadata or {}).get(ANCHORS_KEY.encode(), b"")
    except (pa.ArrowException, OSError, ValueError) as error:
        _LOGGER.debug("checkpoint %d of %s has no readable commit times: %s", version, store.url, error)
        return ()
    return tuple(anchor for anchor in anchors_in(text) if anchor.version <= version)


def anchors_text(anchors: Sequence[Anchor]) -> str:
    """The anchors as text for a checkpoint."""
    return msgspec.json.encode(_Recorded([*anchors], _crc32(anchors))).decode()


def anchors_in(text: bytes) -> tuple[Anchor, ...]:
    """The anchors in the text of a checkpoint; none if it is damaged or makes no sense."""
    if len(text) > _MAX_TEXT:
        return ()
    try:
        recorded = msgspec.json.decode(text, type=_Recorded)
    except MALFORMED_JSON:
        return ()
    found = recorded.anchors
    in_range = all(
        0 <= version <= filenames.MAX_VERSION and 0 <= time_ms <= commit_info.MAX_TIMESTAMP_MS
        for version, time_ms in found
    )
    if not in_range or not all(itertools.starmap(_leaves_room, itertools.pairwise(found))):
        return ()
    return tuple(found) if recorded.crc32 == _crc32(found) else ()


def spread_out(candidates: Sequence[Anchor]) -> list[Anchor]:
    """The anchors to keep, among candidates in ascending order: some at a distance from each other, and the newest."""
    spacing = _SPACING
    while True:
        found: list[Anchor] = []
        for candidate in candidates:
            if not found or (candidate.version - found[-1].version >= spacing and _leaves_room(found[-1], candidate)):
                found.append(candidate)
        if len(found) < _MAX_ANCHORS:
            break
        spacing *= 2
    if candidates and candidates[-1] != found[-1] and _leaves_room(found[-1], candidates[-1]):
        found.append(candidates[-1])
    return found


def _leaves_room(before: Anchor, after: Anchor) -> bool:
    """Whether each commit between the two anchors can have a millisecond of its own."""
    return 0 < after.version - before.version <= after.time_ms - before.time_ms


def _crc32(anchors: Sequence[Anchor]) -> int:
    return zlib.crc32(msgspec.json.encode(anchors))


# After so many new commits the rest is forgotten, because some of it was cleaned up since.
_MAX_NEW = 2**16
# --- the times of commits ---------------------------------------------------------------------------------------------

# Of the commits between anchors, about so many are kept in memory.
_MAX_BETWEEN = 2**17
# From one anchor to the next there are at most so many commits. For more, listing the log is as good.
_MAX_GAP = 2**20


class CommitTimes:
    """The commit times of one table.

    If commits carry no timestamp, this looks at the files from the anchor before a commit to the one after it, or lists
    the log if there is no such anchor. What was found stays in memory. Threads can share an instance.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._forget()

    def _forget(self) -> None:
        # None until they are read. `_recorded` stay known after the log was listed, when `_anchors` are not used.
        self._recorded: tuple[Anchor, ...] | None = None
        self._anchors: tuple[Anchor, ...] = ()
        # The commits between two anchors, by the number of the first; and those after the last anchor.
        self._between: OrderedDict[int, _Times] = OrderedDict()
        self._newest: _Times | None = None
        self._new = 0

    def of(self, commit: Commit) -> int:
        """The commit's time in ms since the epoch. Raises FileNotFoundError if it depends on a file that is gone."""
        stamp = commit_info.in_commit_timestamp_ms(commit.info)
        return self._by_file(commit.version) if stamp is None else stamp

    def at(self, version: int) -> int:
        """The time of the commit at `version` in ms since the epoch; -1, which is before all others, if it is gone."""
        try:
            stamp = commit_info.in_commit_timestamp_ms(read_info(self._store, version))
            return self._by_file(version) if stamp is None else stamp
        except FileNotFoundError:
            return -1

    def is_by_file(self, version: int) -> bool:
        """Whether the commit at `version` is there and has the time of its file, because it contains none."""
        try:
            return commit_info.in_commit_timestamp_ms(read_info(self._store, version)) is None
        except FileNotFoundError:
            return False

    def is_by_itself(self, version: int, modified_ms: int) -> bool:
        """Whether the time of the commit at `version` (file time `modified_ms`) does not depend on earlier commits."""
        return not self.is_by_file(version) or self._by_file(version) == modified_ms

    def newest_by_file(self, at_ms: int, head_version: int) -> int | None:
        """The newest commit up to `head_version` with a file time up to `at_ms`; None if there is none."""
        with self._lock:
            anchors = self._known_anchors()
            place = min(bisect_right(anchors, at_ms, key=_time), bisect_right(anchors, head_version, key=_version)) - 1
            if place < 0 and anchors and anchors[0].version == 0:
                place = 0  # no commit is before this anchor
            return self._piece(place, head_version).newest(at_ms, head_version)

    def anchors(self, until: int) -> list[Anchor]:
        """The anchors for a checkpoint of version `until`: the known ones, and some of the commits since."""
        with self._lock:
            place = bisect_right(self._known_anchors(), until, key=_version) - 1
            piece = self._piece(place, until)
            before = self._anchors[: max(0, place)]
            if before and not is_there(self._store, before[0].version):  # a clean-up deletes the oldest first
                gone = bisect_left(before, 1, key=lambda anchor: int(is_there(self._store, anchor.version)))
                before = before[gone:]
            return spread_out([*before, *piece.by_themselves(until)])

    def _by_file(self, version: int) -> int:
        with self._lock:
            place = bisect_right(self._known_anchors(), version, key=_version) - 1
            found = self._piece(place, version).time(version)
            if found is None:
                # A listing that runs during commits can show a commit and miss the one before it.
                self._list()
                found = self._piece(-1, version).time(version)
        if found is None:
            raise FileNotFoundError(filenames.commit_path(version))
        return found

    def _known_anchors(self) -> tuple[Anchor, ...]:
        if self._recorded is None:
            self._recorded = self._anchors = read_anchors(self._store)
        return self._anchors

    def _piece(self, place: int, until: int) -> _Times:
        """The commits from the anchor with the number `place` to the next one; after the last one, up to `until`.

        All commits if these anchors do not count, or there is none before.
        """
        if place == len(self._anchors) - 1:
            return self._up_to(until)
        found = self._between.get(place)
        if found is None:
            found = self._from_anchor(place, self._anchors[place + 1].version) if place >= 0 else None
            if found is None:
                return self._list()
            self._between[place] = found
            while len(self._between) > 1 and sum(map(len, self._between.values())) > _MAX_BETWEEN:
                self._between.popitem(last=False)
        self._between.move_to_end(place)
        return found

    def _up_to(self, until: int) -> _Times:
        newest = self._newest
        if newest is not None and self._new + until - newest.last > _MAX_NEW:
            self._forget()
            return self._piece(bisect_right(self._known_anchors(), until, key=_version) - 1, until)
        if newest is None and self._anchors:
            newest = self._newest = self._from_anchor(len(self._anchors) - 1, until)
        if newest is None:
            newest = self._list()
        missing = range(newest.last + 1, until + 1)
        if missing:
            self._new += len(missing)
            newest.extend(*self._look(missing))
        return newest

    def _from_anchor(self, place: int, until: int) -> _Times | None:
        """The commits from an anchor up to `until`, without the next anchor. None if either does not count."""
        ends = self._anchors[place : place + 2]
        if until - ends[0].version > _MAX_GAP:
            return None
        versions, file_times = self._look(range(ends[0].version, until + 1))
        found = _Times(versions, file_times, ends)
        return found if found.anchors == len(ends) else None

    def _look(self, versions: range) -> tuple[Sequence[int], Sequence[int]]:
        """Which of the commits are there, and their file times."""
        names = {filenames.commit_name(version): version for version in versions}
        found = self._store.modified_times_of(filenames.LOG_FOLDER, [*names])
        there = [name for name in names if name in found]
        return [names[name] for name in there], [found[name] for name in there]

    def _list(self) -> _Times:
        """All commits, with the times that follow from the anchors that count."""
        listed = self._store.modified_times(filenames.LOG_FOLDER, filenames.COMMIT_SUFFIX)
        names = [name for name, _ in listed]
        versions = filenames.versions(names, LogFileKind.COMMIT)
        if len(versions) < len(listed):
            listed = [entry for entry in listed if filenames.versions(entry[:1], LogFileKind.COMMIT)]
        times = np.fromiter((time for _, time in listed), np.int64, len(listed))
        order = np.argsort(np.array(versions, np.int64), kind="stable")
        self._newest = _Times(np.array(versions, np.int64)[order], times[order], self._recorded or ())
        self._anchors, self._new = (), 0
        self._between.clear()
        return self._newest


class _Times:
    """Commits in ascending order with their file times, and their commit times. `anchors` is how many of them count."""

    def __init__(self, versions: Any, file_times: Any, anchors: Sequence[Anchor] = ()) -> None:
        self._versions, self._file_times, self._times = array("q"), array("q"), array("q")
        places = {version: place for place, version in enumerate(versions)} if anchors else {}
        ends = [
            (places[version], time)
            for version, time in anchors
            if version in places and file_times[places[version]] == time
        ]
        self.anchors = len(ends)
        start = 0
        for end, time in ends:
            self._append(versions[start:end], file_times[start:end], below=time)
            start = end
        self._append(versions[start:], file_times[start:])

    def __len__(self) -> int:
        return len(self._versions)

    @property
    def last(self) -> int:
        return self._versions[-1] if self._versions else -1

    def extend(self, versions: Sequence[int], file_times: Sequence[int]) -> None:
        """Add commits that follow."""
        self._append(versions, file_times)

    def time(self, version: int) -> int | None:
        """The time of a commit; None if it is not here."""
        place = bisect_left(self._versions, version)
        return self._times[place] if place < len(self) and self._versions[place] == version else None

    def newest(self, at_ms: int, head_version: int) -> int | None:
        """The newest commit up to both; None if there is none."""
        place = min(bisect_right(self._times, at_ms), bisect_right(self._versions, head_version)) - 1
        return None if place < 0 else self._versions[place]

    def by_themselves(self, until: int) -> Iterable[Anchor]:
        """The commits up to `until` with the times of their files."""
        for version, file_time, time in zip(self._versions, self._file_times, self._times, strict=True):
            if version <= until and file_time == time:
                yield Anchor(version, time)

    def _append(self, versions: Any, file_times: Any, below: int | None = None) -> None:
        """Each time is the file's, or one more than the time before, whichever is later; and all are before `below`.

        So minus their places the times are the largest value so far; and the first one is at least 0.
        """
        files = np.asarray(file_times, np.int64)
        places = np.arange(len(files))
        earliest = self._times[-1] + 1 if self._times else 0
        times = np.maximum(np.maximum.accumulate(files - places), earliest) + places
        if below is not None:
            times = np.minimum(times, below - len(files) + places)
        self._versions.frombytes(np.asarray(versions, np.int64).tobytes())
        self._file_times.frombytes(files.tobytes())
        self._times.frombytes(times.tobytes())


def _version(anchor: Anchor) -> int:
    return anchor.version


def _time(anchor: Anchor) -> int:
    return anchor.time_ms
