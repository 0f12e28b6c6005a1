"""What the log of a table says by itself, as one value: a report for the page and programs, a brief for a list.

Everything in a report is bounded, whatever the size of the table: the newest versions, losses and consumers, a plan as
large as a plan may be. Its JSON has the beginning of the plan, and of a refused rewrite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from tidelog import __version__
from tidelog.compaction_daemon.compaction.compaction import read_history
from tidelog.compaction_daemon.leases.lease_status import LeaseStatus, lease_of
from tidelog.compaction_daemon.observing.safe_json import safe_builtins, values_of
from tidelog.compaction_daemon.observing.version_walk import (
    MAX_VERSIONS,
    StreamThroughput,
    TableSize,
    Throughput,
    VersionEntry,
    commit_view,
    newest_versions,
    streams_of,
    table_size,
    throughput_of,
)
from tidelog.compaction_daemon.planning.compaction_planner import NO_HISTORY, NOTHING_APART, plan_snapshot
from tidelog.compaction_daemon.planning.plan import MAJOR, Plan, PlannedGroup
from tidelog.compaction_daemon.planning.request import DUE, CompactionRequest
from tidelog.compaction_daemon.rewriting.refused_rewrites import Refusal, refusals
from tidelog.compaction_daemon.upkeep.due import CLEAN_UPS, Chore, TableAge, due_ms
from tidelog.compaction_daemon.upkeep.retentions import Retention, retention, retentions
from tidelog.compaction_daemon.upkeep.table_upkeep import read_record, record_of_log
from tidelog.log import CommitRecord, Debt, OperationClass, Snapshot, Table
from tidelog.log.commit.conflict_ledger import LostRace, read_ledger
from tidelog.log.commit_records import commit_records
from tidelog.log.consumers.consumer_status import ConsumerStatus, consumers
from tidelog.log.data.type_names import sql_type
from tidelog.log.errors import TidelogError
from tidelog.log.format import properties
from tidelog.log.format.actions import Protocol
from tidelog.log.system import REAL_SYSTEM, System, to_datetime

# Each loss is a file of its own, and so is a consumer, and a refused rewrite, which can name thousands of files.
MAX_LOSSES = 200
_MAX_CONSUMERS = 200
_MAX_REFUSALS, _MAX_REFUSED_FILES = 20, 50
# Wide tables are shown by their first columns.
_MAX_COLUMNS = 200
_MAX_PROPERTIES = 100
# A reason costs an object for each live file; for more files the plan only has its groups and partitions.
_MAX_EXPLAINED_FILES = 50_000
# What is shown of the groups, the partitions and the files of one plan.
_MAX_GROUPS = _MAX_SCOPES = 50
_MAX_FILES = 200
# The upper ends of the bars of the histogram of file sizes, in bytes; the last bar has none.
_SIZE_STEPS = tuple(2**power for power in range(14, 33, 2))  # 16 KiB to 4 GiB
# How many commits a brief reads, newest first, to find a compaction: about a second on an object store.
_SEARCHED_COMMITS = 50
# The commits that a brief reads to measure a lag; a consumer that is further behind is at least so far behind.
_BRIEF_LAG_COMMITS = 100
_COMPACTIONS = (OperationClass.MINOR, OperationClass.MAJOR)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Problem:
    """A part that could not be made, and why."""

    part: str
    error: str


@dataclass
class Parts:
    """Makes the parts; one that fails has its empty value, and a `Problem`."""

    problems: list[Problem] = field(default_factory=list)

    def make(self, name: str, work: Callable[[], _T], empty: _T) -> _T:
        """What `work` returns, or `empty` if it raises an error of tidelog or of the file system."""
        try:
            return work()
        except (TidelogError, OSError) as error:
            self.problems.append(Problem(name, str(error)))
            return empty


@dataclass(frozen=True, slots=True)
class ColumnOutline:
    """A column, with its SQL type."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class Setting:
    """A property in force. `is_default` says that the table does not set it itself."""

    name: str
    value: str
    is_default: bool


@dataclass(frozen=True, slots=True)
class SizeBar:
    """The live files of a size: below `below` bytes, and not below the bar before; None in the last bar."""

    below: int | None
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CleanUpTime:
    """When a clean-up was done last, and when it is due again by the table's own times.

    Attributes:
        chore: What is done.
        done: When it was done last; None: never, as far as is known.
        due: When it is due; None: not before the table changes, or `awaits_daemon`.
        awaits_daemon: It was never done, and is due within an hour after a daemon looks at the table for the first
            time.
    """

    chore: Chore
    done: datetime | None
    due: datetime | None
    awaits_daemon: bool = False


