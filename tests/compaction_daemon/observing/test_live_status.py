"""What is looked up of watched tables, and how rarely; when a daemon is healthy."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.compaction_daemon.observing.tables import NOW, busy_table, daemon_status, lost, put_rows, table_status
from tests.compaction_daemon.support import memory_table
from tidelog.compaction_daemon import TableState
from tidelog.compaction_daemon.observing import live_status
from tidelog.compaction_daemon.observing.live_status import FactsCache, health_builtins
from tidelog.log import Table
from tidelog.log.commit import conflict_ledger
from tidelog.log.commit.conflict_ledger import Lost, LostRace
from tidelog.log.errors import DataFileDamagedError, StoreUnavailableError
from tidelog.log.system import REAL_SYSTEM, System


class Watch(System):
    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic_s(self) -> float:
        return self.seconds


class Openings:
    """Opens tables and counts how often."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.error: StoreUnavailableError | None = None

    def __call__(self, path: str) -> Table:
        self.paths.append(path)
        if self.error:
            raise self.error
        return Table.open(path)


def test_lag_and_losses_of_a_table() -> None:
    table = busy_table()
    found = FactsCache(Table.open).of(daemon_status(table_status(table.path)))[table.path]
    assert (found.version, len(found.consumers)) == (table.version, 2)
    assert found.lag_versions > live_status._LAG_COMMITS
    assert found.lag_seconds > 0
    assert found.losses == {("UPDATE_DELETE", "UPDATE_DELETE"): 1}


def test_a_loss_is_counted_once() -> None:
    watch, table = Watch(), busy_table(rounds=2)
    cache, status = FactsCache(Table.open, watch), daemon_status(table_status(table.path))
    for expected in (1, 1, 2):
        if expected == 2:
            lost(table)
        assert sum(cache.of(status)[table.path].losses.values()) == expected
        watch.seconds += 1000


def lose(table: Table, when_ms: int) -> None:
    """An entry of an operation that lost at this time, by its own clock."""
    entry = LostRace(
        when_ms=when_ms,
        base_version=0,
        winning_version=1,
        policy=None,
        earlier="INSERT",
        later="MINOR",
        operation="x",
        outcome=Lost.CONFLICT,
    )
    conflict_ledger.append(table.store, REAL_SYSTEM, entry)


def test_losers_with_other_clocks_count() -> None:
    watch, table, now_ms = Watch(), memory_table(), REAL_SYSTEM.now_ms()
    cache, status = FactsCache(Table.open, watch), daemon_status(table_status(table.path))
    lose(table, now_ms)
    assert cache.of(status)[table.path].losses == {("INSERT", "MINOR"): 1}
    lose(table, now_ms)
    lose(table, now_ms - 60_000)
    watch.seconds += 1000
    assert cache.of(status)[table.path].losses == {("INSERT", "MINOR"): 3}


def test_many_losses_are_counted_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_status, "_LOSSES_AT_A_TIME", 2)
    watch, table = Watch(), memory_table()
    cache, status = FactsCache(Table.open, watch), daemon_status(table_status(table.path))
    for entries, expected in ((3, 2), (5, 4), (0, 6), (0, 7), (0, 7)):
        for _ in range(entries):
            lose(table, REAL_SYSTEM.now_ms())
        watch.seconds += 1000
        assert sum(cache.of(status)[table.path].losses.values()) == expected


def test_what_others_write_into_the_ledger_makes_no_new_label() -> None:
    table = busy_table(rounds=1)
    (name,) = table.store.names("_tidelog/conflicts")
    entry = table.store.read(f"_tidelog/conflicts/{name}").replace(b'"UPDATE_DELETE"', b'"<x>"')
    table.store.put_if_absent("_tidelog/conflicts/9999999999999-00000000-0000-0000-0000-000000000000.json", entry)
    (other,) = (
        FactsCache(Table.open).of(daemon_status(table_status(table.path)))[table.path].losses.keys()
        - {("UPDATE_DELETE", "UPDATE_DELETE")}
    )  # fmt: skip
    assert other == ("OTHER", "OTHER")


