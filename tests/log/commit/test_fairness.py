"""No live writer starves: simulated races of eight writers, of which one is slow, and of which some are killed."""

from __future__ import annotations

import pytest

from tests.log.commit.racing_writers import Race
from tests.log.support import Clock, memory_store, new_table, numbers
from tidelog.log import Table
from tidelog.log.commit import loop

WRITERS = 8
SECONDS = 12.0
# The requests of the slow writer take longer than the others leave between two commits.
ONE_IS_SLOW = (3.0, *[1.0] * (WRITERS - 1))
# A writer asks for its turn, may find the request of a writer that died, and then comes after one commit of each other.
LONGEST_GAP_S = loop.ASK_AFTER_S + loop.TURN_S + 1.0


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kills_every_s", [None, 1.0], ids=["", "kills"])
@pytest.mark.parametrize("slowness", [[1.0] * WRITERS, ONE_IS_SLOW], ids=["equal", "one slow"])
def test_every_live_writer_commits(slowness: list[float], kills_every_s: float | None, seed: int) -> None:
    racers = Race(seed).run(SECONDS, slowness, kills_every_s=kills_every_s)
    assert not any(racer.gave_up for racer in racers)
    assert max(racer.longest_gap_s for racer in racers) < LONGEST_GAP_S


def test_without_turns_the_slow_writer_never_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop.Turn, "ask_if_due", lambda _: False)
    racers = Race(0).run(SECONDS, ONE_IS_SLOW)
    assert racers[0].commits == 0


def table_with_a_dead_writer() -> tuple[Table, Clock]:
    clock = Clock()
    table = new_table(memory_store(clock), system=clock)
    table.store.put_if_absent(f"{loop.TURN_FOLDER}/dead", b"")
    return table, clock


def test_the_request_of_a_dead_writer_costs_one_wait() -> None:
    table, clock = table_with_a_dead_writer()
    table.insert(numbers([1]))
    assert sum(clock.slept_s) == pytest.approx(loop.TURN_S)
    assert table.store.names(loop.TURN_FOLDER) == []
    table.insert(numbers([2]))
    assert sum(clock.slept_s) == pytest.approx(loop.TURN_S)


def test_writers_of_a_quiet_table_do_not_look() -> None:
    table, clock = table_with_a_dead_writer()
    clock.ms += loop.BUSY_MS
    table.insert(numbers([1]))
    assert not clock.slept_s
