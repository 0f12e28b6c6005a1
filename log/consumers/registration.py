"""Write and look: what everything has in common that writes the record of a consumer."""

from __future__ import annotations

import contextlib

import msgspec

from tidelog.log.consumers import bounds, record_files
from tidelog.log.consumers.consumer_record import Record, State
from tidelog.log.errors import CorruptLogError, HistoryExpiredError, TidelogError
from tidelog.log.format import commit_info, properties
from tidelog.log.numbered_files import LatestRecord, UnreadableRecordError
from tidelog.log.state.commits import read_info, written_ms
from tidelog.log.state.head import Head
from tidelog.log.storage import Store
from tidelog.log.system import System, to_datetime

# A query that crashed before its identity was durable cannot come back, so its name is soon free again. Spark stores
# the identity within seconds.
PROVISIONAL_TAKEOVER_MS = 10_000
# A record, and the one that it continues.
_CONTINUED = 2


def current_record(store: Store, table_id: str, name: str) -> LatestRecord[Record]:
    """See `record_files.read_latest`. Raises CorruptLogError for a record that cannot be read."""
    try:
        return record_files.read_latest(store, table_id, name)
    except UnreadableRecordError as error:
        raise CorruptLogError(
            f"the record of the consumer {name!r} of {store.url} cannot be read: {error}",
            advice="register the consumer anew after: tidelog consumers remove; clean-ups keep everything until then",
            path=store.url,
        ) from error


def draft(head: Head, name: str, position: int) -> Record:
    """The record of a released consumer at `position`, which is not stamped yet."""
    return Record(
        id="",
        table=head.metadata.id,
        name=name,
        state=State.REGISTERED,
        owner=None,
        confirmed=True,
        started=True,
        position=position,
        position_time=None,
        heartbeat=to_datetime(0),
        kept=False,
    )


def stamped(store: Store, system: System, record: Record, before: Record | None = None) -> Record:
    """The record with an id and times of its own. The time of the position is that of `before` if it has not moved."""
    if before is not None and before.position == record.position:
        position_time = before.position_time
    else:
        position_time = None
        # Only for people, so it must not keep anybody from registering.
        with contextlib.suppress(TidelogError, OSError):
            stamp = commit_info.in_commit_timestamp_ms(read_info(store, record.position))
            position_time = to_datetime(written_ms(store, record.position) or 0 if stamp is None else stamp)
    return msgspec.structs.replace(
        record, id=system.uuid(), position_time=position_time, heartbeat=to_datetime(system.now_ms())
    )


def is_proven(store: Store, latest: LatestRecord[Record], ttl_ms: int) -> bool:
    """Whether clean-ups had kept what the newest record needs when it was written.

    If so, there is no need to look at the log, and no right to: a horizon can have passed a consumer that registered
    before it was committed, and then the vacuum left what that one needs.

    A record is written before its writer looks, and the look can fail or never come. So a record alone proves nothing:
    it must continue another one, and the time between the two files must be shorter than the time to live.
    """
    record = record_of(latest)
    if not record.kept or len(latest.own) < _CONTINUED:
        return False
    before, newest = (record_files.path_of(record.name, number) for number in latest.own[-_CONTINUED:])
    try:
        return store.modified_ms(newest) - store.modified_ms(before) < ttl_ms
    except FileNotFoundError:
        return False


def look_or_withdraw(
    store: Store, system: System, written: LatestRecord[Record], back_to: Record | None = None
) -> None:
    """Look at the log, second, after a record was written. Raises HistoryExpiredError if it came too late.

    Then the registration is withdrawn, or the record `back_to` written again.
    """
    record = record_of(written)
    try:
        bounds.look(store, record.table, record.position)
    except HistoryExpiredError as error:
        state = State.WITHDRAWN if record.started else State.REMOVED
        undone = back_to or msgspec.structs.replace(record, owner=None, state=state)
        with contextlib.suppress(TidelogError, OSError):
            record_files.put_next(store, system, written, msgspec.structs.replace(undone, id=system.uuid()))
        raise HistoryExpiredError(
            f"the consumer {record.name!r} cannot be at version {record.position}: {error.message}",
            advice=f"{error.advice}; a consumer that is registered is moved with: tidelog consumers reset",
            **error.fields,
        ) from error


def time_to_live_ms(head: Head) -> int:
    """The table's time to live of consumers."""
    return properties.duration_ms(head.metadata.configuration, properties.CONSUMER_TIME_TO_LIVE)


def takeover_ms(record: Record, ttl_ms: int) -> int:
    """How long the owner of a record must have been silent before another one may take over."""
    chosen = ttl_ms if record.takeover_after_ms is None else min(record.takeover_after_ms, ttl_ms)
    return chosen if record.confirmed else min(chosen, PROVISIONAL_TAKEOVER_MS)


def record_of(latest: LatestRecord[Record]) -> Record:
    """The record, which is known to be there."""
    if latest.record is None:
        raise AssertionError(latest)
    return latest.record
