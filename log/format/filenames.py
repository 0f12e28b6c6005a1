"""Names of the files in `_delta_log/`: build them and parse them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

LOG_FOLDER = "_delta_log"
SIDECAR_FOLDER = f"{LOG_FOLDER}/_sidecars"
LAST_CHECKPOINT = f"{LOG_FOLDER}/_last_checkpoint"
MAX_VERSION = 2**63 - 1


class LogFileKind(Enum):
    """The kinds of log files."""

    COMMIT = auto()
    CHECKPOINT = auto()
    CHECKSUM = auto()


@dataclass(frozen=True, slots=True)
class LogFile:
    """A parsed log file name. For a file of a multi-part checkpoint, `part` counts from 1 to `parts`."""

    name: str
    kind: LogFileKind
    version: int
    part: int = 1
    parts: int = 1


_VERSION = r"(?P<version>\d{20})"
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
COMMIT_SUFFIX = ".json"
# What follows the version's 20 digits.
_SUFFIXES = {
    LogFileKind.COMMIT: COMMIT_SUFFIX,
    LogFileKind.CHECKPOINT: ".checkpoint.parquet",
    LogFileKind.CHECKSUM: ".crc",
}
_KINDS = {suffix: kind for kind, suffix in _SUFFIXES.items()}
_DIGITS = 20
_LARGEST = f"{MAX_VERSION:020d}"
_PATTERNS = (
    (LogFileKind.CHECKPOINT, re.compile(rf"{_VERSION}\.checkpoint\.{_UUID}\.(?:json|parquet)")),
    (LogFileKind.CHECKPOINT, re.compile(rf"{_VERSION}\.checkpoint\.(?P<part>\d{{10}})\.(?P<parts>\d{{10}})\.parquet")),
)


def commit_path(version: int) -> str:
    """The path of a commit, relative to the table."""
    return f"{LOG_FOLDER}/{commit_name(version)}"


def commit_name(version: int) -> str:
    """The bare name of a commit."""
    return f"{start_of(version)}{COMMIT_SUFFIX}"


def start_of(version: int) -> str:
    """What the names of a version's files begin with. They sort by version."""
    return f"{version:020d}"


def checksum_path(version: int) -> str:
    """The path of a version's checksum file, relative to the table."""
    return f"{LOG_FOLDER}/{version:020d}.crc"


def checkpoint_path(version: int) -> str:
    """The path of a classic single-file checkpoint, relative to the table."""
    return f"{LOG_FOLDER}/{version:020d}.checkpoint.parquet"


def parse_log_file(name: str) -> LogFile | None:
    """Parse a bare file name. None if it is not the name of a log file."""
    kind = _KINDS.get(name[_DIGITS:])
    if kind and _is_version(name[:_DIGITS]):
        return LogFile(name, kind, int(name[:_DIGITS]))
    for kind, pattern in _PATTERNS:
        match = pattern.fullmatch(name)
        if match:
            numbers = {key: int(text) for key, text in match.groupdict().items()}
            return LogFile(name, kind, **numbers) if numbers["version"] <= MAX_VERSION else None
    return None


def versions(names: Iterable[str], kind: LogFileKind) -> list[int]:
    """The versions in the names of single-file `kind` files, in the order of `names`; fast for very many names."""
    suffix = _SUFFIXES[kind]
    length = _DIGITS + len(suffix)
    found = [name[:_DIGITS] for name in names if len(name) == length and name.endswith(suffix)]
    return [int(digits) for digits in found if _is_version(digits)]


def _is_version(text: str) -> bool:
    return len(text) == _DIGITS and text <= _LARGEST and text.isascii() and text.isdecimal()
