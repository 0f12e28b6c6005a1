"""Back-pressure by a clock that the tests move, and in a real query that is stopped while it waits."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.log.support import memory_url
from tests.streaming.support import NUMBERS, PATIENCE_S, Input
from tidelog.compaction_daemon import compact
from tidelog.log import Debt, Table
from tidelog.log.errors import ConfigurationError, StoreUnavailableError
from tidelog.log.system import System
from tidelog.streaming.sink.query_state import is_running
from tidelog.streaming.sink.throttle import BackPressure, Brake, Throttle

TEN = Throttle(max_debt_files=10, max_delay_s=8.0)


class Hand(System):
    """A clock that only sleeping moves, or a test; `sleeps` are the lengths."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.sleeps: list[float] = []

    def monotonic_s(self) -> float:
        return self.seconds

    def sleep_s(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.seconds += seconds


class Owing:
    """A table whose looks find these numbers of small files, one after the other, the last one for ever."""

    def __init__(self, clock: Hand, small_files: Sequence[int], look_s: float = 0.0) -> None:
        self.looked_at_s: list[float] = []
        self._clock, self._small_files, self._look_s = clock, small_files, look_s

    def refresh(self) -> Owing:
        return self

    def debt(self) -> Debt:
        found = self._small_files[min(len(self.looked_at_s), len(self._small_files) - 1)]
        self.looked_at_s.append(self._clock.seconds)
        self._clock.seconds += self._look_s
        return owing(found)


def owing(small_files: int) -> Debt:
    return Debt(small_files + 3, small_files, small_files * 100, 0, 0, 1)


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.mark.parametrize(
    ("small_files", "delay_s"), [(0, 0), (10, 0), (11, 0.8), (15, 4), (19, 7.2), (20, 8), (21, 8), (10**9, 8)]
)
def test_the_delay_rises_linearly_to_twice_the_limit(small_files: int, delay_s: float, clock: Hand) -> None:
    assert TEN.delay_s(owing(small_files)) == pytest.approx(delay_s)
    brake = BackPressure(TEN, clock).hold(Owing(clock, [small_files]))
    assert brake.delayed_s == pytest.approx(delay_s) == sum(clock.sleeps)
    assert brake.debt == owing(small_files)
    assert brake.coalesce == (small_files > 10)


def test_a_batch_goes_on_once_the_debt_is_paid(clock: Hand) -> None:
    table = Owing(clock, [20, 20, 20, 10])
    assert BackPressure(TEN, clock).hold(table) == Brake(owing(10), 1.5, coalesce=False)
    assert table.looked_at_s == [1000.0, 1000.5, 1001.0, 1001.5]


def test_a_debt_that_shrinks_shortens_the_delay(clock: Hand) -> None:
    brake = BackPressure(TEN, clock).hold(Owing(clock, [20, 11]))
    assert brake.debt == owing(11)
    assert brake.delayed_s == pytest.approx(0.8)


def test_a_debt_that_grows_never_holds_a_batch_for_longer_than_the_bound(clock: Hand) -> None:
    brake = BackPressure(TEN, clock).hold(Owing(clock, range(11, 1000)))
    assert brake.delayed_s == pytest.approx(8.0)
    assert max(clock.sleeps) <= 0.25


def test_without_a_delay_batches_are_coalesced_all_the_same(clock: Hand) -> None:
    pressure = BackPressure(Throttle(max_debt_files=10, max_delay_s=0), clock)
    assert pressure.hold(Owing(clock, [500])) == Brake(owing(500), 0.0, coalesce=True)
    assert clock.sleeps == []


def test_without_a_throttle_nothing_is_looked_at(clock: Hand) -> None:
    table = Owing(clock, [500])
    assert BackPressure(None, clock).hold(table) == Brake(None, 0.0, coalesce=False)
    assert table.looked_at_s == []


@pytest.mark.parametrize(("look_s", "pause_s"), [(0.0, 0.5), (0.001, 0.5), (0.1, 2.0), (2.0, 40.0), (10.0, 60.0)])
def test_looking_takes_a_small_share_of_the_time(look_s: float, pause_s: float, clock: Hand) -> None:
    table, pressure = Owing(clock, [5], look_s), BackPressure(TEN, clock)
    ends = clock.seconds + 10 * (pause_s + look_s)
    while clock.seconds < ends:
        assert pressure.hold(table) == Brake(owing(5), 0.0, coalesce=False)
        clock.seconds += 0.01
    pauses = [after - before - look_s for before, after in zip(table.looked_at_s, table.looked_at_s[1:], strict=False)]
    assert len(pauses) in {8, 9, 10}
    assert all(pause == pytest.approx(pause_s, abs=0.02) for pause in pauses)


def test_after_a_delay_the_debt_is_looked_at_however_dear_that_is(clock: Hand) -> None:
    table = Owing(clock, [20, 10], look_s=10.0)
    brake = BackPressure(TEN, clock).hold(table)
    assert (brake.debt, brake.coalesce, sum(clock.sleeps)) == (owing(10), False, 8.0)
    assert table.looked_at_s == [1000.0, 1018.0]


def test_a_query_that_is_stopped_waits_no_longer(clock: Hand) -> None:
    brake = BackPressure(TEN, clock).hold(Owing(clock, [20]), lambda: clock.seconds < 1001)
    assert brake == Brake(owing(20), 1.0, coalesce=True)


@pytest.mark.parametrize("error", [StoreUnavailableError("no answer"), OSError("no route")])
def test_a_look_that_fails_holds_nothing_back(
    error: Exception, clock: Hand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table, pressure = Owing(clock, [20]), BackPressure(TEN, clock)
    assert pressure.hold(table).debt == owing(20)
    clock.seconds += 60

    def failing() -> Debt:
        raise error

    monkeypatch.setattr(table, "debt", failing)
    with caplog.at_level(logging.WARNING, "tidelog.streaming"):
        assert pressure.hold(table) == Brake(None, 0.0, coalesce=False)
    assert str(error) in caplog.text
    monkeypatch.undo()
    assert pressure.hold(table).debt is None, "not again at once"
    clock.seconds += 0.5
    assert pressure.hold(table).coalesce


def test_compaction_pays_the_debt_of_a_real_table() -> None:
    table = Table.create(memory_url(), NUMBERS)
    for number in range(8):
        table.insert([{"n": number}])

    class Compacting(Hand):
        def sleep_s(self, seconds: float) -> None:
            super().sleep_s(seconds)
            if self.seconds >= 1002:
                compact(Table.open(table.path))

    brake = BackPressure(Throttle(max_debt_files=4, max_delay_s=60), Compacting()).hold(table)
    assert brake == Brake(Debt(1, 1, brake.debt.small_bytes if brake.debt else 0, 0, 0, 10), 2.0, coalesce=False)
    assert table.version == 9


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_debt_files": 0},
        {"max_debt_files": -1},
        {"max_debt_files": 1.5},
        {"max_debt_files": True},
        {"max_debt_files": "10"},
        {"max_delay_s": -0.1},
        {"max_delay_s": 3601},
        {"max_delay_s": math.nan},
        {"max_delay_s": math.inf},
        {"max_delay_s": "1"},
        {"max_delay_s": True},
    ],
)
def test_a_throttle_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))) as raised:
        Throttle(**wrong)
    assert raised.value.advice


