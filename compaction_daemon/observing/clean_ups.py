"""When a table was cleaned up, and when that is due again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidelog.compaction_daemon.upkeep.clean_up_record import read_record, record_of_log
from tidelog.compaction_daemon.upkeep.due import CLEAN_UPS, Chore, TableAge, due_ms
from tidelog.compaction_daemon.upkeep.retentions import retention
from tidelog.log import Table
from tidelog.log.format import properties
from tidelog.log.system import System, to_datetime


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
