"""What was done when, in a small file of the table: `_tidelog/upkeep.json`.

The log alone does not say it: a clean-up that found nothing makes no commit. With the file a daemon that starts again,
or a second one, does not repeat it. It is only a hint: without it, things are done once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from tidelog.compaction_daemon.upkeep.due import CLEAN_UPS, Chore, LastTime
from tidelog.log.conflict.horizon import FLOOR, HORIZON
from tidelog.log.format.text import MALFORMED_JSON
from tidelog.log.state.head import Head
from tidelog.log.storage import Store

RECORD_PATH = "_tidelog/upkeep.json"


class _Time(msgspec.Struct, frozen=True, rename="camel"):
    done_ms: int
    is_complete: bool = False


class _File(msgspec.Struct, frozen=True, rename="camel"):
    """The content. `since` is the version up to which vacuum has deleted what the log names."""

    table: str
    times: dict[str, _Time] = {}
    since: int | None = None


@dataclass(frozen=True, slots=True)
class UpkeepRecord:
    """What was done at a table.

    `since` is the version up to which a vacuum has deleted all that the log names; None if that is not known.
    """

    times: Mapping[Chore, LastTime] = field(default_factory=dict)
    since: int | None = None

    def with_time(self, chore: Chore, time: LastTime) -> UpkeepRecord:
        """The record after a clean-up. A listing finds what the log names, too."""
        also = {Chore.VACUUM: time} if chore is Chore.LISTING else {}
        return UpkeepRecord({**self.times, chore: time, **also}, self.since)

    def merged(self, other: UpkeepRecord) -> UpkeepRecord:
        """The later of both at each time, and the `since` of the other one if it has one."""
        times = dict(self.times)
        for chore, time in other.times.items():
            if chore not in times or time.done_ms > times[chore].done_ms:
                times[chore] = time
        return UpkeepRecord(times, self.since if other.since is None else other.since)


def read_record(store: Store, table_id: str) -> UpkeepRecord:
    """The record of a table; an empty one if there is none, or another table's. Raises StoreUnavailableError."""
    try:
        content = store.read(RECORD_PATH)
        found = msgspec.json.decode(content, type=_File)
    except (FileNotFoundError, *MALFORMED_JSON):
        return UpkeepRecord()
    if found.table != table_id:
        return UpkeepRecord()
    times = {
        Chore(name): LastTime(time.done_ms, time.is_complete) for name, time in found.times.items() if name in CLEAN_UPS
    }
    return UpkeepRecord(times, found.since)


def write_record(store: Store, table_id: str, record: UpkeepRecord) -> None:
    """Replace the record. Raises StoreUnavailableError, PathNotWritableError."""
    times = {str(chore): _Time(time.done_ms, time.is_complete) for chore, time in record.times.items()}
    store.replace(RECORD_PATH, msgspec.json.encode(_File(table_id, times, record.since)))


def record_of_log(head: Head) -> UpkeepRecord:
    """What the log says: when the newest clean-ups announced themselves. A clean-up by hand counts as well."""
    announced = {Chore.VACUUM: head.transactions.get(HORIZON), Chore.EXPIRE: head.transactions.get(FLOOR)}
    return UpkeepRecord(
        {
            chore: LastTime(found.last_updated)
            for chore, found in announced.items()
            if found is not None and found.last_updated is not None
        }
    )
