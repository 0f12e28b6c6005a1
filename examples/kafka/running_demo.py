"""The parts of the running demo: its processes, their progress, and the crashes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from examples.kafka import pipeline, topics
from examples.kafka.broker import Broker, broker
from examples.kafka.folder import Folder
from examples.kafka.producer import Producer, Sent
from examples.kafka.topics import CHANGES, EVENTS, Reader, Record
from examples.shared.child_process import ChildProcess, daemon_process
from tidelog.log import Table

_PRODUCERS = 3
_POISON_EVERY = 25
# At least this many micro-batches, so that crashes happen in the middle of the run.
_BATCHES = 25
_BROKER_DOWN_S = 2.0
_MAX_RESTARTS = 3


class StuckError(Exception):
    """The demo makes no progress, or a producer failed."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of records and rows; `written_back` counts distinct keys."""

    produced: int = 0
    rows: int = 0
    dead_letters: int = 0
    written_back: int = 0

    def __str__(self) -> str:
        return (
            f"produced {self.produced:,}, in the table {self.rows:,}, dead letters {self.dead_letters:,}, "
            f"written back {self.written_back:,}"
        )


@dataclass(frozen=True, slots=True)
class Crash:
    """The part of the demo called `name` is killed and restarted once `is_due`."""

    name: str
    is_due: Callable[[Progress], bool]
    kill_and_restart: Callable[[], None]


class RunningDemo:
    """The broker, the producers, the child processes, and a reader of the records that are written back."""

    def __init__(self, folder: Folder, running: Broker, records: int, rate: float) -> None:
        self.broker = running
        self.written_back: list[Record] = []
        self.crashed: list[str] = []
        self._records = records
        root, address = str(folder.root), running.address
        self._writer = _module_process("writer", folder.logs, root, address, str(records // _BATCHES))
        self._consumer = _module_process("consumer", folder.logs, root, address)
        self._daemon = daemon_process(folder.logs, folder.table, folder.dead_letters)
        self._producers = [
            Producer(address, number, len(range(number, records, _PRODUCERS)), rate / _PRODUCERS, _POISON_EVERY)
            for number in range(_PRODUCERS)
        ]
        self._table = Table.open(str(folder.table))
        self._dead_letters = Table.open(str(folder.dead_letters))
        self._reader = Reader(address, CHANGES)
        self._keys: set[bytes] = set()
        self._restarts = 0
        self._planned = [
            Crash("writer", self._share_in_tables(0.15), self._writer.restart),
            Crash("broker", self._share_in_tables(0.4), self._restart_broker),
            Crash("consumer", self._share_written_back(0.6), self._consumer.restart),
        ]

    def start(self) -> None:
        """Start everything except the broker, which is running."""
        for child in self._children:
            child.start()
        for producer in self._producers:
            producer.start()

    def end(self) -> None:
        """End everything except the broker."""
        for producer in self._producers:
            producer.end()
        self._end_children()
        self._reader.close()

    def supervise(self) -> list[str]:
        """Restart processes that ended unexpectedly, as a service manager does; returns their names.

        Raises ChildEndedError after too many restarts, StuckError if a producer failed.
        """
        ended = [child for child in self._children if child.has_ended()]
        self._restarts += len(ended)
        for child in ended:
            if self._restarts > _MAX_RESTARTS:
                child.require_running()
            child.restart()
        for producer in self._producers:
            if producer.error is not None:
                raise StuckError(f"{producer.name} failed: {producer.error!r}") from producer.error
        return [child.name for child in ended]

    def look(self) -> Progress:
        """The current progress."""
        self._take(self._reader.news())
        return Progress(
            sum(producer.started for producer in self._producers),
            self._table.refresh().at().num_rows,
            self._dead_letters.refresh().at().num_rows,
            len(self._keys),
        )

    def due_crash(self, progress: Progress) -> Crash | None:
        """The next crash, if it is due."""
        return self._planned[0] if self._planned and self._planned[0].is_due(progress) else None

    def carry_out(self, crash: Crash) -> None:
        """Let the crash happen; returns after the restart."""
        self._planned.remove(crash)
        crash.kill_and_restart()
        self.crashed.append(crash.name)

    def is_done(self, progress: Progress) -> bool:
        """Whether every record has arrived; if some arrived twice, the checks say so."""
        return (
            not self._planned
            and not any(producer.is_alive() for producer in self._producers)
            and progress.rows + progress.dead_letters >= self._records
            and progress.written_back >= progress.rows
        )

    def drain(self) -> None:
        """End the child processes, and read everything that they have written back."""
        self._end_children()
        self._take(self._reader.rest())

    def sent(self) -> list[Sent]:
        """The records that the broker acknowledged."""
        return [each for producer in self._producers for each in producer.sent]

    @property
    def _children(self) -> tuple[ChildProcess, ...]:
        return self._writer, self._consumer, self._daemon

    def _end_children(self) -> None:
        for child in self._children:
            child.end()

    def _take(self, news: Iterator[Record]) -> None:
        for record in news:
            self.written_back.append(record)
            self._keys.add(record.key)

    def _share_in_tables(self, share: float) -> Callable[[Progress], bool]:
        return lambda progress: progress.rows + progress.dead_letters >= share * self._records

    def _share_written_back(self, share: float) -> Callable[[Progress], bool]:
        return lambda progress: progress.written_back >= share * self._records

    def _restart_broker(self) -> None:
        self.broker.crash()
        time.sleep(_BROKER_DOWN_S)
        self.broker.start()


@contextmanager
def running_demo(folder: Folder, records: int, rate: float) -> Iterator[RunningDemo]:
    """Start everything; it ends with the block."""
    with ExitStack() as stack:
        running = stack.enter_context(broker(folder.broker))
        topics.create(running.address, [EVENTS, CHANGES])
        pipeline.create_tables(folder)
        demo = RunningDemo(folder, running, records, rate)
        stack.callback(demo.end)
        demo.start()
        yield demo


def _module_process(name: str, logs: Path, *arguments: str) -> ChildProcess:
    """A module of this package as a process."""
    return ChildProcess(name, [sys.executable, "-m", f"examples.kafka.{name}", *arguments], logs)
