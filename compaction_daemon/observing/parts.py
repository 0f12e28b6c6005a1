"""The parts of what is said about a table. One that cannot be read is left out, and the others are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from tidelog.log.errors import TidelogError

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Problem:
    """A part that could not be made, and why."""

    part: str
    error: str


@dataclass
class Parts:
    """Makes the parts; one that fails has its empty value, and a `Problem`."""

    problems: list[Problem] = field(default_factory=list)

    def make(self, name: str, work: Callable[[], _T], empty: _T) -> _T:
        """What `work` returns, or `empty` if it raises an error of tidelog or of the file system."""
        try:
            return work()
        except (TidelogError, OSError) as error:
            self.problems.append(Problem(name, str(error)))
            return empty
