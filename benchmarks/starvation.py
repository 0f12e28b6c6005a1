"""Writers that race for the next version while some are killed: `benchmarks.conflict` asks how long one is left out.

Each writer is a process of its own, which inserts one row after the other as fast as it can:
`python -m benchmarks.starvation ENGINE TABLE FIRST_ID JOURNAL`. It notes each insert in its journal. A killed writer is
replaced by a new one.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import REPOSITORY, TIDELOG

SCHEMA = pa.schema([("id", pa.int64())])
# No writer makes as many inserts.
_IDS_OF_A_WRITER = 10**9


@dataclass
class Writer:
    """One writer process. `journal` has a line for each insert: the time, and the row's id or the error's name."""

    process: subprocess.Popen[bytes]
    journal: Path
    ended_s: float = 0.0

    def kill(self) -> None:
        """End the process at whatever it is doing."""
        self.ended_s = time.monotonic()
        self.process.kill()
        self.process.wait()


@dataclass
class Outcome:
    """What all writers did. A gap is a time in which a living writer made no commit."""

    longest_gap_s: float = 0.0
    ids: list[int] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    kills: int = 0

    def add(self, writer: Writer) -> None:
        """Read a writer's journal, of which the last line may be incomplete."""
        lines = writer.journal.read_text().split("\n")[:-1] if writer.journal.exists() else []
        last_s = None
        for moment, what in (line.split() for line in lines):
            if what.isdigit():
                self.ids.append(int(what))
            elif what != "ready":
                self.errors[what] = self.errors.get(what, 0) + 1
                continue
            if last_s is not None:
                self.longest_gap_s = max(self.longest_gap_s, float(moment) - last_s)
            last_s = float(moment)
        if last_s is not None:
            self.longest_gap_s = max(self.longest_gap_s, writer.ended_s - last_s)


def race(engine: str, path: str, work: Path, *, writers: int, seconds: float, kills_every_s: float) -> Outcome:
    """Let the writers race on a new table at `path`, and kill one of them every `kills_every_s` on average."""
    create(engine, path)
    chance = random.Random(1)
    ended: list[Writer] = []
    running: list[Writer] = []
    outcome = Outcome()

    def start() -> None:
        number = len(ended) + len(running)
        journal = work / f"{engine}-{number}"
        command = [sys.executable, "-m", "benchmarks.starvation", engine, path, str(number * _IDS_OF_A_WRITER)]
        running.append(Writer(subprocess.Popen([*command, str(journal)], cwd=REPOSITORY), journal))

    try:
        for _ in range(writers):
            start()
        wait_for(writer.journal for writer in running)
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, chance.uniform(0, 2 * kills_every_s)))
            if time.monotonic() < end_s:
                victim = running.pop(chance.randrange(len(running)))
                victim.kill()
                ended.append(victim)
                outcome.kills += 1
                start()
    finally:
        for writer in running:
            writer.kill()
    for writer in (*ended, *running):
        outcome.add(writer)
    return outcome


def wait_for(journals: Iterable[Path]) -> None:
    """Wait until each writer has opened the table."""
    for journal in journals:
        while not journal.exists():
            time.sleep(0.01)


def create(engine: str, path: str) -> None:
    """Create the empty table."""
    if engine == TIDELOG:
        from tidelog.log import Table

        Table.create(path, SCHEMA)
    else:
        from deltalake import DeltaTable

        DeltaTable.create(path, SCHEMA)


def inserter(engine: str, path: str) -> Callable[[pa.Table], object]:
    """How the engine adds rows, on a table that stays open."""
    if engine == TIDELOG:
        from tidelog.log import Table

        return Table.open(path).insert
    from deltalake import DeltaTable, write_deltalake

    table = DeltaTable(path)
    return lambda rows: write_deltalake(table, rows, mode="append")


def main(engine: str, path: str, first: int, journal: str) -> None:
    """Insert until killed."""
    insert = inserter(engine, path)
    with Path(journal).open("w") as notes:

        def note(what: object) -> None:
            notes.write(f"{time.monotonic()} {what}\n")
            notes.flush()

        note("ready")
        for number in range(first, first + _IDS_OF_A_WRITER):
            try:
                insert(pa.table({"id": [number]}, schema=SCHEMA))
            except Exception as error:  # noqa: BLE001 - the peer's errors have no common class
                note(type(error).__name__)
            else:
                note(number)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
