"""The thread that keeps a lease. Its waits are real and short; the lease's own clock moves only when a test says so."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Event, Thread

import pytest

from tests.compaction_daemon.leases.support import Hosts, held, taken
from tests.log.faults import Around
from tidelog.compaction_daemon.leases import Lease
from tidelog.compaction_daemon.leases.lease_record import LEASES_FOLDER
from tidelog.log.errors import LeaseLostError, StoreUnavailableError
from tidelog.log.storage import Store

TTL_S = 0.06
PATIENCE_S = 20.0


class Watched(Around):
    """Tells of every put of a record, and refuses it while `broken`."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.puts: SimpleQueue[str] = SimpleQueue()
        self.broken = False

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        if path.startswith(LEASES_FOLDER):
            self.puts.put(path)
            if self.broken:
                raise StoreUnavailableError("no connection", path=self.url)
        super().put_if_absent(path, content, durable=durable)


@pytest.fixture
def store(hosts: Hosts) -> Watched:
    return Watched(hosts.store)


@pytest.fixture
def lease(hosts: Hosts, store: Watched) -> Lease:
    found = taken(hosts.host("a", store=store), "a", ttl_s=TTL_S)
    store.puts.get(timeout=PATIENCE_S)
    return found


def thread_of(lease: Lease) -> Thread:
    assert lease._heartbeat is not None
    return lease._heartbeat._thread


def ended(lease: Lease) -> bool:
    thread_of(lease).join(PATIENCE_S)
    return not thread_of(lease).is_alive()


def test_it_renews_until_the_release(hosts: Hosts, store: Watched, lease: Lease) -> None:
    lease.keep_alive()
    thread = thread_of(lease)
    lease.keep_alive()
    assert thread_of(lease) is thread
    for _ in range(6):
        store.puts.get(timeout=PATIENCE_S)
        hosts.time.s += TTL_S / 6
    assert lease.is_held
    assert lease.release()
    assert ended(lease)
    newest = hosts.newest()
    assert newest["state"] == "released"
    assert newest["beat"] >= 6


def test_a_released_lease_is_not_kept(lease: Lease) -> None:
    lease.release()
    lease.keep_alive()
    assert lease._heartbeat is None


def test_a_short_outage_costs_no_lease(hosts: Hosts, store: Watched, lease: Lease) -> None:
    store.broken = True
    lease.keep_alive()
    for _ in range(5):
        store.puts.get(timeout=PATIENCE_S)
    assert lease.is_held
    store.broken = False
    while max(hosts.records()) < 3:
        store.puts.get(timeout=PATIENCE_S)
    lease.require_held()
    assert lease.release()
    assert ended(lease)


def test_an_outage_for_the_time_to_live_shows_in_the_worker(hosts: Hosts, store: Watched, lease: Lease) -> None:
    store.broken = True
    lease.keep_alive()
    for _ in range(5):
        store.puts.get(timeout=PATIENCE_S)
    hosts.time.s += TTL_S
    with pytest.raises(LeaseLostError, match=r"was not renewed for 0.06 seconds") as raised:
        lease.fence  # noqa: B018 - a property that raises
    assert isinstance(raised.value.__cause__, StoreUnavailableError)
    assert ended(lease)
    assert not lease.release()


def test_a_takeover_shows_in_the_worker(hosts: Hosts, lease: Lease) -> None:
    other = hosts.host("b")
    seen = held(other, "b")
    hosts.time.s += TTL_S + 1
    assert taken(other, "b", seen=seen).epoch == 2
    hosts.time.s -= TTL_S + 1  # the first one was paused: its clock stood still
    lease.keep_alive()
    assert ended(lease)
    with pytest.raises(LeaseLostError, match="was taken over by b with epoch 2"):
        lease.require_held()


def test_a_release_waits_for_a_sign_of_life_that_is_under_way(hosts: Hosts, lease: Lease) -> None:
    """Otherwise the two would write the same number."""
    began, goes_on = Event(), Event()

    class Slow(Around):
        def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
            began.set()
            assert goes_on.wait(PATIENCE_S)
            super().put_if_absent(path, content, durable=durable)

    lease._store = Slow(hosts.store)
    lease.keep_alive()
    assert began.wait(PATIENCE_S)
    released: list[bool] = []
    releasing = Thread(target=lambda: released.append(lease.release()))
    releasing.start()
    goes_on.set()
    releasing.join(PATIENCE_S)
    assert released == [True]
    assert ended(lease)
    assert [record["state"] for record in hosts.records().values()] == ["held", "held", "released"]
