"""One loop of `benchmarks.conflict` in a process of its own: `python -m benchmarks.contenders ROLE ARGUMENTS`.

It prints `ready` when it is warm, begins when a line comes in, and prints its tally as one JSON object.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from benchmarks import loops
from benchmarks.loops import Refused, Tally
from tidelog.compaction_daemon import Daemon, DaemonConfig
from tidelog.log import Committed, Table
from tidelog.log.errors import TidelogError
from tidelog.log.state.loader import load
from tidelog.log.storage.local import LocalStore

STREAM = "stream"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("payload", pa.string())])


class CountingStore(LocalStore):
    """Adds up the sizes of the data files that are written: a compaction that fails does not report them."""

    written_bytes = 0

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """See Store."""
        with super().create(path) as file:
            yield file
        if path.endswith(".parquet") and not path.startswith("_"):
            self.written_bytes += (Path(self.url) / path).stat().st_size


class Contender:
    """A loop on a table that it opened."""

    def __init__(self, path: str) -> None:
        self._store = CountingStore(path)
        self._table = Table(self._store, load(self._store))
        self._counts = Tally()

    def run(self, role: str, seconds: float) -> Tally:
        """Do it until the time is over."""
        if role == "append":
            tally = loops.appends(self._append, seconds)
        elif role == "compact":
            # As the daemon does it, but never waiting until a rewrite pays: it is in the way as often as can be.
            self._daemon = Daemon([self._table], config=DaemonConfig(interval_s=loops.IDLE_S, growth=1.0))
            tally = loops.compactions(self._compact, seconds)
        else:
            act = {"delete": self._delete, "update": self._update}[role]
            tally = loops.statements(act, loops.keys(role, self._newest_batch), seconds)
        tally.counts = self._counts.counts
        return tally

    def _append(self, number: int) -> Refused | None:
        return self._commit(
            lambda: self._table.insert(rows(loops.batch_keys(number)), idempotency_key=(STREAM, number))
        )

    def _delete(self, key: int) -> Refused | None:
        return self._commit(lambda: self._table.delete(f"k = {key}"))

    def _update(self, key: int) -> Refused | None:
        return self._commit(lambda: self._table.update(f"k = {key}", {"v": "v + 1"}))

    def _compact(self, number: int) -> Refused | None:
        del number
        before = self._store.written_bytes
        report = self._daemon.step()
        for step in report.tables:
            if step.error is not None:
                self._counts.count("bytes_thrown_away", self._store.written_bytes - before)
                return Refused(type(step.error).__name__)
            self._counts.count("bytes_written", step.compaction.bytes_written)
            self._counts.count("bytes_thrown_away", step.compaction.wasted_bytes)
            self._counts.count("commits", step.compaction.did_anything)
            self._counts.count("rebased_over", len(step.compaction.rebased_over))
            self._counts.count("checkpoints", step.checkpointed)
        if not report.did_anything:
            time.sleep(loops.IDLE_S)
        return None

    def _newest_batch(self) -> int:
        return self._table.transactions.get(STREAM, -1)

    def _commit(self, statement: Callable[[], Committed]) -> Refused | None:
        try:
            committed = statement()
        except TidelogError as error:
            return Refused(type(error).__name__)
        self._counts.count("rebased", committed.retried)
        self._counts.count("rebased_over", len(committed.rebased_over))
        return None


class RunsAgain(logging.Handler):
    """Counts the statements that a conflict made run again, of which the log of the package tells."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.number = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Count one."""
        self.number += "running the statement again" in record.getMessage()


def rows(keys: range) -> pa.Table:
    """Rows with these keys as they are appended."""
    values = [list(keys), [0] * len(keys), [f"row {key}" for key in keys]]
    return pa.table([pa.array(column, field.type) for column, field in zip(values, SCHEMA, strict=True)], schema=SCHEMA)


def create(path: str) -> None:
    """The table with the rows that it has from the start."""
    Table.create(path, SCHEMA).insert(rows(range(loops.SEED_ROWS)))


def main(role: str, arguments: dict[str, Any]) -> None:
    again = RunsAgain()
    logger = logging.getLogger("tidelog.log.table")
    logger.addHandler(again)
    logger.setLevel(logging.INFO)
    # Another table: the first statement of a process pays for what later ones find ready.
    Contender(arguments["warm_up"]).run(role, arguments["warm_up_seconds"])
    again.number = 0
    contender = Contender(arguments["path"])
    print("ready", flush=True)
    sys.stdin.readline()
    tally = contender.run(role, arguments["seconds"])
    tally.count("run_again", again.number)
    print(json.dumps({role: tally.to_builtins()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
