"""The files of a consumer's records, on stores that lose answers, and beside writers that sleep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.log.consumers.support import DAY, Watch, claimed, clean_up, confirmed, only, records
from tests.log.faults import Around, Deleting, LostAnswer, NotWritten, Paused
from tidelog.log import Table
from tidelog.log.consumers import record_files
from tidelog.log.consumers.claims import claim
from tidelog.log.consumers.consumer import Consumer
from tidelog.log.errors import ConfigurationError, ConsumerInUseError, FencedError, StoreUnavailableError
from tidelog.log.storage import NotDurableError, NotStoredError


def through(table: Table, store: Around, clock: Watch) -> Consumer:
    """A confirmed consumer whose store is `store` from now on."""
    consumer = confirmed(table, clock)
    consumer._store = store
    return consumer


@pytest.mark.parametrize("failures", [1, 3])
@pytest.mark.parametrize("lost", [LostAnswer, NotWritten])
def test_a_lost_answer_is_settled(table: Table, clock: Watch, lost: Callable[..., Around], failures: int) -> None:
    consumer = through(table, lost(table.store, failures=failures), clock)
    consumer.advance(5)
    consumer.advance(6)
    assert only(table, clock).position == consumer.position == 6
    assert sorted(records(table)) == [0, 1, 2, 3]


def test_a_store_that_never_answers(table: Table, clock: Watch) -> None:
    consumer = through(table, NotWritten(table.store, failures=99), clock)
    with pytest.raises(StoreUnavailableError, match="did not say whether it holds"):
        consumer.advance(5)
    assert consumer.position == 3
    consumer._store = table.store
    consumer.advance(5)
    assert only(table, clock).position == 5


@pytest.mark.parametrize("error", [NotStoredError("no"), ConfigurationError("no"), NotDurableError("no")])
def test_a_put_that_is_refused_is_not_repeated(table: Table, clock: Watch, error: Exception) -> None:
    tried: list[str] = []

    class Refuses(Around):
        def put_if_absent(self, path: str, *_args: Any, **_more: Any) -> None:
            tried.append(path)
            raise error

    store = Refuses(table.store)
    with pytest.raises(type(error), match="no"):
        through(table, store, clock).advance(5)
    assert len(tried) == 1


def test_another_writer_wins_the_put_whose_answer_is_lost(table: Table, clock: Watch) -> None:
    first, second = confirmed(table, clock), claimed(table, clock)
    store = NotWritten(table.store, also=lambda: second.advance(7))
    first._store = store
    first.advance(6)
    assert first.position == 7
    first.advance(8)
    assert only(table, clock).position == 8


def test_who_slept_through_many_records_is_fenced(table: Table, clock: Watch) -> None:
    """The number that it puts was written and deleted meanwhile."""
    asleep = confirmed(table, clock, takeover_after_ms=1000)
    clock.ms += 1000
    other = confirmed(table, clock, owner="other")
    for position in range(4, 11):
        other.advance(position)
    assert min(records(table)) > asleep._latest.number + 1
    with pytest.raises(FencedError, match="now belongs to other"):
        asleep.advance(9)
    assert only(table, clock).position == 10


def test_who_slept_during_its_first_claim(table: Table, clock: Watch) -> None:
    """Between its look at the empty folder and its put, another one registers and writes many records."""
    refused = 0
    for before in range(12):
        for path, _ in list(table.store.walk(record_files.FOLDER)):
            table.store.delete(path)
        registered: list[Consumer] = []

        def register() -> None:
            other = confirmed(table, clock, owner="other")
            for position in range(4, 11):
                other.advance(position)
            registered.append(other)  # noqa: B023

        store = Paused(table.store, before=before, meanwhile=register)
        try:
            claim(store, table.head, "c", owner="me", position=3, system=clock)
        except ConsumerInUseError:
            refused += 1
            assert only(table, clock).owner == ("other" if registered else "me")
    assert refused


@pytest.mark.parametrize(("failing", "left"), [(0, range(9)), (1, range(1, 9)), (3, range(3, 9)), (9, range(5, 9))])
def test_old_records_are_deleted_oldest_first(table: Table, clock: Watch, failing: int, left: range) -> None:
    consumer = through(table, Deleting(table.store, suffix=f"{failing}.json"), clock)
    for position in range(4, 11):
        consumer.advance(position)
    assert sorted(records(table)) == list(left)
    consumer._store = table.store
    clean_up(table)
    clock.ms += 3 * DAY
    consumer.heartbeat_if_due()
    assert sorted(records(table)) == [6, 7, 8, 9]


def test_a_folder_that_somebody_deleted_is_begun_again(table: Table, clock: Watch) -> None:
    consumer = confirmed(table, clock)
    for number in records(table):
        table.store.delete(record_files.path_of("c", number))
    consumer.advance(5)
    assert only(table, clock).position == 5


def test_an_old_listing_is_not_believed(table: Table, clock: Watch) -> None:
    """The newest records are looked for by their names."""
    consumer = confirmed(table, clock)
    shown: list[Any] = table.store.list(f"{record_files.FOLDER}/c")
    consumer.advance(5)
    consumer.advance(6)

    class Old(Around):
        def list(self, folder: str) -> Any:
            return shown if folder.startswith(record_files.FOLDER) else super().list(folder)

    assert record_files.read_latest(Old(table.store), table.id, "c").number == 3
    assert claimed(Table(Old(table.store), table._state, clock), clock).position == 6


@pytest.mark.parametrize("name", ["99999999999999999999.json", "1.json", "notes.txt", f"{7:020d}.json.tmp"])
def test_other_files_are_left_alone(table: Table, clock: Watch, name: str) -> None:
    consumer = confirmed(table, clock)
    table.store.put_if_absent(f"{record_files.FOLDER}/c/{name}", b"x")
    consumer.advance(5)
    assert only(table, clock).position == 5
    assert name in table.store.names(f"{record_files.FOLDER}/c")
