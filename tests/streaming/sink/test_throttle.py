"""Back-pressure with a manual clock, and in a real query that is stopped while it waits."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.log.support import memory_url
from tests.streaming.support import NUMBERS, Input, wait_until
from tidelog.compaction_daemon import compact
from tidelog.log import Debt, Table
from tidelog.log.errors import ConfigurationError, StoreUnavailableError
from tidelog.log.system import System
from tidelog.streaming.executors.session import is_running
from tidelog.streaming.sink.throttle import BackPressure, Brake, Throttle

TEN = Throttle(max_debt_files=10, max_delay_s=8.0)


class ManualClock(System):
    """A clock that only sleeps and tests move; `sleeps` has the durations."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.sleeps: list[float] = []

    def monotonic_s(self) -> float:
        return self.seconds

    def sleep_s(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.seconds += seconds


class FakeTable:
    """A table whose measurements find these numbers of small files in turn, and then always the last one.

    `measured_at_s` has the time of each measurement, which takes `duration_s`.
    """

    def __init__(self, clock: ManualClock, small_files: Sequence[int], duration_s: float = 0.0) -> None:
        self.measured_at_s: list[float] = []
        self._clock, self._small_files, self._duration_s = clock, small_files, duration_s

    def refresh(self) -> FakeTable:
        return self

    def debt(self) -> Debt:
        found = self._small_files[min(len(self.measured_at_s), len(self._small_files) - 1)]
        self.measured_at_s.append(self._clock.seconds)
        self._clock.seconds += self._duration_s
        return debt_of(found)


def debt_of(small_files: int) -> Debt:
    return Debt(small_files + 3, small_files, small_files * 100, 0, 0, 1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.mark.parametrize(
    ("small_files", "delay_s"), [(0, 0), (10, 0), (11, 0.8), (15, 4), (19, 7.2), (20, 8), (21, 8), (10**9, 8)]
)
def test_the_delay_rises_linearly_to_twice_the_limit(small_files: int, delay_s: float, clock: ManualClock) -> None:
    assert TEN.delay_s(debt_of(small_files)) == pytest.approx(delay_s)
    brake = BackPressure(TEN, clock).hold(FakeTable(clock, [small_files]))
    assert brake.delayed_s == pytest.approx(delay_s) == sum(clock.sleeps)
    assert brake.debt == debt_of(small_files)
    assert brake.coalesce == (small_files > 10)


def test_a_batch_stops_waiting_once_compaction_has_reduced_the_debt(clock: ManualClock) -> None:
    table = FakeTable(clock, [20, 20, 20, 10])
    assert BackPressure(TEN, clock).hold(table) == Brake(debt_of(10), 1.5, coalesce=False)
    assert table.measured_at_s == [1000.0, 1000.5, 1001.0, 1001.5]


def test_a_debt_that_shrinks_shortens_the_delay(clock: ManualClock) -> None:
    brake = BackPressure(TEN, clock).hold(FakeTable(clock, [20, 11]))
    assert brake.debt == debt_of(11)
    assert brake.delayed_s == pytest.approx(0.8)


def test_a_growing_debt_never_delays_a_batch_beyond_the_limit(clock: ManualClock) -> None:
    brake = BackPressure(TEN, clock).hold(FakeTable(clock, range(11, 1000)))
    assert brake.delayed_s == pytest.approx(8.0)
    assert max(clock.sleeps) <= 0.25


def test_with_a_delay_of_zero_batches_are_still_coalesced(clock: ManualClock) -> None:
    pressure = BackPressure(Throttle(max_debt_files=10, max_delay_s=0), clock)
    assert pressure.hold(FakeTable(clock, [500])) == Brake(debt_of(500), 0.0, coalesce=True)
    assert clock.sleeps == []


def test_without_a_throttle_the_debt_is_not_measured(clock: ManualClock) -> None:
    table = FakeTable(clock, [500])
    assert BackPressure(None, clock).hold(table) == Brake(None, 0.0, coalesce=False)
    assert table.measured_at_s == []


@pytest.mark.parametrize(("duration_s", "pause_s"), [(0.0, 0.5), (0.001, 0.5), (0.1, 2.0), (2.0, 40.0), (10.0, 60.0)])
def test_measuring_takes_a_small_share_of_the_time(duration_s: float, pause_s: float, clock: ManualClock) -> None:
    table, pressure = FakeTable(clock, [5], duration_s), BackPressure(TEN, clock)
    ends = clock.seconds + 10 * (pause_s + duration_s)
    while clock.seconds < ends:
        assert pressure.hold(table) == Brake(debt_of(5), 0.0, coalesce=False)
        clock.seconds += 0.01
    pauses = [
        after - before - duration_s for before, after in zip(table.measured_at_s, table.measured_at_s[1:], strict=False)
    ]
    assert len(pauses) in {8, 9, 10}
    assert all(pause == pytest.approx(pause_s, abs=0.02) for pause in pauses)


def test_after_a_delay_the_debt_is_always_measured(clock: ManualClock) -> None:
    table = FakeTable(clock, [20, 10], duration_s=10.0)
    brake = BackPressure(TEN, clock).hold(table)
    assert (brake.debt, brake.coalesce, sum(clock.sleeps)) == (debt_of(10), False, 8.0)
    assert table.measured_at_s == [1000.0, 1018.0]


def test_a_stopped_query_stops_waiting(clock: ManualClock) -> None:
    brake = BackPressure(TEN, clock).hold(FakeTable(clock, [20]), lambda: clock.seconds < 1001)
    assert brake == Brake(debt_of(20), 1.0, coalesce=True)


@pytest.mark.parametrize("error", [StoreUnavailableError("no answer"), OSError("no route")])
def test_a_failed_measurement_delays_no_batch(
    error: Exception, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table, pressure = FakeTable(clock, [20]), BackPressure(TEN, clock)
    assert pressure.hold(table).debt == debt_of(20)
    clock.seconds += 60

    def failing() -> Debt:
        raise error

    monkeypatch.setattr(table, "debt", failing)
    with caplog.at_level(logging.WARNING, "tidelog.streaming"):
        assert pressure.hold(table) == Brake(None, 0.0, coalesce=False)
    assert str(error) in caplog.text
    monkeypatch.undo()
    assert pressure.hold(table).debt is None, "it is not measured again at once"
    clock.seconds += 0.5
    assert pressure.hold(table).coalesce


def test_compaction_reduces_the_debt_of_a_real_table() -> None:
    table = Table.create(memory_url(), NUMBERS)
    for number in range(8):
        table.insert([{"n": number}])

    class Compacting(ManualClock):
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
def test_a_throttle_with_an_invalid_limit_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))) as raised:
        Throttle(**wrong)
    assert raised.value.advice


