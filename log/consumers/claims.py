"""Register a consumer, or continue it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tidelog.log.consumers import record_files
from tidelog.log.consumers.consumer import Consumer
from tidelog.log.consumers.consumer_record import Record, State, require_name, require_owner
from tidelog.log.consumers.registration import (
    current_record,
    draft,
    is_proven,
    look_or_withdraw,
    stamped,
    takeover_ms,
    time_to_live_ms,
)
from tidelog.log.consumers.store_clock import store_clock_ms
from tidelog.log.errors import ConfigurationError, ConsumerInUseError
from tidelog.log.numbered_files import LatestRecord, before_others
from tidelog.log.state.head import Head
from tidelog.log.storage import Store
from tidelog.log.system import System


def claim(
    store: Store,
    head: Head,
    name: str,
    *,
    owner: str,
    position: int,
    system: System,
    takeover_after_ms: int | None = None,
) -> Consumer:
    """Register the consumer `name` of the table, or continue it. From then on clean-ups keep what it needs.

    A new consumer starts at `position`. One that was registered goes on where it was, whoever continues it, and
    `Consumer.position` says where; it never moves backwards. Two exceptions: its own owner may already be further, and
    a registration that was never confirmed is made again at `position`.

    Args:
        store: The table's store.
        head: A head of the table, for its id and its time to live.
        name: The name of the consumer.
        owner: The identity of the caller, which must survive a restart if the caller is to continue by itself.
        position: Every commit up to this version was processed; one less than the table's first version if none was.
        system: The clock and randomness.
        takeover_after_ms: How long this owner must be silent before another one may take over; None means
            `tidelog.consumerTimeToLive`. It is 10 seconds at most until the owner is confirmed.

    Raises:
        ConsumerInUseError: Another owner holds the name and is alive.
        HistoryExpiredError: A clean-up has passed the position. The registration was withdrawn.
        ConfigurationError: The name or the owner cannot be used.
        CorruptLogError: The consumer's record cannot be read.
        TableReplacedError, TableNotFoundError: The path now holds a different table, or the table was dropped.
        StoreUnavailableError: The store does not answer. The consumer may be registered or not; claim it again.
    """
    require_name(name)
    require_owner(owner)
    if takeover_after_ms is not None and takeover_after_ms < 0:
        raise ConfigurationError(f"takeover_after_ms is {takeover_after_ms}", advice="pass None or a positive number")
    claimant = _Claimant(store, head, name, owner, position, system, takeover_after_ms)
    advice = "make sure that it has one owner only, then try again"
    return before_others(claimant.try_once, f"the consumer {name!r}", store, advice=advice)


@dataclass(frozen=True, slots=True)
class _Claimant:
    """One that wants to own a consumer."""

    store: Store
    head: Head
    name: str
    owner: str
    position: int
    system: System
    takeover_after_ms: int | None

    def try_once(self) -> Consumer | None:
        """Write first, look second. None if another writer's record came first."""
        began_s, began_ms = self.system.monotonic_s(), self.system.now_ms()
        ttl_ms = time_to_live_ms(self.head)
        latest = current_record(self.store, self.head.metadata.id, self.name)
        before = latest.record
        if before is None or before.state is State.REMOVED:
            before, is_kept = None, False
        else:
            try:
                written_ms = self.store.modified_ms(latest.path)
            except FileNotFoundError:
                return None
            silent_ms = store_clock_ms(self.store, self.system) - written_ms
            self._require_free(before, silent_ms)
            is_kept = silent_ms < ttl_ms and self._holds(latest, before)
        position, started = self._start(before)
        is_same = before is not None and (before.owner, before.position) == (self.owner, position)
        record = msgspec.structs.replace(
            draft(self.head, self.name, position),
            owner=self.owner,
            confirmed=before is not None and before.confirmed and before.owner == self.owner,
            started=started,
            checkpoint=before.checkpoint if before and is_same else None,
            takeover_after_ms=self.takeover_after_ms,
            kept=is_kept,
        )
        record = stamped(self.store, self.system, record, before)
        written = record_files.put_next(self.store, self.system, latest, record)
        if written is None:
            return None
        if not is_proven(self.store, written, ttl_ms):
            look_or_withdraw(self.store, self.system, written)
            if started:
                # Whoever claims it next must not look again: a horizon may have passed it until then.
                looked = msgspec.structs.replace(record, id=self.system.uuid(), kept=True)
                written = record_files.put_next(self.store, self.system, written, looked)
                if written is None:
                    return None
        return Consumer(self.store, self.head, self.system, written, began_s, began_ms)

    def _holds(self, latest: LatestRecord[Record], before: Record) -> bool:
        """Whether clean-ups wait for what the newest record needs since it was written, and did before."""
        is_registered = before.started and before.state is State.REGISTERED
        return is_registered and is_proven(self.store, latest, time_to_live_ms(self.head))

    def _start(self, before: Record | None) -> tuple[int, bool]:
        """The position to register, and whether processing had begun there."""
        if before is None:
            return self.position, False
        if before.started:
            is_own = before.owner == self.owner
            return max(before.position, self.position) if is_own else before.position, True
        return min(before.position, self.position) if before.owner == self.owner else self.position, False

    def _require_free(self, before: Record, silent_ms: int) -> None:
        """Raise ConsumerInUseError if another owner holds the consumer and is alive."""
        if before.owner in {None, self.owner} or before.state is State.WITHDRAWN:
            return
        left_ms = takeover_ms(before, time_to_live_ms(self.head)) - silent_ms
        if left_ms > 0:
            raise ConsumerInUseError(
                f"the consumer {self.name!r} of {self.store.url} belongs to {before.owner}, which gave a sign of life "
                f"{max(0, silent_ms) // 1000:,} seconds ago; the name is free in {-(-left_ms // 1000):,} seconds",
                advice="stop its owner, use another name, or free it with: tidelog consumers remove",
                path=self.store.url,
                consumer=self.name,
                owner=before.owner,
                free_in_ms=left_ms,
            )
