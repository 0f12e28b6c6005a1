"""A lease that this process holds: take it, keep it, release it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from threading import Event, Lock, Thread
from typing import Any, cast

import msgspec

from tidelog.compaction_daemon.leases.lease_record import (
    LeaseRecord,
    LeaseRequest,
    LeaseState,
    app_id,
    latest_lease,
    require_holder,
    require_shard,
    require_ttl_ms,
    row_of,
)
from tidelog.log import Committed, Table
from tidelog.log.commit.result import committed
from tidelog.log.errors import LeaseLostError, TidelogError
from tidelog.log.format.actions import SetTransaction
from tidelog.log.numbered_files import LatestRecord, NumberedFiles, before_others
from tidelog.log.statements import run_statement
from tidelog.log.storage import Store
from tidelog.log.system import REAL_SYSTEM, System, logger, process_name, to_datetime

_LOGGER = logger(__name__)

# The default time without a heartbeat after which another daemon may take over.
TTL_S = 15.0
# An owner gives so many signs of life within its time to live: two can get lost.
_BEATS = 3
# After a failure a heartbeat is tried again after this share of the usual time: a short outage costs no lease.
_SOONER = 0.25
# So much of a damaged record is kept in the log, in characters: a whole one has fewer.
_KEPT_OF_DAMAGED = 1_000
_NOTHING: Mapping[str, Any] = {}


def new_owner(system: System = REAL_SYSTEM) -> str:
    """The identity of a daemon: host, process id and an id of its own. Make one for each daemon."""
    return f"{process_name()}:{system.uuid()}"


@dataclass(frozen=True, slots=True)
class Held:
    """Another daemon has the lease. Pass it to the next `Lease.take` of the table.

    Attributes:
        owner: Who has it.
        epoch: Its epoch.
        ttl_s: How long its owner may be silent.
        free_in_s: How long it takes until it may be taken over, if its owner stays silent. Another look before that is
            in vain, unless the owner releases it.
        record_id: The newest sign of life.
        seen_s: When this process saw that one first, by its own monotonic clock.
    """

    owner: str
    epoch: int
    ttl_s: float
    free_in_s: float
    record_id: str
    seen_s: float


class Lease:
    """The lease of a shard of a table, which this process holds; made by `take`. Thread-safe.

    Attributes:
        owner: Its owner.
        shard: The shard of the table.
        epoch: The number of this ownership; it is higher than that of every owner before.
        ttl_s: How long the owner may be silent before others take over.
        took_over: Whether it was taken from an owner that had not released it, and so began with a commit.
    """

    def __init__(
        self,
        store: Store,
        system: System,
        latest: LatestRecord[LeaseRecord],
        record: LeaseRecord,
        renewed_s: float,
        *,
        took_over: bool = False,
    ) -> None:
        self.owner, self.shard, self.epoch = record.owner, record.shard, record.epoch
        self.ttl_s = record.ttl_ms / 1000
        self.took_over = took_over
        self._store = store
        self._system = system
        self._row = row_of(record.table, record.shard)
        self._latest = latest
        self._record = record
        # By this process's monotonic clock, and no later than when the record could be seen.
        self._renewed_s = renewed_s
        self._lost: str | None = None
        self._failure: Exception | None = None
        self._lock = Lock()
        self._heartbeat: Heartbeat | None = None

    @classmethod
    def take(
        cls,
        table: Table,
        *,
        owner: str,
        ttl_s: float = TTL_S,
        shard: str = "0",
        seen: Held | None = None,
        keeps: int | None = None,
    ) -> Lease | Held:
        """Take the lease of a shard of the table, or say who has it. Refreshes the table.

        A lease that nobody has, or that was released, is taken at once. One that another owner holds is taken over when
        this process has seen no sign of life for the time to live of that owner. So a daemon that just started waits
        for that long at least. Taking over ends with a commit of the new epoch.

        Args:
            table: The table.
            owner: Who takes it: the same text for all leases of a daemon, and no other daemon's; see `new_owner`.
            ttl_s: How long this owner may be silent, in seconds.
            shard: One of `SHARDS`.
            seen: What the last call returned, if that was a Held.
            keeps: How many leases this owner keeps. If it is given, another owner that has the lease is asked for it,
                and sees this number in the `request` of its lease.

        Raises:
            ConfigurationError: An argument is wrong.
            CorruptLogError: The newest record of the lease may be one of a newer version of tidelog.
            StoreUnavailableError: The store does not answer. The lease may be taken or not; take it again.
            TableReplacedError, TableNotFoundError: The path now holds another table, or none.
            ConflictError, CommitContentionError, CommitStateUnknownError: The commit failed as that of any transaction
                can. Take the lease again.
        """
        system, ttl_ms = table.timeline.system, require_ttl_ms(ttl_s)
        taker = _Taker(table, system, require_holder(owner), ttl_ms, require_shard(shard), keeps)
        what = f"the lease of shard {shard}"
        found = before_others(partial(taker.try_once, seen), what, table.store, advice="try again")
        return cast("Lease | Held", found)  # mypy joins the two classes

    @property
    def fence(self) -> SetTransaction:
        """What every commit under this lease must carry. Raises LeaseLostError as `require_held` does."""
        self.require_held()
        return SetTransaction(app_id=app_id(self.shard), version=self.epoch, last_updated=self._system.now_ms())

    @property
    def is_held(self) -> bool:
        """Whether the owner may work: the lease is not lost or released, and was renewed within its time to live."""
        return self._why_lost() is None

    @property
    def request(self) -> LeaseRequest | None:
        """Who else would like to have the lease, as the last renewal found it."""
        return self._record.request

    def require_held(self) -> None:
        """Raise LeaseLostError unless the owner may work. Asks only this process's memory and its monotonic clock."""
        why = self._why_lost()
        if why is not None:
            raise self._lost_error(why) from self._failure

    def renew(self) -> None:
        """Give a sign of life: write the next record.

        Raises:
            LeaseLostError: Another daemon has taken over, or it was not renewed for the time to live.
            StoreUnavailableError: The store does not answer. The lease stays held until its time to live is over.
            CorruptLogError, ConfigurationError: The records cannot be read or written. Likewise.
        """
        with self._lock:
            self._renew()

    def renew_if_due(self) -> None:
        """Renew if a third of the time to live has passed. Otherwise only looks at the clock. Errors as for `renew`."""
        if self._silent_s() * _BEATS >= self.ttl_s:
            self.renew()

    def keep_alive(self) -> None:
        """Start a thread that renews the lease until it is released or lost. Does nothing if it was started already.

        What goes wrong there shows in this thread: once the time to live is over, `fence`, `require_held` and `renew`
        raise a LeaseLostError that names the last failure as its cause.
        """
        with self._lock:
            if self._heartbeat is None and self._lost is None:
                self._heartbeat = Heartbeat(self.renew, self._failed, self.ttl_s / _BEATS)
                self._heartbeat.start()

    def release(self) -> bool:
        """Give the lease up, so that another daemon can take it at once. Call it when no commit is under way.

        Never raises. The lease cannot be used afterwards, even if this returns False.

        Returns:
            Whether the release is stored. If not, others wait for the time to live: the lease was lost before, or the
            store did not answer.
        """
        if self._heartbeat is not None:
            self._heartbeat.stop()
        with self._lock:
            if self._lost is not None:
                return self._record.state is LeaseState.RELEASED
            # First, so that nothing can follow the release, even if it appears only after this call.
            self._lost = "was released"
            try:
                self._put(LeaseState.RELEASED)
            except LeaseLostError:
                return False
            except (TidelogError, OSError) as error:
                _LOGGER.debug("%s of %s was not released: %s", self._row.what, self._store.url, error)
                return False
            return True

    def _renew(self) -> None:
        self.require_held()
        began_s = self._system.monotonic_s()
        self._put(LeaseState.HELD)
        self._renewed_s, self._failure = began_s, None

    def _put(self, state: LeaseState) -> None:
        """Write the next record. Raises LeaseLostError if the lease is another's, and the errors of the store."""

        def try_once() -> LatestRecord[LeaseRecord] | None:
            if not self._row.is_there(self._store, self._latest):
                # Nothing is put into the folder of a table that somebody has deleted.
                self._look_again("")
            record = msgspec.structs.replace(
                self._record,
                id=self._system.uuid(),
                state=state,
                beat=self._record.beat + 1,
                time=to_datetime(self._system.now_ms()),
            )
            written = self._row.put_after(self._store, self._system, self._latest, record)
            if written is not None:
                self._latest, self._record = written, record
                return written
            self._look_again(record.id)
            return None

        advice = "make sure that each daemon has an owner of its own"
        before_others(try_once, self._row.what, self._store, advice=advice)

    def _look_again(self, written_id: str) -> None:
        """Look at what was written first. It can be a record of this lease whose answer was lost."""
        latest = latest_lease(self._store, self._row)
        found = latest.record
        if latest.damage:
            self._lost = f"is unknown: its newest record is damaged ({latest.damage})"
        elif found is None or found.id == written_id:
            self._lost = "is gone: somebody deleted its records, or the table"
        elif (found.owner, found.epoch) != (self.owner, self.epoch):
            self._lost = f"was taken over by {found.owner} with epoch {found.epoch}"
        else:
            self._latest, self._record = latest, found
            return
        raise self._lost_error(self._lost)

    def _failed(self, failure: Exception) -> None:
        self._failure = failure

    def _lost_error(self, why: str) -> LeaseLostError:
        return LeaseLostError(
            f"{self._row.what} of {self._store.url} with epoch {self.epoch} {why}",
            advice="drop the work that was done under it, and take the lease again",
            path=self._store.url,
            epoch=self.epoch,
            owner=self.owner,
        )

    def _silent_s(self) -> float:
        return self._system.monotonic_s() - self._renewed_s

    def _why_lost(self) -> str | None:
        if self._lost is not None:
            return self._lost
        return f"was not renewed for {self.ttl_s:g} seconds" if self._silent_s() >= self.ttl_s else None


