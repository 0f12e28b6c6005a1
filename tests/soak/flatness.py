"""Whether a curve is flat: a robust slope over the longest life of a process, after it has warmed up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tests.soak.programs import SLOW, WITH_SPARK
from tests.soak.sampling import Sample
from tests.soak.settings import Settings

MIB = 2**20
# A process imports, fills its caches and compiles at first. The slow consumer does so at its first read.
_WARM_UP_SHARE, _WARM_UP_S = 0.25, 90.0
# A process that lives shorter is still finding its level: the memory of all, and what Spark opens at its first batches.
# The others open what they need at once.
_LEAST_S, _LEAST_FDS_S = 240.0, 45.0
# Over the judged time memory may grow by this, or by this share of its median: allocators return pages late, and a
# process reads some more rows at a time while its table still grows. A leak of one small file's bytes in each of the
# thousands of commits of that time is more.
_MOST_GROWTH_BYTES, _MOST_GROWTH_SHARE = 16 * MIB, 0.10
# A process opens and closes files all the time, so a sample is off by a few.
_MOST_GROWTH_FDS = 4.0


@dataclass(frozen=True, slots=True)
class Flatness:
    """A curve of one process over the judged part of its longest life.

    Attributes:
        process: The program and the role, such as `a, java`.
        what: `memory` in bytes, or `file descriptors`.
        seconds: How long the judged part is.
        median: The median of the curve.
        growth: By how much it grew in that time, by its slope (Theil-Sen).
        allowed: By how much it may grow.
    """

    process: str
    what: str
    seconds: float
    median: float
    growth: float
    allowed: float

    @property
    def is_flat(self) -> bool:
        """Whether it did not grow by more."""
        return self.growth <= self.allowed


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """The median of the slopes between all pairs of points (Theil-Sen), per second; 0 for fewer than two."""
    x, y = np.asarray(times, dtype=float), np.asarray(values, dtype=float)
    first, second = np.triu_indices(len(x), k=1)
    apart = x[second] - x[first]
    found = (y[second] - y[first])[apart > 0] / apart[apart > 0]
    return float(np.median(found)) if len(found) else 0.0


def flatness(samples: Sequence[Sample], settings: Settings) -> Iterator[Flatness]:
    """All curves whose process lived long enough."""
    lives: dict[tuple[str, str, int], list[tuple[float, int, int]]] = defaultdict(list)
    for sample in samples:
        for name, processes in sample.processes.items():
            for each in processes:
                lives[name, each.role, each.life].append((sample.at_s, each.usage.rss_bytes, each.usage.fds))
    longest: dict[tuple[str, str], list[tuple[float, int, int]]] = {}
    for (name, role, _), points in lives.items():
        if _length(points) > _length(longest.get((name, role), [])):
            longest[name, role] = points
    for (name, role), points in sorted(longest.items()):
        warm_s = points[0][0] + min(_WARM_UP_S, _WARM_UP_SHARE * _length(points))
        if name == SLOW:
            warm_s += settings.slow_s
        judged = [point for point in points if point[0] >= warm_s]
        length, times = _length(judged), [point[0] for point in judged]
        memory, fds = [float(point[1]) for point in judged], [float(point[2]) for point in judged]
        if length >= _LEAST_S:
            median = float(np.median(memory))
            allowed = max(_MOST_GROWTH_BYTES, _MOST_GROWTH_SHARE * median)
            yield Flatness(f"{name}, {role}", "memory", length, median, slope(times, memory) * length, allowed)
        if length >= (_LEAST_S if name in WITH_SPARK else _LEAST_FDS_S):
            grown = slope(times, fds) * length
            yield Flatness(
                f"{name}, {role}", "file descriptors", length, float(np.median(fds)), grown, _MOST_GROWTH_FDS
            )


def _length(points: Sequence[tuple[float, int, int]]) -> float:
    return points[-1][0] - points[0][0] if points else 0.0
