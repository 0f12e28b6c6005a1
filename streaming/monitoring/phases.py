"""How long each phase of a piece of work took."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.log.internals import System


class Phases:
    """Use as `with phases("write"): ...`; `seconds` maps each phase to what it took."""

    def __init__(self, system: System) -> None:
        self.seconds: dict[str, float] = {}
        self._system = system

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time one phase."""
        started = self._system.monotonic_s()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self._system.monotonic_s() - started
