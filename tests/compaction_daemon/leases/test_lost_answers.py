"""Leases on stores that lose answers or carry puts out late, and daemons that come at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from tests.compaction_daemon.leases.support import Hosts, compacts, held, taken, through
from tests.log.faults import Around, LostAnswer, NotWritten, Paused
from tests.log.support import live_files, read_numbers, stage_compaction
from tidelog.compaction_daemon.leases import Held, Lease
from tidelog.compaction_daemon.leases.lease_record import LEASES_FOLDER
from tidelog.log import Committed, Table
from tidelog.log.errors import LeaseLostError, StoreUnavailableError

# --- answers that get lost --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failures", [1, 3])
@pytest.mark.parametrize("lost", [LostAnswer, NotWritten])
def test_a_lost_answer_is_settled(hosts: Hosts, lost: Callable[..., Around], failures: int) -> None:
    table = hosts.host("a", store=lost(hosts.store, failures=failures))
    lease = taken(table, "a")
    assert (lease.epoch, lease.took_over) == (1, False)
    through(lease, lost(hosts.store, failures=failures)).renew()
    through(lease, lost(hosts.store, failures=failures))
    assert lease.release()
    assert [(record["beat"], record["state"]) for record in hosts.records().values()] == [
        (0, "held"),
        (1, "held"),
        (2, "released"),
    ]


@pytest.mark.parametrize("lost", [LostAnswer, NotWritten])
def test_a_release_without_an_answer(hosts: Hosts, lost: Callable[..., Around]) -> None:
    """It may appear at any time later. The owner has stopped in any case, so the next one needs no commit."""

    class Mute(Around):
        def read(self, path: str) -> bytes:
            raise StoreUnavailableError(path)

    lease = taken(hosts.host("a"), "a")
    compacts(hosts.host("a"), lease)
    through(lease, lost(Mute(hosts.store), failures=99))
    assert not lease.release()
    with pytest.raises(LeaseLostError, match="was released"):
        lease.fence  # noqa: B018 - a property that raises
    table = hosts.host("b")
    found = Lease.take(table, owner="b")
    if isinstance(found, Held):
        assert lost is NotWritten
        # Now the put that was held up is carried out.
        number = max(hosts.records())
        late = hosts.store.read(f"{LEASES_FOLDER}/0/{number:020d}.json").replace(b'"held"', b'"released"')
        hosts.store.put_if_absent(f"{LEASES_FOLDER}/0/{number + 1:020d}.json", late)
        found = Lease.take(table, owner="b", seen=found)
    assert isinstance(found, Lease)
    assert (found.epoch, found.took_over) == (2, False)
    compacts(table, found)
    assert hosts.epochs() == [1, 2]


def test_a_release_that_appears_after_a_takeover_is_refused(hosts: Hosts) -> None:
    """The put is held up in the network until somebody else has the number."""
    puts: list[tuple[str, bytes]] = []

    class Holds(Around):
        def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
            assert durable
            puts.append((path, content))
            raise StoreUnavailableError("no answer", path=self.url)

    lease = taken(hosts.host("a"), "a")
    assert not through(lease, Holds(hosts.store)).release()
    table = hosts.host("b")
    found = held(table, "b")
    hosts.time.s += 15
    second = taken(table, "b", seen=found)
    assert second.took_over
    for path, content in puts:
        with pytest.raises(FileExistsError):
            hosts.store.put_if_absent(path, content)
    for _ in range(9):
        second.renew()
    for path, content in puts[:1]:
        hosts.store.put_if_absent(path, content)  # the number is free again: nobody looks there
    assert held(hosts.host("c"), "c").owner == "b"
    second.renew()


def test_a_commit_that_appears_after_the_release(hosts: Hosts) -> None:
    """Its answer was lost, and it was held up. It lands before the next owner's, or not at all."""
    sleeper, other = hosts.host("a"), hosts.host("b")
    first = taken(sleeper, "a")
    late = stage_compaction(sleeper, live_files(sleeper)).fenced(first.fence)
    also_late = stage_compaction(sleeper, live_files(sleeper)).fenced(first.fence)
    assert first.release()
    second = taken(other, "b")
    planned = stage_compaction(other, live_files(other)).fenced(second.fence)
    assert isinstance(late.commit(), Committed)
    assert not isinstance(planned.commit(), Committed)
    compacts(other, second)
    with pytest.raises(LeaseLostError):
        also_late.commit()
    assert hosts.epochs() == [1, 2]
    assert read_numbers(other.refresh()) == [0, 1, 2, 100, 101]


def test_a_taker_whose_answer_is_lost_takes_the_next_epoch(hosts: Hosts) -> None:

    class Deaf(Around):
        deaf = False

        def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
            self.deaf = True
            super().put_if_absent(path, content, durable=durable)

        def read(self, path: str) -> bytes:
            if self.deaf:
                raise StoreUnavailableError(path)
            return super().read(path)

    with pytest.raises(StoreUnavailableError, match="did not say whether it holds"):
        Lease.take(hosts.host("a", store=Deaf(LostAnswer(hosts.store, failures=9))), owner="a")
    assert hosts.newest()["owner"] == "a"
    lease = taken(hosts.host("a"), "a")
    assert (lease.epoch, lease.took_over) == (2, True)


# --- races ------------------------------------------------------------------------------------------------------------


def test_of_eight_threads_that_take_it_at_once_one_wins(hosts: Hosts) -> None:
    for round_number in range(1, 6):
        barrier = Barrier(8)

        def take(number: int) -> Lease | Held:
            table = hosts.host(f"h{number}")
            barrier.wait()  # noqa: B023 - all threads end within the round
            return Lease.take(table, owner=f"o{number}")

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(take, range(8)))
        (lease,) = (each for each in found if isinstance(each, Lease))
        others = [each for each in found if isinstance(each, Held)]
        assert {(each.owner, each.epoch) for each in others} == {(lease.owner, lease.epoch)}
        assert lease.epoch == round_number
        assert lease.release()


def test_two_that_take_over_at_the_same_moment() -> None:
    """The second one sleeps before each of its calls, while the first one does all of its own."""
    outcomes = set()
    for before in range(30):
        world = Hosts()
        taken(world.host("a"), "a")
        first = world.host("b")
        seen = held(first, "b")

        def meanwhile(first: Table = first, seen: Held = seen) -> None:
            lease = Lease.take(first, owner="b", seen=seen)
            if isinstance(lease, Lease):
                compacts(first, lease)

        paused = Paused(world.store, before=-1, meanwhile=meanwhile)
        second = world.host("c", store=paused)
        found = held(second, "c")
        paused.before = paused.calls + before
        world.time.s += 15
        result = Lease.take(second, owner="c", seen=found)
        if isinstance(result, Lease):
            assert world.epochs()[-1] == result.epoch
            compacts(second, result)
        assert world.epochs() == sorted(world.epochs())
        outcomes.add((type(result).__name__, len(set(world.epochs()))))
    assert {name for name, _ in outcomes} == {"Held", "Lease"}
