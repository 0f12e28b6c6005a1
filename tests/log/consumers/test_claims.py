"""Registering a consumer: who owns it, where it starts, and how it comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.log.consumers.support import DAY, Watch, claimed, clean_up, confirmed, only, records, status_of
from tests.log.support import numbers
from tidelog.log import Table
from tidelog.log.consumers.administration import remove_consumer, reset_consumer
from tidelog.log.consumers.claims import claim
from tidelog.log.errors import (
    ConfigurationError,
    ConsumerInUseError,
    CorruptLogError,
    FencedError,
    HistoryExpiredError,
    TableReplacedError,
)
from tidelog.log.operations import create_table, drop_table
from tidelog.log.state.loader import load


def test_a_record_can_be_read_by_people(table: Table, clock: Watch) -> None:
    confirmed(table, clock)
    newest = records(table)[1]
    assert {name: value for name, value in newest.items() if name != "id"} == {
        "format": 1,
        "table": table.id,
        "name": "c",
        "state": "registered",
        "owner": "me",
        "confirmed": True,
        "started": True,
        "position": 3,
        "checkpoint": None,
        "positionTime": "2023-11-17T22:13:20Z",
        "heartbeat": "2023-11-26T22:13:20Z",
        "takeoverAfterMs": None,
        "kept": True,
    }
    assert table.store.read(f"_tidelog/consumers/c/{1:020d}.json").count(b"\n") > 10


def test_the_position_advances_and_never_goes_back(table: Table, clock: Watch) -> None:
    consumer = confirmed(table, clock)
    consumer.advance(5)
    consumer.advance(4)
    consumer.advance(5)
    assert consumer.position == only(table, clock).position == 5
    assert sorted(records(table)) == [0, 1, 2]


def test_old_records_are_deleted(table: Table, clock: Watch) -> None:
    consumer = confirmed(table, clock)
    for position in range(4, 10):
        consumer.advance(position)
    assert sorted(records(table)) == [4, 5, 6, 7]
    again = confirmed(table, clock)
    again.advance(10)
    assert sorted(records(table)) == [6, 7, 8, 9]


def test_nothing_but_records_is_left(table: Table, clock: Watch) -> None:
    confirmed(table, clock)
    clean_up(table)
    confirmed(table, clock)
    assert {status.name for _, status in table.store.walk("_tidelog")} == {f"{n:020d}.json" for n in range(3)}


@pytest.mark.parametrize("position", [3, 5, 2])
def test_the_same_owner_continues_where_it_is(table: Table, clock: Watch, position: int) -> None:
    confirmed(table, clock)
    again = claimed(table, clock, position=position)
    assert again.position == max(3, position)
    assert again.is_confirmed


@pytest.mark.parametrize("position", [3, 5, 2])
def test_another_owner_continues_where_the_first_one_was(table: Table, clock: Watch, position: int) -> None:
    confirmed(table, clock).release()
    other = claimed(table, clock, owner="other", position=position)
    assert other.position == 3
    assert not other.is_confirmed


def test_a_name_that_is_in_use_is_refused(table: Table, clock: Watch) -> None:
    confirmed(table, clock)
    clock.ms += 60_000
    with pytest.raises(ConsumerInUseError, match="belongs to me, which gave a sign of life 60 seconds ago") as refused:
        claimed(table, clock, owner="other")
    assert "tidelog consumers remove" in refused.value.advice
    assert (refused.value.consumer, refused.value.owner) == ("c", "me")
    assert refused.value.free_in_ms == 7 * DAY - 60_000
    assert isinstance(refused.value, ConfigurationError)


@pytest.mark.parametrize(
    ("is_confirmed", "takeover_after_ms", "free_after_ms"),
    [(False, None, 10_000), (True, None, 7 * DAY), (True, 60_000, 60_000), (False, 5_000, 5_000)],
)
def test_a_silent_owner_loses_the_name(
    table: Table, clock: Watch, is_confirmed: bool, takeover_after_ms: int | None, free_after_ms: int
) -> None:
    first = claimed(table, clock, takeover_after_ms=takeover_after_ms)
    if is_confirmed:
        first.confirm()
    clock.ms += free_after_ms - 1
    with pytest.raises(ConsumerInUseError):
        claimed(table, clock, owner="other")
    clock.ms += 1
    assert claimed(table, clock, owner="other").owner == "other"
    with pytest.raises(FencedError, match="now belongs to other"):
        first.advance(9)


def test_a_registration_that_was_never_confirmed_starts_anew(table: Table, clock: Watch) -> None:
    claimed(table, clock, position=3)
    clock.ms += 10_000
    assert claimed(table, clock, owner="other", position=5).position == 5
    assert claimed(table, clock, owner="other", position=4).position == 4
    assert claimed(table, clock, owner="other", position=6).position == 4


def test_whoever_takes_over_cannot_make_the_position_provisional(table: Table, clock: Watch) -> None:
    confirmed(table, clock, takeover_after_ms=60_000)
    clock.ms += 60_000
    claimed(table, clock, owner="second", position=9)
    clock.ms += 10_000
    assert claimed(table, clock, owner="third", position=9).position == 3


@pytest.mark.parametrize(("takeover_after_ms", "interval_ms"), [(None, 7 * DAY // 4), (60_000, 15_000)])
def test_heartbeats_are_written_when_they_are_due(
    table: Table, clock: Watch, takeover_after_ms: int | None, interval_ms: int
) -> None:
    consumer = confirmed(table, clock, takeover_after_ms=takeover_after_ms)
    clock.ms += interval_ms - 1
    consumer.heartbeat_if_due()
    assert len(records(table)) == 2
    clock.ms += 1
    consumer.heartbeat_if_due()
    assert len(records(table)) == 3
    clock.ms += interval_ms * 3
    with pytest.raises(ConsumerInUseError):
        claimed(table, clock, owner="other")


def test_a_heartbeat_does_not_confirm(table: Table, clock: Watch) -> None:
    consumer = claimed(table, clock)
    clock.ms += 3_000
    consumer.heartbeat_if_due()
    assert [record["confirmed"] for record in records(table).values()] == [False, False]


def test_a_confirmation_is_written_once(table: Table, clock: Watch) -> None:
    consumer = confirmed(table, clock)
    consumer.confirm()
    consumer.advance(3)
    assert sorted(records(table)) == [0, 1]
    confirmed(table, clock).confirm()
    assert sorted(records(table)) == [0, 1, 2]


def test_who_advances_is_confirmed(table: Table, clock: Watch) -> None:
    claimed(table, clock).advance(4)
    assert only(table, clock).is_confirmed


def test_two_processes_of_one_owner_share_it(table: Table, clock: Watch) -> None:
    first, second = confirmed(table, clock), claimed(table, clock)
    second.advance(6)
    first.advance(5)
    assert first.position == 6
    first.advance(7)
    second.heartbeat_if_due()
    second.advance(8)
    assert only(table, clock).position == 8


def test_a_released_consumer_cannot_be_used_again(table: Table, clock: Watch) -> None:
    consumer = confirmed(table, clock)
    consumer.release()
    consumer.release()
    assert (only(table, clock).owner, only(table, clock).position) == (None, 3)
    with pytest.raises(FencedError):
        consumer.advance(9)


def test_consumers_do_not_disturb_each_other(table: Table, clock: Watch) -> None:
    first, second = confirmed(table, clock, "a"), confirmed(table, clock, "b", owner="other")
    first.advance(5)
    second.advance(7)
    assert {name: found.position for name, found in status_of(table, clock).items()} == {"a": 5, "b": 7}


@pytest.mark.parametrize("name", ["", "a/b", "..", ".a", "a b", "ä", "a" * 101, "a\n", "-a", 7])
def test_a_bad_name_is_refused(table: Table, clock: Watch, name: Any) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the name of a consumer"):
        claimed(table, clock, name)


@pytest.mark.parametrize("owner", ["", "a" * 301, "a\x1b", None])
def test_a_bad_owner_is_refused(table: Table, clock: Watch, owner: Any) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the owner"):
        claimed(table, clock, owner=owner)


def test_a_position_that_does_not_exist_is_refused(table: Table, clock: Watch) -> None:
    with pytest.raises(HistoryExpiredError, match="version 11 does not exist yet"):
        claimed(table, clock, position=11)
    assert status_of(table, clock) == {}
    assert claimed(table, clock, position=10).position == 10


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"table": 7}', b'{"format": 2}', bytes(100)])
def test_an_unreadable_record_is_reported(table: Table, clock: Watch, content: bytes) -> None:
    confirmed(table, clock).advance(5)
    if content == b'{"format": 2}':
        content = json.dumps({**records(table)[2], "format": 2}).encode()
    table.store.put_if_absent(f"_tidelog/consumers/c/{3:020d}.json", content)
    with pytest.raises(CorruptLogError, match="cannot be read"):
        claimed(table, clock)
    assert only(table, clock).state == "unreadable"
    remove_consumer(table.store, table.head, "c", clock)
    assert status_of(table, clock) == {}
    assert claimed(table, clock, position=8).position == 8


def test_a_record_under_another_name_is_unreadable(table: Table, clock: Watch) -> None:
    confirmed(table, clock, "a")
    table.store.put_if_absent(f"_tidelog/consumers/b/{0:020d}.json", table.store.read(_path("a", 1)))
    assert status_of(table, clock)["b"].state == "unreadable"


def test_records_of_an_older_table_are_ignored(table: Table, clock: Watch) -> None:
    confirmed(table, clock)
    left = table.store.read(_path("c", 1))
    drop_table.drop(table.store, clock)
    create_table.create(table.store, numbers([]).schema, [], {}, clock)
    with pytest.raises(TableReplacedError):
        claim(table.store, table.head, "other", owner="me", position=3, system=clock)
    new = Table(table.store, load(table.store), clock)
    table.store.put_if_absent(_path("c", 7), left)
    assert status_of(new, clock) == {}
    assert claimed(new, clock, position=11).position == 11
    assert only(new, clock).position == 11


# --- from outside ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "position"), [(5, 5), (1, 1), ("2023-11-20T00:00:00Z", 5), ("latest", 10), ("earliest", -1), (-1, -1)]
)
def test_a_reset_moves_the_position_and_fences_the_owner(table: Table, clock: Watch, to: Any, position: int) -> None:
    consumer = confirmed(table, clock)
    assert reset_consumer(table.timeline, table.head, "c", to).position == position
    assert (only(table, clock).position, only(table, clock).owner) == (position, None)
    with pytest.raises(FencedError, match="released or reset"):
        consumer.advance(9)
    assert claimed(table, clock, owner="other").position == position


def test_a_reset_to_what_is_gone_leaves_the_consumer_where_it_was(table: Table, clock: Watch) -> None:
    consumer = confirmed(table, clock, position=8)
    clean_up(table)
    table.refresh()
    with pytest.raises(HistoryExpiredError, match="has passed version 5: the horizon is 8 and the floor is 8"):
        reset_consumer(table.timeline, table.head, "c", 5)
    consumer.advance(9)
    reset_consumer(table.timeline, table.head, "c", "earliest")
    assert only(table, clock).position == 8


def test_a_removed_consumer_stops_its_owner(table: Table, clock: Watch) -> None:
    consumer = confirmed(table, clock)
    remove_consumer(table.store, table.head, "c", clock)
    assert status_of(table, clock) == {}
    with pytest.raises(FencedError, match="was removed"):
        consumer.advance(9)
    assert claimed(table, clock, owner="other", position=7).position == 7
    with pytest.raises(FencedError, match="now belongs to other"):
        consumer.advance(9)


def test_there_must_be_a_consumer_to_reset_or_remove(table: Table, clock: Watch) -> None:
    with pytest.raises(ConfigurationError, match="has no consumer 'c'"):
        reset_consumer(table.timeline, table.head, "c", 5)
    with pytest.raises(ConfigurationError, match="has no consumer 'c'"):
        remove_consumer(table.store, table.head, "c", clock)


def _path(name: str, number: int) -> str:
    return f"_tidelog/consumers/{name}/{number:020d}.json"
