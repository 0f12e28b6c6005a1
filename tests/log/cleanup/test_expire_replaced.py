"""A clean-up of the log stops if the folder was deleted and a table created there while it was paused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.compaction_daemon.support import PassingClock
from tests.log.cleanup.support import log_names
from tests.log.support import memory_store, new_table, numbers, read_numbers, reopen
from tidelog.log import Table
from tidelog.log.cleanup import expire
from tidelog.log.errors import TableReplacedError
from tidelog.log.storage import Store

VERSIONS = 12


class Interrupted:
    """A store's `delete`, with something that happens after the third deletion."""

    def __init__(self, store: Store, happens: Callable[[], None]) -> None:
        self._delete, self._happens, self._count = store.delete, happens, 0

    def __call__(self, path: str) -> None:
        self._delete(path)
        self._count += 1
        if self._count == 3:
            self._happens()


@pytest.fixture
def clock() -> PassingClock:
    return PassingClock()


@pytest.fixture
def table(clock: PassingClock, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setattr(expire, "DELETIONS_AT_ONCE", 5)
    table = filled(memory_store(clock), clock, 0)
    table.checkpoint()
    clock.pass_s(50 * 86_400)
    return table


def filled(store: Store, clock: PassingClock, first: int) -> Table:
    table = new_table(store, system=clock)
    for number in range(first, first + VERSIONS):
        clock.pass_s(60)
        table.insert(numbers([number]))
    return table


def replaced(store: Store, clock: PassingClock) -> None:
    """What `rm -r` and another program do."""
    delete = type(store).delete
    for name in log_names(store):
        delete(store, f"_delta_log/{name}")
    filled(store, clock, 100)


def work(table: Table, clock: PassingClock) -> list[None]:
    return list(expire.expire_log(table.store, table.id, clock, lambda _: None))


@pytest.mark.parametrize("pause_s", [2.0, 3600.0])
def test_a_pause_within_a_piece(
    table: Table, clock: PassingClock, pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = table.store

    def paused() -> None:
        replaced(store, clock)
        clock.pass_s(pause_s)

    monkeypatch.setattr(store, "delete", Interrupted(store, paused))
    with pytest.raises(TableReplacedError):
        work(table, clock)
    monkeypatch.undo()
    assert read_numbers(reopen(table)) == list(range(100, 100 + VERSIONS))


def test_a_pause_between_pieces(table: Table, clock: PassingClock) -> None:
    pieces = expire.expire_log(table.store, table.id, clock, lambda _: None)
    next(pieces)
    replaced(table.store, clock)
    with pytest.raises(TableReplacedError):
        list(pieces)
    assert read_numbers(reopen(table)) == list(range(100, 100 + VERSIONS))


def test_it_goes_on_after_a_pause_without_a_replacement(
    table: Table, clock: PassingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table.store, "delete", Interrupted(table.store, lambda: clock.pass_s(3600)))
    work(table, clock)
    assert f"{VERSIONS - 1:020d}.json" not in log_names(table.store)
    assert read_numbers(reopen(table)) == list(range(VERSIONS))
