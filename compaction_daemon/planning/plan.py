"""A Plan as values: which files become how many, in which order, what that should cost, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tidelog.log.errors import ConfigurationError
from tidelog.log.format.actions import AddFile
from tidelog.log.format.text import MALFORMED_JSON

# The tag of a compacted file that holds the time of the oldest commit among its rows, in ms since the epoch.
OLDEST_TAG = "tidelog.oldestCommit"
# The tag of a clustered file: how its rows are ordered, as `cluster_tag` spells it.
CLUSTERED_TAG = "tidelog.clusteredBy"
HILBERT = "hilbert"
SORT = "sort"
MINOR = "minor"
MAJOR = "major"


class Prediction(msgspec.Struct, frozen=True):
    """What a rewrite should cost, before it is done.

    Args:
        bytes_to_read: The size of the input files whose rows are read.
        bytes_to_write: The size of the output files.
        seconds: How long the rewrite takes, without its commit.
        conflict_odds: How probable it is that another commit changes or removes files of the same partitions
            meanwhile, from 0 to 1. Such a commit costs at most the groups whose files it took.
    """

    bytes_to_read: int = 0
    bytes_to_write: int = 0
    seconds: float = 0.0
    conflict_odds: float = 0.0

    def __add__(self, other: Prediction) -> Prediction:
        """Both rewrites, one after the other; the odds are those of at least one conflict."""
        return Prediction(
            self.bytes_to_read + other.bytes_to_read,
            self.bytes_to_write + other.bytes_to_write,
            self.seconds + other.seconds,
            1 - (1 - self.conflict_odds) * (1 - other.conflict_odds),
        )


NOTHING_PREDICTED = Prediction()


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """Files of one partition that are rewritten together.

    Args:
        partition_values: The partition, as the log spells its values; None is null.
        inputs: The `add` actions of the files that are rewritten, oldest commit first.
        outputs: About how many files their live rows become; 0 if all their rows are dead.
        cluster_by: The columns that the rows are clustered by; if empty, the rows keep their order.
        cluster_order: `hilbert`: along a Hilbert curve through the columns; `sort`: by the first column, then by the
            second, and so on. With one column both are the same, and without a column neither means anything.
        level: `minor` or `major`: the operation class of the commit.
        predicted: What the rewrite should cost.
        reason: Why the group is rewritten, in words for people; the wording may change.
        purge: Whether it is rewritten to take deleted rows out of it, even if its files become larger.
    """

    partition_values: Mapping[str, str | None]
    inputs: tuple[AddFile, ...]
    outputs: int = 1
    cluster_by: tuple[str, ...] = ()
    cluster_order: str = HILBERT
    level: str = MINOR
    predicted: Prediction = NOTHING_PREDICTED
    reason: str = ""
    purge: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the inputs, as the log spells them."""
        return tuple(add.path for add in self.inputs)

    @property
    def size_bytes(self) -> int:
        """The bytes of the inputs on disk."""
        return sum(add.size for add in self.inputs)

    @property
    def bytes_to_read(self) -> int:
        """The bytes that a rewrite reads: none if all rows are dead."""
        return self.size_bytes if self.outputs else 0


class FileReason(msgspec.Struct, frozen=True):
    """Why a live file is rewritten or left alone.

    Args:
        path: The file, as the log spells its path.
        chosen: Whether it is rewritten.
        reason: Why, in words for people; the wording may change.
    """

    path: str
    chosen: bool
    reason: str


class ScopeDebt(msgspec.Struct, frozen=True, kw_only=True):
    """What makes one partition slower to read than it needs to be, and what a plan does about it.

    Args:
        partition_values: The partition, as the log spells its values; empty for a table without partitions.
        files: Its live files.
        small_files: Those below three quarters of `tidelog.targetFileSize`.
        small_bytes: The size of the small files.
        dead_rows: Rows that are deleted but still stored.
        dead_bytes: The share of the files that these rows take, if all rows are equally large.
        unclustered_files: Files that the plan's columns have not clustered yet; 0 without such columns.
        read_amplification: How many times as many files a full read opens as live rows in files of the target size
            would need; 1.0 is ideal.
        groups: How many groups of it are worth a rewrite now, planned or left out.
        score: Debt that they remove, in bytes that a read then saves, per byte rewritten. Partitions and groups are
            taken in this order.
        reason: What is done now, and what waits for what; in words for people.
    """

    partition_values: Mapping[str, str | None]
    files: int
    small_files: int
    small_bytes: int
    dead_rows: int
    dead_bytes: int
    unclustered_files: int
    read_amplification: float
    groups: int
    score: float
    reason: str


class LeftOut(msgspec.Struct, frozen=True):
    """What is worth a rewrite now, but is beyond the bounds of a plan.

    Args:
        groups: The groups that the plan leaves to the next one.
        files: Their input files.
        size_bytes: The size of these files.
    """

    groups: int = 0
    files: int = 0
    size_bytes: int = 0


NOTHING_LEFT_OUT = LeftOut()


@dataclass(frozen=True, slots=True)
class Plan:
    """What a compaction of one version would do.

    Args:
        level: `minor`, `major`, or `auto` for what the daemon would do next, which can be both.
        version: The version of the table that was planned for.
        groups: The files to rewrite, in the order in which compactions take them: by debt removed per byte rewritten.
        num_files: The number of live files in the partitions asked for.
        small_files: How many of these are small, in a group or not.
        reasons: One for each live file of the table, in log order; empty in the plan of a running compaction.
        table_id: The id of the table; a plan is applied to no other.
        predicted: What all groups together should cost.
        scopes: The partitions with the most debt to remove; at most 100.
        num_scopes: The number of partitions asked for that have files.
        left_out: What is due as well, but beyond the budget, or beyond 50,000 input files.
        notes: What else the reader should know, such as columns that can no longer be clustered by.
        where: SQL over partition columns: the partitions asked for; None for all of them.

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
    table_id: str = ""
    predicted: Prediction = NOTHING_PREDICTED
    scopes: tuple[ScopeDebt, ...] = ()
    num_scopes: int = 0
    left_out: LeftOut = NOTHING_LEFT_OUT
    notes: tuple[str, ...] = ()
    where: str | None = None

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
        except MALFORMED_JSON as error:
            raise ConfigurationError(
                f"the text is not a plan: {error}", advice="give what to_json() returned"
            ) from error


def total(predictions: Sequence[Prediction]) -> Prediction:
    """All of these rewrites, one after the other."""
    return sum(predictions, NOTHING_PREDICTED)


def oldest_ms(add: AddFile) -> int:
    """The commit time of the oldest rows in a file, in ms: from its OLDEST_TAG, or else the file's own."""
    tag = (add.tags or {}).get(OLDEST_TAG)
    return int(tag) if tag and tag.isdigit() else add.modification_time


def cluster_tag(columns: tuple[str, ...], order: str) -> str:
    """The CLUSTERED_TAG of files that are clustered by these physical columns, in one of `CLUSTER_ORDERS`.

    A list means sorted, an object names the other order: `["a", "b"]` or `{"hilbert": ["a", "b"]}`.
    """
    tag = {order: columns} if order == HILBERT and len(columns) > 1 else columns
    return msgspec.json.encode(tag).decode()
