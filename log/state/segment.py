"""Which files of the log make up a version: the newest usable checkpoint and the commits after it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tidelog.log.errors import CorruptLogError, HistoryExpiredError, TableNotFoundError
from tidelog.log.format import filenames
from tidelog.log.format.filenames import LogFileKind
from tidelog.log.storage import Store


@dataclass(frozen=True, slots=True)
class Segment:
    """`version` is made of the checkpoint at `checkpoint_version` (None: none is needed) and the commits after it.

    `checksum_versions` are the versions within the segment that have a `.crc`, ascending. `earliest_version` is the
    oldest version that the log can still rebuild.
    """

    version: int
    checkpoint_version: int | None
    checksum_versions: tuple[int, ...]
    earliest_version: int

    @property
    def commit_versions(self) -> range:
        """The commits to replay on top of the checkpoint, oldest first."""
        first = 0 if self.checkpoint_version is None else self.checkpoint_version + 1
        return range(first, self.version + 1)


def list_segment(
    store: Store, version: int | None = None, *, without_checkpoints: Collection[int] = frozenset()
) -> Segment:
    """The segment of `version` (None: the newest), by listing the log once.

    `without_checkpoints` are versions whose checkpoint turned out to be unreadable. Raises TableNotFoundError where
    there is no log, HistoryExpiredError where the version is not (or no longer) there, CorruptLogError where a commit
    in the middle is missing.
    """
    commits: set[int] = set()
    checkpoints: set[int] = set()
    checksums: list[int] = []
    for status in store.list(filenames.LOG_FOLDER):
        file = filenames.parse(status.name)
        if file is None:
            continue
        match file.kind:
            case LogFileKind.COMMIT:
                commits.add(file.version)
            case LogFileKind.CHECKPOINT:
                checkpoints.add(file.version)
            case LogFileKind.CHECKSUM:
                checksums.append(file.version)
    checkpoints.difference_update(without_checkpoints)
    if not commits and not checkpoints:
        raise TableNotFoundError(
            f"there is no table at {store.url}",
            advice="check the path, or make one with Table.create or a Sink",
            path=store.url,
        )
    newest = max(commits | checkpoints)
    earliest = _earliest(commits, checkpoints, newest)
    wanted = newest if version is None else version
    if not earliest <= wanted <= newest:
        raise range_error(store, f"version {wanted} is not in the log", earliest, newest)
    base = max((candidate for candidate in checkpoints if candidate <= wanted), default=None)
    segment = Segment(wanted, base, tuple(sorted(crc for crc in checksums if (base or 0) <= crc <= wanted)), earliest)
    missing = [needed for needed in segment.commit_versions if needed not in commits]
    if missing:
        raise CorruptLogError(
            f"the log of {store.url} lacks the commit {missing[0]}, needed for version {wanted}",
            advice="restore the missing file of _delta_log from a backup",
            path=store.url,
        )
    return segment


def range_error(store: Store, what: str, earliest: int, newest: int) -> HistoryExpiredError:
    """The error for a point outside the history that is kept."""
    return HistoryExpiredError(
        what,
        advice=f"the available versions are {earliest} to {newest}",
        path=store.url,
        earliest_version=earliest,
        latest_version=newest,
    )


def _earliest(commits: set[int], checkpoints: set[int], newest: int) -> int:
    """The oldest version from which every later one can be rebuilt."""
    first = newest
    while first in commits and first > 0 and first - 1 in commits:
        first -= 1
    if first == 0:
        return 0
    usable = [checkpoint for checkpoint in checkpoints if checkpoint >= first - 1]
    return min(usable, default=first)
