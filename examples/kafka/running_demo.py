"""All that runs in the demo, how far it is, and what interrupts it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from examples.kafka import pipeline, topics
from examples.kafka.broker import Broker, broker
from examples.kafka.child import Child, python
from examples.kafka.folder import Folder
from examples.kafka.producer import Producer, Sent
from examples.kafka.topics import CHANGES, EVENTS, Reader, Record
from tidelog.log import Table

_PRODUCERS = 3
_POISON_EVERY = 25
# So many micro-batches at least, so that there is a middle in which to interrupt.
_BATCHES = 25
_BROKER_AWAY_S = 2.0
_MOST_REVIVALS = 3


class StuckError(Exception):
    """What should have come does not."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How many records are where; those written back by their keys."""

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
class Interruption:
    """Something that breaks, and is put right, once `due`."""

    what: str
    due: Callable[[Progress], bool]
    happen: Callable[[], None]


class Stage:
    """The broker, the producers, the programs, and a reader of what is written back."""

    def __init__(self, folder: Folder, running: Broker, records: int, rate: float) -> None:
        self.broker = running
        self.written_back: list[Record] = []
        self.happened: list[str] = []
        self._records = records
        root, address = str(folder.root), running.address
        self._writer = Child("writer", python("writer", root, address, str(records // _BATCHES)), folder.logs)
        self._consumer = Child("consumer", python("consumer", root, address), folder.logs)
        self._daemon = Child("daemon", _daemon(folder), folder.logs)
        self._producers = [
            Producer(address, number, len(range(number, records, _PRODUCERS)), rate / _PRODUCERS, _POISON_EVERY)
            for number in range(_PRODUCERS)
        ]
        self._table = Table.open(str(folder.table))
        self._dead_letters = Table.open(str(folder.dead_letters))
        self._reader = Reader(address, CHANGES)
        self._keys: set[bytes] = set()
        self._revivals = 0
        self._coming = [
            Interruption("the writer is killed, and started again", self._in_tables(0.15), self._writer.restart),
            Interruption("the broker is killed, and started again", self._in_tables(0.4), self._restart_broker),
            Interruption("the consumer is killed, and started again", self._back(0.6), self._consumer.restart),
        ]

    def start(self) -> None:
        """Start all of it."""
        for child in self._programs:
            child.start()
        for producer in self._producers:
            producer.start()

    def end(self) -> None:
        """End all but the broker."""
        for producer in self._producers:
            producer.end()
        self._end_programs()
        self._reader.close()

    def supervise(self) -> list[str]:
        """Start again what ended by itself, a few times, as whoever runs such programs does; returns their names.

        Raises ChildEndedError or StuckError for what cannot be helped.
        """
        ended = [child for child in self._programs if child.has_ended()]
        self._revivals += len(ended)
        for child in ended:
            if self._revivals > _MOST_REVIVALS:
                child.require_running()
            child.restart()
        for producer in self._producers:
            if producer.error is not None:
                raise StuckError(f"{producer.name} failed: {producer.error!r}") from producer.error
        return [child.name for child in ended]

    def look(self) -> Progress:
        """How far it is."""
        self._take(self._reader.news())
        return Progress(
            sum(producer.started for producer in self._producers),
            self._table.refresh().at().num_rows,
            self._dead_letters.refresh().at().num_rows,
            len(self._keys),
        )

    def due(self, progress: Progress) -> Interruption | None:
        """The next interruption, if its moment has come."""
        return self._coming[0] if self._coming and self._coming[0].due(progress) else None

    def interrupt(self, interruption: Interruption) -> None:
        """Let it happen; returns when what broke has been started again."""
        self._coming.remove(interruption)
        interruption.happen()
        self.happened.append(interruption.what.split(" is ")[0])

    def is_done(self, progress: Progress) -> bool:
        """Whether all has come, or more than that, which the checks will say."""
        return (
            not self._coming
            and not any(producer.is_alive() for producer in self._producers)
            and progress.rows + progress.dead_letters >= self._records
            and progress.written_back >= progress.rows
        )

    def drain(self) -> None:
        """End the programs, and read what they have written to its end."""
        self._end_programs()
        self._take(self._reader.rest())

    def sent(self) -> list[Sent]:
        """What the producers sent and the broker acknowledged."""
        return [each for producer in self._producers for each in producer.sent]

    @property
    def _programs(self) -> tuple[Child, ...]:
        return self._writer, self._consumer, self._daemon

    def _end_programs(self) -> None:
        for child in self._programs:
            child.end()

    def _take(self, news: Iterator[Record]) -> None:
        for record in news:
            self.written_back.append(record)
            self._keys.add(record.key)

    def _in_tables(self, share: float) -> Callable[[Progress], bool]:
        return lambda progress: progress.rows + progress.dead_letters >= share * self._records

    def _back(self, share: float) -> Callable[[Progress], bool]:
        return lambda progress: progress.written_back >= share * self._records

    def _restart_broker(self) -> None:
        self.broker.crash()
        time.sleep(_BROKER_AWAY_S)
        self.broker.start()


@contextmanager
def stage(folder: Folder, records: int, rate: float) -> Iterator[Stage]:
    """All of it at work; it ends with the block."""
    with ExitStack() as stack:
        running = stack.enter_context(broker(folder.broker))
        topics.create(running.address, [EVENTS, CHANGES])
        pipeline.create_tables(folder)
        made = Stage(folder, running, records, rate)
        stack.callback(made.end)
        made.start()
        yield made


def _daemon(folder: Folder) -> list[str]:
    """`tidelog daemon TABLE TABLE --json`, by this interpreter."""
    program = "from tidelog.compaction_daemon import cli; cli.main()"
    return [sys.executable, "-c", program, "daemon", str(folder.table), str(folder.dead_letters), "--json"]