@dataclass(frozen=True, slots=True)
class _Taker:
    """One that wants the lease."""

    table: Table
    system: System
    owner: str
    ttl_ms: int
    shard: str
    keeps: int | None

    def try_once(self, seen: Held | None) -> Lease | Held | None:
        """Take the lease, or say who has it. None if another record came first."""
        head, store = self.table.refresh().head, self.table.store
        row = row_of(head.metadata.id, self.shard)
        looks_s = self.system.monotonic_s()
        latest = latest_lease(store, row)
        before, known = latest.record, head.transactions.get(app_id(self.shard))
        if latest.damage:
            held = self._held_by_somebody(latest, seen, looks_s)
            if held is not None:
                return held
        elif before is not None and before.state is LeaseState.HELD and before.owner != self.owner:
            held = self._held(before.id, before.owner, before.epoch, before.ttl_ms, seen, looks_s)
            if held is not None:
                return self._asked(row, latest, before, held)
        newest = self._newest_epoch(latest, known.version if known else 0)
        # Nobody may be at work under an older epoch: nobody ever was, or the newest of them has stopped by itself.
        is_released = before is not None and before.state is LeaseState.RELEASED and before.epoch == newest
        is_free = newest == 0 or (is_released and not latest.damage)
        renewed_s = self.system.monotonic_s()
        record = LeaseRecord(
            id=self.system.uuid(),
            table=head.metadata.id,
            shard=self.shard,
            state=LeaseState.HELD,
            epoch=newest + 1,
            beat=0,
            owner=self.owner,
            ttl_ms=self.ttl_ms,
            time=to_datetime(self.system.now_ms()),
        )
        written = row.put_after(store, self.system, latest, record)
        if written is None:
            return None
        lease = Lease(store, self.system, written, record, renewed_s, took_over=not is_free)
        if is_free:
            return lease
        try:
            begin_epoch(self.table, lease, _evidence(latest))
        except LeaseLostError as error:
            # It slept in between, and others went on. Or the commit took longer than the time to live.
            _LOGGER.debug("%s", error)
            return None
        return lease

    def _asked(
        self, row: NumberedFiles[LeaseRecord], latest: LatestRecord[LeaseRecord], before: LeaseRecord, held: Held
    ) -> Held:
        """Ask for the lease, unless somebody with no more leases did."""
        known = before.request
        if self.keeps is None or (known and known.owner != self.owner and known.leases <= self.keeps):
            return held
        request = LeaseRequest(owner=self.owner, leases=self.keeps)
        if request == known:
            return held
        record = msgspec.structs.replace(before, id=self.system.uuid(), beat=before.beat + 1, request=request)
        try:
            written = row.put_after(self.table.store, self.system, latest, record)
        except (TidelogError, OSError) as error:
            _LOGGER.debug("%s of %s was not asked for: %s", row.what, self.table.store.url, error)
            return held
        # It is no sign of life of the owner, so its silence still counts from the record before.
        return held if written is None else replace(held, record_id=record.id)

    def _newest_epoch(self, latest: LatestRecord[LeaseRecord], committed_epoch: int) -> int:
        """The newest epoch that anybody can have.

        If a record is damaged, its epoch is unknown. Each record can begin a new epoch, which is one more than the one
        before or than that in the log. So the number of the record and the log's epoch together are a bound.
        """
        newest = max(latest.record.epoch if latest.record else 0, committed_epoch)
        return max(newest, committed_epoch + latest.number + 1) if latest.damage else newest

    def _held_by_somebody(self, latest: LatestRecord[LeaseRecord], seen: Held | None, looks_s: float) -> Held | None:
        """Who may have the lease whose newest record is damaged; None if that has not changed for long enough."""
        before = latest.record
        ttl_ms = max(self.ttl_ms, before.ttl_ms if before else 0)
        owner, epoch = (before.owner, before.epoch) if before else ("an owner whose record is damaged", 0)
        return self._held(f"damaged record {latest.number}", owner, epoch, ttl_ms, seen, looks_s)

    def _held(
        self, record_id: str, owner: str, epoch: int, ttl_ms: int, seen: Held | None, looks_s: float
    ) -> Held | None:
        """Who has the lease; None if this process has seen no sign of life for long enough."""
        is_same = seen is not None and seen.record_id == record_id
        # The owner counts its time to live from before the record could be seen, so it gives up first.
        seen_s = seen.seen_s if seen is not None and is_same else self.system.monotonic_s()
        ttl_s = ttl_ms / 1000
        left_s = ttl_s - (looks_s - seen_s) if is_same else ttl_s
        return Held(owner, epoch, ttl_s, left_s, record_id, seen_s) if left_s > 0 else None


