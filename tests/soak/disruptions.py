"""When which process is killed or paused: drawn by the seed, before anything starts.

Each process has a calm time, a third of the run, in which nothing happens to it: whether its memory grows shows only in
a long life. The calm times of different processes begin at different moments, so something always happens to somebody.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from tests.soak.programs import FAST, SLOW, UPDATER, WITH_SPARK
from tests.soak.settings import DAEMONS, STREAMS, Settings

# The lease of a daemon that is silent for this long is taken over: its default time to live.
LEASE_TTL_S = 15.0
_LONGEST_AWAY_S = 6.0
_PAUSE_OVER_TTL_S = 8.0
_PAUSED_SHARE = 0.3
_JVM_SHARE = 0.3
_AT_ANY_MOMENT_SHARE = 0.2
# Between two: at least this, and at most an eighth of the run within these bounds. Spark takes some seconds to start,
# and must get to work.
_LEAST_GAP_S, _SPARK_LEAST_GAP_S = 12.0, 25.0
_SHORTEST_GAP_S, _LONGEST_GAP_S = 40.0, 120.0
_CALM_SHARE = 0.36
# A short run has time for a few kills only, so they come early and late.
_FIRST_S = 12.0


class How(StrEnum):
    """What happens to a process."""

    KILL = "kill"  # SIGKILL to the process and all that it started
    KILL_JVM = "kill the JVM"  # Python notices and ends
    PAUSE = "pause"  # SIGSTOP, longer than a lease lives, then SIGCONT


@dataclass(frozen=True, slots=True)
class Disruption:
    """What happens to a process `at_s` after the start or later, and how long it is then stopped or paused.

    If `after_work`, it waits until the process has completed something since it was started. Most kills of a program
    with Spark do: on a busy machine it takes half a minute to start, and would never get to work otherwise.
    """

    at_s: float
    name: str
    how: How
    away_s: float
    after_work: bool = False


def disruptions(settings: Settings) -> list[Disruption]:
    """All of them, in the order of their times."""
    found = [each for name in _CALM_FROM for each in _of(name, settings)]
    return sorted(found, key=lambda each: each.at_s)


def calm(name: str, settings: Settings) -> tuple[float, float]:
    """When nothing happens to a process: from and to, in seconds since the start."""
    begin = _CALM_FROM[name] * settings.seconds
    return begin, begin + _CALM_SHARE * settings.seconds


# As shares of the run.
_CALM_FROM = {
    **dict.fromkeys(STREAMS, 0.15),
    FAST: 0.30,
    **dict.fromkeys(DAEMONS, 0.40),
    UPDATER: 0.55,
    SLOW: 0.25,
}


def _of(name: str, settings: Settings) -> Iterator[Disruption]:
    random = Random(f"{settings.seed}:{name}")
    least_s = _SPARK_LEAST_GAP_S if name in WITH_SPARK else _LEAST_GAP_S
    most_s = max(_SHORTEST_GAP_S, min(_LONGEST_GAP_S, settings.seconds / 8))
    calm_from_s, calm_to_s = calm(name, settings)
    at_s = random.uniform(_FIRST_S, max(_FIRST_S, least_s))
    while at_s < settings.seconds:
        how = _how(name, random)
        away_s = random.uniform(0, _LONGEST_AWAY_S)
        if how is How.PAUSE:
            away_s = LEASE_TTL_S + random.uniform(0, _PAUSE_OVER_TTL_S)
        if at_s + away_s < calm_from_s or at_s > calm_to_s:
            after_work = name in WITH_SPARK and random.random() >= _AT_ANY_MOMENT_SHARE
            yield Disruption(at_s, name, how, away_s, after_work)
        at_s += away_s + random.uniform(least_s, most_s)


def _how(name: str, random: Random) -> How:
    drawn = random.random()
    if name in DAEMONS and drawn < _PAUSED_SHARE:
        return How.PAUSE
    if name in WITH_SPARK and drawn < _JVM_SHARE:
        return How.KILL_JVM
    return How.KILL
