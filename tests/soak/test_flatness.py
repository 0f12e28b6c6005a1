"""The robust slope, and what counts as flat."""

from __future__ import annotations

from random import Random

import pytest

from tests.soak.flatness import MIB, Flatness, flatness, slope
from tests.soak.processes import Usage
from tests.soak.sampling import Process
from tests.soak.settings import Settings
from tests.soak.support import sample


def test_the_slope_is_that_of_most_pairs() -> None:
    times = list(range(100))
    values = [3.0 * time + 7 for time in times]
    values[10], values[60] = 10_000.0, -10_000.0
    assert slope(times, values) == pytest.approx(3.0)
    assert slope([1.0], [1.0]) == 0.0


def curves(
    memory_bytes: float, fds: float, *, seconds: int = 400, name: str = "daemon-1", first_mib: int = 100
) -> list[Flatness]:
    """What is judged of a process whose memory and descriptors grow by so much in a second, with noise."""
    random, samples = Random(1), []
    for at_s in range(0, seconds, 2):
        life = 1 if at_s < 20 else 2
        used = (100 if at_s > 150 else first_mib) * MIB + memory_bytes * at_s + random.uniform(-3, 3) * MIB
        usage = Usage(int(used), int(20 + fds * at_s), 4, 0.0, (1,))
        running = {name: (Process("python", life, usage),)}
        samples.append(sample(at_s, processes=running))
    return list(flatness(samples, Settings(30, 1)))


def test_noise_is_flat() -> None:
    found = curves(0, 0)
    assert [each.what for each in found] == ["memory", "file descriptors"]
    assert all(each.is_flat for each in found)


@pytest.mark.parametrize(("memory_bytes", "fds"), [(0.1 * MIB, 0), (0, 0.05)])
def test_a_leak_is_not_flat(memory_bytes: float, fds: float) -> None:
    memory, descriptors = curves(memory_bytes, fds)
    assert (memory.is_flat, descriptors.is_flat) == (memory_bytes == 0, fds == 0)


def test_only_the_longest_life_counts_and_memory_needs_minutes() -> None:
    memory, descriptors = curves(0, 0)
    assert 280 < memory.seconds < 380
    assert memory.seconds == descriptors.seconds
    assert [each.what for each in curves(0, 0, seconds=200)] == ["file descriptors"]


def test_the_slow_consumer_is_judged_after_its_first_read() -> None:
    """Before, it is so small that its first read looks like a leak."""
    (always, _), (rarely, _) = (curves(0, 0, seconds=700, name=name, first_mib=1) for name in ("updater", "slow"))
    assert rarely.seconds == always.seconds - Settings(30, 1).slow_s
    assert rarely.is_flat
    leak, _ = curves(0.1 * MIB, 0, seconds=700, name="slow", first_mib=1)
    assert not leak.is_flat
