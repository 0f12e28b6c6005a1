"""Which files of the log make up a version: the newest usable checkpoint and the commits after it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec

from tidelog.log.errors import CorruptLogError, HistoryExpiredError, TableNotFoundError
from tidelog.log.format import filenames
from tidelog.log.format.filenames import LogFile, LogFileKind
from tidelog.log.storage import Store


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """A complete checkpoint of `version`: the bare names of its file or, for a multi-part one, of all its parts."""

    version: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """`version` is made of `checkpoint` (None: none is needed) and the commits after it.

    `checksum_versions` are the versions within the segment that have a `.crc`, ascending. `earliest_version` is the
    oldest version that the log can still rebuild.
    """

    version: int
    checkpoint: CheckpointFiles | None
    checksum_versions: tuple[int, ...]
    earliest_version: int

    @property
    def commit_versions(self) -> range:
        """The commits to replay on top of the checkpoint, oldest first."""
        first = 0 if self.checkpoint is None else self.checkpoint.version + 1
        return range(first, self.version + 1)


def list_segment(
    store: Store, version: int | None = None, *, unreadable: Collection[CheckpointFiles] = frozenset()
) -> Segment:
    """The segment of `version` (None: the newest), by listing the log once.

    `unreadable` are checkpoints that turned out to be damaged. Raises TableNotFoundError where there is no log,
    HistoryExpiredError where the version is not (or no longer) there, CorruptLogError where a commit in the middle is
    missing.
    """
    names = store.names(filenames.LOG_FOLDER)
    commits = set(filenames.versions(names, LogFileKind.COMMIT))
    checksums = sorted(filenames.versions(names, LogFileKind.CHECKSUM))
    checkpoints = _complete(
        file for name in names if ".checkpoint." in name and (file := filenames.parse_log_file(name))
    )
    usable = [checkpoint for checkpoint in checkpoints if checkpoint not in unreadable]
    if not commits and not checkpoints:
        raise TableNotFoundError(
            f"there is no table at {store.url}",
            advice="check the path, or make one with Table.create or a Sink",
            path=store.url,
        )
    checkpointed = {checkpoint.version for checkpoint in usable}
    newest = max(commits | checkpointed, default=-1)
    earliest = _earliest(commits, checkpointed, newest)
    wanted = newest if version is None else version
    if not earliest <= wanted <= newest:
        raise range_error(store, f"version {wanted} is not in the log", earliest, newest)
    base = next((checkpoint for checkpoint in usable if checkpoint.version <= wanted), None)
    first = base.version if base else 0
    within = tuple(checksum for checksum in checksums if first <= checksum <= wanted)
    segment = Segment(wanted, base, within, earliest)
    # A listing that runs while others commit may show a commit and miss the one before it: a missing one is looked for.
    absent = (needed for needed in segment.commit_versions if needed not in commits)
    missing = next((needed for needed in absent if not is_there(store, needed)), None)
    if missing is None and checksums and checksums[-1] > newest and not is_there(store, checksums[-1]):
        # A checksum is written after its commit.
        missing = checksums[-1]
    if missing is not None:
        raise CorruptLogError(
            f"the log of {store.url} lacks the commit {missing}, needed for version {max(wanted, missing)}",
            advice="restore the missing file of _delta_log from a backup",
            path=store.url,
        )
    return segment


def list_checkpoints(store: Store) -> list[CheckpointFiles]:
    """The complete checkpoints, newest first, whether or not they can be read."""
    found = (filenames.parse_log_file(status.name) for status in store.list(filenames.LOG_FOLDER))
    return _complete(file for file in found if file and file.kind is LogFileKind.CHECKPOINT)


def pointed_version(store: Store) -> int | None:
    """The version of the checkpoint that `_last_checkpoint` names; None where there is none or it cannot be read.

    The newest checkpoint, but for one whose writer died before it moved the pointer.
    """
    try:
        pointer = msgspec.json.decode(store.read(filenames.LAST_CHECKPOINT))
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
    version = pointer.get("version") if isinstance(pointer, dict) else None
    return version if isinstance(version, int) else None


def earliest_version(store: Store, head_version: int) -> int:
    """The oldest version that the log can still rebuild; told without a listing where nothing was ever cleaned up."""
    return 0 if is_there(store, 0) else list_segment(store, head_version).earliest_version


def is_there(store: Store, version: int) -> bool:
    """Whether the commit `version` is in the log."""
    try:
        store.modified_ms(filenames.commit_path(version))
    except FileNotFoundError:
        return False
    return True


def range_error(store: Store, what: str, earliest: int, newest: int) -> HistoryExpiredError:
    """The error for a point outside the history that is kept."""
    return HistoryExpiredError(
        what,
        advice=f"the available versions are {earliest} to {newest}",
        path=store.url,
        earliest_version=earliest,
        latest_version=newest,
    )


def _complete(files: Iterable[LogFile]) -> list[CheckpointFiles]:
    """The complete checkpoints, newest first; of several of one version the single-file ones first.

    A multi-part checkpoint counts only if every one of its parts is there: its writer may have died in the middle.
    """
    sets: dict[tuple[int, int, str], dict[int, str]] = {}
    for file in files:
        own = file.name if file.parts == 1 else ""
        sets.setdefault((file.version, file.parts, own), {})[file.part] = file.name
    complete = [
        (version, parts, CheckpointFiles(version, tuple(names[part] for part in sorted(names))))
        for (version, parts, _), names in sets.items()
        # Told without counting up to a number that a hostile name chose.
        if len(names) == parts and min(names) == 1 and max(names) == parts
    ]
    complete.sort(key=lambda entry: (-entry[0], entry[1], len(entry[2].names[0]), entry[2].names))
    return [checkpoint for _, _, checkpoint in complete]


def _earliest(commits: set[int], checkpoints: set[int], newest: int) -> int:
    """The oldest version from which every later one can be rebuilt."""
    if len(commits) == newest + 1:
        return 0
    first = newest
    while first in commits and first > 0 and first - 1 in commits:
        first -= 1
    if first <= 0:
        return 0
    usable = [checkpoint for checkpoint in checkpoints if checkpoint >= first - 1]
    return min(usable, default=first)