@dataclass(frozen=True, slots=True)
class TableReport:
    """What the log of a table says at one version.

    Attributes:
        path: The table, without credentials.
        table_id: Its id.
        made_at: When the report was made, by this machine's clock.
        tidelog_version: The version of tidelog that made it.
        version: The loaded version.
        timestamp: Its commit time.
        time_version: The commit time of the newest version up to it that changed rows, if it is among `versions`.
        earliest_version: The oldest version that can still be read.
        partition_by: The partition columns.
        columns: The first 200 columns.
        num_columns: The number of columns.
        protocol: The protocol's versions and features.
        properties: The properties in force, by name; at most 100.
        retentions: How long what is kept.
        clean_up: Whether daemons clean the table up (`tidelog.cleanUp`).
        clean_ups: When it was cleaned up, and when that is due again.
        size: The size of the version.
        debt: What compaction and a checkpoint would save.
        file_sizes: How many files there are of each size.
        versions: The newest versions, newest first; at most 500.
        throughput: What those of them wrote that say how many rows.
        streams: What the streams among their writers wrote, the newest first; at most 20.
        losses: The newest losses of the conflict ledger, newest first; at most 200.
        consumers: The registered consumers by name; at most 200.
        plans: What is due now, of which a daemon does the best groups first, and all that a major compaction could do.
        lease: Who has the lease of the table, or had it last; None if no daemon ever had.
        refusals: Rewrites that the verification refused, newest first; at most 20.
        problems: The parts that could not be made; they are empty above.
    """

    path: str
    table_id: str
    made_at: datetime
    tidelog_version: str
    version: int
    timestamp: datetime
    time_version: datetime | None
    earliest_version: int | None
    partition_by: tuple[str, ...]
    columns: tuple[ColumnOutline, ...]
    num_columns: int
    protocol: Protocol
    properties: tuple[Setting, ...]
    retentions: tuple[Retention, ...]
    clean_up: bool
    clean_ups: tuple[CleanUpTime, ...]
    size: TableSize
    debt: Debt | None
    file_sizes: tuple[SizeBar, ...]
    versions: tuple[VersionEntry, ...]
    throughput: Throughput
    streams: tuple[StreamThroughput, ...]
    losses: tuple[LostRace, ...]
    consumers: tuple[ConsumerStatus, ...]
    plans: tuple[Plan, ...]
    lease: LeaseStatus | None
    refusals: tuple[Refusal, ...]
    problems: tuple[Problem, ...]

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values: no text in it has credentials, control characters or more than 500 characters.

        It has the beginning of each plan and of each refused rewrite, with the numbers of the whole.
        """
        found: dict[str, Any] = safe_builtins(
            {
                **values_of(self),
                "versions": [entry.view() for entry in self.versions],
                "losses": [_at(loss, "when_ms") for loss in self.losses],
                "plans": [_plan_view(plan) for plan in self.plans],
                "refusals": [_refusal_view(refusal) for refusal in self.refusals],
            }
        )
        return found


def report_of(
    table: Table,
    *,
    max_versions: int = MAX_VERSIONS,
    system: System = REAL_SYSTEM,
    due: CompactionRequest = DUE,
    apart: Mapping[str, int] = NOTHING_APART,
) -> TableReport:
    """The report of the loaded version of a table.

    A part that cannot be read, such as the consumers, is left out and named in `problems`. The table's size decides
    little about the time it takes: seconds for a million files.

    Args:
        table: The table.
        max_versions: How many versions to list at most.
        system: The clock.
        due: How to plan what is due now, as in `DaemonStatus.request`; by default as a daemon with default settings.
        apart: The files of groups that failed, as in `TableStatus.apart`.

    Raises:
        CorruptLogError: The list of files cannot be read.
        StoreUnavailableError: The store does not answer.
    """
    parts = Parts()
    snapshot = table.at()
    size = table_size(table, snapshot)
    versions: tuple[VersionEntry, ...] = parts.make(
        "versions", lambda: tuple(newest_versions(table, size, max_versions)), ()
    )
    return TableReport(
        path=table.path,
        table_id=table.id,
        made_at=to_datetime(system.now_ms()),
        tidelog_version=__version__,
        version=table.version,
        timestamp=snapshot.timestamp,
        time_version=next((entry.commit.time_version for entry in versions if entry.commit.time_version), None),
        earliest_version=parts.make("earliest version", table.timeline.oldest_version, None),
        partition_by=table.partition_by,
        columns=_columns(table),
        num_columns=len(table.schema),
        protocol=table.head.protocol,
        properties=_settings(table),
        retentions=retentions(table.properties),
        clean_up=properties.clean_up(table.properties),
        clean_ups=parts.make("clean-ups", lambda: clean_up_times(table, system), ()),
        size=size,
        debt=parts.make("debt", table.debt, None),
        file_sizes=_file_sizes(snapshot),
        versions=versions,
        throughput=throughput_of(versions),
        streams=streams_of(versions),
        losses=parts.make("conflicts", lambda: tuple(read_ledger(table.store, MAX_LOSSES)), ()),
        consumers=parts.make("consumers", lambda: _consumers(table, system), ()),
        plans=_plans(table, snapshot, parts, due, apart),
        lease=parts.make("lease", lambda: lease_of(table), None),
        refusals=parts.make("refusals", lambda: refusals(table.store, table.id, _MAX_REFUSALS), ()),
        problems=tuple(parts.problems),
    )


def _columns(table: Table) -> tuple[ColumnOutline, ...]:
    fields = islice(table.schema, _MAX_COLUMNS)
    return tuple(ColumnOutline(field.name, sql_type(field.type), field.nullable) for field in fields)


def _settings(table: Table) -> tuple[Setting, ...]:
    own = table.properties
    found = properties.in_force(own)
    return tuple(Setting(name, found[name], name not in own) for name in sorted(found)[:_MAX_PROPERTIES])


def _file_sizes(snapshot: Snapshot) -> tuple[SizeBar, ...]:
    sizes = snapshot.files()["size"].to_numpy()
    bars = np.digitize(sizes, _SIZE_STEPS)
    files = np.bincount(bars, minlength=len(_SIZE_STEPS) + 1)
    total = np.bincount(bars, weights=sizes, minlength=len(_SIZE_STEPS) + 1)
    return tuple(
        SizeBar(below, int(number), int(size))
        for below, number, size in zip((*_SIZE_STEPS, None), files, total, strict=True)
    )


def _consumers(table: Table, system: System) -> tuple[ConsumerStatus, ...]:
    return tuple(consumers(table.store, table.head, system)[:_MAX_CONSUMERS])


# --- plans


def _plans(
    table: Table, snapshot: Snapshot, parts: Parts, due: CompactionRequest, apart: Mapping[str, int]
) -> tuple[Plan, ...]:
    """What is due now at the loaded version of a table, and all that a major compaction could do.

    What is due is what `due` asks for, with the files `apart` as in `plan_snapshot`.

    A plan that cannot be made is left out: for a major compaction the columns of `tidelog.clusterBy` have to be there.
    """
    explain = snapshot.num_files <= _MAX_EXPLAINED_FILES
    history = parts.make("recent commits", lambda: read_history(table), NO_HISTORY)
    now_ms = table.timeline.system.now_ms()

    def make(name: str, request: CompactionRequest, apart: Mapping[str, int]) -> Plan | None:
        plan = partial(plan_snapshot, snapshot, request, history=history, now_ms=now_ms, apart=apart)
        return parts.make(name, lambda: plan(explain=explain), None)

    found = make("plan", due, apart), make("major plan", CompactionRequest(MAJOR), {})
    return tuple(plan for plan in found if plan is not None)


def _plan_view(plan: Plan) -> dict[str, Any]:
    """What is shown of a plan: its numbers, and its first groups, partitions and files, those to rewrite first.

    `reasons` has how many files each reason is about, the most frequent first.
    """
    reasons = Counter((reason.chosen, reason.reason) for reason in plan.reasons)
    whole = {name: value for name, value in values_of(plan).items() if name not in ("groups", "scopes", "reasons")}
    return {
        **whole,
        "groups": len(plan.groups),
        "files": sum(len(group.inputs) for group in plan.groups),
        "bytes": sum(group.size_bytes for group in plan.groups),
        "outputs": sum(group.outputs for group in plan.groups),
        "first_groups": [_group_view(group) for group in plan.groups[:_MAX_GROUPS]],
        "first_scopes": plan.scopes[:_MAX_SCOPES],
        "reasons": [
            {"chosen": chosen, "reason": reason, "files": number} for (chosen, reason), number in reasons.most_common()
        ],
        "first_files": sorted(plan.reasons, key=lambda reason: not reason.chosen)[:_MAX_FILES],
    }


def _group_view(group: PlannedGroup) -> dict[str, Any]:
    """A group with the number and the size of its input files in the place of the files."""
    whole = {name: value for name, value in values_of(group).items() if name != "inputs"}
    return {**whole, "files": len(group.inputs), "bytes": group.size_bytes}


# --- what went wrong


def _refusal_view(refusal: Refusal) -> dict[str, Any]:
    """A refused rewrite with the first of the files that were read and written, and their numbers."""
    return {
        **_at(refusal, "time_ms"),
        "num_inputs": len(refusal.inputs),
        "num_outputs": len(refusal.outputs),
        "inputs": refusal.inputs[:_MAX_REFUSED_FILES],
        "outputs": refusal.outputs[:_MAX_REFUSED_FILES],
    }


def _at(record: LostRace | Refusal, name: str) -> dict[str, Any]:
    """The values of a record, with `at` for its time in milliseconds."""
    values = values_of(record)
    return {"at": to_datetime(values.pop(name)), **values}


# --- clean-ups


def clean_up_times(table: Table, system: System) -> tuple[CleanUpTime, ...]:
    """The times of each clean-up of the loaded version."""
    head, now_ms = table.head, system.now_ms()
    times = record_of_log(head).merged(read_record(table.store, table.id)).times
    age = TableAge(table.id, head.metadata.created_time, 0, head.timestamp_ms)
    found = []
    for chore in CLEAN_UPS:
        key = properties.LOG_RETENTION if chore is Chore.EXPIRE else properties.DELETED_FILE_RETENTION
        last = times.get(chore)
        at_ms = due_ms(chore, age, last, retention(table.properties, key).duration_ms, now_ms)
        done = None if last is None else to_datetime(last.done_ms)
        # Nobody but a daemon knows when it saw the table first.
        awaits = last is None and at_ms is not None and at_ms <= now_ms
        found.append(CleanUpTime(chore, done, None if at_ms is None or awaits else to_datetime(at_ms), awaits))
    return tuple(found)


# --- the brief


@dataclass(frozen=True, slots=True)
class TableBrief:
    """What the log of a table says at one version.

    Attributes:
        path: The table.
        version: The version.
        timestamp: Its commit time (UTC).
        debt: What compaction and a checkpoint would save.
        checkpoint: The version of the newest checkpoint; None if there is none.
        lease: Which daemon has it, or had it last; None if none ever had.
        last_compaction: The newest compaction among the newest 50 commits.
        consumers: The registered consumers by name.
        clean_up: Whether daemons clean it up (`tidelog.cleanUp`).
        clean_ups: When that was done, and is due.
        retentions: How long what is kept.
        problems: The parts that could not be read; they are empty above.
    """

    path: str
    version: int
    timestamp: datetime
    debt: Debt | None
    checkpoint: int | None
    lease: LeaseStatus | None
    last_compaction: CommitRecord | None
    consumers: tuple[ConsumerStatus, ...]
    clean_up: bool
    clean_ups: tuple[CleanUpTime, ...]
    retentions: tuple[Retention, ...]
    problems: tuple[Problem, ...]

    def to_dict(self) -> dict[str, Any]:
        """The values as JSON; no text in it has credentials, control characters or more than 500 characters."""
        last = self.last_compaction
        found: dict[str, Any] = safe_builtins({**values_of(self), "last_compaction": last and commit_view(last)})
        return found


def brief_of(table: Table, *, system: System = REAL_SYSTEM) -> TableBrief:
    """The brief of the loaded version of a table. What cannot be read is left out, and named in `problems`.

    Args:
        table: The table.
        system: The clock.
    """
    parts = Parts()
    debt: Debt | None = parts.make("debt", table.debt, None)
    found_consumers: tuple[ConsumerStatus, ...] = parts.make(
        "consumers", lambda: tuple(consumers(table.store, table.head, system, max_commits=_BRIEF_LAG_COMMITS)), ()
    )
    return TableBrief(
        path=table.path,
        version=table.version,
        timestamp=to_datetime(table.head.timestamp_ms),
        debt=debt,
        checkpoint=None if debt is None or debt.log_tail > table.version else table.version - debt.log_tail,
        lease=parts.make("lease", lambda: lease_of(table), None),
        last_compaction=parts.make("last compaction", lambda: _last_compaction(table), None),
        consumers=found_consumers,
        clean_up=properties.clean_up(table.properties),
        clean_ups=parts.make("clean-ups", lambda: clean_up_times(table, system), ()),
        retentions=retentions(table.properties),
        problems=tuple(parts.problems),
    )


def _last_compaction(table: Table) -> CommitRecord | None:
    records = commit_records(table.timeline, _SEARCHED_COMMITS)
    return next((record for record in records if record.operation_class in _COMPACTIONS), None)
