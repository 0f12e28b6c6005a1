"""What a daemon may use: bytes in an hour, and a share of the cores.

Both are limits on average, so that a compaction is never interrupted: after one that took more than its share, the
daemon waits until the average is right again.
"""

from __future__ import annotations

from collections import deque

HOUR_S = 3600.0


class Bytes:
    """How many bytes were read in the last hour. `limit` is the most per hour; None for no limit.

    One thread takes; any thread may ask.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._taken: deque[tuple[float, int]] = deque()

    def take(self, count: int, now_s: float) -> None:
        """Note that `count` bytes were read."""
        while self._taken and self._taken[0][0] <= now_s - HOUR_S:
            self._taken.popleft()
        if count:
            self._taken.append((now_s, count))

    def used(self, now_s: float) -> int:
        """The bytes that were read in the last hour."""
        return sum(count for at_s, count in self._taken.copy() if at_s > now_s - HOUR_S)

    def left(self, now_s: float) -> int | None:
        """The bytes that may be read now; None if there is no limit, 0 if none are left."""
        return None if self.limit is None else max(0, self.limit - self.used(now_s))


def rest_s(cpu_s: float, elapsed_s: float, *, cores: int, share: float) -> float:
    """How long to rest after work that used `cpu_s` of processor time in `elapsed_s`, in seconds.

    With the rest included, the work took on average no more than `share` of `cores`.
    """
    return max(0.0, cpu_s / (share * cores) - elapsed_s)
