"""Several daemons on the same tables: leases, epochs, heartbeats."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.compaction_daemon.support import SCHEMA, ManualClock, memory_table, numbers_of, put
from tidelog.compaction_daemon import Daemon, DaemonConfig, StepReport, TableState
from tidelog.compaction_daemon.leases import Held, Lease, lease_of, new_owner
from tidelog.compaction_daemon.process.kept_leases import KeptLeases
from tidelog.log import Table
from tidelog.log.system import REAL_SYSTEM, System

PATIENCE_S = 30


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def kept(clock: ManualClock) -> Iterator[KeptLeases]:
    leases = KeptLeases(new_owner(clock), 15.0, clock)
    yield leases
    leases.release_all()


def with_debt() -> Table:
    table = memory_table()
    put(table, 1)
    put(table, 2)
    return table


def test_a_table_of_another_daemon_is_left_to_it(clock: ManualClock) -> None:
    table, idle = with_debt(), memory_table()
    other = Lease.take(table, owner="other")
    assert isinstance(other, Lease)
    daemon = Daemon([table, idle], clock=clock)
    step, _ = daemon.step().tables
    assert (step.state, step.error, step.did_anything) == (TableState.ELSEWHERE, None, False)
    status = daemon.status().tables
    assert {each.path: each.held_by for each in status} == {table.path: "other", idle.path: None}
    other.release()
    assert [step.path for step in daemon.step().tables if step.compaction.did_anything] == [table.path]


def test_a_silent_daemon_is_followed_by_another_with_a_higher_epoch(clock: ManualClock) -> None:
    table = with_debt()
    silent = Lease.take(table, owner="silent", ttl_s=15.0)
    assert isinstance(silent, Lease)
    daemon = Daemon([table], clock=clock)
    for _ in range(3):
        assert not daemon.step().did_anything
        clock.seconds += 5
    report = daemon.step()
    assert report.tables[0].compaction.did_anything
    assert [record.operation for record in table.refresh().history(limit=2)] == ["OPTIMIZE", "TAKE OVER"]
    assert numbers_of(table) == [1, 2]


def test_a_step_of_a_program_keeps_no_lease(clock: ManualClock) -> None:
    table = with_debt()
    Daemon([table], clock=clock).step()
    found = lease_of(table)
    assert found is not None
    assert found.state == "released"
    put(table, 3)
    put(table, 4)
    assert Daemon([table], config=DaemonConfig(growth=1.0), clock=clock).step().did_anything


def test_a_table_without_work_costs_no_lease(tmp_path: Path, clock: ManualClock) -> None:
    table = Table.create(str(tmp_path / "t"), SCHEMA, partition_by=["part"])
    put(table, 1)
    Daemon([table], clock=clock).step()
    assert lease_of(table) is None


def test_a_lease_is_kept_while_the_table_needs_it(kept: KeptLeases, clock: ManualClock) -> None:
    table = memory_table()
    first = kept.take(table)
    assert isinstance(first, Lease)
    clock.seconds += 4
    kept.release_quiet()
    assert kept.take(table) is first
    assert kept.epoch(table.path) == first.epoch
    clock.seconds += 15
    kept.release_quiet()
    assert kept.epoch(table.path) is None
    assert isinstance(Lease.take(table, owner="other"), Lease)


def test_only_a_few_leases_are_kept(kept: KeptLeases, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also within one round."""
    monkeypatch.setattr("tidelog.compaction_daemon.process.kept_leases.MOST_KEPT", 2)
    tables = [memory_table() for _ in range(3)]
    for table in tables:
        assert isinstance(kept.take(table), Lease)
    assert [kept.epoch(table.path) is None for table in tables] == [True, False, False]


