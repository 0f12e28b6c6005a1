"""Stores that do not answer hold back no table of another store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.compaction_daemon.support import memory_table, put
from tidelog.compaction_daemon import Daemon, DaemonConfig, StepReport
from tidelog.compaction_daemon.process import daemon as daemon_module
from tidelog.compaction_daemon.process.daemon import STALLED_S, Looks, looks_in_order
from tidelog.compaction_daemon.process.watched_tables import WatchedTable
from tidelog.log import Table
from tidelog.log.errors import StoreUnavailableError
from tidelog.log.system import System

PATIENCE_S = 30


class Stores:
    """Tables whose path has `dead` in it do not answer until they are let; then there is an error."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.is_asked = threading.Event()

    def look(self, watched: WatchedTable) -> Table | Exception:
        if "dead" in watched.path:
            self.is_asked.set()
            assert self.let.wait(PATIENCE_S)
            return StoreUnavailableError("down", advice="wait", path=watched.path)
        return ValueError(watched.path)


@pytest.fixture
def stores() -> Iterator[Stores]:
    stores = Stores()
    yield stores
    stores.let.set()


def watched(*paths: str) -> list[WatchedTable]:
    return [WatchedTable(f"memory://{path}", None, DaemonConfig(), System()) for path in paths]


def test_looks_in_order_are_made_side_by_side() -> None:
    """More than there are threads; the first looks end only after those behind them have begun."""
    tables = watched(*(str(number) for number in range(40)))
    both = threading.Barrier(2)

    def look(table: WatchedTable) -> Exception:
        if table in tables[:2]:
            both.wait(PATIENCE_S)
        return ValueError(table.path)

    assert [table for table, _ in looks_in_order(look, tables)] == tables


def test_a_look_that_takes_long_is_left_for_later(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_module, "_PATIENCE_S", 0.05)
    tables, woken = watched("dead", "a", "b"), threading.Event()
    with Looks(stores.look, System(), woken.set) as found:
        assert {table for table, _ in found.ready(tables)} == set(tables[1:])
        assert list(found.under_way) == tables[:1]
        assert stores.is_asked.wait(PATIENCE_S)
        assert (found.has_ready, len(found.begun_s)) == (False, 1)
        stores.let.set()
        assert woken.wait(PATIENCE_S)
        assert found.has_ready
        assert [table for table, _ in found.ready([])] == tables[:1]
        assert not found.under_way


def test_tables_that_could_not_be_opened_are_looked_at_apart(stores: Stores) -> None:
    """However many there are, and without any patience with them."""
    bad, good = watched(*(f"dead-{number}" for number in range(40))), watched("a", "b")
    stores.let.set()
    with Looks(stores.look, System(), lambda: None) as found:
        assert len(list(found.ready(bad))) == len(bad)
        stores.let.clear()
        stores.is_asked.clear()
        assert {table for table, _ in found.ready([*bad, *good])} == set(good)
        assert stores.is_asked.wait(PATIENCE_S)
        assert 0 < len(found.begun_s) < 8
        stores.let.set()


@pytest.mark.parametrize("before", ["before", "during"])
def test_a_daemon_works_on_while_a_store_does_not_answer(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    monkeypatch.setattr(daemon_module, "_PATIENCE_S", 0.05)
    newest = WatchedTable.newest

    def looked(table: WatchedTable) -> Table:
        if "dead" in table.path:
            found = stores.look(table)
            assert isinstance(found, Exception)
            raise found
        return newest(table)

    monkeypatch.setattr(WatchedTable, "newest", looked)
    good = memory_table()
    put(good, 0)
    numbers = iter(range(1, 6))
    steps: list[StepReport] = []

    def on_step(report: StepReport) -> None:
        steps.append(report)
        number = next(numbers, None)
        if number is None:
            daemon.stop()
        else:
            put(good, number)

    config = DaemonConfig(interval_s=0.01, growth=1.0, core_share=1.0)
    daemon = Daemon([*(f"memory://dead-{number}" for number in range(12)), good.path], config=config, on_step=on_step)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(daemon.run)
        if before == "before":
            assert stores.is_asked.wait(PATIENCE_S)
            stores.let.set()
        running.result(PATIENCE_S)
    compacted = [step for report in steps for step in report.tables if step.did_anything]
    assert {step.path for step in compacted} == {good.path}


def test_a_look_that_hangs_makes_the_daemon_hang(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_module, "_PATIENCE_S", 0.05)

    class Later(System):
        ahead_s = 0.0

        def monotonic_s(self) -> float:
            return super().monotonic_s() + self.ahead_s

    clock = Later()
    daemon = Daemon(["memory://dead"], clock=clock)
    monkeypatch.setattr(daemon._stepper, "look", stores.look)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(daemon.run)
        assert stores.is_asked.wait(PATIENCE_S)
        assert not daemon.status().stalled
        clock.ahead_s = STALLED_S + 1
        assert daemon.status().stalled
        stores.let.set()
        daemon.stop()
        running.result(PATIENCE_S)
    assert not daemon.status().stalled
