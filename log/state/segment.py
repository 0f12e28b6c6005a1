"""Find the log files that make up a version: the newest usable checkpoint and the commits after it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec

from tidelog.log.errors import CorruptLogError, HistoryExpiredError, TableNotFoundError
from tidelog.log.format import filenames
from tidelog.log.format.filenames import LogFile, LogFileKind
from tidelog.log.format.text import MALFORMED_JSON
from tidelog.log.presentable import brief
from tidelog.log.state.commits import is_there
from tidelog.log.storage import Store

# No file name of a version has more digits.
_BEYOND_VERSIONS = 10**20


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """A complete checkpoint of `version`, with the bare name of its file or, if it is multi-part, of all its parts."""

    version: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """The log files that make up `version`: `checkpoint` (None if not needed) and the commits after it.

    `checksum_versions` are the versions within the segment that have a `.crc`, ascending. `earliest_version` is the
    oldest version that the log can still reconstruct.
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
    """The segment of `version` (None: the newest). Lists the log once.

    `unreadable` are checkpoints known to be damaged, which are not used. Raises TableNotFoundError if there is no log,
    HistoryExpiredError if the version does not exist (any more), CorruptLogError if a commit in the middle is missing.
    """
    return _segment(store, store.names(filenames.LOG_FOLDER), version, unreadable)


def find_segment(store: Store, version: int | None = None) -> Segment:
    """Like `list_segment`, but where a long listing takes many requests, from the newest known checkpoint on.

    Then the segment's `earliest_version` is that checkpoint's version.
    """

    def since() -> str:
        pointed = pointed_version(store)
        return filenames.start_of(pointed) if pointed is not None and 0 < pointed <= filenames.MAX_VERSION else ""

    names, start = store.recent_names(filenames.LOG_FOLDER, since)
    if not start:
        return _segment(store, names, version)
    if _is_whole_from(int(start), names):
        # What a part of the log cannot answer, all of it may.
        with contextlib.suppress(CorruptLogError, HistoryExpiredError):
            return _segment(store, names, version, start=int(start))
    return list_segment(store, version)


def _is_whole_from(start: int, names: Collection[str]) -> bool:
    """Whether there is a checkpoint of `start`, and each commit between it and the newest one."""
    commits = set(filenames.versions(names, LogFileKind.COMMIT))
    after = range(start + 1, max(commits, default=start) + 1)
    return commits.issuperset(after) and any(found.version == start for found in complete_checkpoints(names))


def _segment(
    store: Store,
    names: Collection[str],
    version: int | None,
    unreadable: Collection[CheckpointFiles] = frozenset(),
    *,
    start: int = 0,
) -> Segment:
    """The segment of `version`. `names` are those of the log's files; with `start`, only from that checkpoint on."""
    commits = set(filenames.versions(names, LogFileKind.COMMIT))
    checksums = sorted(filenames.versions(names, LogFileKind.CHECKSUM))
    checkpoints = complete_checkpoints(names)
    usable = [checkpoint for checkpoint in checkpoints if checkpoint not in unreadable]
    if not commits and not checkpoints:
        raise TableNotFoundError(
            f"there is no table at {store.url}",
            advice="check the path, create the table with Table.create or a Sink, or make one of parquet files with "
            "Table.convert",
            path=store.url,
        )
    checkpointed = {checkpoint.version for checkpoint in usable}
    newest = max(commits | checkpointed, default=-1)
    if version is not None and newest < version < _BEYOND_VERSIONS and is_there(store, version):
        # The listing is a little old, as one of a network file system can be.
        commits.update(range(newest + 1, version + 1))
        newest = version
    earliest = start or _earliest(store, commits, checkpointed, newest)
    wanted = newest if version is None else version
    if not earliest <= wanted <= newest:
        hint = ", which history lists"
        raise range_error(store, f"version {brief(wanted)} is not in the log", earliest, newest, hint)
    base = next((checkpoint for checkpoint in usable if checkpoint.version <= wanted), None)
    first = base.version if base else 0
    within = tuple(checksum for checksum in checksums if first <= checksum <= wanted)
    segment = Segment(wanted, base, within, earliest)
    # A listing that runs during commits can show a commit and miss the one before it, so look for missing ones.
    absent = (needed for needed in segment.commit_versions if needed not in commits)
    missing = next((needed for needed in absent if not is_there(store, needed)), None)
    if missing is None and checksums and checksums[-1] > newest and not is_there(store, checksums[-1]):
        # A checksum is written after its commit, so that commit must exist.
        missing = checksums[-1]
    if missing is not None:
        raise CorruptLogError(
            f"the log of {store.url} lacks commit {missing}, which version {max(wanted, missing)} needs",
            advice="restore the missing file in _delta_log from a backup",
            path=store.url,
        )
    return segment


