"""What is due at a table, and when: pure functions of its state and of what was done before.

A checkpoint is due after so many commits. The clean-ups are due at times: each table has its own time of the day, and
of the week for a listing, which follow from its id. So a daemon with many tables does not do all of them at once, and
after a restart it does them when they would have been done anyway.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import StrEnum

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


class Chore(StrEnum):
    """What upkeep does."""

    CHECKPOINT = "checkpoint"
    KEY_INDEX = "key index"
    EXPIRE = "expire"
    LISTING = "vacuum by listing"
    VACUUM = "vacuum from the log"


CLEAN_UPS = (Chore.EXPIRE, Chore.LISTING, Chore.VACUUM)
# What leaves the table is in the log, and reading that is cheap. Only files that no commit ever named need a listing.
PERIODS_MS = {Chore.EXPIRE: _DAY_MS, Chore.VACUUM: _DAY_MS, Chore.LISTING: 7 * _DAY_MS}
# Each commit writes a run or two, and small ones are merged in fours.
_COMMITS_OF_INDEX = 8
# A shorter retention is kept as well as a long one: what is old enough goes within half of it. This is the least.
_LEAST_PERIOD_MS = 60_000
# Tables that a daemon sees for the first time are cleaned up within this time.
_FIRST_MS = _HOUR_MS


@dataclass(frozen=True, slots=True)
class LastTime:
    """When a clean-up ended the last time, in ms since the epoch, and whether nothing was left that was old enough.

    A consumer that lags behind, or a file that cannot be deleted, leaves something.
    """

    done_ms: int
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class TableAge:
    """The times of a table that decide when it is cleaned up, in ms since the epoch.

    `created_ms` is None if the table does not say when it was created. `seen_ms` is when the daemon saw it first,
    `newest_ms` the time of its newest commit.
    """

    table_id: str
    created_ms: int | None
    seen_ms: int
    newest_ms: int


def checkpoint_is_due(version: int, checkpoint: int | None, interval: int) -> bool:
    """Whether `interval` commits or more have to be replayed on top of the checkpoint; None: there is no checkpoint."""
    return version - (-1 if checkpoint is None else checkpoint) >= interval


def index_is_due(version: int, tended: int | None) -> bool:
    """Whether a key index that was tended at a version has so many new runs that it is worth a look; None: never."""
    return tended is None or version - tended >= _COMMITS_OF_INDEX


def due_ms(chore: Chore, age: TableAge, last: LastTime | None, retention_ms: int, now_ms: int) -> int | None:
    """When a clean-up is due, in ms since the epoch; None: not before the table changes.

    After the last time it is due at the table's own time in the next period, but no sooner than half a period later. A
    table that was never cleaned up is due within an hour after it was first seen, at its own minute, so that a daemon
    which is often restarted gets to it; and no sooner than anything in it can be old enough. A last time in the future,
    by a clock that was wrong, counts as never.
    """
    period_ms = period_of(chore, retention_ms)
    if last is not None and last.done_ms > now_ms + period_ms:
        last = None
    if last is None:
        young_until_ms = (age.created_ms + retention_ms) if age.created_ms is not None else 0
        return _slot_ms(age.table_id, chore, min(_FIRST_MS, period_ms), max(age.seen_ms, young_until_ms))
    if chore is not Chore.LISTING and is_settled(last, age.newest_ms, retention_ms):
        return None
    return _slot_ms(age.table_id, chore, period_ms, last.done_ms + period_ms // 2)


def _slot_ms(table_id: str, chore: Chore, period_ms: int, earliest_ms: int) -> int:
    """The first time at or after `earliest_ms` that is the table's own time in a period."""
    return earliest_ms + (phase_ms(table_id, chore, period_ms) - earliest_ms) % period_ms


def period_of(chore: Chore, retention_ms: int) -> int:
    """How often a clean-up is due, in ms: daily or weekly, or more often if half of the retention is below a day."""
    return max(_LEAST_PERIOD_MS, PERIODS_MS[chore] * min(_DAY_MS, retention_ms // 2) // _DAY_MS)


def is_settled(last: LastTime, newest_ms: int, retention_ms: int) -> bool:
    """Whether the last time left nothing to delete and nothing that will become old enough: all was old by then.

    A day more for a retention of days, because the cut-off of history is at a midnight then.
    """
    rounding_ms = _DAY_MS if retention_ms >= _DAY_MS else 0
    return last.is_complete and last.done_ms >= newest_ms + retention_ms + rounding_ms


def phase_ms(table_id: str, chore: Chore, within_ms: int) -> int:
    """A time from 0 to `within_ms`, spread evenly over tables and chores, and always the same for each."""
    return zlib.crc32(f"{chore}/{table_id}".encode()) * within_ms >> 32