def test_a_quiet_table_is_looked_at_every_quarter_of_an_hour() -> None:
    watch, openings = Watch(), Openings()
    table = busy_table(rounds=1)
    for name in ("billing", "search"):
        for file in table.store.names(f"_tidelog/consumers/{name}"):
            table.store.delete(f"_tidelog/consumers/{name}/{file}")
    cache, status = FactsCache(openings, watch), daemon_status(table_status(table.path, version=table.version))
    for seconds, looks in ((0, 1), (899, 1), (900, 2), (900, 2)):
        watch.seconds = seconds
        cache.of(status)
        assert len(openings.paths) == looks
    put_rows(table, 900)
    changed = daemon_status(table_status(table.path, version=table.version + 1))
    for seconds, looks in ((914, 2), (915, 3), (920, 3)):
        watch.seconds = seconds
        cache.of(changed)
        assert len(openings.paths) == looks


def test_tables_that_cannot_be_read_are_not_looked_at() -> None:
    openings = Openings()
    silent = table_status("/silent", TableState.FAILING, error_code=StoreUnavailableError.code)
    status = daemon_status(silent, table_status("/gone", TableState.MISSING), table_status("/x", version=None))
    assert FactsCache(openings).of(status) == {}
    assert openings.paths == []


def test_a_table_that_fails_is_looked_at_if_its_log_can_be_read() -> None:
    watch, table = Watch(), busy_table(rounds=1)
    status = daemon_status(table_status(table.path, TableState.FAILING, error_code=DataFileDamagedError.code))
    cache = FactsCache(Table.open, watch)
    before = cache.of(status)[table.path]
    put_rows(table, 900)
    watch.seconds += 30
    assert cache.of(status)[table.path].lag_versions == before.lag_versions + 1


def test_a_table_that_was_never_read_has_no_facts() -> None:
    openings = Openings()
    openings.error = StoreUnavailableError("no answer", advice="wait")
    assert FactsCache(openings).of(daemon_status(table_status("/x"))) == {}
    assert openings.paths == ["/x"]


def test_a_table_without_a_table_has_no_facts() -> None:
    table = busy_table(rounds=1)
    cache = FactsCache(Table.open)
    assert cache.of(daemon_status(table_status(table.path)))
    assert cache.of(daemon_status(table_status(table.path, TableState.MISSING, version=None))) == {}


def test_a_bounded_number_of_tables_is_looked_at_and_in_turn() -> None:
    watch, openings = Watch(), Openings()
    openings.error = StoreUnavailableError("no answer", advice="wait")
    cache, status = FactsCache(openings, watch), daemon_status(*(table_status(f"/{n}") for n in range(60)))
    for looks in (25, 50, 60, 60):
        cache.of(status)
        assert len(openings.paths) == len(set(openings.paths)) == looks


def test_a_table_that_fails_keeps_what_was_known() -> None:
    watch, openings = Watch(), Openings()
    table = busy_table(rounds=1)
    cache, status = FactsCache(openings, watch), daemon_status(table_status(table.path))
    before = cache.of(status)[table.path]
    openings.error = StoreUnavailableError("no answer", advice="wait")
    watch.seconds = 1000
    assert cache.of(status)[table.path].losses == before.losses
    assert len(openings.paths) == 2


def test_a_table_that_is_gone_is_forgotten() -> None:
    table = busy_table(rounds=1)
    cache = FactsCache(Table.open)
    assert cache.of(daemon_status(table_status(table.path)))
    assert cache.of(daemon_status()) == {}
    assert cache._known == {}


def test_a_daemon_that_makes_steps_is_healthy() -> None:
    found = health_builtins(daemon_status(table_status("/a")))
    assert (found["healthy"], found["reason"], found["tables"]) == (True, None, {"watched": 1})


def test_a_table_that_fails_does_not_make_it_unhealthy() -> None:
    found = health_builtins(
        daemon_status(table_status("/a", TableState.FAILING), table_status("/b", TableState.MISSING))
    )
    assert found["healthy"]
    assert found["tables"] == {"failing": 1, "missing": 1}


def test_a_loop_that_does_not_get_on_is_unhealthy() -> None:
    found = health_builtins(daemon_status(stalled=True))
    assert (found["healthy"], found["reason"]) == (False, "a step takes longer than it should ever take")


@pytest.mark.parametrize("last_step", [None, NOW - timedelta(days=1)])
def test_a_daemon_with_nothing_to_do_is_healthy(last_step: datetime | None) -> None:
    assert health_builtins(daemon_status(last_step=last_step))["healthy"]
