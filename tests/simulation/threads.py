"""The threads of a daemon's process as tasks of the scheduler: what `threading` gives to the code of leases.

A heartbeat beats while the actor works or waits for its next job. A long pause of the actor is one of its whole
process, as SIGSTOP makes it; what delays a heartbeat, such as a request without an answer, delays it alone. A process
that dies takes its threads with it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.simulation.process import Process
from tests.simulation.scheduler import FOREVER, Killed, Task

if TYPE_CHECKING:
    from tests.simulation.world import World


class SimLock:
    """A `Lock` that several tasks use."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held = False
        self._waiting: list[Task] = []

    def __enter__(self) -> None:
        scheduler, process = self._world.scheduler, _acting(self._world)
        while self._held:
            assert scheduler.current is not None
            self._waiting.append(scheduler.current)
            process.sleep("waits for a lock", FOREVER)
        self._held = True

    def __exit__(self, *_error: object) -> None:
        self._held = False
        for task in self._waiting:
            task.wake_ms = self._world.scheduler.now_ms
        self._waiting.clear()


class SimEvent:
    """An `Event` that a thread of the process that makes it waits for."""

    def __init__(self, world: World) -> None:
        self._process = _acting(world)
        self._is_set = False
        self._process.beats.append(self)

    def set(self) -> None:
        self._is_set = True

    def wait(self, timeout: float) -> bool:
        self._process.world.scheduler.restart_count()
        if not self._is_set:
            self._process.sleep("waits", round(timeout * 1000))
        return self._is_set


class SimThread:
    """A `Thread` of the process that makes it."""

    def __init__(self, world: World, target: Callable[[], None], **_named: object) -> None:
        self._process = _acting(world)
        self._target = target

    def start(self) -> None:
        process = self._process
        process.threads.append(process.world.scheduler.spawn(process.name, self._run, process.world.scheduler.now_ms))

    def _run(self) -> None:
        world = self._process.world
        try:
            with suppress(Killed):
                self._target()
        except Exception as error:  # noqa: BLE001 - a thread that ends so is found by nobody else
            world.object("untyped", f"a thread of {self._process.name} ends by {type(error).__name__}: {error}")


def _acting(world: World) -> Process:
    assert world.active is not None
    return world.active
