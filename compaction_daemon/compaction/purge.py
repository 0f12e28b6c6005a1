"""What a purge achieved: from when on no file of a table holds the rows that were deleted from it.

A major compaction with `purge` takes deleted rows out of the newest version. They are still on the disk, in the files
that it replaced and in older ones, in change files, and in the log: statistics have the least and the greatest value of
each column, and commits have predicates. `vacuum` deletes the files and `expire` the log, each after its retention,
and each keeps what the version at its cut-off needs. So a purge ends with a version of its own, which says nothing
about rows, and a checkpoint of it: once both cut-offs have reached that version, nothing older is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from tidelog.compaction_daemon.upkeep.due import Chore, period_of
from tidelog.log import Snapshot
from tidelog.log.cleanup.retention import files_expire_ms, history_expires_ms
from tidelog.log.conflict.fences import PURGED
from tidelog.log.consumers.hold import expected_hold
from tidelog.log.errors import TidelogError
from tidelog.log.format import properties
from tidelog.log.format.actions import SetTransaction
from tidelog.log.log_records import event
from tidelog.log.statements import run_statement
from tidelog.log.system import logger, to_datetime

if TYPE_CHECKING:
    from tidelog.log import Table

_LOGGER = logger(__name__)


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """From when on nothing holds the rows that were deleted from a table. Times are in UTC.

    The dates hold for the retentions that the table has now.

    Args:
        version: The version that the purge looked at after its last commit. The report is about the rows that were
            deleted up to it.
        files_left: The files of that version that still have deleted rows, of the partitions asked for. If there are
            any, the purge is not complete, and there are no dates: run it again. None if an error kept it from looking.
        closing_version: The version without rows that it committed when it was complete.
        files_expire: From then on `vacuum` deletes the files that hold the rows; with `listing`, as by default, also
            those that killed processes left.
        history_expires: From then on `expire` deletes the commits and checkpoints that describe them.
        gone_by: When a daemon that runs without a pause has done all of it. None without `tidelog.cleanUp`: then nobody
            does it by itself.
        held_by: Consumers that have yet to read older versions, and those whose records cannot be read. `vacuum` and
            `expire` wait for them, however late that is.
        stopped: The text of the error that kept it from closing the purge; None if there was none. There are no dates
            then either: run it again. What the compaction committed stays.
    """

    version: int
    files_left: int | None
    closing_version: int | None = None
    files_expire: datetime | None = None
    history_expires: datetime | None = None
    gone_by: datetime | None = None
    held_by: tuple[str, ...] = ()
    stopped: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether no file of the version has deleted rows, and the purge was closed."""
        return self.files_left == 0 and self.stopped is None


def close_purge(table: Table, where: str | None) -> PurgeReport:
    """Report on a purge of these partitions that has just ended. If it is complete, commit the version that closes it.

    A table whose newest version closes a purge gets no other one. An error of tidelog is in the report, because what
    the purge committed before stays.
    """
    files_left = None
    try:
        snapshot = table.refresh().at()
        files_left = _files_with_dead_rows(snapshot, where)
        if files_left:
            return PurgeReport(snapshot.version, files_left, held_by=_held_by(table))
        if not _is_closed(snapshot):
            run_statement(lambda: _commit(table), table.path)
        closing = table.at()
        if table.commits_since_checkpoint():
            table.checkpoint()
        return _closed(snapshot.version, closing, _held_by(table))
    except TidelogError as error:
        said = event("purge_not_closed", table=table.path, code=error.code, error=error.message)
        _LOGGER.warning("%s: the purge could not be closed: %s", table.path, error, extra=said)
        return PurgeReport(table.version, files_left, stopped=str(error))


def _closed(version: int, closing: Snapshot, held_by: tuple[str, ...]) -> PurgeReport:
    """The report of a purge that was complete at `version`, and was closed by `closing` or before."""
    closed_ms = round(closing.timestamp.timestamp() * 1000)
    files_ms = files_expire_ms(closed_ms, closing.properties)
    history_ms = history_expires_ms(closed_ms, closing.properties)
    gone_by = _gone_by(closing, files_ms, history_ms, closed_ms)
    return PurgeReport(version, 0, closing.version, to_datetime(files_ms), to_datetime(history_ms), gone_by, held_by)


def _files_with_dead_rows(snapshot: Snapshot, where: str | None) -> int:
    dead = pc.struct_field(snapshot.files(where)["deletionVector"], "cardinality")
    return int(np.count_nonzero(pc.fill_null(dead, 0).to_numpy()))


def _is_closed(snapshot: Snapshot) -> bool:
    """Whether the version is one that `_commit` made, right after the version that it looked at."""
    known = snapshot.state.head.transactions.get(PURGED)
    return known is not None and known.version == snapshot.version - 1


def _commit(table: Table) -> None:
    transaction = table.begin()
    fence = SetTransaction(app_id=PURGED, version=table.at().version, last_updated=table.timeline.system.now_ms())
    transaction.stage_fence(fence, operation="PURGE").commit()


def _gone_by(closing: Snapshot, files_ms: int, history_ms: int, closed_ms: int) -> datetime | None:
    """When a daemon has done all clean-ups. It waits at most one and a half periods between two.

    A listing finds the files of killed processes, which can hold the rows as well.
    """
    if not properties.clean_up(closing.properties):
        return None
    ends = [
        due_ms + period_of(chore, due_ms - closed_ms) * 3 // 2
        for chore, due_ms in ((Chore.VACUUM, files_ms), (Chore.LISTING, files_ms), (Chore.EXPIRE, history_ms))
    ]
    return to_datetime(max(ends))


def _held_by(table: Table) -> tuple[str, ...]:
    """The consumers that have yet to read the newest version."""
    head = table.at().state.head
    return expected_hold(table.store, head, table.timeline.system, dry_run=True).held_by(head.version)
