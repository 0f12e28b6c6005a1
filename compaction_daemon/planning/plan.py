"""What a compaction will do, as values: which files become which, and why each file is taken or left alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tidelog.log.errors import ConfigurationError
from tidelog.log.internals import AddFile

# The tag in which a compacted file keeps the time of the oldest commit whose rows it holds, in ms since the epoch.
OLDEST_TAG = "tidelog.oldestCommit"
# The tag in which a file keeps the columns that it was sorted by: a JSON list of the names that the log knows them by.
CLUSTERED_TAG = "tidelog.clusteredBy"


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """Files of one partition whose live rows become about `outputs` files; no file where none of their rows is live.

    The rows keep their order, or are sorted by the columns `cluster_by`.
    """

    partition_values: Mapping[str, str | None]
    inputs: tuple[AddFile, ...]
    outputs: int = 1
    cluster_by: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """What the inputs hold on disk."""
        return sum(add.size for add in self.inputs)

    @property
    def bytes_to_read(self) -> int:
        """What a rewrite reads: nothing where no row is live."""
        return self.size_bytes if self.outputs else 0


@dataclass(frozen=True, slots=True)
class FileReason:
    """Why a live file is rewritten, or is not."""

    path: str
    chosen: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a compaction of `version` would do.

    `num_files` are the files of the scope, `small_files` the small ones of them, in a group or not. `reasons` has one
    entry for each live file of the table where the plan was asked for by itself; a compaction does without.
    """

    level: str
    version: int
    groups: tuple[PlannedGroup, ...]
    num_files: int
    small_files: int
    reasons: tuple[FileReason, ...] = ()

    def to_builtins(self) -> Any:
        """The plan as plain objects, for JSON."""
        return msgspec.to_builtins(self)

    def to_json(self) -> str:
        """The plan as a text, from which `from_json` makes an equal one."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """The plan that `to_json` wrote. Raises ConfigurationError for any other text."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"this text is no plan: {error}", advice="give what to_json() returned") from error


def oldest_ms(add: AddFile) -> int:
    """The commit time of the oldest rows in a file: its own, or what a compaction noted."""
    noted = (add.tags or {}).get(OLDEST_TAG)
    return int(noted) if noted and noted.isdigit() else add.modification_time


def cluster_tag(columns: tuple[str, ...]) -> str:
    """The value of CLUSTERED_TAG for files that are sorted by these physical columns."""
    return msgspec.json.encode(columns).decode()
