"""Anchors: some commits whose file times a checkpoint contains, so that a lookup need not look at every commit.

The time of an anchor is its file's, which does not depend on earlier commits. So the times of the commits from one
anchor to the next follow from the file times of these alone.

In a checkpoint of tidelog, anchors are one entry of the parquet file's key-value metadata. Only the footer is read for
them, which the file's seal does not prove intact, so they have a CRC-32 of their own.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.log.format import commit_info, filenames
from tidelog.log.format.text import MALFORMED_JSON
from tidelog.log.state.segment import pointed_version
from tidelog.log.storage import Store
from tidelog.log.system import logger

KEY = "tidelog.commitTimes"

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
            text = (pq.read_metadata(source).metadata or {}).get(KEY.encode(), b"")
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
