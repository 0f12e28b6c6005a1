"""When a table is looked at next, as a pure function of how its looks ended."""

from __future__ import annotations

from dataclasses import dataclass, replace

# A table that keeps failing is tried less and less often, but always again: its store may come back.
RETRY_LIMIT_S = 300.0
# Beyond so many doublings every wait is at its limit.
_MAX_DOUBLINGS = 32


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a table is due, by a clock that never steps backwards.

    `quiet` counts the looks since the table last changed, `failures` those that failed in a row.
    """

    interval_s: float
    idle_interval_s: float
    due_s: float = 0.0
    quiet: int = 0
    failures: int = 0

    def is_due(self, now_s: float) -> bool:
        """Whether it is time to look."""
        return now_s >= self.due_s

    def worked(self, now_s: float) -> Schedule:
        """After a look that found something to do: look again at once, there may be more."""
        return replace(self, due_s=now_s, quiet=0, failures=0)

    def changed(self, now_s: float) -> Schedule:
        """After a look that found a new version, but nothing to do yet."""
        return replace(self, due_s=now_s + self.interval_s, quiet=0, failures=0)

    def quieter(self, now_s: float) -> Schedule:
        """After a look that found nothing new: each one doubles the wait."""
        wait_s = _doubled(self.interval_s, self.quiet, max(self.interval_s, self.idle_interval_s))
        return replace(self, due_s=now_s + wait_s, quiet=self.quiet + 1, failures=0)

    def failed(self, now_s: float, limit_s: float = RETRY_LIMIT_S) -> Schedule:
        """After a look that failed: each one doubles the wait, up to `limit_s`."""
        wait_s = _doubled(self.interval_s, self.failures + 1, max(self.interval_s, limit_s))
        return replace(self, due_s=now_s + wait_s, quiet=0, failures=self.failures + 1)

    def at(self, due_s: float) -> Schedule:
        """The same, due at another time."""
        return replace(self, due_s=due_s)


def _doubled(start_s: float, times: int, limit_s: float) -> float:
    return min(limit_s, start_s * 2.0 ** min(times, _MAX_DOUBLINGS))
