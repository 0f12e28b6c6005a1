"""Predictions: how long a rewrite takes and how much it writes, learned from the table's own compactions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from tidelog.compaction_daemon.planning.history import CostRecord, History, odds
from tidelog.compaction_daemon.planning.plan import Prediction
from tidelog.log.arrays import BoolArray, Int64Array

_N = TypeVar("_N", int, Int64Array)

# Without a compaction to learn from: about what one core of a current server does with files on a local disk. Every
# input costs an opening, every group a first output.
BYTES_PER_S = 150 * 2**20
CLUSTERED_BYTES_PER_S = 30 * 2**20
SECONDS_PER_FILE = 0.001
SECONDS_PER_GROUP = 0.02
# The newest compactions are the best guess: machines, executors and data change.
LEARN_FROM = 20
# One odd measurement, such as a machine that slept, must not spoil the predictions.
_MOST_FACTOR = 100.0


@dataclass(frozen=True, slots=True)
class Factors:
    """How far reality is from the defaults: factors for seconds, and for written bytes by live bytes."""

    seconds: float = 1.0
    written: float = 1.0


@dataclass(frozen=True, slots=True)
class CostModel:
    """Predicts rewrites, in order and clustered."""

    ordered: Factors = Factors()
    clustered: Factors = Factors()

    def seconds(
        self, files: Int64Array, read: Int64Array, *, clustered: BoolArray
    ) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The time for each of many groups of `files` with `read` bytes."""
        slow = self.clustered.seconds * default_seconds(files, read, groups=1, clustered=True)
        fast = self.ordered.seconds * default_seconds(files, read, groups=1, clustered=False)
        return np.asarray(np.where(clustered, slow, fast), dtype=np.float64)

    def predict(self, *, files: int, read: int, live: int, clustered: bool, conflict_rate: float) -> Prediction:
        """The cost of one group of `files` with `read` bytes, of which `live` belong to live rows."""
        factors = self.clustered if clustered else self.ordered
        seconds = factors.seconds * default_seconds(files, read, groups=1, clustered=clustered)
        return Prediction(
            read, round(live * factors.written), round(seconds, 3), round(odds(conflict_rate, seconds), 4)
        )


def default_seconds(files: _N, read: _N, *, groups: int, clustered: bool) -> Any:
    """The time for so many groups together, before anything was learned."""
    rate = CLUSTERED_BYTES_PER_S if clustered else BYTES_PER_S
    return groups * SECONDS_PER_GROUP + files * SECONDS_PER_FILE + read / rate


def learn(history: History) -> CostModel:
    """The model that the newest compactions of a history suggest; the defaults where there are none."""
    records = [compaction.record for compaction in history.compactions]
    return CostModel(
        ordered=_factors(record for record in records if not record.clustered),
        clustered=_factors(record for record in records if record.clustered),
    )


def _factors(records: Iterable[CostRecord]) -> Factors:
    newest = list(records)[-LEARN_FROM:]
    expected = sum(
        default_seconds(record.files, record.actual.bytes_read, groups=record.groups, clustered=record.clustered)
        for record in newest
    )
    live = sum(record.live_bytes for record in newest)
    written = sum(record.actual.bytes_written for record in newest)
    seconds = sum(record.actual.seconds for record in newest)
    return Factors(
        seconds=_bounded(seconds / expected) if expected and seconds > 0 else 1.0,
        written=_bounded(written / live) if live and written else 1.0,
    )


def _bounded(factor: float) -> float:
    return min(_MOST_FACTOR, max(1 / _MOST_FACTOR, factor))
