"""The names of the log's files below `_delta_log/`, made and recognised."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

LOG_FOLDER = "_delta_log"
LAST_CHECKPOINT = f"{LOG_FOLDER}/_last_checkpoint"
MAX_VERSION = 2**63 - 1


class LogFileKind(Enum):
    """What a file of the log is."""

    COMMIT = auto()
    CHECKPOINT = auto()
    CHECKSUM = auto()


@dataclass(frozen=True, slots=True)
class LogFile:
    """A recognised file of the log."""

    name: str
    kind: LogFileKind
    version: int


_PATTERNS = (
    (LogFileKind.COMMIT, re.compile(r"(\d{20})\.json")),
    (LogFileKind.CHECKPOINT, re.compile(r"(\d{20})\.checkpoint\.parquet")),
    (LogFileKind.CHECKSUM, re.compile(r"(\d{20})\.crc")),
)


def commit_path(version: int) -> str:
    """The path, relative to the table, of a commit."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def checksum_path(version: int) -> str:
    """The path of a commit's version checksum."""
    return f"{LOG_FOLDER}/{version:020d}.crc"


def checkpoint_path(version: int) -> str:
    """The path of a classic single-file checkpoint."""
    return f"{LOG_FOLDER}/{version:020d}.checkpoint.parquet"


def parse(name: str) -> LogFile | None:
    """The log file that a bare name denotes, or None for a name that is none of the log's."""
    for kind, pattern in _PATTERNS:
        match = pattern.fullmatch(name)
        if match:
            return LogFile(name, kind, int(match.group(1)))
    return None