# --- in a query ------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_real_query_that_is_stopped_while_it_waits_ends_soon(spark: SparkSession, tmp_path: Path) -> None:
    table, brakes = FakeTable(ManualClock(), [1000]), list[Brake]()

    def function(batch: DataFrame, number: int) -> None:
        del number
        query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
        assert is_running(batch.sparkSession, query_id)
        pressure = BackPressure(Throttle(max_debt_files=1, max_delay_s=60))
        brakes.append(pressure.hold(table, lambda: is_running(batch.sparkSession, query_id)))

    source = Input(tmp_path / "input").put()
    writer = source.stream(spark).writeStream.foreachBatch(function)
    query = writer.option("checkpointLocation", str(tmp_path / "cp")).start()
    wait_until(lambda: bool(table.measured_at_s), "the batch waits")
    started = time.monotonic()
    query.stop()
    assert time.monotonic() - started < 15, "otherwise it waits for the whole minute"
    assert [brake.delayed_s < 15 for brake in brakes] == [True]
    assert query.exception() is None


@pytest.mark.spark
def test_an_unknown_query_is_not_running_and_on_an_unknown_spark_every_query_is(spark: SparkSession) -> None:
    assert not is_running(spark, "00000000-0000-0000-0000-000000000000")
    assert is_running(spark, "no uuid")
