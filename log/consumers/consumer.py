"""A registered consumer, which this process owns: advance it, keep it alive, release it."""

from __future__ import annotations

import msgspec

from tidelog.log.consumers import record_files
from tidelog.log.consumers.consumer_record import Record, State
from tidelog.log.consumers.registration import (
    current_record,
    is_proven,
    look_or_withdraw,
    record_of,
    stamped,
    takeover_ms,
    time_to_live_ms,
)
from tidelog.log.consumers.store_clock import store_clock_ms
from tidelog.log.errors import FencedError
from tidelog.log.numbered_files import LatestRecord, before_others
from tidelog.log.state.head import Head
from tidelog.log.storage import Store
from tidelog.log.system import System

# An owner gives a sign of life this many times within the time after which it counts as dead.
_HEARTBEATS = 4


class Consumer:
    """A consumer that this process owns; made by `claim`. Not thread-safe.

    Attributes:
        name: Its name.
        owner: The identity of the owner.
    """

    def __init__(
        self, store: Store, head: Head, system: System, latest: LatestRecord[Record], written_s: float, written_ms: int
    ) -> None:
        record = record_of(latest)
        self.name, self.owner = record.name, str(record.owner)
        self._store = store
        self._head = head
        self._system = system
        self._latest = latest
        self._record = record
        # No later than the record's file, by the two clocks of this machine. Either can stand still or jump.
        self._written_s, self._written_ms = written_s, written_ms
        # Whether clean-ups had kept what the newest record needs when it was written; None if only the files tell.
        self._is_proven: bool | None = True
        self._is_released = False

    @property
    def position(self) -> int:
        """Every commit up to this version was processed."""
        return self._record.position

    @property
    def checkpoint(self) -> int | None:
        """The version in its owner's checkpoint, if the position is further; see `Record`."""
        return self._record.checkpoint

    @property
    def is_confirmed(self) -> bool:
        """Whether the owner is confirmed."""
        return self._record.confirmed

    @property
    def is_started(self) -> bool:
        """Whether processing has begun; if not, an initial snapshot has to be read again."""
        return self._record.started

    def confirm(self) -> None:
        """Say that the owner's identity is durable, and that processing begins. Writes only the first time.

        Raises the errors of `advance`.
        """
        if not (self._record.confirmed and self._record.started):
            self._write(self._record.position)

    def advance(self, position: int, *, checkpoint: int | None = None) -> None:
        """Say that every commit up to `position` was processed. Writes only if that is later than before.

        `checkpoint` is the version in a stream's checkpoint, if the commits after it have nothing that it reads.

        Raises:
            FencedError: Another owner has taken over, or the consumer was reset or removed. Stop.
            HistoryExpiredError: This process was silent for longer than the time to live, and a clean-up has passed the
                position meanwhile. The registration was withdrawn.
            StoreUnavailableError: The store does not answer. The position may be stored or not.
        """
        if position > self._record.position:
            self._write(position, checkpoint=checkpoint)

    def heartbeat_if_due(self) -> None:
        """Give a sign of life if a quarter of the time after which the owner counts as dead has passed since the last.

        Otherwise only looks at the clock. Raises the errors of `advance`.
        """
        if self._silent_ms() * _HEARTBEATS >= takeover_ms(self._record, time_to_live_ms(self._head)):
            self._write(self._record.position, confirms=False)

    def release(self) -> None:
        """Give up the ownership, so that another owner can continue at once. The position stays, and clean-ups keep
        what it needs for the time to live. Raises the errors of `advance`; the object cannot be used afterwards.
        """
        if not self._is_released:
            self._write(self._record.position, confirms=False, releases=True)
            self._is_released = True

    def _write(
        self, position: int, *, checkpoint: int | None = None, confirms: bool = True, releases: bool = False
    ) -> None:
        """Write the next record, and look if clean-ups may have given this consumer up before it was there."""
        checkpoint = self._record.checkpoint if position == self._record.position else checkpoint
        if self._is_released:
            raise self._fenced("was released by this process")
        ttl_ms = time_to_live_ms(self._head)
        has_looked = False

        def try_once() -> LatestRecord[Record] | None:
            nonlocal position, has_looked
            if self._is_proven is None:
                self._is_proven = is_proven(self._store, self._latest, ttl_ms)
            began_s, began_ms = self._system.monotonic_s(), self._system.now_ms()
            record = msgspec.structs.replace(
                self._record,
                owner=None if releases else self.owner,
                confirmed=self._record.confirmed or confirms,
                started=self._record.started or confirms,
                position=position,
                checkpoint=checkpoint,
                kept=self._is_proven and self._is_still_kept(ttl_ms),
            )
            record = stamped(self._store, self._system, record, self._record)
            written = record_files.put_next(self._store, self._system, self._latest, record)
            if written is None:
                position = max(position, self._look_again())
                return None
            is_sure = record.kept and not self._may_be_forgotten(ttl_ms)
            self._latest, self._record, self._is_proven = written, record, True if is_sure else None
            self._written_s, self._written_ms = began_s, began_ms
            if is_sure or is_proven(self._store, written, ttl_ms):
                self._is_proven = True
                return written
            look_or_withdraw(self._store, self._system, written)
            if has_looked:  # the time to live is so short that no record proves anything: who claims it next looks
                return written
            # Whoever claims it next must not look again, so another record says that somebody has.
            self._is_proven = has_looked = True
            return None

        advice = "make sure that it has one owner only"
        before_others(try_once, f"the consumer {self.name!r}", self._store, advice=advice)

    def _look_again(self) -> int:
        """The position in the record that another writer put. Raises FencedError unless the owner is the same."""
        self._latest = current_record(self._store, self._head.metadata.id, self.name)
        record = self._latest.record
        if record is None or record.state is State.REMOVED:
            raise self._fenced("was removed")
        if record.state is State.WITHDRAWN:
            raise self._fenced("was withdrawn, because a clean-up had passed its position")
        if record.owner != self.owner:
            raise self._fenced(f"now belongs to {record.owner}" if record.owner else "was released or reset by another")
        self._record, self._is_proven = record, None
        return record.position

    def _is_still_kept(self, ttl_ms: int) -> bool:
        """Whether clean-ups still wait for the newest record."""
        if not self._may_be_forgotten(ttl_ms):
            return True
        now_ms = store_clock_ms(self._store, self._system)
        try:
            return now_ms - self._store.modified_ms(self._latest.path) < ttl_ms
        except FileNotFoundError:
            return False

    def _may_be_forgotten(self, ttl_ms: int) -> bool:
        """Whether this process was silent for so long that its clocks do not tell whether clean-ups wait for it."""
        return self._silent_ms() * 2 >= ttl_ms

    def _silent_ms(self) -> float:
        """How long ago this process wrote its newest record, or longer."""
        slept_ms = self._system.now_ms() - self._written_ms
        return max(slept_ms, (self._system.monotonic_s() - self._written_s) * 1000)

    def _fenced(self, what: str) -> FencedError:
        return FencedError(
            f"the consumer {self.name!r} of {self._store.url} {what}",
            advice="stop this process; it no longer keeps clean-ups from deleting what it has not read",
            path=self._store.url,
            consumer=self.name,
            owner=self.owner,
        )
