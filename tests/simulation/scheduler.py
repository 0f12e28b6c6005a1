"""Actors as greenlets, and one scheduler that decides who makes the next step. All of it follows from one seed.

An actor runs until its next step: a call to its store, a sleep or a look at its clock. There the scheduler takes over,
and may leave the actor waiting for any time, or kill it. Simulated time passes only between steps.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import greenlet

# An operation that was interrupted by every other actor at every commit takes a few hundred steps.
MAX_STEPS_OF_AN_OPERATION = 6000
FOREVER = 2**62
# A zombie wakes when everybody else has ended, and this much later: longer than every retention.
ZOMBIE_SLEEP_MS = 40 * 86_400_000
_LONGEST_STEP_MS = 3


class Killed(BaseException):
    """Ends an actor's process at its step. Nothing it does from then on has an effect."""


class Event(NamedTuple):
    """A line of the trace."""

    ms: int
    actor: str
    what: str

    def __str__(self) -> str:
        return f"{self.ms:>12} {self.actor:<14} {self.what}"


@dataclass
class Task:
    """An actor as the scheduler sees it. It is not run before `wake_ms`."""

    name: str
    run: greenlet.greenlet
    wake_ms: int = 0
    steps: int = 0
    """The steps since `Scheduler.restart_count`."""


@dataclass
class Scheduler:
    """Runs tasks one step at a time. With `stickiness` near 1 a task makes many steps before another one does."""

    random: Random
    stickiness: float = 0.5
    now_ms: int = 0
    trace: list[Event] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    current: Task | None = None
    stopped: bool = False

    def __post_init__(self) -> None:
        self._hub = greenlet.getcurrent()
        self._deferred: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def spawn(self, name: str, work: Callable[[], None], wake_ms: int = 0) -> Task:
        """Add a task. Its steps begin when `run` is called."""
        task = Task(name, greenlet.greenlet(work, parent=self._hub), wake_ms)
        self.tasks.append(task)
        return task

    def defer(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Do something outside of all actors, such as a request that is carried out late."""
        heapq.heappush(self._deferred, (self.now_ms + delay_ms, next(self._numbers), action))

    def note(self, what: str) -> None:
        """Write a line of the trace."""
        self.trace.append(Event(self.now_ms, self.current.name if self.current else "-", what))

    def run(self) -> None:
        """Run until every task has ended, or `stopped` is set. Then carry out what was deferred."""
        task: Task | None = None
        while self.tasks and not self.stopped:
            self.now_ms += self.random.randint(0, _LONGEST_STEP_MS)
            self._carry_out()
            ready = [each for each in self.tasks if each.wake_ms <= self.now_ms]
            if not ready:
                self._advance()
                continue
            if task not in ready or self.random.random() >= self.stickiness:
                task = ready[self.random.randrange(len(ready))]
            assert task is not None
            self.current = task
            task.run.switch()
            self.current = None
            if task.run.dead:
                self.tasks.remove(task)
        while self._deferred and not self.stopped:
            self.now_ms = max(self.now_ms, self._deferred[0][0])
            self._carry_out()

    def close(self) -> None:
        """End the tasks that are left."""
        for task in self.tasks:
            if not task.run.dead and task.run:
                task.run.throw(Killed)
        self.tasks.clear()

    def step(self, what: str, pause_ms: int = 0) -> None:
        """Called by an actor at each of its steps. Returns when it is its turn again. Outside of tasks does nothing."""
        task = self.current
        if task is None:
            return
        self.trace.append(Event(self.now_ms, task.name, what))
        task.steps += 1
        task.wake_ms = FOREVER if pause_ms >= FOREVER else self.now_ms + pause_ms
        self._hub.switch()

    def restart_count(self) -> None:
        """The current task begins another operation."""
        if self.current is not None:
            self.current.steps = 0

    def _carry_out(self) -> None:
        while self._deferred and self._deferred[0][0] <= self.now_ms:
            heapq.heappop(self._deferred)[2]()

    def _advance(self) -> None:
        """Move the clock to the next thing that happens."""
        moments = [task.wake_ms for task in self.tasks if task.wake_ms < FOREVER]
        moments += [moment for moment, _, _ in self._deferred[:1]]
        if moments:
            self.now_ms = max(self.now_ms, min(moments))
            return
        self.now_ms += ZOMBIE_SLEEP_MS
        for task in self.tasks:
            task.wake_ms = self.now_ms
