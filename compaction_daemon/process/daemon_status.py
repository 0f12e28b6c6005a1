"""What a daemon knows about its tables, as values: for the page, the metrics and `tidelog status`.

What the log of a table says by itself, such as its history and its consumers, is not in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from tidelog.compaction_daemon.planning.request import DUE, CompactionRequest
from tidelog.compaction_daemon.upkeep import UpkeepError
from tidelog.log import Debt


class TableState(StrEnum):
    """What a daemon is doing about a table."""

    NEW = "new"  # not looked at yet
    WATCHED = "watched"  # nothing to do at the last look
    WORKING = "working"  # the last look found something to do
    ELSEWHERE = "elsewhere"  # another daemon has the lease
    MISSING = "missing"  # there is no table at the path
    FAILING = "failing"  # the last look failed; it is tried again later


@dataclass(frozen=True, slots=True)
class DebtSample:
    """The debt of a table at one time."""

    at: datetime
    version: int
    debt: Debt


@dataclass(frozen=True, slots=True)
class WorkTotals:
    """What a daemon has done for one table since it started.

    Attributes:
        compactions: Versions that it committed, by level.
        files_removed: Files that they removed from the table.
        files_added: Files that they added.
        bytes_read: Bytes of input files that were rewritten.
        bytes_written: Bytes of output files.
        wasted_bytes: Bytes of output files that were written in vain, because of other commits or of an error.
        rebased_over: Commits of other writers that its compactions were rebased over.
        superseded: Compactions with nothing left to commit, because others took all their files.
        refused: Rewrites that the verification refused.
        checkpoints: Checkpoints that it wrote.
        files_deleted: Files that clean-up deleted.
        failures: Looks at the table that ended with an error. It is none that there is no table.
        step_seconds: Seconds of work for the table.
    """

    compactions: Mapping[str, int] = field(default_factory=dict)
    files_removed: int = 0
    files_added: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    wasted_bytes: int = 0
    rebased_over: int = 0
    superseded: int = 0
    refused: int = 0
    checkpoints: int = 0
    files_deleted: int = 0
    failures: int = 0
    step_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """Groups of files whose rewrite failed; each is tried again later, at the latest after a day.

    Attributes:
        groups: How many there are.
        error: The newest error.
        error_code: The code of that error.
    """

    groups: int
    error: str
    error_code: str


@dataclass(frozen=True, slots=True)
class TableStatus:
    """What a daemon knows about one table.

    Attributes:
        path: The table.
        state: What the daemon is doing about it.
        since: When it got into this state.
        table_id: The table's id; None while it is not open, as the following.
        version: The newest version that the daemon has seen.
        debt: The debt at the newest samples, oldest first; the last one is current.
        epoch: The epoch of this daemon's lease; None while it has none.
        held_by: The owner of the lease, if another daemon has it.
        error: What went wrong at the last look; None if nothing did.
        error_code: The code of that error.
        left_alone: The groups that are left alone because their rewrite failed; None if there are none.
        next_look: When the daemon looks at the table again.
        last_compaction: When it last committed a compaction of the table.
        totals: What it has done so far.
        upkeep_errors: The newest error of each chore of upkeep that fails, until it works.
        apart: The files of groups whose rewrite failed, as `plan_snapshot` takes them.
    """

    path: str
    state: TableState
    since: datetime
    table_id: str | None = None
    version: int | None = None
    debt: tuple[DebtSample, ...] = ()
    epoch: int | None = None
    held_by: str | None = None
    error: str | None = None
    error_code: str | None = None
    left_alone: LeftAlone | None = None
    next_look: datetime | None = None
    last_compaction: datetime | None = None
    totals: WorkTotals = field(default_factory=WorkTotals)
    upkeep_errors: tuple[UpkeepError, ...] = ()
    apart: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchError:
    """What kept a glob or a folder from being searched completely, at the newest search.

    Attributes:
        source: The glob or the folder.
        error: What went wrong.
        error_code: The code of that error.
    """

    source: str
    error: str
    error_code: str


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """What a daemon knows at one time.

    Attributes:
        at: The time.
        started: When the daemon started.
        owner: How its leases name it: host, process and a random id.
        steps: How many steps it has made.
        last_step: When the last step ended; None before the first one.
        last_step_seconds: How long that took.
        stalled: Whether its loop hangs: it neither got on with a table for longer than it ever should, nor sleeps.
        bytes_last_hour: Bytes that its compactions read in the last hour.
        bytes_per_hour: The limit for that; None for no limit.
        tables: Its tables, by path.
        request: What it compacts when something is due, and how.
        search_errors: What went wrong at the newest search for tables.
    """

    at: datetime
    started: datetime
    owner: str
    steps: int
    last_step: datetime | None
    last_step_seconds: float
    stalled: bool
    bytes_last_hour: int
    bytes_per_hour: int | None
    tables: tuple[TableStatus, ...]
    request: CompactionRequest = DUE
    search_errors: tuple[SearchError, ...] = ()
