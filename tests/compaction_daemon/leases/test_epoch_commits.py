"""Commits without rows that carry the epoch."""

from __future__ import annotations

import pytest

from tests.compaction_daemon.leases.support import HOUR_S, Hosts, taken
from tidelog.compaction_daemon.leases import heartbeat_commit
from tidelog.log.errors import LeaseLostError


def test_a_heartbeat_moves_complete_until_on(hosts: Hosts) -> None:
    table = hosts.host("a")
    lease = taken(table, "a", ttl_s=HOUR_S)
    before = table.changes().complete_until
    time_version = table.time_version
    hosts.time.s += 600
    assert table.changes().complete_until == before
    beat = heartbeat_commit(table, lease)
    after = table.changes(after=before)
    assert after.complete_until == beat.timestamp
    assert (after.complete_until - before).total_seconds() == pytest.approx(600, abs=1)
    assert after.to_arrow().num_rows == 0
    assert table.refresh().time_version == time_version
    assert table.history()[0].operation == "HEARTBEAT"
    assert hosts.epochs() == [1]
    hosts.time.s += 600
    heartbeat_commit(table, lease)
    assert hosts.epochs() == [1, 1]


def test_a_heartbeat_without_the_lease_is_refused(hosts: Hosts) -> None:
    table = hosts.host("a")
    lease = taken(table, "a")
    hosts.time.s += 15
    with pytest.raises(LeaseLostError):
        heartbeat_commit(table, lease)
    assert table.refresh().version == 3
