"""A Plan as values: which files become how many, and why each file is rewritten or left alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tidelog.log.errors import ConfigurationError
from tidelog.log.internals import AddFile

# The tag of a compacted file that holds the time of the oldest commit among its rows, in ms since the epoch.
OLDEST_TAG = "tidelog.oldestCommit"
# The tag of a sorted file that holds its sort columns: a JSON list of physical names.
CLUSTERED_TAG = "tidelog.clusteredBy"


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """Files of one partition that are rewritten together.

    Args:
        partition_values: The partition, as the log spells its values; None is null.
        inputs: The `add` actions of the files that are rewritten, oldest commit first.
        outputs: About how many files their live rows become; 0 if all their rows are dead.
        cluster_by: The columns that the rows are sorted by; if empty, the rows keep their order.
    """

    partition_values: Mapping[str, str | None]
    inputs: tuple[AddFile, ...]
    outputs: int = 1
    cluster_by: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """The bytes of the inputs on disk."""
        return sum(add.size for add in self.inputs)

    @property
    def bytes_to_read(self) -> int:
        """The bytes that a rewrite reads: none if all rows are dead."""
        return self.size_bytes if self.outputs else 0


@dataclass(frozen=True, slots=True)
class FileReason:
    """Why a live file is rewritten or left alone.

    Args:
        path: The file, as the log spells its path.
        chosen: Whether it is rewritten.
        reason: Why, in words for people; the wording may change.
    """

    path: str
    chosen: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a compaction of one version would do.

    Args:
        level: `minor` or `major`.
        version: The version of the table that was planned for.
        groups: The files to rewrite, in the order in which compactions take them.
        num_files: The number of live files in the partitions asked for.
        small_files: How many of these are small, in a group or not.
        reasons: One for each live file of the table, in log order; empty in the plan of a running compaction.

    Example:
        found = plan(Table.open("/data/events"), "major")
        print([len(group.inputs) for group in found.groups])
        assert Plan.from_json(found.to_json()) == found
    """

    level: str
    version: int
    groups: tuple[PlannedGroup, ...]
    num_files: int
    small_files: int
    reasons: tuple[FileReason, ...] = ()

    def to_builtins(self) -> Any:
        """Return the plan as dicts, lists, strings and numbers, for JSON."""
        return msgspec.to_builtins(self)

    def to_json(self) -> str:
        """Return the plan as JSON text, which `from_json` reads."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """Read a plan that `to_json` wrote.

        Raises:
            ConfigurationError: The text is not a plan.
        """
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"the text is not a plan: {error}", advice="give what to_json() returned"
            ) from error


def oldest_ms(add: AddFile) -> int:
    """The commit time of the oldest rows in a file, in ms: from its OLDEST_TAG, or else the file's own."""
    tag = (add.tags or {}).get(OLDEST_TAG)
    return int(tag) if tag and tag.isdigit() else add.modification_time


def cluster_tag(columns: tuple[str, ...]) -> str:
    """The CLUSTERED_TAG of files that are sorted by these physical columns."""
    return msgspec.json.encode(columns).decode()
