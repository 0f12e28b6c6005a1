"""The duration of each phase of a piece of work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.log.system import System


class Phases:
    """Measures phases: `with phases("write"): ...`. `seconds` maps each phase to its total duration."""

    def __init__(self, system: System) -> None:
        self.seconds: dict[str, float] = {}
        self._system = system

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Measure the block and add its duration to the phase."""
        started = self._system.monotonic_s()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self._system.monotonic_s() - started
