"""Move a consumer, or remove it, from outside."""

from __future__ import annotations

import msgspec

from tidelog.log.consumers import bounds, record_files
from tidelog.log.consumers.consumer_record import Record, State, require_name
from tidelog.log.consumers.registration import draft, is_proven, look_or_withdraw, stamped, time_to_live_ms
from tidelog.log.errors import ConfigurationError
from tidelog.log.numbered_files import LatestRecord, UnreadableRecordError, before_others
from tidelog.log.read.timeline import Point, Timeline
from tidelog.log.state.head import Head
from tidelog.log.storage import Store
from tidelog.log.system import System

_EARLIEST, _LATEST = "earliest", "latest"
_STOP_ITS_OWNER = "stop its owner, then try again"


def reset_consumer(timeline: Timeline, head: Head, name: str, to: Point) -> Record:
    """Move a registered consumer to a version or a time, forwards or backwards. Returns its new record.

    The consumer is released: an owner that still runs gets a FencedError at its next sign of life.

    Args:
        timeline: The history of the table.
        head: The head of the same version.
        name: The name of the consumer.
        to: A version, a time, `earliest` (the oldest position that a clean-up has not passed) or `latest`. Every commit
            up to it then counts as processed.

    Raises:
        ConfigurationError: No consumer has this name.
        HistoryExpiredError: The version or time is outside the retained history. The consumer stays where it was.
        StoreUnavailableError: The store does not answer. The consumer may have been moved or not.
    """
    store, system = timeline.store, timeline.system
    if to == _LATEST:
        position = head.version
    elif to == _EARLIEST:
        position = bounds.earliest_position(store, head)
    else:
        position = timeline.interval_end(to)
    bounds.look(store, head.metadata.id, position)

    def try_once() -> Record | None:
        latest, before = _registered(store, head, name)
        held = before is not None and is_proven(store, latest, time_to_live_ms(head))
        record = stamped(store, system, draft(head, name, position))
        written = record_files.put_next(store, system, latest, record)
        if written is None:
            return None
        if before is not None:
            # Meanwhile clean-ups went by the new position.
            before = msgspec.structs.replace(before, kept=held and position <= before.position)
        look_or_withdraw(store, system, written, back_to=before)
        looked = msgspec.structs.replace(record, id=system.uuid(), kept=True)
        record_files.put_next(store, system, written, looked)
        return record

    return before_others(try_once, f"the consumer {name!r}", store, advice=_STOP_ITS_OWNER)


def remove_consumer(store: Store, head: Head, name: str, system: System) -> None:
    """Remove a consumer, also one whose record cannot be read. It holds back no clean-up any more.

    An owner that still runs gets a FencedError at its next sign of life. Raises ConfigurationError if there is no such
    consumer, StoreUnavailableError.
    """

    def try_once() -> LatestRecord[Record] | None:
        latest, before = _registered(store, head, name)
        position = -1 if before is None else before.position
        record = msgspec.structs.replace(draft(head, name, position), state=State.REMOVED)
        return record_files.put_next(store, system, latest, stamped(store, system, record, before))

    before_others(try_once, f"the consumer {name!r}", store, advice=_STOP_ITS_OWNER)


def _registered(store: Store, head: Head, name: str) -> tuple[LatestRecord[Record], Record | None]:
    """The newest record of a consumer; None for one that cannot be read. Raises ConfigurationError."""
    require_name(name)
    try:
        latest = record_files.read_latest(store, head.metadata.id, name)
    except UnreadableRecordError:
        return LatestRecord(record_files.newest_number(store, name)), None
    if latest.record is None or latest.record.state is State.REMOVED:
        raise ConfigurationError(
            f"{store.url} has no consumer {name!r}", advice="list them with: tidelog consumers list", path=store.url
        )
    return latest, latest.record
