"""The loops of `benchmarks.conflict` for any engine: the rows, the keys that a loop changes, and its tally."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

# The initial rows of the table; their keys start at 0.
SEED_ROWS = 100_000
# The rows of a batch. The keys of batch 0 follow the initial rows, and those of batch b follow batch b - 1.
BATCH_ROWS = 1_000
BATCH_INTERVAL_S = 0.25
# The pause after a compaction that found nothing to do.
IDLE_S = 0.02
# Each loop has its own keys, by parity. A row is deleted or updated at most once, so the final rows are known exactly.
PARITY = {"delete": 0, "update": 1}
# Prime, so that steps of this size reach each initial key once, in scattered order.
_STRIDE = 7919
ROLES = ("append", *PARITY, "compact")


@dataclass(slots=True)
class Tally:
    """What a loop did: the keys or batches that the engine reported as committed, and its errors by name.

    `spans_ms` has all attempts. `longest_gap_ms` is the longest time without a commit, from the start of the loop to
    its end. `counts` has the loop's other counts.
    """

    attempted: int = 0
    done: list[int] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    spans_ms: list[float] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    longest_gap_ms: float = 0.0

    @property
    def failed(self) -> int:
        """Attempts that ended in an error."""
        return sum(self.errors.values())

    def count(self, name: str, number: int = 1) -> None:
        """Add to a count."""
        self.counts[name] = self.counts.get(name, 0) + number

    def to_builtins(self) -> dict[str, Any]:
        """The tally as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Refused:
    """A failed attempt, with the name of its error."""

    name: str


def batch_keys(number: int) -> range:
    """The keys of one batch of the stream."""
    first = SEED_ROWS + number * BATCH_ROWS
    return range(first, first + BATCH_ROWS)


def keys(role: str, newest_batch: Callable[[], int]) -> Iterator[int]:
    """The keys that a loop changes: alternately an initial key, in scattered order, and one of the newest batch.

    `newest_batch` returns the last batch that the loop knows to be in the table, or -1.
    """
    batch, left = -1, iter(range(0))
    for number in range(SEED_ROWS // 2):
        yield PARITY[role] + 2 * (number * _STRIDE % (SEED_ROWS // 2))
        if newest_batch() != batch:
            batch = newest_batch()
            left = iter(batch_keys(batch)[PARITY[role] :: 2])
        yield from _first(left)


def statements(act: Callable[[int], Refused | None], chosen: Iterable[int], seconds: float) -> Tally:
    """Run statements one after the other, each on one key."""
    return _until_over(act, chosen, seconds, pause=lambda _: None)


def appends(act: Callable[[int], Refused | None], seconds: float) -> Tally:
    """Append batches at fixed times, or at once if the last one was late. A failed batch is not repeated."""
    begin = time.monotonic()

    def pause(number: int) -> None:
        time.sleep(max(0.0, begin + (number + 1) * BATCH_INTERVAL_S - time.monotonic()))

    return _until_over(act, range(sys.maxsize), seconds, pause)


def compactions(act: Callable[[int], Refused | None], seconds: float) -> Tally:
    """Run compactions one after the other."""
    return _until_over(act, range(sys.maxsize), seconds, pause=lambda _: None)


def _until_over(
    act: Callable[[int], Refused | None], items: Iterable[int], seconds: float, pause: Callable[[int], None]
) -> Tally:
    """An attempt that begins in time is finished and counts."""
    tally = Tally()
    begin = committed = time.monotonic()
    for item in items:
        started = time.monotonic()
        if started - begin >= seconds:
            break
        refused = act(item)
        tally.attempted += 1
        ended = time.monotonic()
        tally.spans_ms.append((ended - started) * 1000)
        tally.longest_gap_ms = max(tally.longest_gap_ms, (ended - committed) * 1000)
        if refused is None:
            committed = ended
            tally.done.append(item)
        else:
            tally.errors[refused.name] = tally.errors.get(refused.name, 0) + 1
        pause(item)
    tally.seconds = time.monotonic() - begin
    return tally


def _first(items: Iterator[int]) -> Iterator[int]:
    for item in items:
        yield item
        return
