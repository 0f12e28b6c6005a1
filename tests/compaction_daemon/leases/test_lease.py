"""Take, keep and release a lease."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.compaction_daemon.leases.support import HOUR_S, Hosts, compacts, held, taken, through
from tests.log.faults import Around, NotWritten
from tests.log.support import live_files, new_table, put_foreign, stage_compaction
from tidelog.compaction_daemon.leases import SHARDS, Lease, new_owner
from tidelog.compaction_daemon.leases.lease_record import LEASES_FOLDER
from tidelog.log.errors import ConfigurationError, LeaseLostError, StoreUnavailableError
from tidelog.log.format.actions import SetTransaction
from tidelog.log.storage.local import LocalStore

# --- take and release -------------------------------------------------------------------------------------------------


def test_a_lease_that_nobody_has_is_taken_without_a_commit(hosts: Hosts) -> None:
    table = hosts.host("a")
    lease = taken(table, "a")
    assert (lease.epoch, lease.owner, lease.shard, lease.took_over, lease.is_held) == (1, "a", "0", False, True)
    assert lease.fence == SetTransaction(
        app_id="tidelog.daemon/0", version=1, last_updated=table.timeline.system.now_ms()
    )
    assert table.refresh().version == 3
    record = hosts.newest()
    assert (record["table"], record["owner"], record["epoch"], record["beat"]) == (table.id, "a", 1, 0)
    assert (record["state"], record["ttlMs"], record["shard"]) == ("held", 15_000, "0")


def test_a_released_lease_is_taken_at_once_and_without_a_commit(hosts: Hosts) -> None:
    first = taken(hosts.host("a"), "a")
    compacts(hosts.host("a"), first)
    assert first.release()
    assert hosts.newest()["state"] == "released"
    second = taken(hosts.host("b"), "b")
    assert (second.epoch, second.took_over) == (2, False)
    assert hosts.epochs() == [1]
    compacts(hosts.host("b"), second)
    assert hosts.epochs() == [1, 2]


def test_a_released_lease_cannot_be_used(hosts: Hosts) -> None:
    lease = taken(hosts.host("a"), "a")
    assert lease.release()
    assert lease.release()
    assert not lease.is_held
    for use in (lease.renew, lease.require_held, lambda: lease.fence):
        with pytest.raises(LeaseLostError, match="with epoch 1 was released"):
            use()
    assert len(hosts.records()) == 2


def test_a_lease_of_another_owner_is_waited_for(hosts: Hosts) -> None:
    table = hosts.host("b")
    taken(hosts.host("a"), "a", ttl_s=8)
    hosts.time.s += 1000
    found = held(table, "b")
    assert (found.owner, found.epoch, found.ttl_s, found.free_in_s) == ("a", 1, 8, 8)
    hosts.time.s += 3
    again = held(table, "b", seen=found)
    assert again.free_in_s == 5
    hosts.time.s += 4.999
    assert held(table, "b", seen=again).free_in_s == pytest.approx(0.001)
    hosts.time.s += 0.001
    assert taken(table, "b", seen=again).epoch == 2


def test_a_sign_of_life_begins_the_wait_again(hosts: Hosts) -> None:
    first, table = taken(hosts.host("a"), "a"), hosts.host("b")
    found = held(table, "b")
    for _ in range(10):
        hosts.time.s += 14
        first.renew()
        found = held(table, "b", seen=found)
        assert found.free_in_s == 15
    hosts.time.s += 15
    assert taken(table, "b", seen=found).epoch == 2


def test_who_takes_over_begins_with_a_commit(hosts: Hosts) -> None:
    """Before it compacts anything, the owner that sleeps is shut out."""
    sleeper, other = hosts.host("a"), hosts.host("b")
    first = taken(sleeper, "a")
    staged = stage_compaction(sleeper, live_files(sleeper)).fenced(first.fence)
    found = held(other, "b")
    hosts.time.s += 15
    second = taken(other, "b", seen=found)
    assert second.took_over
    assert hosts.epochs() == [2]
    newest = other.history()[0]
    assert (newest.operation, newest.version) == ("TAKE OVER", 4)
    with pytest.raises(LeaseLostError, match="the winner began epoch 2"):
        staged.commit()
    assert sleeper.refresh().version == 4
    compacts(other, second)
    assert hosts.epochs() == [2, 2]


def test_who_began_before_the_takeover_and_reads_after_it(hosts: Hosts) -> None:
    sleeper, other = hosts.host("a"), hosts.host("b")
    fence = taken(sleeper, "a").fence
    found = held(other, "b")
    hosts.time.s += 15
    taken(other, "b", seen=found)
    with pytest.raises(LeaseLostError, match="has epoch 2"):
        stage_compaction(sleeper.refresh(), live_files(sleeper.refresh())).fenced(fence).commit()


def test_an_owner_takes_its_own_lease_again_and_settles_what_it_had_begun(hosts: Hosts) -> None:
    """It may have been interrupted between the record and the commit."""
    table = hosts.host("a")
    taken(table, "a")
    again = taken(table, "a")
    assert (again.epoch, again.took_over) == (2, True)
    assert hosts.epochs() == [2]


def test_a_takeover_without_its_commit_is_no_clean_release(hosts: Hosts) -> None:
    """The second daemon writes its record and cannot commit. The first one must still be shut out by the third."""
    sleeper = hosts.host("a")
    first = taken(sleeper, "a")
    staged = stage_compaction(sleeper, live_files(sleeper)).fenced(first.fence)

    class NoCommits(Around):
        def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
            if path.startswith("_delta_log/"):
                raise StoreUnavailableError("no connection", path=self.url)
            super().put_if_absent(path, content, durable=durable)

    broken = hosts.host("b", store=NoCommits(hosts.store))
    found = held(broken, "b")
    hosts.time.s += 15
    with pytest.raises(Exception, match="no connection"):
        Lease.take(broken, owner="b", seen=found)
    assert hosts.newest()["owner"] == "b"
    third = hosts.host("c")
    found = held(third, "c")
    hosts.time.s += 16
    assert taken(third, "c", seen=found).epoch == 3
    with pytest.raises(LeaseLostError):
        staged.commit()


def test_the_epoch_is_above_that_of_the_log(hosts: Hosts) -> None:
    """Somebody deleted the records."""
    table = hosts.host("a")
    put_foreign(table, SetTransaction(app_id="tidelog.daemon/0", version=41))
    lease = taken(table, "a")
    assert (lease.epoch, lease.took_over) == (42, True)
    assert hosts.epochs() == [41, 42]


def test_nothing_is_written_into_a_table_that_was_deleted(tmp_path: Path) -> None:
    """Somebody ran `rm -rf` on its folder. The heartbeat must not bring the folder back."""
    tables = [new_table(LocalStore(str(tmp_path / name))) for name in ("renewed", "released")]
    renewed, released = (taken(table, "a") for table in tables)
    for table in tables:
        shutil.rmtree(table.path)
    with pytest.raises(LeaseLostError, match="is gone: somebody deleted its records, or the table"):
        renewed.renew()
    assert not released.release()
    assert list(tmp_path.iterdir()) == []


def test_shards_do_not_know_each_other(hosts: Hosts) -> None:
    table = hosts.host("a")
    leases = [taken(table, "a", shard=shard) for shard in SHARDS]
    assert [lease.epoch for lease in leases] == [1] * 16
    assert [lease.fence.app_id for lease in leases] == [f"tidelog.daemon/{number}" for number in range(16)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"shard": "16"},
        {"shard": "00"},
        {"shard": 0},
        {"shard": "../0"},
        {"ttl_s": 0},
        {"ttl_s": 3601},
        {"ttl_s": float("nan")},
        {"ttl_s": True},
        {"ttl_s": "15"},
        {"owner": ""},
        {"owner": "a\nb"},
        {"owner": None},
        {"owner": "x" * 301},
    ],
    ids=str,
)
def test_arguments_that_cannot_be(hosts: Hosts, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Lease.take(hosts.host("a"), **{"owner": "a", **wrong})
    assert hosts.records() == {}


def test_each_daemon_is_an_owner_of_its_own() -> None:
    owners = {new_owner(), new_owner()}
    assert len(owners) == 2
    assert len({owner.rpartition(":")[0] for owner in owners}) == 1


# --- signs of life ----------------------------------------------------------------------------------------------------


def test_each_sign_of_life_is_a_record_and_few_stay(hosts: Hosts) -> None:
    lease = taken(hosts.host("a"), "a")
    for _ in range(9):
        hosts.time.s += 5
        lease.renew_if_due()
    assert sorted(hosts.records()) == [6, 7, 8, 9]
    assert [record["beat"] for record in hosts.records().values()] == [6, 7, 8, 9]
    assert {record["epoch"] for record in hosts.records().values()} == {1}


def test_it_is_renewed_when_a_third_of_its_time_has_passed(hosts: Hosts) -> None:
    lease = taken(hosts.host("a"), "a")
    hosts.time.s += 4.9
    lease.renew_if_due()
    assert len(hosts.records()) == 1
    hosts.time.s += 0.1
    lease.renew_if_due()
    assert len(hosts.records()) == 2


def test_an_owner_that_could_not_renew_stops_by_itself(hosts: Hosts) -> None:
    table = hosts.host("a")
    lease = through(taken(table, "a"), NotWritten(hosts.store, failures=10**6))
    for _ in range(2):
        hosts.time.s += 5
        with pytest.raises(StoreUnavailableError):
            lease.renew()
        assert lease.is_held
    hosts.time.s += 5
    assert not lease.is_held
    through(lease, hosts.store)
    with pytest.raises(LeaseLostError, match="was not renewed for 15 seconds") as raised:
        lease.renew()
    assert raised.value.path == table.path
    with pytest.raises(LeaseLostError):
        lease.require_held()


def test_the_time_to_live_begins_before_the_record_is_written(hosts: Hosts) -> None:
    """A put that takes long: others have seen the record when the owner gets the answer."""

    class Slow(Around):
        def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
            super().put_if_absent(path, content, durable=durable)
            hosts.time.s += 10

    lease = through(taken(hosts.host("a"), "a"), Slow(hosts.store))
    lease.renew()
    hosts.time.s += 4.9
    assert lease.is_held
    hosts.time.s += 0.1
    assert not lease.is_held


def test_an_owner_learns_from_its_sign_of_life_that_it_was_replaced(hosts: Hosts) -> None:
    lease = taken(hosts.host("a", began_s=-(10**6)), "a", ttl_s=HOUR_S)
    put_foreign(hosts.host("x"), SetTransaction(app_id="x", version=1))
    path = f"{LEASES_FOLDER}/0/{1:020d}.json"
    record = hosts.store.read(f"{LEASES_FOLDER}/0/{0:020d}.json")
    hosts.store.put_if_absent(
        path, record.replace(b'"owner": "a"', b'"owner": "b"').replace(b'epoch": 1', b'epoch": 2')
    )
    assert lease.is_held
    with pytest.raises(LeaseLostError, match="was taken over by b with epoch 2"):
        lease.renew()
    assert not lease.is_held
    assert not lease.release()


def test_an_owner_that_slept_takes_no_number_that_was_used(hosts: Hosts) -> None:
    """The number of its next record was written and deleted while it slept."""
    lease = taken(hosts.host("a"), "a", ttl_s=HOUR_S)
    hosts.store.delete(f"{LEASES_FOLDER}/0/{0:020d}.json")
    other = taken(hosts.host("b"), "b", ttl_s=HOUR_S)
    for _ in range(9):
        other.renew()
    assert min(hosts.records()) > 2
    with pytest.raises(LeaseLostError, match="was taken over by b"):
        lease.renew()
    assert other.is_held
    other.renew()
