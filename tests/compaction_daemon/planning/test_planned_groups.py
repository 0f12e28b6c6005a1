"""Predictions of cost, and how they follow the table's own compactions."""

from __future__ import annotations

import pytest

from tests.compaction_daemon.planning.histories import A, commit, history, measured
from tidelog.compaction_daemon.planning.history import CostRecord, History
from tidelog.compaction_daemon.planning.plan import Prediction
from tidelog.compaction_daemon.planning.planned_groups import (
    BYTES_PER_S,
    CLUSTERED_BYTES_PER_S,
    LEARN_FROM,
    SECONDS_PER_FILE,
    SECONDS_PER_GROUP,
    CostModel,
    learn,
)

GIB = 2**30


def predict(model: CostModel, *, clustered: bool = False, rate: float = 0.0) -> Prediction:
    return model.predict(files=10, read=GIB, live=GIB, clustered=clustered, conflict_rate=rate)


def learned(*records: CostRecord) -> CostModel:
    return learn(history(*(commit(at, A, compaction=True, record=record) for at, record in enumerate(records))))


def test_the_defaults() -> None:
    fixed = SECONDS_PER_GROUP + 10 * SECONDS_PER_FILE
    assert predict(learn(History())) == Prediction(GIB, GIB, round(GIB / BYTES_PER_S + fixed, 3), 0.0)
    assert predict(CostModel(), clustered=True).seconds == round(GIB / CLUSTERED_BYTES_PER_S + fixed, 3)


def test_conflicts_are_likelier_the_longer_it_takes() -> None:
    assert predict(CostModel(), rate=0.1).conflict_odds == pytest.approx(0.498, abs=0.01)
    assert predict(CostModel(), rate=0.1, clustered=True).conflict_odds == pytest.approx(0.967, abs=0.01)


def test_a_slower_machine_is_learned_from_its_compactions() -> None:
    default = predict(CostModel())
    slow = measured(files=10, read=GIB, written=GIB // 2, seconds=3 * default.seconds)
    found = predict(learned(slow))
    assert found.seconds == pytest.approx(3 * default.seconds, rel=0.01)
    assert found.bytes_to_write == GIB // 2
    assert predict(learned(slow), clustered=True) == predict(CostModel(), clustered=True), "which costs something else"
    clustered = measured(files=10, read=GIB, written=GIB, seconds=1.0, clustered=True)
    assert predict(learned(clustered), clustered=True).seconds == pytest.approx(1.0, rel=0.01)


def test_only_the_newest_compactions_count() -> None:
    default = predict(CostModel()).seconds
    old = [measured(files=10, read=GIB, written=GIB, seconds=50 * default)] * 5
    new = [measured(files=10, read=GIB, written=GIB, seconds=default)] * LEARN_FROM
    assert predict(learned(*old, *new)).seconds == pytest.approx(default, rel=0.01)


def test_an_odd_measurement_is_bounded() -> None:
    asleep = measured(files=1, read=1, written=1, seconds=86_400)
    assert predict(learned(asleep)).seconds == pytest.approx(100 * predict(CostModel()).seconds, rel=0.01)
    nothing = measured(files=1, read=0, written=0, seconds=0.0)
    assert predict(learned(nothing)) == predict(CostModel())
