"""Consumers that hold back `expire` and `vacuum`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.log.consumers.support import (
    DAY,
    ONE_DAY,
    Watch,
    can_read,
    claimed,
    clean_up,
    confirmed,
    on,
    only,
    overwritten,
    read_after,
    records,
    status_of,
)
from tests.log.faults import Around, Paused
from tests.log.support import numbers, put_foreign
from tidelog.compaction_daemon import expire, vacuum
from tidelog.log import Table
from tidelog.log.consumers.administration import remove_consumer, reset_consumer
from tidelog.log.consumers.claims import claim
from tidelog.log.consumers.consumer import Consumer
from tidelog.log.errors import FencedError, HistoryExpiredError, StoreUnavailableError
from tidelog.log.format.actions import SetTransaction
from tidelog.log.state.loader import load
from tidelog.log.storage import FileStatus

POSITION = 3


def test_without_a_consumer_both_go_up_to_the_cut_off(table: Table) -> None:
    assert expire(table, older_than=ONE_DAY).earliest_version == 10
    assert vacuum(table, older_than=ONE_DAY).earliest_version == 10
    assert not can_read(table, POSITION)


def test_what_a_consumer_needs_stays(table: Table, clock: Watch) -> None:
    confirmed(table, clock, position=POSITION)
    expired = expire(table, older_than=ONE_DAY)
    assert (expired.earliest_version, expired.held_by, expired.released) == (2, ("c",), ())
    vacuumed = vacuum(table, older_than=ONE_DAY)
    assert (vacuumed.earliest_version, vacuumed.held_by, vacuumed.released) == (3, ("c",), ())
    assert read_after(table, POSITION) == list(range(4, 11))
    assert expired.to_dict()["held_by"] == vacuumed.to_dict()["held_by"] == ["c"]


def test_the_slowest_one_counts(table: Table, clock: Watch) -> None:
    for name, position in (("a", 7), ("b", 3), ("d", 10)):
        confirmed(table, clock, name, position=position)
    assert vacuum(table, older_than=ONE_DAY).held_by == ("a", "b")
    assert read_after(table, 3)
    remove_consumer(table.store, table.head, "b", clock)
    assert vacuum(table, older_than=ONE_DAY).earliest_version == 7
    assert read_after(table, 7) == [8, 9, 10]


def test_a_consumer_at_the_cut_off_holds_nothing_back(table: Table, clock: Watch) -> None:
    confirmed(table, clock, position=10)
    assert expire(table, older_than=ONE_DAY).held_by == ()
    report = vacuum(table, older_than=ONE_DAY)
    assert (report.held_by, report.earliest_version) == ((), 10)


def test_a_consumer_that_has_processed_nothing(table: Table, clock: Watch) -> None:
    confirmed(table, clock, position=-1)
    clean_up(table)
    assert table.refresh().changes(after=-1).count() == 19
    report = expire(table, older_than=ONE_DAY)
    assert (report.earliest_version, report.held_by) == (0, ("c",))
    assert "which consumers need (c)" in report.reason


def test_clean_up_goes_on_with_the_consumer(table: Table, clock: Watch) -> None:
    consumer = confirmed(table, clock, position=POSITION)
    for position in (3, 6, 10):
        consumer.advance(position)
        clean_up(table)
        assert can_read(table, position)
        assert not can_read(table, position - 2)


def test_a_consumer_without_a_sign_of_life_is_released(table: Table, clock: Watch) -> None:
    confirmed(table, clock, position=POSITION)
    clock.ms += 7 * DAY - 1
    assert vacuum(table, older_than=ONE_DAY, dry_run=True).held_by == ("c",)
    assert vacuum(table, older_than=ONE_DAY).held_by == ("c",)
    clock.ms += 1
    expired, vacuumed = expire(table, older_than=ONE_DAY), vacuum(table, older_than=ONE_DAY)
    assert (expired.held_by, expired.released, vacuumed.held_by, vacuumed.released) == ((), ("c",), (), ("c",))
    assert not can_read(table, POSITION)


def test_the_time_to_live_is_a_property(clock: Watch) -> None:
    table = overwritten(clock, properties={"tidelog.consumerTimeToLive": "1 hour"})
    confirmed(table, clock)
    clock.ms += 3_600_000
    assert vacuum(table, older_than=ONE_DAY).released == ("c",)


def test_heartbeats_keep_the_hold(table: Table, clock: Watch) -> None:
    consumer = confirmed(table, clock, position=POSITION)
    for _ in range(20):
        clock.ms += 2 * DAY
        consumer.heartbeat_if_due()
        clean_up(table)
    assert can_read(table, POSITION)


def test_a_released_name_still_holds(table: Table, clock: Watch) -> None:
    confirmed(table, clock, position=POSITION).release()
    clean_up(table)
    assert can_read(table, POSITION)


def test_ages_are_those_of_the_store(table: Table, clock: Watch) -> None:
    """A clean-up on a machine whose clock is weeks ahead releases nobody."""
    confirmed(table, clock, position=POSITION)
    ahead = Watch(clock.ms + 30 * DAY)
    vacuum(on(table.store, ahead), older_than=timedelta(days=31))
    assert can_read(table, POSITION)


@pytest.mark.parametrize("content", [b"", b"garbage", b'{"table": null}'])
def test_an_unreadable_record_keeps_everything(table: Table, clock: Watch, content: bytes) -> None:
    table.store.put_if_absent(f"_tidelog/consumers/odd/{5:020d}.json", content)
    confirmed(table, clock, position=8)
    expired, vacuumed = expire(table, older_than=ONE_DAY), vacuum(table, older_than=ONE_DAY)
    assert expired.held_by == vacuumed.held_by == ("c", "odd")
    assert [name for name, _ in vacuumed.unreadable] == [name for name, _ in expired.unreadable] == ["odd"]
    assert vacuumed.to_dict()["unreadable"][0]["consumer"] == "odd"
    assert can_read(table, -1)
    remove_consumer(table.store, table.head, "odd", clock)
    assert vacuum(table, older_than=ONE_DAY).earliest_version == 8


def test_a_folder_that_nobody_can_have_registered_keeps_everything(table: Table) -> None:
    table.store.put_if_absent(f"_tidelog/consumers/a b/{0:020d}.json", b"{}")
    table.store.put_if_absent("_tidelog/consumers/notes.txt", b"mine")
    assert vacuum(table, older_than=ONE_DAY).held_by == ("a b",)
    assert can_read(table, -1)


def test_what_killed_processes_left_is_deleted(table: Table, clock: Watch) -> None:
    for age_days, name in ((2, "old"), (0, "young")):
        clock.ms -= age_days * DAY
        table.store.put_if_absent(f"_tidelog/consumers/{name}.clock", b"")
        clock.ms += age_days * DAY
    vacuum(table, older_than=ONE_DAY)
    assert [status.name for status in table.store.list("_tidelog/consumers")] == ["young.clock"]


def test_a_dry_run_writes_nothing(table: Table, clock: Watch) -> None:
    confirmed(table, clock, position=POSITION)
    before = dict(table.store.walk())
    assert expire(table, older_than=ONE_DAY, dry_run=True).held_by == ("c",)
    assert vacuum(table, older_than=ONE_DAY, dry_run=True).held_by == ("c",)
    assert dict(table.store.walk()) == before


# --- coming too late -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [expire, vacuum])
def test_who_registers_behind_a_clean_up_gets_an_error(
    table: Table, clock: Watch, first: Callable[..., object]
) -> None:
    first(table, older_than=ONE_DAY)
    with pytest.raises(HistoryExpiredError, match=r"a clean-up of .* has passed version 3: the horizon is") as error:
        claimed(table, clock)
    fields = error.value.fields
    assert (fields["earliest_version"], max(fields["horizon"], fields["floor"])) == (10, 10)
    assert status_of(table, clock) == {}
    assert claimed(table, clock, position=error.value.earliest_version).position == 10


def test_the_floor_alone_is_enough(table: Table, clock: Watch) -> None:
    """For example of an expire that has not deleted anything yet."""
    put_foreign(table, SetTransaction(app_id="tidelog/floor", version=4))
    with pytest.raises(HistoryExpiredError, match="the floor is 4"):
        claimed(table, clock)
    assert claimed(table, clock, position=4).position == 4


def test_commits_that_another_engine_deleted(table: Table, clock: Watch) -> None:
    for version in range(8):
        table.store.delete(f"_delta_log/{version:020d}.json")
        if version % 2 == 0 and version:
            table.store.delete(f"_delta_log/{version:020d}.checkpoint.parquet")
    with pytest.raises(HistoryExpiredError):
        claimed(table, clock)
    assert claimed(table, clock, position=8).position == 8


def test_who_wakes_up_in_time_holds_again(table: Table, clock: Watch) -> None:
    consumer = confirmed(table, clock)
    clock.ms += 8 * DAY
    consumer.heartbeat_if_due()
    clean_up(table)
    assert can_read(table, POSITION)


@pytest.mark.parametrize("act", [Consumer.heartbeat_if_due, Consumer.release, lambda consumer: consumer.advance(4)])
def test_who_wakes_up_too_late_is_told(table: Table, clock: Watch, act: Callable[[Consumer], None]) -> None:
    consumer = confirmed(table, clock)
    clock.ms += 8 * DAY
    clean_up(table)
    with pytest.raises(HistoryExpiredError, match="has passed version"):
        act(consumer)
    assert only(table, clock).state == "withdrawn"
    with pytest.raises(FencedError):
        consumer.advance(10)
    with pytest.raises(HistoryExpiredError):
        claimed(table, clock, owner="other", position=10)
    reset_consumer(table.refresh().timeline, table.head, "c", "earliest")
    assert claimed(table, clock, owner="other").position == 10


def test_who_comes_back_too_late_is_told(table: Table, clock: Watch) -> None:
    confirmed(table, clock)
    clock.ms += 8 * DAY
    clean_up(table)
    with pytest.raises(HistoryExpiredError, match="tidelog consumers reset"):
        claimed(table, clock)
    assert only(table, clock).position == POSITION
    assert vacuum(table, older_than=ONE_DAY).held_by == ()


def no_answer() -> None:
    raise StoreUnavailableError("no answer")


def _claims(seen: Table, clock: Watch) -> Callable[[], object]:
    return lambda: claimed(seen, clock)


def _goes_on(seen: Table, clock: Watch) -> Callable[[], object]:
    return confirmed(seen, clock).heartbeat_if_due


@pytest.mark.parametrize("comeback", [_claims, _goes_on])
def test_who_comes_back_too_late_and_cannot_look_is_told_the_next_time(
    clock: Watch, comeback: Callable[[Table, Watch], Callable[[], object]]
) -> None:
    """A record that was written, but whose writer could not look at the log, is no proof for the one after it."""
    before, left = 0, 0
    while True:
        table = overwritten(clock, days=4)
        confirmed(table, clock)
        paused = Paused(table.store, before=-1, meanwhile=no_answer)
        act = comeback(on(paused, clock), clock)
        clock.ms += 8 * DAY
        clean_up(table)
        known = len(records(table))
        paused.calls, paused.before = 0, before
        try:
            act()
        except HistoryExpiredError:
            if paused.calls <= before:
                break
        except StoreUnavailableError:
            left += len(records(table)) > known
        clock.ms += 5 * DAY
        with pytest.raises((HistoryExpiredError, FencedError)):
            act()
        with pytest.raises(HistoryExpiredError):
            claimed(table, clock)
        before += 1
    assert left


@pytest.mark.parametrize("comeback", [_claims, _goes_on])
def test_who_comes_back_in_time_is_kept_from_then_on(
    table: Table, clock: Watch, comeback: Callable[[Table, Watch], Callable[[], object]]
) -> None:
    """Though the horizon passes it, which the next owner must not take for its end."""
    confirmed(table, clock)
    act = comeback(table, clock)
    clock.ms += 8 * DAY
    act()
    put_foreign(table, SetTransaction(app_id="tidelog/horizon", version=8))
    assert claimed(table, clock).position == only(table, clock).position
    clean_up(table)
    assert can_read(table, only(table, clock).position or 0)


def test_a_reset_that_cannot_look_is_no_proof(table: Table, clock: Watch) -> None:
    """A clean-up comes before its record, and then the log does not answer."""
    confirmed(table, clock, position=10)

    class Late(Around):
        is_down = False

        def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
            clean_up(table)
            self.is_down = True
            super().put_if_absent(path, content, durable=durable)

        def list(self, folder: str) -> list[FileStatus]:
            if self.is_down and folder == "_delta_log":
                raise StoreUnavailableError("no answer")
            return super().list(folder)

    seen = on(Late(table.store), clock)
    with pytest.raises(StoreUnavailableError):
        reset_consumer(seen.timeline, seen.head, "c", POSITION)
    assert only(table, clock).position == POSITION
    with pytest.raises(HistoryExpiredError):
        claimed(table, clock)


# --- at the same time ------------------------------------------------------------------------------------------------


def _positions(table: Table, clock: Watch) -> list[int]:
    return [found.position for found in status_of(table, clock).values() if found.position is not None]


@pytest.mark.parametrize("clean", [expire, vacuum])
def test_a_clean_up_during_a_claim(clock: Watch, clean: Callable[..., object]) -> None:
    """Whichever call the claim pauses at, a consumer that was registered can read, and one that was refused is gone."""
    outcomes, before = set(), 0
    while True:
        table = overwritten(clock, days=4)
        paused = Paused(table.store, before=before, meanwhile=lambda: clean(table, older_than=ONE_DAY))  # noqa: B023
        try:
            claimed(on(paused, clock), clock).confirm()
        except HistoryExpiredError:
            assert _positions(table, clock) == []
            outcomes.add("refused")
        else:
            assert can_read(table, POSITION)
            outcomes.add("registered")
        if paused.calls <= before:
            break
        before += 1
    assert outcomes == {"refused", "registered"}


@pytest.mark.full
@pytest.mark.parametrize("clean", [expire, vacuum])
@pytest.mark.parametrize("again", [False, True], ids=["", "cleaned up before"])
def test_a_claim_during_a_clean_up(clock: Watch, clean: Callable[..., object], again: bool) -> None:
    """The other way round; and then the consumer restarts, and everything is cleaned up again."""
    outcomes, before = set(), 0
    while True:
        table = overwritten(clock, days=4)
        if again:
            clean(table, older_than=timedelta(days=4))  # up to version 2
            clock.ms += 2 * DAY
        position = 2 if again else POSITION
        done: list[str] = []

        def register() -> None:
            try:
                confirmed(table, clock, position=position)  # noqa: B023
                done.append("registered")  # noqa: B023
            except HistoryExpiredError:
                done.append("refused")  # noqa: B023

        paused = Paused(table.store, before=before, meanwhile=register)
        clean(on(paused, clock), older_than=ONE_DAY)
        if not done:
            break
        outcomes.add(done[0])
        if done == ["registered"]:
            assert can_read(table, position)
            claimed(table, clock, position=position)
            clean_up(table)
            assert can_read(table, position)
        else:
            assert _positions(table, clock) == []
        before += 1
    assert outcomes == {"refused", "registered"}


@pytest.mark.parametrize("clean", [expire, vacuum])
def test_a_clean_up_during_a_reset(clock: Watch, clean: Callable[..., object]) -> None:
    outcomes, before = set(), 0
    while True:
        table = overwritten(clock, days=4)
        confirmed(table, clock, position=4)
        paused = Paused(table.store, before=before, meanwhile=lambda: clean(table, older_than=ONE_DAY))  # noqa: B023
        seen = on(paused, clock)
        try:
            reset_consumer(seen.timeline, seen.head, "c", POSITION)
        except HistoryExpiredError:
            assert _positions(table, clock) == [4]
            outcomes.add("refused")
        else:
            assert can_read(table, POSITION)
            outcomes.add("moved")
        if paused.calls <= before:
            break
        before += 1
    assert outcomes == {"refused", "moved"}


@pytest.mark.parametrize("clean", [expire, vacuum])
def test_a_consumer_that_wakes_up_during_a_clean_up(clock: Watch, clean: Callable[..., object]) -> None:
    outcomes, before = set(), 0
    while True:
        table = overwritten(clock, days=4)
        consumer = confirmed(table, clock)
        clock.ms += 8 * DAY
        done: list[str] = []

        def wake_up() -> None:
            try:
                consumer.heartbeat_if_due()  # noqa: B023
                done.append("kept")  # noqa: B023
            except HistoryExpiredError:
                done.append("told")  # noqa: B023

        clean(on(Paused(table.store, before=before, meanwhile=wake_up), clock), older_than=ONE_DAY)
        if not done:
            break
        outcomes.add(done[0])
        assert done == ["told"] or can_read(table, POSITION)
        before += 1
    assert outcomes == {"kept", "told"}


class CrashError(Exception):
    """The process dies."""


def crash() -> None:
    raise CrashError


def test_a_claim_that_dies_at_any_call_is_no_trap(clock: Watch) -> None:
    """Ten seconds later the name is free, and starts where the next owner says."""
    before, left = 0, 0
    while True:
        table = overwritten(clock, days=4)
        head = table.head
        try:
            claim(Paused(table.store, before=before, meanwhile=crash), head, "c", owner="a", position=3, system=clock)
        except CrashError:
            clean_up(table)
            left += bool(records(table))
            clock.ms += 10_000
            assert claimed(table, clock, owner="other", position=4).position == 4
        else:
            break
        before += 1
    assert left


def test_writers_are_not_disturbed(table: Table, clock: Watch) -> None:
    confirmed(table, clock)
    transaction = table.begin().insert(numbers([11]))
    expire(table, older_than=ONE_DAY)
    assert load(table.store).head.transactions["tidelog/floor"].version == 2
    transaction.commit()
    floors = [found for found in table.refresh().history() if found.operation == "EXPIRE"]
    assert [(found.data_change, found.time_version, str(found.operation_class)) for found in floors] == [
        (False, None, "NONE")
    ]


def test_a_listing_that_misses_a_commit_passes_nobody(table: Table, clock: Watch) -> None:
    """As a listing does that runs during commits. The versions before it are not gone."""

    class Misses(Around):
        def list(self, folder: str) -> list[FileStatus]:
            return [status for status in super().list(folder) if status.name != f"{9:020d}.json"]

    confirmed(table, clock, position=POSITION)
    seen = on(Misses(table.store), clock)
    assert vacuum(seen, older_than=ONE_DAY).earliest_version == POSITION
    assert read_after(seen, POSITION) == read_after(table, POSITION)
