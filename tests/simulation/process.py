"""A process of an actor: its clock, its ids, and the one way by which its calls reach the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.scheduler import FOREVER, MAX_STEPS_OF_AN_OPERATION, Killed
from tidelog.log.storage import Store
from tidelog.log.system import System

if TYPE_CHECKING:
    from tests.simulation.daemons import Memory
    from tests.simulation.faults import Fault
    from tests.simulation.scheduler import Task
    from tests.simulation.stepping import Daemon
    from tests.simulation.threads import SimEvent
    from tests.simulation.world import World
    from tidelog.compaction_daemon import Upkeep

# Longer than daemons may be silent.
_LONG_PAUSE_MS = 60_000


@dataclass
class Process:
    """One life of an actor. `operation` is the number of what it does now; its ids name it."""

    world: World
    actor: int
    name: str
    operation: int = 0
    dead: bool = False
    mortal: bool = True
    ids: int = 0
    began_ms: int = 0
    daemon: Memory | None = None
    upkeep: Upkeep | None = None
    stepping: Daemon | None = None
    threads: list[Task] = field(default_factory=list)
    """Those beside the actor's own."""
    beats: list[SimEvent] = field(default_factory=list)
    """What ends them."""
    store: Store = field(init=False)
    system: System = field(init=False)

    @property
    def is_gone(self) -> bool:
        """Whether it can do nothing any more: it died, or the simulation has ended."""
        return self.dead or (self.mortal and self.world.scheduler.stopped)

    def call(self, operation: str, path: str) -> Fault | None:
        """One step: here the actor waits for its turn, sleeps, or dies. Returns the fault of the call."""
        if self.is_gone:
            raise Killed
        world = self.world
        task = world.scheduler.current
        if task is None:  # the audit at the end: alone, and without faults
            return None
        if task.steps > MAX_STEPS_OF_AN_OPERATION:
            world.object("bounded", f"{self.name} does not end: {MAX_STEPS_OF_AN_OPERATION} steps in one operation")
            raise Killed
        pause_ms, dies = world.fate(self, operation, path)
        self.pause_threads(pause_ms)
        world.scheduler.step(f"{operation} {path}", pause_ms)
        if dies and not self.is_gone:
            world.scheduler.note("  dies")
            self.dead = True
        if self.is_gone:
            raise Killed
        world.active = self
        return world.faults.draw(self.name, operation, path)

    def sleep(self, what: str, ms: int) -> None:
        """Wait, and end there if the process dies meanwhile."""
        if self.is_gone:
            raise Killed
        self.world.scheduler.step(what, ms)
        if self.is_gone:
            raise Killed
        self.world.active = self

    def pause_threads(self, ms: int) -> None:
        """A long pause of the actor is one of the whole process."""
        scheduler = self.world.scheduler
        if ms >= _LONG_PAUSE_MS and scheduler.current not in self.threads:
            for thread in self.threads:
                thread.wake_ms = max(thread.wake_ms, FOREVER if ms >= FOREVER else scheduler.now_ms + ms)

    def end_threads(self) -> None:
        """The process ends, and its threads with it."""
        for beat in self.beats:
            beat.set()


class SimSystem(System):
    """The clock of the actor's machine, which is wrong and can jump. Its ids begin with the actor and the operation."""

    def __init__(self, process: Process, skew_ms: int) -> None:
        self._process = process
        self._world = process.world
        self._skew_ms = skew_ms

    def in_background(self, work: Callable[[], None]) -> None:
        """Nothing: threads are not simulated, and a checkpoint is written by an actor."""

    def now_ms(self) -> int:
        self._process.call("clock", "")
        scenario = self._world.scenario
        if scenario.clock_jump_chance and self._world.random.random() < scenario.clock_jump_chance:
            self._skew_ms = self._world.random.randint(-scenario.skew_ms, scenario.skew_ms)
        now_ms = self._world.scheduler.now_ms + self._skew_ms
        record = self._world.records.get((self._process.actor, self._process.operation))
        if record is not None:
            record.latest_ms = max(record.latest_ms, now_ms)
        return now_ms

    def monotonic_s(self) -> float:
        self._process.call("clock", "")
        # Each machine counts from another moment.
        return self._world.scheduler.now_ms / 1000 + 7_000 * self._process.actor

    def sleep_s(self, seconds: float) -> None:
        self._process.sleep("sleep", min(round(seconds * 1000), FOREVER))

    def uniform(self, low: float, high: float) -> float:
        return self._world.random.uniform(low, high)

    def uuid(self) -> str:
        self._process.ids += 1
        return f"{self._process.actor:08x}-{self._process.operation:04x}-4000-8000-{self._process.ids:012x}"


def owner(text: str) -> tuple[int, int] | None:
    """The actor and the operation that made an id; None for one of the table's beginning."""
    parts = text.split("-")
    if len(parts) == 5 and parts[2:4] == ["4000", "8000"]:
        return int(parts[0], 16), int(parts[1], 16)
    return None
