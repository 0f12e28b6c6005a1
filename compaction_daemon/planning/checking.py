"""Check a plan against the table again: other commits can have come since it was made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.compaction_daemon.planning.history import scope_of
from tidelog.compaction_daemon.planning.plan import MAJOR, MINOR, Plan, PlannedGroup
from tidelog.log import Snapshot
from tidelog.log.errors import ConfigurationError, TableReplacedError
from tidelog.log.format import properties
from tidelog.log.format.actions import AddFile
from tidelog.log.format.clustering import require_clusterable
from tidelog.log.state.files import to_adds


class DroppedGroup(msgspec.Struct, frozen=True):
    """A group of a plan that no longer fits the table, and is left alone.

    Args:
        partition_values: The partition, as the log spells its values.
        path: The first of its files that changed.
        files: How many files it has.
        reason: What changed, in words for people.
    """

    partition_values: Mapping[str, str | None]
    path: str
    files: int
    reason: str


@dataclass(frozen=True, slots=True)
class Checked:
    """The groups of a plan that still fit, with the files as the table has them now, and the rest."""

    groups: tuple[PlannedGroup, ...]
    dropped: tuple[DroppedGroup, ...]


def require_applicable(plan: Plan, path: str, table_id: str) -> None:
    """Raise TableReplacedError for the plan of another table, ConfigurationError for one that nobody would make."""
    if plan.table_id != table_id:
        raise TableReplacedError(
            f"the plan is for another table than the one at {path}",
            advice="make a new plan; nothing was changed",
            path=path,
            expected_id=plan.table_id,
            found_id=table_id,
        )
    seen: set[str] = set()
    for group in plan.groups:
        fault = _fault(group, seen)
        if fault:
            raise ConfigurationError(f"the plan cannot be applied: {fault}", advice="make a new plan")
        seen.update(add.path for add in group.inputs)


def check(groups: Sequence[PlannedGroup], snapshot: Snapshot) -> Checked:
    """Which groups still fit: their files are live, in one partition, and have the deletion vectors of the plan.

    Nothing else of a group is taken from the plan: its files are those of the snapshot.
    """
    live = _live(snapshot, (add.path for group in groups for add in group.inputs))
    kept: list[PlannedGroup] = []
    dropped: list[DroppedGroup] = []
    for group in groups:
        found = _changed(group, live, snapshot)
        if found is None:
            inputs = tuple(live[add.path] for add in group.inputs)
            kept.append(replace(group, inputs=inputs, partition_values=inputs[0].partition_values))
        else:
            path, reason = found
            dropped.append(DroppedGroup(group.partition_values, path, len(group.inputs), reason))
    return Checked(tuple(kept), tuple(dropped))


def _fault(group: PlannedGroup, seen: set[str]) -> str | None:
    paths = [add.path for add in group.inputs]
    if not paths:
        return "a group has no files"
    if group.level not in (MINOR, MAJOR):
        return f"there is no compaction level {group.level!r}"
    if group.level == MINOR and group.cluster_by:
        return "a minor compaction does not cluster"
    if group.cluster_order not in properties.CLUSTER_ORDERS:
        return f"there is no cluster order {group.cluster_order!r}"
    if group.outputs < 0:
        return f"a group would have {group.outputs} outputs"
    repeated = sorted(seen.intersection(paths)) or sorted(path for path, times in Counter(paths).items() if times > 1)
    return f"it names the file {repeated[0]} twice" if repeated else None


def _live(snapshot: Snapshot, paths: Iterable[str]) -> dict[str, AddFile]:
    """Those of the files that the snapshot has, by path. Only they become objects."""
    table = snapshot.files()
    wanted = pc.is_in(table["path"], value_set=pa.array(list(paths), pa.string()))
    return {add.path: add for add in to_adds(table.filter(wanted))}


def _changed(group: PlannedGroup, live: Mapping[str, AddFile], snapshot: Snapshot) -> tuple[str, str] | None:
    """The first file of a group that keeps it from being rewritten, and why; None if there is none."""
    scope = None
    for add in group.inputs:
        now = live.get(add.path)
        if now is None:
            return add.path, "the file is no longer part of the table"
        if now.key != add.key:
            return add.path, "rows of the file were deleted or brought back"
        scope = scope or scope_of(now.partition_values)
        if scope_of(now.partition_values) != scope:
            return add.path, "the file is in another partition than the first one"
    try:
        require_clusterable(snapshot.schema, snapshot.partition_by, group.cluster_by)
    except ConfigurationError as error:
        return group.inputs[0].path, str(error)
    return None
