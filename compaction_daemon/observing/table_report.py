"""What the log of a table says by itself, as one value: for the page, the report and programs.

Everything in it is bounded, whatever the size of the table: the newest versions, losses and consumers, the beginning of
the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import numpy as np

from tidelog import __version__
from tidelog.compaction_daemon.leases.lease_status import LeaseStatus, lease_of
from tidelog.compaction_daemon.observing.clean_ups import CleanUpTime, clean_up_times
from tidelog.compaction_daemon.observing.parts import Parts, Problem
from tidelog.compaction_daemon.observing.plans import PlanOutline, plan_outlines
from tidelog.compaction_daemon.observing.refused import RefusalOutline, refusal_outlines
from tidelog.compaction_daemon.observing.safe_json import safe_builtins
from tidelog.compaction_daemon.observing.versions import (
    MAX_VERSIONS,
    TableSize,
    VersionEntry,
    newest_versions,
    table_size,
)
from tidelog.compaction_daemon.planning.planner import NOTHING_APART
from tidelog.compaction_daemon.planning.request import DUE, CompactionRequest
from tidelog.compaction_daemon.upkeep.retentions import Retention, retentions
from tidelog.log import Debt, Snapshot, Table
from tidelog.log.commit.conflict_ledger import LostRace, read_ledger
from tidelog.log.consumers.consumer_status import ConsumerStatus, consumers
from tidelog.log.data.type_names import sql_type
from tidelog.log.format import properties
from tidelog.log.system import REAL_SYSTEM, System, to_datetime

# Each loss is a file of its own, and so is a consumer.
MAX_LOSSES = 200
_MAX_CONSUMERS = 200
# Wide tables are shown by their first columns.
_MAX_COLUMNS = 200
_MAX_PROPERTIES = 100
# The upper ends of the bars of the histogram of file sizes, in bytes; the last bar has none.
_SIZE_STEPS = tuple(2**power for power in range(14, 33, 2))  # 16 KiB to 4 GiB


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
class Loss:
    """An entry of the conflict ledger; its attributes are those of `LostRace`, with the time as a datetime."""

    at: datetime
    base_version: int
    winning_version: int
    policy: str | None
    earlier: str
    later: str
    operation: str
    outcome: str
    error: str | None
    evidence: str
    wasted_rows: int
    wasted_bytes: int
    wasted_seconds: float
    loser: str


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
        losses: The newest losses of the conflict ledger, newest first; at most 200.
        consumers: The registered consumers by name; at most 200.
        plans: What is due now, and all that a major compaction could do.
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
    protocol: Mapping[str, Any]
    properties: tuple[Setting, ...]
    retentions: tuple[Retention, ...]
    clean_up: bool
    clean_ups: tuple[CleanUpTime, ...]
    size: TableSize
    debt: Debt | None
    file_sizes: tuple[SizeBar, ...]
    versions: tuple[VersionEntry, ...]
    losses: tuple[Loss, ...]
    consumers: tuple[ConsumerStatus, ...]
    plans: tuple[PlanOutline, ...]
    lease: LeaseStatus | None
    refusals: tuple[RefusalOutline, ...]
    problems: tuple[Problem, ...]

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values: no text in it has credentials, control characters or more than 500 characters."""
        found: dict[str, Any] = safe_builtins(self)
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
        time_version=next((entry.time_version for entry in versions if entry.time_version), None),
        earliest_version=parts.make("earliest version", table.timeline.oldest_version, None),
        partition_by=table.partition_by,
        columns=_columns(table),
        num_columns=len(table.schema),
        protocol=_protocol(table),
        properties=_settings(table),
        retentions=retentions(table.properties),
        clean_up=properties.clean_up(table.properties),
        clean_ups=parts.make("clean-ups", lambda: clean_up_times(table, system), ()),
        size=size,
        debt=parts.make("debt", table.debt, None),
        file_sizes=_file_sizes(snapshot),
        versions=versions,
        losses=parts.make("conflicts", lambda: _losses(table), ()),
        consumers=parts.make("consumers", lambda: _consumers(table, system), ()),
        plans=plan_outlines(table, snapshot, parts, due, apart),
        lease=parts.make("lease", lambda: lease_of(table), None),
        refusals=parts.make("refusals", lambda: refusal_outlines(table), ()),
        problems=tuple(parts.problems),
    )


def _columns(table: Table) -> tuple[ColumnOutline, ...]:
    fields = islice(table.schema, _MAX_COLUMNS)
    return tuple(ColumnOutline(field.name, sql_type(field.type), field.nullable) for field in fields)


def _protocol(table: Table) -> dict[str, Any]:
    found = table.head.protocol
    return {
        "min_reader_version": found.min_reader_version,
        "min_writer_version": found.min_writer_version,
        "features": sorted({*(found.reader_features or ()), *(found.writer_features or ())}),
    }


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


def _losses(table: Table) -> tuple[Loss, ...]:
    return tuple(_loss(entry) for entry in read_ledger(table.store, MAX_LOSSES))


def _loss(entry: LostRace) -> Loss:
    return Loss(
        at=to_datetime(entry.when_ms),
        base_version=entry.base_version,
        winning_version=entry.winning_version,
        policy=entry.policy,
        earlier=entry.earlier,
        later=entry.later,
        operation=entry.operation,
        outcome=entry.outcome,
        error=entry.error,
        evidence=entry.evidence,
        wasted_rows=entry.wasted_rows,
        wasted_bytes=entry.wasted_bytes,
        wasted_seconds=entry.wasted_seconds,
        loser=entry.loser,
    )


def _consumers(table: Table, system: System) -> tuple[ConsumerStatus, ...]:
    return tuple(consumers(table.store, table.head, system)[:_MAX_CONSUMERS])
