"""Another daemon asks for a lease that is held."""

from __future__ import annotations

from tests.compaction_daemon.leases.support import Hosts, compacts, held, taken
from tidelog.compaction_daemon.leases import Lease


def asked(lease: Lease) -> tuple[str, int] | None:
    lease.renew()
    return (lease.request.owner, lease.request.leases) if lease.request else None


def test_the_owner_finds_a_request_when_it_renews(hosts: Hosts) -> None:
    table = hosts.host("a")
    lease = taken(table, "a")
    assert asked(lease) is None
    held(hosts.host("b"), "b", keeps=3)
    assert asked(lease) == ("b", 3)
    assert (lease.is_held, hosts.newest()["owner"], hosts.newest()["epoch"]) == (True, "a", 1)
    compacts(table, lease)
    assert lease.release()
    other = taken(hosts.host("b"), "b", keeps=3)
    assert (other.epoch, other.took_over, asked(other)) == (2, False, None)


def test_a_request_can_come_before_a_release(hosts: Hosts) -> None:
    lease = taken(hosts.host("a"), "a")
    held(hosts.host("b"), "b", keeps=0)
    assert lease.release()
    assert hosts.newest()["state"] == "released"


def test_a_request_is_written_once(hosts: Hosts) -> None:
    taken(hosts.host("a"), "a")
    seen = held(hosts.host("b"), "b", keeps=0)
    records = len(hosts.records())
    held(hosts.host("b"), "b", keeps=0, seen=seen)
    assert len(hosts.records()) == records
    held(hosts.host("b"), "b", keeps=1, seen=seen)
    assert len(hosts.records()) == records + 1


def test_who_keeps_the_fewest_comes_first(hosts: Hosts) -> None:
    lease = taken(hosts.host("a"), "a")
    held(hosts.host("b"), "b", keeps=2)
    held(hosts.host("c"), "c", keeps=2)
    assert asked(lease) == ("b", 2)
    held(hosts.host("c"), "c", keeps=1)
    assert asked(lease) == ("c", 1)


def test_a_request_is_no_sign_of_life(hosts: Hosts) -> None:
    taken(hosts.host("a"), "a", ttl_s=15.0)
    table = hosts.host("b")
    seen = held(table, "b", keeps=0)
    hosts.time.s += 10
    seen = held(table, "b", keeps=1, seen=seen)
    assert seen.free_in_s == 5
    hosts.time.s += 5
    assert taken(table, "b", keeps=1, seen=seen).took_over


def test_a_renewal_between_is_a_sign_of_life(hosts: Hosts) -> None:
    lease = taken(hosts.host("a"), "a", ttl_s=15.0)
    table = hosts.host("b")
    seen = held(table, "b", keeps=0)
    hosts.time.s += 10
    lease.renew()
    hosts.time.s += 5
    assert held(table, "b", keeps=0, seen=seen).free_in_s == 15