def _evidence(latest: LatestRecord[LeaseRecord]) -> Mapping[str, str]:
    """What is kept of a damaged record in the log; nothing if it is not damaged."""
    if not latest.damage:
        return {}
    content = (latest.content or b"").decode("utf-8", "backslashreplace")
    return {"error": latest.damage, "content": content[:_KEPT_OF_DAMAGED]}


def begin_epoch(table: Table, lease: Lease, found: Mapping[str, str]) -> Committed:
    """Commit the epoch of a lease that was taken over. After it no older epoch is ever committed.

    The commit keeps what was `found` in the place of the newest record, if that was damaged.

    Raises LeaseLostError if a higher epoch has begun, and the errors of any commit.
    """
    return _commit(table, lease, "TAKE OVER", {"damaged": dict(found)} if found else {})


def heartbeat_commit(table: Table, lease: Lease) -> Committed:
    """Commit a version without rows, so that `complete_until` of the table's change feed moves on to now.

    It changes no rows and has no time version. Call it on a quiet table only: each commit is a file in the log, and
    readers of the feed are woken up by it.

    Raises LeaseLostError if the lease is lost, and the errors of any commit.
    """
    return _commit(table, lease, "HEARTBEAT")


def _commit(table: Table, lease: Lease, operation: str, more: Mapping[str, Any] = _NOTHING) -> Committed:
    """A commit without rows that writes the epoch."""
    owner = {"lease": {"shard": lease.shard, "epoch": lease.epoch, "owner": lease.owner, **more}}

    def attempt() -> Committed:
        staged = table.begin().stage_fence(lease.fence, operation=operation)
        return committed(staged.note(parameters={"epoch": str(lease.epoch)}, record=owner).commit())

    return run_statement(attempt, table.path)


