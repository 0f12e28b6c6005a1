"""Planning a MINOR compaction: which small files of a partition become one. Deterministic: no clock, no randomness.

A small file is below three quarters of the target size. Within a partition, in the order of their commits, small
files are packed until the target size is reached; files of commits further apart than `tidelog.minorSpan` are never
mixed, so that a file stays narrow in time. Large files are never touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from tidelog.log import Snapshot, Table
from tidelog.log.errors import ConfigurationError
from tidelog.log.format import properties
from tidelog.log.format.actions import AddFile
from tidelog.log.state import files

# The tag in which a compacted file keeps the time of the oldest commit whose rows it holds, in ms since the epoch.
OLDEST_TAG = "tidelog.oldestCommit"
LEVELS = ("minor",)
# A group without this much growth would rewrite mostly what the last one wrote: while files keep arriving, each byte
# is then rewritten about log2(target / file size) times, not once for every file that follows it.
GROWTH = 2.0
# How much less than that will do.
_ABOUT = 0.95


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """Files of one partition that become one, in this order."""

    partition_values: Mapping[str, str | None]
    inputs: tuple[AddFile, ...]

    @property
    def size_bytes(self) -> int:
        """What the inputs hold on disk."""
        return sum(add.size for add in self.inputs)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a compaction of `version` would do. `small_files` counts all of them, in a group or not."""

    level: str
    version: int
    groups: tuple[PlannedGroup, ...]
    num_files: int
    small_files: int


def plan(table: Table, level: str = "minor", *, growth: float = 1.0) -> Plan:
    """The plan for the table's newest version.

    `growth` is about how many times its largest input a group must be: 1.0 packs all that can be packed, the daemon's
    2.0 waits until a rewrite pays. Raises ConfigurationError for an unknown level.
    """
    return plan_snapshot(table.refresh().at(), level, growth=growth)


def plan_snapshot(snapshot: Snapshot, level: str, *, growth: float) -> Plan:
    """The plan for one snapshot; see `plan`."""
    if level not in LEVELS:
        raise ConfigurationError(f"there is no compaction level {level!r}", advice=f"use one of {', '.join(LEVELS)}")
    target = properties.size_bytes(snapshot.properties, properties.TARGET_FILE_SIZE)
    span_ms = properties.duration_ms(snapshot.properties, properties.MINOR_SPAN)
    small = _small_files(snapshot, target)
    groups = [
        PlannedGroup(members[0].partition_values, tuple(group))
        for members in _by_partition(small).values()
        for group in _pack(members, target, span_ms)
        if _pays(group, target, growth)
    ]
    return Plan(level, snapshot.version, tuple(groups), snapshot.num_files, len(small))


def _small_files(snapshot: Snapshot, target: int) -> list[AddFile]:
    table = snapshot.files()
    return files.to_adds(table.filter(pc.less(table["size"], target * 3 // 4)))


def _by_partition(adds: Iterable[AddFile]) -> dict[tuple[tuple[str, str | None], ...], list[AddFile]]:
    groups: dict[tuple[tuple[str, str | None], ...], list[AddFile]] = {}
    for add in adds:
        groups.setdefault(tuple(sorted(add.partition_values.items())), []).append(add)
    return groups


def _pack(members: Sequence[AddFile], target: int, span_ms: int) -> Iterator[list[AddFile]]:
    """Runs of neighbours in time (in log order where they are of one time) that fit the target and the span."""
    group: list[AddFile] = []
    size = 0
    for add in sorted(members, key=lambda add: add.modification_time):
        too_wide = group and add.modification_time - min(map(oldest_ms, group)) > span_ms
        if group and (size + add.size > target or too_wide):
            yield group
            group, size = [], 0
        group.append(add)
        size += add.size
    if group:
        yield group


def _pays(group: Sequence[AddFile], target: int, growth: float) -> bool:
    """Whether the group is worth a rewrite: several files, and enough new bytes beside its largest one."""
    if len(group) < 2:  # noqa: PLR2004 - one file alone is compacted already
        return False
    sizes = [add.size for add in group]
    # Equally many rows of one kind make files of sizes that differ by some bytes: two of them are twice one.
    return sum(sizes) >= min(max(1.0, growth * _ABOUT) * max(sizes), target * 3 / 4)


def oldest_ms(add: AddFile) -> int:
    """The commit time of the oldest rows in a file: its own, or what a compaction noted."""
    noted = (add.tags or {}).get(OLDEST_TAG)
    return int(noted) if noted and noted.isdigit() else add.modification_time