def list_checkpoints(store: Store) -> list[CheckpointFiles]:
    """The complete checkpoints, newest first, readable or not."""
    found = (filenames.parse_log_file(status.name) for status in store.list(filenames.LOG_FOLDER))
    return _complete(file for file in found if file and file.kind is LogFileKind.CHECKPOINT)


def pointed_version(store: Store) -> int | None:
    """The version that `_last_checkpoint` points to; None if the file is missing or cannot be read.

    This is the newest checkpoint, unless a writer died between writing one and moving the pointer.
    """
    try:
        pointer = msgspec.json.decode(store.read(filenames.LAST_CHECKPOINT))
    except (OSError, *MALFORMED_JSON):
        return None
    version = pointer.get("version") if isinstance(pointer, dict) else None
    return version if isinstance(version, int) else None


def earliest_version(store: Store, head_version: int) -> int:
    """The oldest version that the log can still reconstruct. Lists the log only if it was ever cleaned up."""
    return 0 if is_there(store, 0) else list_segment(store, head_version).earliest_version


def range_error(store: Store, what: str, earliest: int, newest: int, hint: str = "") -> HistoryExpiredError:
    """The error for a version or time outside the retained history; `hint` is more advice."""
    return HistoryExpiredError(
        what,
        advice=f"the available versions are {earliest} to {newest}{hint}",
        path=store.url,
        earliest_version=earliest,
        latest_version=newest,
    )


def complete_checkpoints(names: Iterable[str]) -> list[CheckpointFiles]:
    """The complete checkpoints among files of the log, newest first."""
    return _complete(file for name in names if ".checkpoint." in name and (file := filenames.parse_log_file(name)))


def _complete(files: Iterable[LogFile]) -> list[CheckpointFiles]:
    """The complete checkpoints, newest first; for the same version, single-file ones first.

    A multi-part checkpoint is complete only if all its parts exist: its writer may have died before the last one.
    """
    sets: dict[tuple[int, int, str], dict[int, str]] = {}
    for file in files:
        own = file.name if file.parts == 1 else ""
        sets.setdefault((file.version, file.parts, own), {})[file.part] = file.name
    complete = [
        (version, parts, CheckpointFiles(version, tuple(names[part] for part in sorted(names))))
        for (version, parts, _), names in sets.items()
        # No loop up to `parts`: a hostile file name can make it huge.
        if len(names) == parts and min(names) == 1 and max(names) == parts
    ]
    complete.sort(key=lambda entry: (-entry[0], entry[1], len(entry[2].names[0]), entry[2].names))
    return [checkpoint for _, _, checkpoint in complete]


def first_commit(store: Store, commits: Collection[int], newest: int) -> int:
    """The oldest commit from which all commits up to `newest` exist. `commits` are those of a listing.

    A listing that runs during commits can show a commit and miss the one before it. It must not make the history look
    shorter than it is: a clean-up would take the versions before for gone.
    """
    first = newest
    while first > 0 and (first - 1 in commits or is_there(store, first - 1)):
        first -= 1
    return first


def _earliest(store: Store, commits: set[int], checkpoints: set[int], newest: int) -> int:
    """The oldest version from which every later one can be reconstructed."""
    if len(commits) == newest + 1:
        return 0
    # The same listing can show a checkpoint and miss the commit of its version.
    has_commit = newest in commits or is_there(store, newest)
    first = first_commit(store, commits, newest) if has_commit else newest
    if first <= 0:
        return 0
    usable = [checkpoint for checkpoint in checkpoints if checkpoint >= first - 1]
    return min(usable, default=first)