class Heartbeat:
    """Calls `renew` again and again in a thread of its own, until it is stopped or the lease is lost.

    Args:
        renew: Raises LeaseLostError once the lease is lost, and other errors for what may pass.
        failed: Called with the error of a renewal that failed.
        interval_s: How long to wait between two calls.
    """

    def __init__(self, renew: Callable[[], None], failed: Callable[[Exception], None], interval_s: float) -> None:
        self._renew = renew
        self._failed = failed
        self._interval_s = interval_s
        self._stopped = Event()
        # A process that ends does not wait for it.
        self._thread = Thread(target=self._run, name="tidelog-lease", daemon=True)

    def start(self) -> None:
        """Begin. The first call comes after one interval."""
        self._thread.start()

    def stop(self) -> None:
        """End it; a call that is under way may still go on."""
        self._stopped.set()

    def _run(self) -> None:
        wait_s = self._interval_s
        while not self._stopped.wait(wait_s):
            wait_s = self._interval_s
            try:
                self._renew()
            except LeaseLostError as error:
                # Work under the lease raises this error, too. Without work it does not matter; the table may be gone.
                _LOGGER.debug("%s", error)
                return
            except (TidelogError, OSError) as error:
                _LOGGER.debug("a heartbeat failed: %s", error)
                self._failed(error)
                wait_s = self._interval_s * _SOONER
