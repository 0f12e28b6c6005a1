"""Clocks of hosts that are wrong do no harm: each process trusts its own monotonic clock only."""

from __future__ import annotations

import itertools

import pytest

from tests.compaction_daemon.leases.support import HOUR_S, Host, Hosts, held, taken
from tidelog.compaction_daemon.leases import Held, Lease

WRONG = (-600.0, -1.0, 0.0, 1.0, 600.0)


@pytest.mark.parametrize(("first_s", "second_s"), [*itertools.product(WRONG, WRONG)])
def test_clocks_of_the_day_that_differ_do_no_harm(hosts: Hosts, first_s: float, second_s: float) -> None:
    """Nobody takes over too early, or waits for longer than the time to live."""
    first = taken(hosts.host("a", wrong_s=first_s, began_s=7 * HOUR_S), "a")
    table = hosts.host("b", wrong_s=second_s, began_s=-3 * HOUR_S)
    found: Held | Lease = held(table, "b")
    for _ in range(30):
        hosts.time.s += 5
        first.renew()
        found = held(table, "b", seen=found if isinstance(found, Held) else None)
    waited_s = 0
    while isinstance(found, Held):
        hosts.time.s += 1
        waited_s += 1
        found = Lease.take(table, owner="b", seen=found)
    assert waited_s == 15
    assert not first.is_held


def test_a_clock_of_the_day_that_jumps_does_no_harm(hosts: Hosts) -> None:
    table, other = hosts.host("a"), hosts.host("b")
    lease = taken(table, "a")
    found = held(other, "b")
    for jump_s in (600, -1200, 10**6, -(10**6)):
        for system in (table.timeline.system, other.timeline.system):
            assert isinstance(system, Host)
            system.wrong_s += jump_s
            assert lease.is_held
            found = held(other, "b", seen=found)
            assert found.free_in_s == 15


def test_what_another_process_has_seen_means_nothing_here(hosts: Hosts) -> None:
    """A daemon that was started again waits for the whole time, however old the file is."""
    taken(hosts.host("a"), "a")
    hosts.time.s += 10 * HOUR_S
    assert held(hosts.host("b"), "b").free_in_s == 15
