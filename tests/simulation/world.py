"""One run: the store, the actors and the history of one scenario, and what was found wrong."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.log.oracle.settings import Setting, discard, fresh
from tests.log.support import START_MS
from tests.simulation import cloud, disk
from tests.simulation.epochs import Epochs
from tests.simulation.faults import Faults
from tests.simulation.files import File, Files
from tests.simulation.history import History, Owner, Signs
from tests.simulation.process import Process, SimSystem
from tests.simulation.record import Record
from tests.simulation.scenario import HOUR_MS, Scenario
from tests.simulation.scheduler import FOREVER, Scheduler
from tests.simulation.threads import SimEvent, SimLock, SimThread
from tidelog.compaction_daemon.compaction import applying
from tidelog.compaction_daemon.leases import lease
from tidelog.log import table as table_module
from tidelog.log.read import table_reader
from tidelog.log.storage import Store
from tidelog.log.storage.local import LocalStore
from tidelog.log.system import System

if TYPE_CHECKING:
    from tests.simulation.consuming import Progress

# Clocks further apart than this are beyond what clean-up allows for.
MAX_SKEW_MS = 2 * HOUR_MS
# An operation takes some dozens of steps, so that most zombies fall asleep within one.
_ZOMBIE_CHANCE = 0.02
_STALE_CHANCE = 0.3
_STORE_JUMPS_MS = (1_000, HOUR_MS, 72 * HOUR_MS)
_BEGIN_MS = START_MS + 10 * 24 * HOUR_MS


@dataclass(frozen=True)
class Objection:
    """Something that is wrong: the check that found it, and the facts."""

    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


class World:
    """The simulated world of a scenario. `run` it, then `audit` it."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.random = Random(scenario.seed)
        self.beside = Random(-1 - scenario.seed)
        self.scheduler = Scheduler(self.random, scenario.stickiness, _BEGIN_MS)
        self.faults = Faults(self.random, scenario.faults)
        self.objections: list[Objection] = []
        self.records: dict[Owner, Record] = {}
        self.cleaned_ms: list[int] = []
        self.progress: dict[str, Progress] = {}
        self.signs = Signs()
        self.active: Process | None = None
        self._ahead_ms = 0
        self._held: Counter[int] = Counter()
        self._waiting: dict[str, list[Any]] = {}
        self._ended: set[str] = set()
        self._changes: list[tuple[int, int | None, str, File | None]] = []
        self.history = History(
            self.object,
            lambda: self.scheduler.now_ms,
            lambda path: path in self.files.names,
            self._table_of,
            lambda: self.active.actor if self.active else None,
            None if scenario.skew_ms > MAX_SKEW_MS else 24 * HOUR_MS - 2 * scenario.skew_ms - HOUR_MS // 60,
        )
        self.epochs = Epochs(self)
        self.files = Files(self)
        stored = _initial(scenario.setting)
        self.files.load(stored)
        self.history.begin([stored[path][0] for path in sorted(stored) if re.fullmatch(r"_delta_log/\d+\.json", path)])

    # --- what the store tells

    def appeared(self, path: str, file: Any) -> None:
        """A name appeared."""
        self.history.appeared(path, file)
        self.epochs.appeared(path, file)
        self.signs.appeared(path, file)

    def vanished(self, path: str) -> None:
        """A name disappeared."""
        is_passing = path.endswith(".tmp") or path.startswith(("_tidelog/consumers/", "_tidelog/leases/"))
        if not is_passing and not self.history.is_own(path):
            self.cleaned_ms.append(self.scheduler.now_ms)
        self.history.vanished(path)

    def object(self, check: str, text: str) -> None:
        """Report a fault. The run ends at the next step."""
        self.scheduler.note(f"OBJECTION {check}: {text}")
        self.objections.append(Objection(check, text))
        self.scheduler.stopped = True

    # --- what happens to actors

    def fate(self, process: Process, operation: str, path: str) -> tuple[int, bool]:
        """How long a process waits at a call, and whether it dies there."""
        for number, hold in enumerate(self.scenario.holds):
            if hold.actor == process.name and hold.operation == operation and re.match(hold.path, path):
                self._held[number] += 1
                if self._held[number] == hold.nth:
                    if hold.until in self._ended:
                        return 0, hold.dies
                    if hold.until is not None:
                        self._waiting.setdefault(hold.until, []).extend((self.scheduler.current, *process.threads))
                    return (hold.pause_ms if hold.until is None else FOREVER), hold.dies
        scenario, chance = self.scenario, self.random.random()
        if chance < scenario.kill_chance:
            return 0, True
        if process.name in scenario.zombies and self.random.random() < _ZOMBIE_CHANCE:
            return FOREVER, False
        if chance >= scenario.kill_chance + scenario.pause_chance:
            return 0, False
        longest = scenario.longest_operation_ms - (self.scheduler.now_ms - process.began_ms)
        return min(self.random.choice((5, 50, 1_000, 60_000, HOUR_MS, 10 * HOUR_MS)), max(0, longest)), False

    def ended(self, name: str) -> None:
        """An actor has done all it had to. Who waited for it goes on."""
        self._ended.add(name)
        for task in self._waiting.pop(name, ()):
            task.wake_ms = self.scheduler.now_ms

    def changed(self, path: str, before: File | None) -> None:
        """Something happens to a name, under which there was `before`."""
        if self.scenario.stale_ms:
            actor = self.active.actor if self.active else None
            self._changes.append((self.scheduler.now_ms, actor, path, before))

    def listed(self, process: Process) -> Mapping[str, File]:
        """The names as a listing shows them: now and then without what others did a moment ago.

        A cache is new whenever its own machine changes the folder.
        """
        oldest_ms = self.scheduler.now_ms - self.scenario.stale_ms
        recent = list(
            itertools.takewhile(
                lambda change: change[0] > oldest_ms and change[1] != process.actor, reversed(self._changes)
            )
        )
        if not recent or not process.mortal or self.random.random() >= _STALE_CHANCE:
            return self.files.names
        names = dict(self.files.names)
        for _, _, path, before in recent[: self.random.randint(1, len(recent))]:
            names.pop(path, None)
            if before is not None:
                names[path] = before
        self.scheduler.note("  sees an old listing")
        return names

    def stamp_ms(self) -> int:
        """The modification time of what is written now, by the store's clock: it may jump, but never back."""
        if self.scenario.store_jump_chance and self.beside.random() < self.scenario.store_jump_chance:
            self._ahead_ms += self.beside.choice(_STORE_JUMPS_MS)
            self.scheduler.note(f"  the store's clock is now {self._ahead_ms} ms ahead")
        return self.store_ms

    @property
    def store_ms(self) -> int:
        """The time by the store's clock."""
        return self.scheduler.now_ms + self._ahead_ms

    # --- what actors use

    def connect(self, process: Process) -> tuple[Store, System]:
        """The store and the clock of a process."""
        skew_ms = self.random.randint(-self.scenario.skew_ms, self.scenario.skew_ms) if process.mortal else 0
        system = SimSystem(process, skew_ms)
        if self.scenario.store == "disk":
            return LocalStore(str(disk.ROOT), system=system, disk=disk.SimDisk(process)), system
        return cloud.SimObjectStore(process, system), system

    @property
    def is_disturbed(self) -> bool:
        """Whether anything was ever cleaned up or dropped, or a clean-up has committed that it will be."""
        current = self.history.current
        marks = (b"tidelog/horizon", b"tidelog/floor")
        announced = any(mark in written.content for written in current.commits.values() for mark in marks)
        return bool(self.cleaned_ms) or announced or len(self.history.incarnations) > 1 or current.ended

    @property
    def url(self) -> str:
        """The path of the table."""
        return str(disk.ROOT) if self.scenario.store == "disk" else cloud.URL

    @contextlib.contextmanager
    def acting(self, process: Process) -> Iterator[None]:
        """Whatever is done within the block is done for this process."""
        before, self.active = self.active, process
        try:
            yield
        finally:
            self.active = before

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Within the block `Table.create`, `open` and `drop` use the store and clock of the actor that calls them."""

        def opened(path: str, options: object = None) -> Store:
            del path, options
            assert self.active is not None
            return self.active.store

        with (
            mock.patch.object(table_module, "open_store", opened),
            mock.patch.object(table_reader, "open_store", opened),
            mock.patch.object(table_module, "REAL_SYSTEM", _Acting(self)),
            mock.patch.object(lease, "Lock", functools.partial(SimLock, self)),
            mock.patch.object(lease, "Event", functools.partial(SimEvent, self)),
            mock.patch.object(lease, "Thread", functools.partial(SimThread, self)),
            mock.patch.object(applying, "COMMIT_INTERVAL_S", self.scenario.commit_interval_s),
        ):
            yield

    def text(self, last: int = 400) -> str:
        """The end of the trace."""
        return "\n".join(map(str, self.scheduler.trace[-last:]))

    def _table_of(self, who: Owner) -> str | None:
        record = self.records.get(who)
        return record.table_id if record else None


class _Acting(System):
    """The clock and the ids of whoever acts now."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _system(self) -> System:
        assert self._world.active is not None
        return self._world.active.system

    def now_ms(self) -> int:
        return self._system().now_ms()

    def monotonic_s(self) -> float:
        return self._system().monotonic_s()

    def sleep_s(self, seconds: float) -> None:
        self._system().sleep_s(seconds)

    def uniform(self, low: float, high: float) -> float:
        return self._system().uniform(low, high)

    def uuid(self) -> str:
        return self._system().uuid()


@functools.cache
def _initial(setting: Setting) -> Mapping[str, tuple[bytes, int]]:
    """The files of a table with some commits, built once."""
    store, _ = fresh(setting)
    try:
        return dict(store._files)
    finally:
        discard(store)
