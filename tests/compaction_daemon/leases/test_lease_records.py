"""What is stored: records of other tables, damaged ones, clean-up, and what people are shown."""

from __future__ import annotations

import json

import pytest

from tests.compaction_daemon.leases.support import HOUR_S, Host, Hosts, compacts, held, taken, through
from tests.log.faults import Deleting
from tests.log.support import numbers, stage_compaction
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


def _damaged(hosts: Hosts, number: int, content: bytes) -> None:
    path = f"{LEASES_FOLDER}/0/{number:020d}.json"
    if path.rpartition("/")[2] in hosts.store.names(f"{LEASES_FOLDER}/0"):
        hosts.store.delete(path)
    hosts.store.put_if_absent(path, content)


def _require_taken_over(hosts: Hosts, old: Lease, content: bytes) -> None:
    """Another daemon waits, takes the lease over, shuts the old owner out, and keeps what it found in the log."""
    old_fence, number = old.fence, max(int(name[:20]) for name in hosts.store.names(f"{LEASES_FOLDER}/0"))
    other = hosts.host("b")
    with pytest.raises(CorruptLogError, match="is damaged"):
        lease_of(other)
    waits = held(other, "b")
    assert waits.free_in_s == 15
    hosts.time.s += 14
    assert held(other, "b", seen=waits).free_in_s == 1
    hosts.time.s += 1
    lease = taken(other, "b", seen=waits)
    assert lease.took_over
    assert lease.epoch > max(old.epoch, number)
    assert hosts.epochs()[-1] == lease.epoch
    with pytest.raises(LeaseLostError):
        stage_compaction(hosts.host("a")).fenced(old_fence).commit()
    with pytest.raises(LeaseLostError):
        old.renew()
    info = json.loads(hosts.store.read(f"_delta_log/{other.refresh().version:020d}.json").splitlines()[0])["commitInfo"]
    found = info["tidelog"]["lease"]["damaged"]
    assert f"{number:020d}.json" in found["error"]
    assert found["content"] == content.decode("utf-8", "backslashreplace")[:1000]
    lease.renew()
    assert lease_of(other) is not None
    assert compacts(other, lease)


_GARBAGE = [b"[]", b'{"table": 7}', b"\xff" * 50, bytes(100), b"[" * 5_000, b'{"format": "x"}', b'{"format": 1}']


@pytest.mark.parametrize("content", _GARBAGE)
@pytest.mark.parametrize("is_newest", [True, False], ids=["in place of a record", "after it"])
def test_a_damaged_record_is_taken_over(hosts: Hosts, content: bytes, is_newest: bool) -> None:
    lease = taken(hosts.host("a"), "a")
    _damaged(hosts, 0 if is_newest else 1, content)
    _require_taken_over(hosts, lease, content)


def test_a_record_of_any_shorter_length_is_taken_over() -> None:
    length = 0
    while True:
        hosts = Hosts(1)
        lease = taken(hosts.host("a"), "a")
        content = hosts.store.read(f"{LEASES_FOLDER}/0/{0:020d}.json")
        if length >= len(content.rstrip()):
            break
        _damaged(hosts, 0, content[:length])
        _require_taken_over(hosts, lease, content[:length])
        length += 1
    assert length > 100


def test_the_epoch_after_a_damaged_record_is_above_all_that_it_can_have_had(hosts: Hosts) -> None:
    """Also where nobody has committed yet: each owner released the lease, and the last record is lost."""
    table = hosts.host("a")
    first = taken(table, "a")
    compacts(table, first)
    first.release()
    for number in range(2, 6):
        taken(table, "a").release()
        assert hosts.newest()["epoch"] == number
    last = taken(table, "c")
    _damaged(hosts, max(hosts.records()), b"")
    _require_taken_over(hosts, last, b"")


def test_an_owner_whose_own_record_is_damaged_takes_the_lease_again_at_once(hosts: Hosts) -> None:
    table = hosts.host("a")
    lease = taken(table, "a")
    _damaged(hosts, 0, b"")
    with pytest.raises(LeaseLostError):
        lease.renew()
    again = taken(table, "a")
    assert again.epoch > lease.epoch
    assert hosts.epochs()[-1] == again.epoch


def test_a_record_of_a_later_format_is_left_alone(hosts: Hosts) -> None:
    table = hosts.host("a")
    lease = taken(table, "a")
    hosts.store.put_if_absent(f"{LEASES_FOLDER}/0/{1:020d}.json", f'{{"table": "{table.id}", "format": 2}}'.encode())
    for call in (lambda: Lease.take(table, owner="b"), lambda: lease_of(table), lease.renew):
        with pytest.raises(CorruptLogError, match=r"0{19}1.json: .*delete that file"):
            call()
    hosts.store.delete(f"{LEASES_FOLDER}/0/{1:020d}.json")
    lease.renew()


def test_a_record_of_another_shard_is_damage(hosts: Hosts) -> None:
    table = hosts.host("a")
    taken(table, "a", shard="1")
    content = hosts.store.read(f"{LEASES_FOLDER}/1/{0:020d}.json")
    lease = taken(table, "a")
    _damaged(hosts, 0, content)
    _require_taken_over(hosts, lease, content)


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
