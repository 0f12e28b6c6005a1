"""Read single commits, and keep those that were just read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from typing import TypeVar

import msgspec

from tidelog.log.errors import CorruptLogError, TidelogError
from tidelog.log.format import commit_info, filenames
from tidelog.log.format.actions import Commit, CommitInfo, decode_commit, decode_first_info
from tidelog.log.format.filenames import LogFileKind
from tidelog.log.storage import Store, UnreadableFileError

# How many times as many commits to read at once as before. A reader that stops early has read few in vain.
_GROWTH = 4
# The commits that are read at once have at most so many bytes, if they are not larger than those before them.
_BLOCK_BYTES = 2**25
# Reading ahead from a disk only saves the way from one small commit to the next.
_SMALL_BLOCK = 16
_SMALL_BLOCK_BYTES = 2**20
# A reader that is further behind lists the log once instead of probing on.
_MAX_PROBES = 32
# A commitInfo is nearly always smaller. Files up to some megabytes are as fast to read whole.
_INFO_BYTES = 2**20

_T = TypeVar("_T")


def is_there(store: Store, version: int) -> bool:
    """Whether the commit `version` is in the log."""
    try:
        store.modified_ms(filenames.commit_path(version))
    except FileNotFoundError:
        return False
    return True


def read_commit(store: Store, version: int) -> Commit:
    """The commit at `version`. Raises FileNotFoundError if it does not exist, CorruptLogError if it is damaged."""
    return _decoded(store, version, _read(store, version))


def read_info(store: Store, version: int) -> CommitInfo:
    """The commitInfo of the commit at `version`. Raises the same errors as `read_commit`.

    Cheap even for a large commit: if commitInfo is first, as in-commit timestamps require, nothing else is decoded, and
    on a disk only the beginning is read.
    """
    try:
        content = _read(store, version, _INFO_BYTES)
        info = decode_first_info(version, content)
        if not info and len(content) >= _INFO_BYTES:
            content = _read(store, version)
        return info or decode_commit(version, content).info
    except msgspec.MsgspecError as error:
        raise _corrupt(store, version, error) from error


def read_each(store: Store, versions: Sequence[int]) -> Iterator[Commit]:
    """The commits at `versions`, in that order. Raises the errors of `read_commit`, each in its place.

    They are read ahead: first one, then more and more, which a store where a reader mostly waits is asked for at once.
    """
    return chain.from_iterable(_decoded_blocks(store, versions))


def read_each_up_to(store: Store, versions: Sequence[int], most_bytes: int) -> Iterator[Commit | CommitInfo]:
    """Like `read_each`, but of a commit with `most_bytes` or more only the commitInfo, empty if that is not first.

    Of such a commit no more is read, which is what makes a look at many commits cheap.
    """
    return chain.from_iterable(_blocks_up_to(store, versions, most_bytes))


def _blocks_up_to(
    store: Store, versions: Sequence[int], most_bytes: int
) -> Iterator[Sequence[Commit] | Sequence[CommitInfo]]:
    for block, contents in _blocks(store, versions, most_bytes):
        if max(map(len, contents)) < most_bytes:
            yield from _decoded_together(store, block, contents)
            continue
        for version, content in zip(block, contents, strict=True):
            if len(content) < most_bytes:
                yield [_decoded(store, version, content)]
                continue
            try:
                yield [decode_first_info(version, content) or {}]
            except msgspec.MsgspecError:  # it is itself cut off
                yield [{}]


def read_commits(store: Store, versions: Sequence[int]) -> Iterator[Commit]:
    """The commits at `versions`, in that order. Raises CorruptLogError if one is missing."""
    return chain.from_iterable(commit_blocks(store, versions))


def commit_blocks(store: Store, versions: Sequence[int]) -> Iterator[Sequence[Commit]]:
    """The same as `read_commits`, in blocks as they are read, for those who handle many commits together.

    No block is empty.
    """
    done = 0
    try:
        for block in _decoded_blocks(store, versions):
            done += len(block)
            yield block
    except FileNotFoundError as error:
        raise CorruptLogError(
            f"commit {versions[done]} of {store.url} has disappeared",
            advice="refresh the table; if that does not help, restore the file in _delta_log from a backup",
            path=store.url,
        ) from error


def _decoded_blocks(store: Store, versions: Sequence[int]) -> Iterator[Sequence[Commit]]:
    for block, contents in _blocks(store, versions):
        yield from _decoded_together(store, block, contents)


def _decoded_together(store: Store, block: Sequence[int], contents: Sequence[bytes]) -> Iterator[Sequence[Commit]]:
    """The commits of a block, or one by one if they are large: decoded, they take several times as much memory."""
    step = len(block) if sum(map(len, contents)) <= _SMALL_BLOCK_BYTES else 1
    for first in range(0, len(block), step):
        part = slice(first, first + step)
        found, error = _until_error(map(decode_commit, block[part], contents[part]))
        if found:
            yield found
        if error is not None:
            raise _corrupt(store, block[first + len(found)], error) from error


def _blocks(
    store: Store, versions: Sequence[int], first_bytes: int | None = None
) -> Iterator[tuple[Sequence[int], Sequence[bytes]]]:
    """Versions and the contents of their commits, at least one at a time. An error comes after those before it."""
    read = store.read if first_bytes is None else partial(store.read_start, size_bytes=first_bytes)
    with_threads = store.small_reads_at_once > 1
    most, most_bytes = (store.small_reads_at_once, _BLOCK_BYTES) if with_threads else (_SMALL_BLOCK, _SMALL_BLOCK_BYTES)
    place, at_once = 0, 1
    while block := versions[place : place + at_once]:
        paths = list(map(filenames.commit_path, block))
        if with_threads and len(block) > 1:
            with ThreadPoolExecutor(len(block), "tidelog-read-commits") as pool:
                contents, error = _until_error(pool.map(read, paths))
        else:
            contents, error = _until_error(map(read, paths), most_bytes)
        if contents:
            yield block[: len(contents)], contents
        if isinstance(error, UnreadableFileError):
            raise _corrupt(store, block[len(contents)], error) from error
        if error is not None:
            raise error
        place += len(contents)
        largest = max(map(len, contents)) or 1
        at_once = max(1, min(_GROWTH * len(block), most, most_bytes // largest))


def _until_error(values: Iterable[_T], most_bytes: int | None = None) -> tuple[list[_T], Exception | None]:
    """The values before the first error, and that error. With `most_bytes`, no more once those values have so many."""
    found: list[_T] = []
    size_bytes = 0
    try:
        for value in values:
            found.append(value)
            size_bytes += len(value) if isinstance(value, bytes) else 0
            if most_bytes is not None and size_bytes >= most_bytes:
                break
    except (OSError, TidelogError, msgspec.MsgspecError) as error:
        return found, error
    return found, None


def commits_after(store: Store, version: int) -> Iterator[Commit]:
    """The commits from `version` + 1 on. Probes for the next version instead of listing the log."""
    while True:
        version += 1
        try:
            commit = read_commit(store, version)
        except FileNotFoundError:
            return
        yield commit


def commits_until_now(store: Store, version: int) -> list[Commit]:
    """The commits from `version` + 1 to the newest one there was when this was called, or a little later.

    Unlike `commits_after` it ends even if others commit faster than the store answers.

    They are the table's only if the commit at `version` still exists afterwards. Clean-up deletes oldest first, so then
    none of them had been deleted. Otherwise one can be a leftover of a writer that slept through a clean-up.
    """
    found = list(islice(commits_after(store, version), _MAX_PROBES))
    if len(found) == _MAX_PROBES:
        last = found[-1].version
        names, _ = store.recent_names(filenames.LOG_FOLDER, lambda: filenames.start_of(last))
        newest = max(filenames.versions(names, LogFileKind.COMMIT), default=last)
        found += islice(commits_after(store, last), max(0, newest - last))
    return found


def _read(store: Store, version: int, first_bytes: int | None = None) -> bytes:
    path = filenames.commit_path(version)
    try:
        return store.read(path) if first_bytes is None else store.read_start(path, first_bytes)
    except UnreadableFileError as error:
        raise _corrupt(store, version, error) from error


def _decoded(store: Store, version: int, content: bytes) -> Commit:
    try:
        return decode_commit(version, content)
    except msgspec.MsgspecError as error:
        raise _corrupt(store, version, error) from error


def _corrupt(store: Store, version: int, error: Exception) -> CorruptLogError:
    return CorruptLogError(
        f"commit {version} of {store.url} cannot be read: {error}",
        advice="restore the file in _delta_log from a backup",
        path=store.url,
    )


def written_ms(store: Store, version: int) -> int | None:
    """When the version's commit file was written, by the store's clock; None if it no longer exists.

    It bounds the age of other files. It does not identify the commit: two files can have the same time.
    """
    try:
        return store.modified_ms(filenames.commit_path(version))
    except FileNotFoundError:
        return None


def is_older(store: Store, version: int, moment_ms: int) -> bool:
    """Whether the version has been in the log since `moment_ms` or longer, by the store's clock.

    True if its commit file no longer exists. On a disk it can be wrongly False, for as long as no later version is
    that old.
    """
    try:
        if store.appeared_ms(filenames.commit_path(version)) <= moment_ms:
            return True
    except FileNotFoundError:
        return True
    # A writer puts the next version only after it has seen this one, so the next file's age is a lower bound.
    next_ms = written_ms(store, version + 1)
    return next_ms is not None and next_ms <= moment_ms


def timestamp_ms(store: Store, commit: Commit) -> int:
    """The commit's in-commit timestamp, or the modification time of its file if it has none; in ms since the epoch."""
    stamp = commit_info.in_commit_timestamp_ms(commit.info)
    return store.modified_ms(filenames.commit_path(commit.version)) if stamp is None else stamp


# An action takes one to three kilobytes with its statistics, so this many take some tens of megabytes. They are enough
# for a change feed that has fallen 10,000 small commits behind.
_MAX_ACTIONS = 2**15


class RecentCommits:
    """The commits that a refresh has just read, for the next reader of the history.

    The oldest ones within a bound. Each is given away once, so that they do not stay for long. They belong to the table
    that is loaded; the next refresh that finds news replaces them.
    """

    def __init__(self, commits: Iterable[Commit] = ()) -> None:
        self._commits: dict[int, Commit] = {}
        room = _MAX_ACTIONS
        for commit in commits:
            room -= 1 + len(commit.actions)
            if room < 0:
                break
            self._commits[commit.version] = commit

    def __contains__(self, version: int) -> bool:
        return version in self._commits

    def take(self, version: int) -> Commit | None:
        """The commit at `version`, which is not held any longer; None if it is not here."""
        return self._commits.pop(version, None)
