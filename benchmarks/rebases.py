"""How long a commit takes that loses a race: `rebase_delete` and `rebase_append` of `benchmarks.peers`.

These are real commits on a local disk. The figures are the conflict rules alone (`rules_ms`, and `rules_cpu_ms` of CPU
time), everything between the put that lost and the next one (`between_puts_ms`, which includes reading the winners and
small files and writing deletion vectors), and the whole commit (`commit_ms`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tidelog.compaction_daemon import compact
from tidelog.log import Committed, Table
from tidelog.log.commit import race
from tidelog.log.conflict.rebase import Rebase
from tidelog.log.format.actions import AddFile
from tidelog.log.state.loader import load
from tidelog.log.storage.local import LocalStore
from tidelog.log.transaction import Transaction

# `number` counts the rows of each file, so that one predicate deletes rows of every file.
_SCHEMA = pa.schema([("k", pa.int64()), ("number", pa.int64())])


def delete_over_compaction(path: str, files: int, rows: int, deletes: int) -> dict[str, float]:
    """Delete the first rows of each file, while a compaction of all files commits first."""
    store, table = _create(path)
    transaction = table.begin()
    adds = [transaction.writer.write(_rows(number, rows)) for number in range(files)]
    transaction.stage_adds([add for written in adds for add in written]).commit()
    transaction = table.begin().delete(f"number < {deletes}")
    report = compact(path)
    assert report.files_removed == files
    figures = _commit(transaction, store)
    assert Table.open(path).scan().count() == files * (rows - deletes)
    return figures


def append_over_appends(path: str, winners: int) -> dict[str, float]:
    """Append, while very many other appends commit first."""
    store, table = _create(path)
    transaction = table.begin().insert(_rows(0, 1000))
    other = Table.open(path)
    for number in range(winners):
        # The file does not exist, since no one reads it.
        claim = AddFile(
            path=f"claim-{number}.parquet",
            partition_values={},
            size=1000,
            modification_time=number,
            data_change=True,
            stats='{"numRecords":1000}',
        )
        other.begin().stage_adds([claim]).commit()
    return _commit(transaction, store)


class _TimedStore(LocalStore):
    """Records when each put of a commit began and ended."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.puts: list[tuple[float, float]] = []

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        """See Store."""
        begin = time.perf_counter()
        try:
            super().put_if_absent(path, content, durable=durable)
        finally:
            if path.endswith(".json"):
                self.puts.append((begin, time.perf_counter()))


class _TimedRebase(Rebase):
    """Adds up the time of the conflict rules."""

    seconds = 0.0
    cpu_seconds = 0.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        with _timed():
            super().__init__(*arguments, **options)

    def fold(self, winner: Any, operation_class: Any) -> None:
        """See Rebase."""
        with _timed():
            super().fold(winner, operation_class)

    def judge(self, answers: Any = None) -> Any:
        """See Rebase."""
        with _timed():
            return super().judge(answers)


@contextmanager
def _timed() -> Iterator[None]:
    begin, cpu_begin = time.perf_counter(), time.process_time()
    yield
    _TimedRebase.seconds += time.perf_counter() - begin
    _TimedRebase.cpu_seconds += time.process_time() - cpu_begin


def _create(path: str) -> tuple[_TimedStore, Table]:
    Table.create(path, _SCHEMA)
    store = _TimedStore(path)
    return store, Table(store, load(store))


def _rows(number: int, rows: int) -> pa.Table:
    keys = pa.array(range(number * rows, (number + 1) * rows), pa.int64())
    return pa.table([keys, pa.array(range(rows), pa.int64())], schema=_SCHEMA)


def _commit(transaction: Transaction, store: _TimedStore) -> dict[str, float]:
    """Commit once, timing the rules within the commit loop."""
    store.puts.clear()
    _TimedRebase.seconds = _TimedRebase.cpu_seconds = 0.0
    untimed, race.Rebase = race.Rebase, _TimedRebase  # type: ignore[attr-defined]
    try:
        begin = time.perf_counter()
        outcome = transaction.commit()
        spent = time.perf_counter() - begin
    finally:
        race.Rebase = untimed  # type: ignore[attr-defined]
    assert isinstance(outcome, Committed)
    assert outcome.retried
    (_, lost), (won, _) = store.puts
    return {
        "rules_ms": _TimedRebase.seconds * 1000,
        "rules_cpu_ms": _TimedRebase.cpu_seconds * 1000,
        "between_puts_ms": (won - lost) * 1000,
        "commit_ms": spent * 1000,
    }
