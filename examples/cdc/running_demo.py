"""The parts of the running demo: servers and processes, how far they are, and the kills."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from examples.cdc import shop
from examples.cdc.connector import Connector
from examples.cdc.folder import Folder
from examples.cdc.postgres import Postgres, postgres
from examples.cdc.workload import Workload
from examples.kafka.broker import Broker, broker
from examples.shared.child_process import ChildEndedError, ChildProcess, daemon_process
from examples.shared.command import StuckError
from tidelog.log import Table
from tidelog.log.errors import TableNotFoundError

CUSTOMERS = 5_000
_RATE = 40.0
_LONGEST_DOWN_S = 3.0
_MOST_RESTARTS = 12
_MEND_S = 2.0


@dataclass(frozen=True, slots=True)
class Progress:
    """Transactions on the database, rows and versions of the tables, and how many of them have their marker."""

    transactions: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    versions: int = 0
    complete: int = 0
    parked: int = 0

    def __str__(self) -> str:
        rows = ", ".join(f"{name} {count:,}" for name, count in self.rows.items()) or "no table yet"
        return f"{self.transactions:,} transactions; {rows}; {self.versions:,} versions"


class Part(Protocol):
    """A part of the demo that can be killed and started again."""

    def crash(self) -> None: ...

    def start(self) -> None: ...


class Program:
    """A child process as a part."""

    def __init__(self, child: ChildProcess) -> None:
        self._child = child

    def start(self) -> None:
        self._child.start()

    def crash(self) -> None:
        self._child.kill()

    def has_ended(self) -> bool:
        return self._child.has_ended()

    def end(self) -> None:
        self._child.end()


class RunningDemo:
    """Everything that runs, and what still happens to it."""

    def __init__(self, folder: Folder, database: Postgres, running: Broker, seconds: float, seed: int) -> None:
        self.database = database
        self.workload = Workload(database, seconds, _RATE, seed)
        self.killed: list[str] = []
        self._folder = folder
        self._random = Random(seed)
        self._connector = Connector(folder.servers / "connect", running.address, database, prefix=shop.PREFIX)
        command = [sys.executable, "-m", "examples.cdc.stream", str(folder.root), running.address]
        self._stream = Program(ChildProcess("stream", command, folder.logs))
        self._daemon = Program(daemon_process(folder.logs, *map(folder.copy_of, shop.KEYS)))
        self._parts: dict[str, Part] = {
            "database": database,
            "connector": self._connector,
            "broker": running,
            "stream": self._stream,
            "daemon": self._daemon,
        }
        self._restarts = 0
        self._next_mend_s = 0.0
        self._markers: set[str] = set()

    def start(self) -> None:
        """Start the workload first, so that the connector's snapshot runs while rows change."""
        self.workload.start()
        self._connector.start()
        self._stream.start()
        self._daemon.start()

    def end(self) -> None:
        """End everything except the database and the broker."""
        self.workload.end()
        for part in (self._stream, self._daemon, self._connector):
            part.end()

    def draw_kills(self, seconds: float, kills: int) -> list[tuple[float, str]]:
        """The moments of the kills, in seconds since the start, each with its part: every part at least once."""
        names = [*self._parts]
        self._random.shuffle(names)
        names = [*names, *self._random.choices(names, k=max(0, kills - len(names)))][:kills]
        length = seconds / max(1, kills)
        return [((number + self._random.random()) * length, name) for number, name in enumerate(names)]

    def kill(self, name: str) -> None:
        """Kill a part, and start it again after a while."""
        self._parts[name].crash()
        time.sleep(self._random.uniform(0, _LONGEST_DOWN_S))
        self._parts[name].start()
        self.killed.append(name)

    def supervise(self) -> list[str]:
        """Start again what ended by itself, as a service manager does; returns the names.

        Raises ChildEndedError after too many of them, StuckError if the workload failed.
        """
        if self.workload.error is not None:
            raise StuckError(f"the workload failed: {self.workload.error!r}") from self.workload.error
        ended = [name for name in ("database", "connector", "stream", "daemon") if self._ended(name)]
        for name in ended:
            self._restarts += 1
            if self._restarts > _MOST_RESTARTS:
                raise ChildEndedError(f"the {name} ended by itself, after {_MOST_RESTARTS} restarts")
            self._parts[name].crash()
            self._parts[name].start()
        now_s = time.monotonic()
        if now_s >= self._next_mend_s:
            self._next_mend_s = now_s + _MEND_S
            if self._connector.mend():
                ended.append("connector's task")
        return ended

    def look(self) -> Progress:
        """The current progress."""
        found = {name: _table(self._folder.copy_of(name)) for name in shop.KEYS}
        tables = {name: table for name, table in found.items() if table is not None}
        complete = sum(name in tables and self._has_marker(name, tables[name]) for name in self._markers)
        parked = _table(self._folder.parked)
        return Progress(
            self.workload.transactions,
            {name: table.at().num_rows for name, table in tables.items()},
            sum(table.version for table in tables.values()),
            complete,
            0 if parked is None else parked.at().num_rows,
        )

    def mark(self) -> None:
        """Insert the last row of each table, after the workload."""
        with self.database.connect() as connection:
            for name in [each for each in shop.KEYS if each not in self._markers]:
                connection.execute(shop.MARKERS[name].encode())
                self._markers.add(name)

    def is_done(self, progress: Progress) -> bool:
        """Whether each table has its last row, and no record waits for its table."""
        return progress.complete == len(shop.KEYS) and progress.parked == 0

    def _ended(self, name: str) -> bool:
        part = self._parts[name]
        return isinstance(part, Postgres | Connector | Program) and part.has_ended()

    @staticmethod
    def _has_marker(name: str, table: Table) -> bool:
        key = shop.KEYS[name][0]
        marker = f"'{shop.MARKER_ID}'" if name == "documents" else str(shop.MARKER)
        return table.scan(where=f"{key} = {marker}").count() > 0


@contextmanager
def running_demo(folder: Folder, seconds: float, seed: int) -> Iterator[RunningDemo]:
    """Start everything; it ends with the block."""
    with ExitStack() as stack:
        database = stack.enter_context(postgres(folder.servers / "postgres"))
        with database.connect() as connection:
            shop.create(connection, CUSTOMERS)
        running = stack.enter_context(broker(folder.servers / "broker"))
        demo = RunningDemo(folder, database, running, seconds, seed)
        stack.callback(demo.end)
        demo.start()
        yield demo


def _table(path: Path) -> Table | None:
    """The table, or None if there is none yet."""
    try:
        return Table.open(str(path))
    except TableNotFoundError:
        return None