def test_two_daemons_share_busy_tables_evenly(clock: ManualClock) -> None:
    tables = [memory_table() for _ in range(5)]
    first, second = (KeptLeases(new_owner(clock), 15.0, clock) for _ in range(2))
    first.asks = second.asks = True

    def rounds(leases: KeptLeases, *, others: KeptLeases) -> list[bool]:
        """Which tables it has after a round."""
        for lease in others._leases.values():
            lease.renew()
        has = [isinstance(leases.take(table), Lease) for table in tables]
        leases.share()
        others.share()
        return has

    assert rounds(first, others=second) == [True] * 5
    assert rounds(second, others=first) == [False] * 5
    clock.seconds += 5
    # It gives up half, and stays away from these tables, although nobody has them yet.
    assert rounds(first, others=first) == [True] * 5
    assert rounds(first, others=second) == [False, False, True, True, True]
    clock.seconds += 5
    assert rounds(second, others=first) == [True, True, False, False, False]
    # 3 and 2 are fair.
    for _ in range(20):
        clock.seconds += 5
        assert rounds(first, others=second) == [False, False, True, True, True]
        assert rounds(second, others=first) == [True, True, False, False, False]
    first.release_all()
    second.release_all()


def test_tables_that_nobody_came_for_are_taken_again(clock: ManualClock) -> None:
    tables = [memory_table() for _ in range(2)]
    leases = KeptLeases(new_owner(clock), 15.0, clock)
    for table in tables:
        lease = leases.take(table)
        assert isinstance(lease, Lease)
        Lease.take(table, owner="other", keeps=0)
        lease.renew()
    leases.share()
    given = leases.take(tables[0])
    assert isinstance(given, Held)
    assert (given.owner, given.free_in_s) == ("other", 30)
    clock.seconds += 30
    assert isinstance(leases.take(tables[0]), Lease)
    leases.release_all()


def test_a_second_daemon_gets_work_from_a_busy_one() -> None:
    tables = [memory_table() for _ in range(4)]
    config = DaemonConfig(interval_s=0.01, growth=1.0, core_share=1.0, lease_ttl_s=1.0)
    busy, helped = threading.Event(), threading.Event()
    compacted: set[str] = set()

    def write() -> None:
        for number, table in enumerate(tables):
            put(table, number)

    def first_on_step(report: StepReport) -> None:
        compacted.update(step.path for step in report.tables if step.compaction.did_anything)
        if len(compacted) == len(tables):
            busy.set()
        write()

    def second_on_step(report: StepReport) -> None:
        if any(step.compaction.did_anything for step in report.tables):
            helped.set()

    write()
    paths = [table.path for table in tables]
    first = Daemon(paths, config=config, on_step=first_on_step)
    second = Daemon(paths, config=config, on_step=second_on_step)
    with ThreadPoolExecutor(2) as pool:
        try:
            running = [pool.submit(first.run)]
            assert busy.wait(PATIENCE_S)
            running.append(pool.submit(second.run))
            assert helped.wait(PATIENCE_S)
        finally:
            first.stop()
            second.stop()
        for each in running:
            each.result(PATIENCE_S)


def test_a_new_table_at_the_path_needs_a_new_lease(tmp_path: Path, kept: KeptLeases) -> None:
    path = str(tmp_path / "t")
    old = kept.take(Table.create(path, SCHEMA, partition_by=["part"]))
    Table.drop(path)
    new = kept.take(Table.create(path, SCHEMA, partition_by=["part"]))
    assert isinstance(old, Lease)
    assert isinstance(new, Lease)
    assert new is not old
    assert isinstance(Lease.take(Table.open(path), owner="other"), Held)


def test_heartbeats_are_commits_on_a_quiet_table_only() -> None:
    table = memory_table()
    put(table, 1)
    version = table.refresh().version

    class Later(System):
        ahead_ms = 0

        def now_ms(self) -> int:
            return REAL_SYSTEM.now_ms() + self.ahead_ms

    clock = Later()
    daemon = Daemon([table], config=DaemonConfig(heartbeat_s=60), clock=clock)
    daemon.step()
    assert table.refresh().version == version
    before = table.changes(after=version).complete_until
    clock.ahead_ms = 61_000
    daemon.step()
    changes = table.changes(after=version)
    assert table.version == version + 1
    assert changes.complete_until > before
    assert changes.to_arrow().num_rows == 0
