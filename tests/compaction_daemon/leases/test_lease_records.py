"""What is stored: records of other tables, damaged ones, clean-up, and what people are shown."""

from __future__ import annotations

import pytest

from tests.compaction_daemon.leases.support import HOUR_S, Host, Hosts, taken, through
from tests.log.faults import Deleting
from tests.log.support import numbers
from tidelog.compaction_daemon.leases import Lease, lease_of
from tidelog.compaction_daemon.leases.lease_record import LEASES_FOLDER
from tidelog.log.errors import ConfigurationError, CorruptLogError, LeaseLostError
from tidelog.log.operations import drop_table

# --- other tables, damaged records, clean-up --------------------------------------------------------------------------


def test_records_of_a_dropped_table_do_not_count(hosts: Hosts) -> None:
    old = taken(hosts.host("a"), "a", ttl_s=HOUR_S)
    for _ in range(3):
        old.renew()
    hosts.time.s += 1
    drop_table.drop(hosts.store, Host("drop", hosts.time))
    hosts.time.s += 1
    # What a drop may leave: a record that was written while it ran.
    hosts.store.put_if_absent(f"{LEASES_FOLDER}/0/{9:020d}.json", _record_of("old-table"))
    from tests.log.support import new_table  # noqa: PLC0415

    table = new_table(hosts.store, system=Host("b", hosts.time))
    lease = taken(table, "b")
    assert (lease.epoch, lease.took_over) == (1, False)
    assert max(hosts.records()) == 10
    with pytest.raises(LeaseLostError):
        old.renew()
    lease.renew()


def _record_of(table_id: str) -> bytes:
    return (
        (
            f'{{"format":1,"id":"x","table":"{table_id}","shard":"0","state":"held","epoch":7,"beat":0,"owner":"z",'
            '"ttlMs":1000,"time":"2024-01-01T00:00:00Z"}}'
        )
        .replace("}}", "}")
        .encode()
    )


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"table": 7}', b'{"table": "T", "format": 2}', bytes(100)])
def test_a_record_that_cannot_be_read(hosts: Hosts, content: bytes) -> None:
    table = hosts.host("a")
    lease = taken(table, "a")
    content = content.replace(b'"T"', f'"{table.id}"'.encode())
    hosts.store.put_if_absent(f"{LEASES_FOLDER}/0/{1:020d}.json", content)
    for call in (lambda: Lease.take(table, owner="b"), lambda: lease_of(table), lease.renew):
        with pytest.raises(CorruptLogError, match=r"0{19}1.json: .*delete that file"):
            call()
    hosts.store.delete(f"{LEASES_FOLDER}/0/{1:020d}.json")
    lease.renew()


def test_a_record_of_another_shard_is_damage(hosts: Hosts) -> None:
    table = hosts.host("a")
    taken(table, "a", shard="1")
    content = hosts.store.read(f"{LEASES_FOLDER}/1/{0:020d}.json")
    hosts.store.put_if_absent(f"{LEASES_FOLDER}/0/{0:020d}.json", content)
    with pytest.raises(CorruptLogError, match="it is the record of shard '1'"):
        Lease.take(table, owner="b")


def test_a_vacuum_leaves_leases_alone(hosts: Hosts) -> None:
    table = hosts.host("a")
    lease = taken(table, "a")
    for _ in range(5):
        lease.renew()
    before = hosts.records()
    hosts.time.s += 90 * 24 * HOUR_S
    for _ in range(2):
        table.insert(numbers([7]))
        table.vacuum()
        hosts.time.s += 90 * 24 * HOUR_S
    assert hosts.records() == before


def test_old_records_that_cannot_be_deleted_do_no_harm(hosts: Hosts) -> None:
    lease = through(taken(hosts.host("a"), "a"), Deleting(hosts.store, suffix="00.json"))
    for _ in range(6):
        lease.renew()
    assert lease.is_held
    assert sorted(hosts.records()) == [0, 1, 2, 3, 4, 5, 6]


# --- for people -------------------------------------------------------------------------------------------------------


def test_who_has_the_lease(hosts: Hosts) -> None:
    table = hosts.host("p")
    assert lease_of(table) is None
    lease = taken(hosts.host("a", wrong_s=600), "a")
    hosts.time.s += 4
    found = lease_of(table)
    assert found is not None
    assert (found.owner, found.epoch, found.beat, found.state) == ("a", 1, 0, "held")
    assert (found.age_s, found.ttl_s, found.heartbeat.timestamp()) == (4, 15, 1_700_000_000)
    hosts.time.s += 11
    assert lease_of(table).state == "silent"  # type: ignore[union-attr]
    assert lease.release()
    found = lease_of(table)
    assert found is not None
    assert (found.state, found.beat, found.age_s) == ("released", 1, 0)
    assert lease_of(table, "3") is None
    with pytest.raises(ConfigurationError):
        lease_of(table, "x")
