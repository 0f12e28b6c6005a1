"""Chores that fail: each is reported once, and tried again less and less often."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tidelog.compaction_daemon.upkeep.due import Chore
from tidelog.compaction_daemon.upkeep.upkeep_report import UpkeepError
from tidelog.log.errors import RetryableError, TidelogError
from tidelog.log.log_records import event
from tidelog.log.system import System, logger, to_datetime

_LOGGER = logger(__name__)

# What failed may be a store that is away for a moment, or a table that nobody can repair today.
_FIRST_WAIT_S = 60.0
_LONGEST_WAIT_S = 6 * 3600.0


@dataclass(slots=True)
class _Trouble:
    error: UpkeepError
    count: int
    resume_s: float


@dataclass(slots=True)
class Troubles:
    """What fails at one table."""

    system: System
    path: str
    _found: dict[Chore, _Trouble] = field(default_factory=dict)

    def may_try(self, chore: Chore) -> bool:
        """Whether the chore works, or has waited for long enough."""
        known = self._found.get(chore)
        return known is None or self.system.monotonic_s() >= known.resume_s

    def failed(self, chore: Chore, error: Exception) -> None:
        """The chore failed. The same error again is not a new one."""
        text = error.message if isinstance(error, TidelogError) else f"{type(error).__name__}: {error}"
        code = error.code if isinstance(error, TidelogError) else RetryableError.code
        known = self._found.get(chore)
        is_new = known is None or (known.error.error, known.error.code) != (text, code)
        count = 1 if known is None else known.count + 1
        wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(count - 1, 16))
        now_ms = self.system.now_ms()
        since = to_datetime(now_ms) if known is None or is_new else known.error.since
        found = UpkeepError(chore, text, code, since, to_datetime(now_ms + round(wait_s * 1000)), is_new)
        self._found[chore] = _Trouble(found, count, self.system.monotonic_s() + wait_s)
        if is_new:
            said = event("upkeep_failed", table=self.path, chore=chore.value, code=code, error=text)
            _LOGGER.warning("%s: %s failed and is tried again later: %s", self.path, chore, error, extra=said)

    def forget(self, chores: Iterable[Chore]) -> None:
        """The chores are not done any more."""
        for chore in chores:
            self._found.pop(chore, None)

    def worked(self, chore: Chore) -> None:
        """The chore worked."""
        if self._found.pop(chore, None) is not None:
            said = event("upkeep_recovered", table=self.path, chore=chore.value)
            _LOGGER.info("%s: %s works again", self.path, chore, extra=said)

    def known(self) -> tuple[UpkeepError, ...]:
        """What fails now."""
        return tuple(trouble.error for trouble in self._found.values())

    def take(self) -> tuple[UpkeepError, ...]:
        """What fails now. What is new in it is not new any more in the next call."""
        errors = self.known()
        for trouble in self._found.values():
            trouble.error = replace(trouble.error, is_new=False)
        return errors
