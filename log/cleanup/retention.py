"""The rules of clean-up, as pure functions.

The log (Delta protocol, "Metadata Cleanup"): with C the newest commit at or before the cut-off, clean-up keeps the
newest checkpoint at or before C, its commit and everything later, so that every version from C on can be rebuilt.
Data files: one is deleted only if it is older than the retention and no version since the cut-off needs it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from tidelog.log.errors import ConfigurationError
from tidelog.log.format import filenames, hive_paths, properties
from tidelog.log.format.filenames import LogFileKind
from tidelog.log.presentable import brief
from tidelog.log.read.timeline import to_timestamp_ms
from tidelog.log.storage import FileStatus

DAY_MS = 86_400_000
ROW_MAPS = "_tidelog/rowmaps/"
TOMBSTONE_FILES = "_tidelog/tombstones/"
# The folders for files other than data files that the log names. Nothing else in a `_` folder belongs to the table.
_OWNED_FOLDERS = ("_dv/", "_change_data/", ROW_MAPS, TOMBSTONE_FILES)
_COMPACTED = re.compile(r"(?P<start>\d{20})\.\d{20}\.compacted\.json")
# What a process leaves if it is killed between writing a file and giving it its final name.
_TEMPORARY = re.compile(r"\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp")
# What is left below `_tidelog/` by processes that were killed, and the evidence of rewrites that were refused. Leases,
# consumers and the conflict ledger delete their own.
_LEFT_OVER = re.compile(r"_tidelog/(?:refused/[^/]+\.json|turns/[^/]+|probe-[^/]+|doctor-[^/]+/.+)")
# The folders in which tidelog writes files under a temporary name first.
_WITH_TEMPORARY = re.compile(r"(?:_tidelog|_dv|_change_data)/(?:[^/]+/)*[^/]+")
# A name with a UUID is never used again.
_UNIQUE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}[^/]*", re.IGNORECASE)
# What Spark's own writer leaves if it is killed. The log never names these: Spark moves finished files elsewhere.
_UNFINISHED = re.compile(r"data/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/_temporary/.+")
# Within a version the checkpoint is deleted before the commit: a checkpoint alone would be half a version.
_ORDER = {LogFileKind.CHECKPOINT: 0, LogFileKind.CHECKSUM: 1, LogFileKind.COMMIT: 3}
_COMPACTED_ORDER = 2


# --- how old is old enough -------------------------------------------------------------------------------------------


def log_cutoff_ms(older_than: timedelta | datetime | None, now_ms: int, configuration: Mapping[str, str]) -> int:
    """The oldest time, in ms, that must stay readable: `older_than`, or by the property.

    By a retention of a day or more it is at midnight UTC, as Delta Lake does it.
    """
    if older_than is not None:
        return explicit_cutoff_ms(older_than, now_ms, configuration)
    retention_ms = _retention_ms(configuration, properties.LOG_RETENTION)
    return midnight_ms(now_ms - retention_ms) if retention_ms >= DAY_MS else now_ms - retention_ms


def data_cutoff_ms(older_than: timedelta | datetime | None, now_ms: int, configuration: Mapping[str, str]) -> int:
    """The time, in ms, before which a file must have been written and removed from the table to be deleted."""
    if older_than is not None:
        return explicit_cutoff_ms(older_than, now_ms, configuration)
    return now_ms - _retention_ms(configuration, properties.DELETED_FILE_RETENTION)


def files_expire_ms(removed_ms: int, configuration: Mapping[str, str]) -> int:
    """The time from which on `data_cutoff_ms` is at or after `removed_ms`."""
    return removed_ms + _retention_ms(configuration, properties.DELETED_FILE_RETENTION)


def history_expires_ms(committed_ms: int, configuration: Mapping[str, str]) -> int:
    """The time from which on `log_cutoff_ms` is at or after `committed_ms`."""
    retention_ms = _retention_ms(configuration, properties.LOG_RETENTION)
    if retention_ms < DAY_MS:
        return committed_ms + retention_ms
    # The first midnight at or after the commit becomes the cut-off as soon as it is that long ago.
    return midnight_ms(committed_ms + DAY_MS - 1) + retention_ms


def explicit_cutoff_ms(older_than: timedelta | datetime, now_ms: int, configuration: Mapping[str, str]) -> int:
    """The time in ms that `older_than` (an age or an aware datetime) stands for.

    Raises ConfigurationError if it is closer than `tidelog.maxTransactionTime`: a running transaction could have
    written or read a file that would be deleted.
    """
    if not isinstance(older_than, timedelta | datetime):
        raise ConfigurationError(
            f"older_than is {brief(older_than)}, which is neither an age nor a time",
            advice="give a timedelta, such as timedelta(days=7), or an aware datetime",
        )
    if isinstance(older_than, timedelta):
        at_ms = now_ms - older_than // timedelta(milliseconds=1)
    else:
        at_ms = to_timestamp_ms(older_than)
    least_ms = properties.duration_ms(configuration, properties.MAX_TRANSACTION_TIME)
    if now_ms - at_ms < least_ms:
        raise ConfigurationError(
            f"older_than must be at least {_age(least_ms)} ({properties.MAX_TRANSACTION_TIME}), because running "
            f"transactions may need newer files; it is {_age(now_ms - at_ms)}",
            advice=f"give an older time, or set {properties.MAX_TRANSACTION_TIME} to the longest time that a "
            "transaction takes",
        )
    return at_ms


def midnight_ms(moment_ms: int) -> int:
    """The midnight UTC at or before a time."""
    return moment_ms - moment_ms % DAY_MS


def _age(age_ms: int) -> str:
    """An age in its largest unit, such as `1 day` or `1.5 hours`."""
    if age_ms < 0:
        return "in the future"
    units = (("day", DAY_MS), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))
    unit, unit_ms = next((entry for entry in units if age_ms >= entry[1]), units[-1])
    number = f"{age_ms / unit_ms:.4g}"
    return f"{number} {unit}" + ("" if number == "1" else "s")


def _retention_ms(configuration: Mapping[str, str], key: str) -> int:
    longest = properties.duration_ms(configuration, properties.MAX_TRANSACTION_TIME)
    return max(properties.duration_ms(configuration, key), longest)


# --- the log ---------------------------------------------------------------------------------------------------------


def is_cleanup_enabled(configuration: Mapping[str, str]) -> bool:
    """Whether the table's log is cleaned up without an explicit age: by tidelog's property or else by Delta's.

    Delta's default is yes. Tables that tidelog creates have Delta's property off, for other engines, and its own on.
    """
    by_delta = configuration.get(properties.ENABLE_EXPIRED_LOG_CLEANUP, "true").lower() == "true"
    return by_delta or properties.clean_up(configuration)


def expired_log_files(listing: Iterable[FileStatus], kept_version: int) -> list[FileStatus]:
    """The files of `_delta_log` that a checkpoint of `kept_version` replaces, in the order in which to delete them.

    Oldest version first, so that after each deletion the commits left have no gap. A checkpoint comes before its
    commit, and Hadoop's hidden checksum (`.<name>.crc`) before the file that it belongs to.
    """
    found = [(rank, status) for status in listing if (rank := _rank(status.name, kept_version)) is not None]
    return [status for _, status in sorted(found, key=lambda entry: (entry[0], entry[1].name))]


def _rank(name: str, kept_version: int) -> tuple[int, int] | None:
    """The place of an expired file in the order of deletion; None for a file that stays."""
    if name.startswith(".") and name.endswith(".crc"):
        base = _rank(name[1:].removesuffix(".crc"), kept_version)
        return base and (base[0], -1)
    compacted = _COMPACTED.fullmatch(name)
    if compacted:
        start = int(compacted["start"])
        return (start, _COMPACTED_ORDER) if start <= kept_version else None
    file = filenames.parse_log_file(name)
    return (file.version, _ORDER[file.kind]) if file and file.version < kept_version else None


def unreferenced_sidecars(listing: Iterable[FileStatus], referenced: Collection[str], now_ms: int) -> list[FileStatus]:
    """The sidecars that no checkpoint names and that were a day old at midnight UTC; younger ones may be named soon."""
    before_ms = midnight_ms(now_ms - DAY_MS)
    names = {path.rsplit("/", 1)[-1] for path in referenced}
    return [status for status in listing if status.name not in names and status.modified_ms < before_ms]


def left_over(listing: Iterable[FileStatus], now_ms: int) -> list[FileStatus]:
    """The temporary files of `_delta_log` whose writer must have died, as they are more than a day old."""
    before_ms = midnight_ms(now_ms - DAY_MS)
    return [status for status in listing if _TEMPORARY.fullmatch(status.name) and status.modified_ms < before_ms]


# --- data files ------------------------------------------------------------------------------------------------------


# What Spark has in a streaming checkpoint. Two of the first three are enough to know one.
_CHECKPOINT_LOGS = frozenset({"offsets", "commits"})
_CHECKPOINT = frozenset({"metadata", "offsets", "commits", "sources", "state"})


def may_vacuum(path: str, partition_columns: Collection[str] = ()) -> bool:
    """Whether vacuum may delete a file, by its path: neither a folder nor the name begins with `_` or `.`.

    Exceptions: the folders of deletion vectors, change data, row maps and tombstones, partition folders of a column
    whose name begins so, files that Spark left unfinished, and what processes of tidelog left that were killed.
    """
    if _UNFINISHED.fullmatch(path) or _LEFT_OVER.fullmatch(path):
        return True
    if _TEMPORARY.fullmatch(path.rpartition("/")[2]):
        return _WITH_TEMPORARY.fullmatch(path) is not None
    for folder in _OWNED_FOLDERS:
        path = path.removeprefix(folder)
    *folders, name = path.split("/")
    hidden = [part for part in (*folders, name) if part.startswith(("_", "."))]
    return name not in hidden and all(_is_of(folder, partition_columns) for folder in hidden)


def _is_of(folder: str, partition_columns: Collection[str]) -> bool:
    """Whether a folder is a partition folder of one of these columns."""
    return any(folder.startswith(f"{hive_paths.escaped(column)}=") for column in partition_columns)


def is_unique(path: str) -> bool:
    """Whether no file will ever be written under this path again: whether its name holds a UUID."""
    return _UNIQUE.search(path.rpartition("/")[2]) is not None


def table_inside(path: str) -> str | None:
    """The folder of another table inside this one, if `path` is a file of that table's log."""
    folder, found, _ = path.rpartition(f"/{filenames.LOG_FOLDER}/")
    return f"{folder}/" if found else None


def checkpoint_part(path: str) -> tuple[str, str] | None:
    """The folder of what looks like a streaming checkpoint of Spark's, and the part of it that a file is or is in."""
    folder, _, name = path.rpartition("/")
    if name == "metadata":
        return folder, name
    parent, _, part = folder.rpartition("/")
    return (parent, part) if part in _CHECKPOINT_LOGS and name.isdecimal() else None


def is_of_checkpoint(path: str, folder: str) -> bool:
    """Whether a file belongs to the streaming checkpoint in a folder; in the table's own (`""`), by its first name."""
    return path.startswith(f"{folder}/") if folder else path.split("/", 1)[0] in _CHECKPOINT