# --- in a query ------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_real_query_that_is_stopped_while_it_waits_ends_soon(spark: SparkSession, tmp_path: Path) -> None:
    owed = Owing(Hand(), [1000])
    waiting, brakes = Event(), list[Brake]()

    def function(batch: DataFrame, number: int) -> None:
        del number
        query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
        assert is_running(batch.sparkSession, query_id)
        waiting.set()
        pressure = BackPressure(Throttle(max_debt_files=1, max_delay_s=60))
        brakes.append(pressure.hold(owed, lambda: is_running(batch.sparkSession, query_id)))

    source = Input(tmp_path / "input").put()
    writer = source.stream(spark).writeStream.foreachBatch(function)
    query = writer.option("checkpointLocation", str(tmp_path / "cp")).start()
    assert waiting.wait(PATIENCE_S)
    time.sleep(0.5)
    started = time.monotonic()
    query.stop()
    assert time.monotonic() - started < 15, "without the look at the query it waits for the whole minute"
    assert [brake.delayed_s < 15 for brake in brakes] == [True]
    assert query.exception() is None


@pytest.mark.spark
def test_an_unknown_query_does_not_run_and_an_unknown_spark_is_taken_to_run(spark: SparkSession) -> None:
    assert not is_running(spark, "00000000-0000-0000-0000-000000000000")
    assert is_running(spark, "no uuid")
