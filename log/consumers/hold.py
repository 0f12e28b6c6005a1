"""What clean-ups must keep for consumers."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.log.consumers import record_files
from tidelog.log.consumers.bounds import needed_version
from tidelog.log.consumers.consumer_record import State, is_name
from tidelog.log.consumers.registration import time_to_live_ms
from tidelog.log.consumers.store_clock import delete_left_over, store_clock_ms
from tidelog.log.errors import StoreUnavailableError
from tidelog.log.numbered_files import UnreadableRecordError
from tidelog.log.state.head import Head
from tidelog.log.storage import Store
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)

# Below every version: nothing may be cut off.
_NOTHING = -1
_LOOKS = 5


@dataclass(frozen=True, slots=True)
class Hold:
    """The registered consumers of a table, as a clean-up sees them.

    Attributes:
        live: By name, the oldest version that each live consumer needs.
        silent: The same for those that have given no sign of life for the time to live. They hold back nothing.
        unreadable: By name, what is wrong with a record. Nothing can be cut off until the consumer is removed.
    """

    live: dict[str, int]
    silent: dict[str, int]
    unreadable: dict[str, str]

    def bound(self, version: int) -> int:
        """The newest version up to `version` from which on everything must stay; -1 if everything must."""
        return _NOTHING if self.unreadable else min((version, *self.live.values()))

    def held_by(self, version: int) -> tuple[str, ...]:
        """The consumers that keep a clean-up from going up to `version`."""
        return tuple(sorted({*self.unreadable, *(name for name, needed in self.live.items() if needed < version)}))

    def released(self, version: int) -> tuple[str, ...]:
        """The silent consumers that a clean-up up to `version` passes."""
        return tuple(sorted(name for name, needed in self.silent.items() if needed < version))


def expected_hold(store: Store, head: Head, system: System, *, dry_run: bool = False) -> Hold:
    """The consumers of the table, for a clean-up that chooses how far to go. Raises StoreUnavailableError.

    With `dry_run` nothing is written: ages are those by this machine's clock.
    """
    if not record_files.names_of(store):
        return Hold({}, {}, {})
    return _hold(store, head, system.now_ms()) if dry_run else hold_of(store, head, system)


def hold_of(store: Store, head: Head, system: System) -> Hold:
    """The consumers of the table, for a clean-up that is about to delete. Raises StoreUnavailableError.

    The time is taken before the records are read: a consumer that is found silent knows from its own later look at the
    same clock that it may have been given up.
    """
    now_ms = store_clock_ms(store, system)
    delete_left_over(store, now_ms)
    return _hold(store, head, now_ms)


def _hold(store: Store, head: Head, now_ms: int) -> Hold:
    found = Hold({}, {}, {})
    for name in record_files.names_of(store):
        if not is_name(name):
            found.unreadable[name] = f"{record_files.FOLDER}/{name} cannot be the folder of a consumer; delete it"
            continue
        try:
            _add(found, store, head, name, now_ms)
        except UnreadableRecordError as error:
            _LOGGER.warning("a record of the consumer %s of %s cannot be read: %s", name, store.url, error)
            found.unreadable[name] = str(error)
    return found


def _add(found: Hold, store: Store, head: Head, name: str, now_ms: int) -> None:
    for _ in range(_LOOKS):
        latest = record_files.read_latest(store, head.metadata.id, name)
        record = latest.record
        if record is None or record.state is not State.REGISTERED:
            return
        try:
            age_ms = now_ms - store.modified_ms(latest.path)
        except FileNotFoundError:
            continue  # the owner has written again, so that this record was deleted
        group = found.live if age_ms < time_to_live_ms(head) else found.silent
        group[name] = needed_version(record.position, head)
        return
    raise StoreUnavailableError(
        f"the records of the consumer {name!r} of {store.url} change faster than they can be read",
        advice="try again",
        path=store.url,
    )
