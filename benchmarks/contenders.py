"""One loop of `benchmarks.conflict` in a separate process: `python -m benchmarks.contenders ROLE ARGUMENTS`.

It warms up, prints `ready`, begins when it reads a line, and prints its tally as one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from benchmarks import loops
from benchmarks.loops import Refused, Tally
from tidelog.compaction_daemon import Daemon, DaemonConfig
from tidelog.log import Committed, Table, Transaction
from tidelog.log.errors import TidelogError
from tidelog.log.state.loader import load
from tidelog.log.storage.local import LocalStore

STREAM = "stream"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("payload", pa.string())])


class CountingStore(LocalStore):
    """Adds up the sizes of written data files, because a failed compaction does not report them."""

    written_bytes = 0

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """See Store."""
        return self._counted(super().create(path), path)

    def create_unsynced(self, path: str) -> AbstractContextManager[BinaryIO]:
        """See Store."""
        return self._counted(super().create_unsynced(path), path)

    @contextmanager
    def _counted(self, created: AbstractContextManager[BinaryIO], path: str) -> Iterator[BinaryIO]:
        with created as file:
            yield file
        if path.endswith(".parquet") and not path.startswith("_"):
            self.written_bytes += (Path(self.url) / path).stat().st_size


class CountingTable(Table):
    """Counts its transactions: a statement begins a new one each time that it runs."""

    begun = 0

    def begin(self) -> Transaction:
        """See Table."""
        self.begun += 1
        return super().begin()


class Contender:
    """The loops on one table, which it opens."""

    def __init__(self, path: str) -> None:
        self._store = CountingStore(path)
        self._table = CountingTable(self._store, load(self._store))
        self._counts = Tally()

    def run(self, role: str, seconds: float) -> Tally:
        """Run one loop until the time is up."""
        if role == "append":
            tally = loops.appends(self._append, seconds)
        elif role == "compact":
            # The daemon, but it rewrites even if that does not pay yet, to cause as many conflicts as possible.
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
        begun = self._table.begun
        try:
            committed = statement()
        except TidelogError as error:
            return Refused(type(error).__name__)
        finally:
            self._counts.count("run_again", self._table.begun - begun - 1)
        self._counts.count("rebased", committed.retried)
        self._counts.count("rebased_over", len(committed.rebased_over))
        return None


def rows(keys: range) -> pa.Table:
    """New rows with these keys."""
    values = [list(keys), [0] * len(keys), [f"row {key}" for key in keys]]
    return pa.table([pa.array(column, field.type) for column, field in zip(values, SCHEMA, strict=True)], schema=SCHEMA)


def create(path: str) -> None:
    """Create the table with its initial rows."""
    Table.create(path, SCHEMA).insert(rows(range(loops.SEED_ROWS)))


def main(role: str, arguments: dict[str, Any]) -> None:
    # Warm up on another table, since the first statements of a process are slower.
    Contender(arguments["warm_up"]).run(role, arguments["warm_up_seconds"])
    contender = Contender(arguments["path"])
    print("ready", flush=True)
    sys.stdin.readline()
    tally = contender.run(role, arguments["seconds"])
    print(json.dumps({role: tally.to_builtins()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
