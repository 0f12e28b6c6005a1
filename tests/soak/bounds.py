"""How much debt and how many files there may be at each moment of the run, derived from what was committed.

A daemon needs `BEHIND_S` at most to come back: a lease lives 15 seconds after its owner, a new process starts in ten or
twenty on a busy machine, and a step takes a few. What writers committed within that time can be debt. Apart from it:

- small files: MINOR merges a group as soon as it is 1.9 times its largest file (`GROWTH`), so the others in a partition
  are together at most 0.9 of one small file, which has at most 3/4 of the target size. Divided by the size of what
  writers write, that is so many files.
- dead rows: MAJOR leaves less than a tenth of them in a partition that has been quiet for a minute. So a row may stay
  dead for as long as its partition is written, twice if one stream comes later than the other, and for that minute. The
  updater's own partition is never quiet; half of it is dead at most.
- the log tail: the checkpoint interval.
- data files on disk that are not live: what left the table within the retention, which begins no sooner than a
  transaction may last, plus the time that the slow consumer is behind, plus the period of the clean-up; and what killed
  processes had written, which only a listing finds.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from tests.soak.conductor import Soaked
from tests.soak.disruptions import LEASE_TTL_S
from tests.soak.log_tail import Commit
from tests.soak.rows import KEYED_ROWS
from tests.soak.sampling import Sample
from tests.soak.settings import CHECKPOINT_INTERVAL, STREAMS, TARGET_BYTES, Settings
from tidelog.compaction_daemon.upkeep.due import Chore, period_of

BEHIND_S = LEASE_TTL_S + 45.0
_SMALL_BYTES = 0.75 * TARGET_BYTES
_QUIET_S = 60.0
_DEAD_SHARE = 0.1
# A clean-up comes at the table's own time in the next period, but half a period after the last one at least.
_PERIODS_APART = 1.5
# A killed process has written a file for each partition of a statement at most, and one rewrite has some outputs.
_LEFT_BY_A_KILL = 20


@dataclass(frozen=True, slots=True)
class Bound:
    """A curve with its bound, a point for each sample."""

    what: str
    measured: tuple[float, ...]
    allowed: tuple[float, ...]

    @property
    def holds(self) -> bool:
        """Whether the curve is below its bound throughout."""
        return not any(self.over)

    @property
    def over(self) -> list[bool]:
        """At which samples it is above."""
        return [measured > allowed for measured, allowed in zip(self.measured, self.allowed, strict=True)]

    @property
    def nearest(self) -> tuple[float, float]:
        """(measured, allowed) at the sample that is nearest to the bound, or farthest above it."""
        pairs = zip(self.measured, self.allowed, strict=True)
        return max(pairs, key=lambda pair: pair[0] / max(pair[1], 1.0), default=(0.0, 0.0))


def bounds(soaked: Soaked, settings: Settings) -> list[Bound]:
    """All bounds of a run."""
    commits = _Commits(soaked.sampler.tail.commits)
    written = [size for commit in commits.all if not commit.is_compaction for size in commit.added]
    a_partition = math.ceil(0.9 * _SMALL_BYTES / median(written)) + 1 if written else 1
    kills = [each.at_s for each in soaked.done]

    def stale_s(sample: Sample, chore: Chore) -> float:
        waits_s = max((lag.seconds for lag in sample.lags.values()), default=0.0)
        period_s = period_of(chore, settings.file_retention_s * 1_000) / 1_000
        return settings.file_retention_s + settings.max_transaction_s + waits_s + BEHIND_S + _PERIODS_APART * period_s

    def left(sample: Sample) -> float:
        recent = sum(sample.at_s - stale_s(sample, Chore.LISTING) <= at_s <= sample.at_s for at_s in kills)
        return _LEFT_BY_A_KILL * (recent + 1)

    samples = soaked.sampler.samples
    return [
        _bound(
            "small files",
            samples,
            lambda sample: sample.small_files,
            lambda sample: (
                a_partition * sample.parts
                + commits.within(sample, BEHIND_S, lambda commit: 0 if commit.is_compaction else len(commit.added))
            ),
        ),
        _bound(
            "dead rows",
            samples,
            lambda sample: sample.dead_rows,
            lambda sample: (
                _DEAD_SHARE * len(STREAMS) * settings.part_rows * sample.parts
                + 2 * KEYED_ROWS
                + commits.within(
                    sample,
                    2 * settings.part_s + _QUIET_S + BEHIND_S,
                    lambda commit: 0 if commit.is_compaction else commit.dead_rows,
                )
            ),
        ),
        _bound(
            "log tail",
            samples,
            lambda sample: sample.log_tail,
            lambda sample: CHECKPOINT_INTERVAL + commits.within(sample, BEHIND_S, lambda _: 1),
        ),
        _bound(
            "data files on disk",
            samples,
            lambda sample: sample.data_files,
            lambda sample: (
                sample.files
                + commits.within(sample, stale_s(sample, Chore.VACUUM), lambda commit: commit.removed)
                + left(sample)
            ),
        ),
    ]


def _bound(
    what: str,
    samples: Sequence[Sample],
    measured: Callable[[Sample], float],
    allowed: Callable[[Sample], float],
) -> Bound:
    return Bound(what, tuple(map(measured, samples)), tuple(map(allowed, samples)))


class _Commits:
    """The commits, by time."""

    def __init__(self, commits: Sequence[Commit]) -> None:
        self.all = commits
        self._times = [commit.at_s for commit in commits]

    def within(self, sample: Sample, seconds: float, count: Callable[[Commit], int]) -> int:
        """The sum of a count over the commits of the last seconds before a sample."""
        since = bisect_left(self._times, sample.time_s - seconds)
        return sum(count(commit) for commit in self.all[since : sample.version + 1])
