"""What clean-up may take: the rules, as pure functions.

The log (Delta protocol, "Metadata Cleanup"): with C the newest commit at or before the cut-off, the newest checkpoint
at or before C is kept, with its own commit and everything later, so that every version from C on can be rebuilt.
Data files: one is taken only when it is older than the retention and no version since the cut-off needs it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from tidelog.log.errors import ConfigurationError
from tidelog.log.format import filenames, properties
from tidelog.log.format.filenames import LogFileKind
from tidelog.log.read.timeline import to_timestamp_ms
from tidelog.log.storage import FileStatus
from tidelog.log.system import to_datetime

DAY_MS = 86_400_000
# Below these tidelog keeps files of its own that the log names; nothing else in a folder of such a name is a table's.
_OWNED_FOLDERS = ("_dv/", "_change_data/", "_tidelog/rowmaps/")
_COMPACTED = re.compile(r"(?P<start>\d{20})\.\d{20}\.compacted\.json")
# What a store leaves where it was killed between writing a file and giving it its name.
_TEMPORARY = re.compile(r"\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp")
# What a Spark that was killed leaves of a write of its own: whole or in part, never named, and moved up at the end.
_UNFINISHED = re.compile(r"data/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/_temporary/.+")
# Within a version a checkpoint goes before its commit: without the commit it would be a version that half works.
_ORDER = {LogFileKind.CHECKPOINT: 0, LogFileKind.CHECKSUM: 1, LogFileKind.COMMIT: 3}
_COMPACTED_ORDER = 2


# --- how old is old enough -------------------------------------------------------------------------------------------


def log_cutoff_ms(older_than: timedelta | datetime | None, now_ms: int, configuration: Mapping[str, str]) -> int:
    """The moment at which a reader must still find its version: the property's, to midnight UTC, or `older_than`'s."""
    if older_than is not None:
        return explicit_cutoff_ms(older_than, now_ms, configuration)
    return midnight_ms(now_ms - _retention_ms(configuration, properties.LOG_RETENTION))


def data_cutoff_ms(older_than: timedelta | datetime | None, now_ms: int, configuration: Mapping[str, str]) -> int:
    """The moment before which a file must have been written, and have left the table, to be deleted."""
    if older_than is not None:
        return explicit_cutoff_ms(older_than, now_ms, configuration)
    return now_ms - _retention_ms(configuration, properties.DELETED_FILE_RETENTION)


def explicit_cutoff_ms(older_than: timedelta | datetime, now_ms: int, configuration: Mapping[str, str]) -> int:
    """The moment that a caller's `older_than` (an age or an aware datetime) stands for.

    Raises ConfigurationError where it is closer than `tidelog.maxTransactionTime`: a transaction that is still
    running could have written, or read, what would be deleted.
    """
    if not isinstance(older_than, timedelta | datetime):
        raise ConfigurationError(
            f"older_than is {older_than!r}", advice="give a timedelta, such as timedelta(days=7), or an aware datetime"
        )
    if isinstance(older_than, timedelta):
        at_ms = now_ms - older_than // timedelta(milliseconds=1)
    else:
        at_ms = to_timestamp_ms(older_than)
    least_ms = properties.duration_ms(configuration, properties.MAX_TRANSACTION_TIME)
    if now_ms - at_ms < least_ms:
        raise ConfigurationError(
            f"older_than reaches to {to_datetime(at_ms).isoformat()}, less than {timedelta(milliseconds=least_ms)} "
            "ago, so it could take what a running transaction needs",
            advice=f"give more, or set the table property {properties.MAX_TRANSACTION_TIME} to how long one can take",
        )
    return at_ms


def midnight_ms(moment_ms: int) -> int:
    """The midnight UTC at or before a moment."""
    return moment_ms - moment_ms % DAY_MS


def _retention_ms(configuration: Mapping[str, str], key: str) -> int:
    longest = properties.duration_ms(configuration, properties.MAX_TRANSACTION_TIME)
    return max(properties.duration_ms(configuration, key), longest)


# --- the log ---------------------------------------------------------------------------------------------------------


def is_cleanup_enabled(configuration: Mapping[str, str]) -> bool:
    """Whether the table wants its log cleaned up without being asked; Delta's default is yes."""
    return configuration.get(properties.ENABLE_EXPIRED_LOG_CLEANUP, "true").lower() == "true"


def expired_log_files(listing: Iterable[FileStatus], kept_version: int) -> list[FileStatus]:
    """The files of `_delta_log` that a checkpoint of `kept_version` makes needless, in the order in which to delete.

    Oldest version first, so that what is left after each step is one run of commits without a hole; a checkpoint
    before its commit; a hidden checksum of Hadoop's (`.<name>.crc`) before the file that it would fail.
    """
    found = [(rank, status) for status in listing if (rank := _rank(status.name, kept_version)) is not None]
    return [status for _, status in sorted(found, key=lambda entry: (entry[0], entry[1].name))]


def _rank(name: str, kept_version: int) -> tuple[int, int] | None:
    """Where an expired file stands in the order, or None for one that stays."""
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
    """The sidecars that no checkpoint names and that are a day old at midnight UTC: a younger one may soon be named."""
    before_ms = midnight_ms(now_ms - DAY_MS)
    names = {path.rsplit("/", 1)[-1] for path in referenced}
    return [status for status in listing if status.name not in names and status.modified_ms < before_ms]


def left_over(listing: Iterable[FileStatus], now_ms: int) -> list[FileStatus]:
    """The temporary files of `_delta_log` whose writer must have died: none takes a day."""
    before_ms = midnight_ms(now_ms - DAY_MS)
    return [status for status in listing if _TEMPORARY.fullmatch(status.name) and status.modified_ms < before_ms]


# --- data files ------------------------------------------------------------------------------------------------------


def may_vacuum(path: str) -> bool:
    """Whether a file belongs to the table by its place: in no folder, and of no name, that begins with `_` or `.`.

    tidelog's own folders for deletion vectors, change data and row maps are open to clean-up as well, and so is what
    a write of Spark's left unfinished.
    """
    if _UNFINISHED.fullmatch(path):
        return True
    for folder in _OWNED_FOLDERS:
        path = path.removeprefix(folder)
    return not path.startswith(("_", ".")) and "/_" not in path and "/." not in path


def table_inside(path: str) -> str | None:
    """The folder of another table that lies within this one, where `path` is a file of its log."""
    folder, found, _ = path.rpartition(f"/{filenames.LOG_FOLDER}/")
    return f"{folder}/" if found else None
