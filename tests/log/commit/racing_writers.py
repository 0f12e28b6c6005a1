"""Writers that race on one table in simulated time: the same seed gives the same race, and no test waits."""

from __future__ import annotations

import heapq
import random
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import count

from greenlet import getcurrent, greenlet

from tests.log.support import START_MS, add, memory_url, new_table
from tidelog.log import Table
from tidelog.log.errors import CommitContentionError
from tidelog.log.state.loader import load
from tidelog.log.storage.memory import MemoryStore
from tidelog.log.system import System

# What a request to the store takes on average. Writing a data file takes two of them.
REQUEST_S = 0.01


@dataclass
class Racer:
    """One writer: its commits, the longest time without one while it was alive, and how often it gave up."""

    slowness: float
    began_s: float = 0.0
    commits: int = 0
    longest_gap_s: float = 0.0
    gave_up: int = 0
    task: greenlet | None = None

    def mark(self, now_s: float) -> None:
        """A gap ends: a commit, a death, or the end of the race."""
        self.longest_gap_s = max(self.longest_gap_s, now_s - self.began_s)
        self.began_s = now_s


@dataclass
class Race(System):
    """The clock, the randomness and the scheduler of a race. One task runs at a time, until it waits for something."""

    seed: int
    now_s: float = START_MS / 1000
    waiting: list[tuple[float, int, greenlet]] = field(default_factory=list)
    racers: list[Racer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._order = count()
        self._main = getcurrent()

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s

    def in_background(self, work: Callable[[], None]) -> None:
        """Nothing: threads are not simulated."""

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128)))

    def sleep_s(self, seconds: float) -> None:
        if getcurrent() is not self._main:
            self._schedule(getcurrent(), seconds)
            self._main.switch()

    def request(self, requests: float = 1.0) -> None:
        """Let the time pass that some requests of the current task take."""
        slowness = next((racer.slowness for racer in self.racers if racer.task is getcurrent()), 1.0)
        self.sleep_s(requests * REQUEST_S * slowness * self.uniform(0.5, 1.5))

    def run(self, seconds: float, slowness: Collection[float], *, kills_every_s: float | None = None) -> list[Racer]:
        """Race for some simulated seconds with one writer for each `slowness`, the factor on its request times."""
        store = _SlowStore(memory_url(), self)
        new_table(store, system=self)
        end_s = self.now_s + seconds
        self.racers = [Racer(factor) for factor in slowness]
        for racer in self.racers:
            self._start(racer, store)
        if kills_every_s is not None:
            self._schedule(greenlet(lambda: self._kill(store, kills_every_s)), kills_every_s)
        while self.waiting and self.now_s < end_s:
            due_s, _, task = heapq.heappop(self.waiting)
            self.now_s = max(self.now_s, due_s)
            task.switch()
        for racer in self.racers:
            racer.mark(self.now_s)
        assert load(store).head.version >= sum(racer.commits for racer in self.racers)
        return self.racers

    def _start(self, racer: Racer, store: MemoryStore) -> None:
        racer.began_s = self.now_s
        racer.task = greenlet(self._writer(racer, store))
        self._schedule(racer.task, 0)

    def _writer(self, racer: Racer, store: MemoryStore) -> Callable[[], None]:
        def write() -> None:
            table = Table(store, load(store), self)
            while True:
                self.request(2)
                try:
                    table.begin().stage_adds([add(self.uuid())]).commit()
                except CommitContentionError:
                    racer.gave_up += 1
                else:
                    racer.commits += 1
                    racer.mark(self.now_s)

        return write

    def _kill(self, store: MemoryStore, every_s: float) -> None:
        """Kill a writer at any step, without a chance to clean up, and start it again."""
        while True:
            racer = self._random.choice(self.racers)
            self.waiting = [entry for entry in self.waiting if entry[2] is not racer.task]
            heapq.heapify(self.waiting)
            racer.mark(self.now_s)
            self._start(racer, store)
            self.sleep_s(self.uniform(0, 2 * every_s))

    def _schedule(self, task: greenlet, seconds: float) -> None:
        heapq.heappush(self.waiting, (self.now_s + seconds, next(self._order), task))


class _SlowStore(MemoryStore):
    """A store in memory whose requests take simulated time."""

    def __init__(self, url: str, race: Race) -> None:
        super().__init__(url, system=race)
        self._race = race

    def read(self, path: str) -> bytes:
        self._race.request()
        return super().read(path)

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        self._race.request(0.5)
        try:
            super().put_if_absent(path, content, durable=durable)
        finally:
            self._race.request(0.5)

    def names(self, folder: str) -> Collection[str]:
        self._race.request()
        return super().names(folder)

    def modified_ms(self, path: str) -> int:
        self._race.request()
        return super().modified_ms(path)
