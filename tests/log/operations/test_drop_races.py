"""What sleeps through a drop and a create of another table at the same path, and writers beside a drop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from tests.log.faults import Around
from tests.log.operations.dropping import old_table
from tests.log.support import NUMBERS, Clock, memory_store, new_table, numbers, read_numbers
from tidelog.log import Table
from tidelog.log.errors import (
    DataFileMissingError,
    TableNotFoundError,
    TableReplacedError,
    TidelogError,
)
from tidelog.log.operations import drop_table
from tidelog.log.state.loader import LogState, load
from tidelog.log.storage import Store
from tidelog.log.storage.local import Disk, LocalStore
from tidelog.log.system import REAL_SYSTEM

DAY_MS = 86_400_000


class Paused(Around):
    """Something happens just before the n-th call."""

    def __init__(self, inner: Store, at: int, happens: Callable[[], object]) -> None:
        super().__init__(inner)
        self.calls = 0
        self._at = at
        self._happens = happens

    def _pass(self) -> None:
        self.calls += 1
        if self.calls == self._at:
            self._happens()

    def read(self, path: str) -> bytes:
        self._pass()
        return super().read(path)

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        self._pass()
        super().put_if_absent(path, content, durable=durable)

    def delete(self, path: str) -> None:
        self._pass()
        super().delete(path)

    def list(self, folder: str) -> list:  # type: ignore[type-arg]
        self._pass()
        return super().list(folder)

    def walk(self, folder: str = ""):  # type: ignore[no-untyped-def]  # noqa: ANN201
        self._pass()
        return super().walk(folder)

    def modified_ms(self, path: str) -> int:
        self._pass()
        return super().modified_ms(path)


class DropsBetween(Disk):
    """The table is dropped when a data file was written, before it or its folder is made durable."""

    def __init__(self, path: Path, *, before_a_file: bool) -> None:
        self._path = path
        self._before_a_file = before_a_file
        self.is_due = False

    def open_descriptor(self, path: Path) -> int:
        is_file = path.suffix == ".parquet"
        if self.is_due and is_file == self._before_a_file and any(self._path.rglob("*.parquet")):
            self.is_due = False
            Table.drop(str(self._path))
        return super().open_descriptor(path)

    def for_each(self, action: Callable[[Path], None], paths: Collection[Path]) -> None:
        for path in paths:
            action(path)


def paused_at_each_step(act: Callable[[Store, LogState], object]) -> None:
    """Run `act` on the old table again and again; before another one of its steps, the path gets a new table."""
    for at in range(1, 500):
        inner = memory_store()
        old_table(inner)
        rows: list[int] = []

        def happens(inner: Store = inner, rows: list[int] = rows) -> None:
            with contextlib.suppress(TableNotFoundError):  # what is paused has dropped it
                drop_table.drop(inner, REAL_SYSTEM)
            new_table(inner).insert(numbers([100, 101]))
            rows += [100, 101]

        store, state = Paused(inner, at, happens), load(inner)
        try:
            act(store, state)
        except TidelogError as error:
            refusals = (TableReplacedError, TableNotFoundError, DataFileMissingError)
            assert isinstance(error, refusals), at  # noqa: PT017 - it need not fail
        if store.calls < at:
            assert at > 3
            return
        try:
            table = Table.open(inner.url)
        except TableNotFoundError:  # the new table was dropped, as a drop that began late may do
            assert act is drop_paused, at
            table = new_table(inner)
            rows.clear()
        assert read_numbers(table) == rows, f"paused at step {at}"
        table.insert(numbers([102]))
        assert read_numbers(Table.open(inner.url)) == [*rows, 102]
        assert Table.open(inner.url).changes().to_arrow()["n"].to_pylist() == [*rows, 102]
    raise AssertionError("it never ended")


def drop_paused(store: Store, _: LogState) -> None:
    drop_table.drop(store, REAL_SYSTEM)


def expire_paused(store: Store, state: LogState) -> None:
    clock = Clock(REAL_SYSTEM.now_ms() + 40 * DAY_MS)
    assert Table(store, state, clock).expire(older_than=timedelta(days=2)).commits == 2


@pytest.mark.parametrize(
    "act",
    [
        drop_paused,
        expire_paused,
        lambda store, state: Table(store, state).insert(numbers([1])),
        lambda store, state: Table(store, state).delete("n = 2"),
        lambda store, state: Table(store, state).checkpoint(),
    ],
    ids=["drop", "expire", "insert", "delete", "checkpoint"],
)
def test_whatever_sleeps_through_a_drop_and_a_create_does_no_harm(act: Callable[[Store, LogState], object]) -> None:
    paused_at_each_step(act)


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_drop_deletes_the_files_that_an_insert_is_writing(tmp_path: Path, partitions: int) -> None:
    """One file is made durable with its folder as soon as it is written; several are synced at the end."""
    path = tmp_path / "t"
    Table.create(str(path), pa.schema([("n", pa.int64()), ("part", pa.int64())]), partition_by=["part"])
    disk = DropsBetween(path, before_a_file=partitions > 1)
    store = LocalStore(str(path), disk=disk)
    table = Table(store, load(store))
    disk.is_due = True
    with pytest.raises(TableNotFoundError, match="was dropped at version 1"):
        table.insert([{"n": part, "part": part} for part in range(partitions)])
    assert not disk.is_due
    assert not list(tmp_path.rglob("*.parquet"))


# --- a writer beside a drop ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", range(5))
def test_writers_beside_a_drop_are_refused_or_come_first(tmp_path: Path, run: int) -> None:
    path = str(tmp_path / "t")
    Table.create(path, NUMBERS)
    committed: list[int] = []
    refused: list[Exception] = []

    def write() -> None:
        try:
            table = Table.open(path)
            for value in range(1000):
                version = table.insert(numbers([value])).version
                committed.append(version)
        except TidelogError as error:
            refused.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    while len(committed) < 3 * run:
        writer.join(0.001)
    Table.drop(path)
    writer.join()
    assert [type(error) for error in refused] == [TableNotFoundError]
    with pytest.raises(TableNotFoundError, match=f"was dropped at version {len(committed) + 1}"):
        Table.open(path)
    assert committed == list(range(1, len(committed) + 1))
    assert Table.create(path, NUMBERS).version == len(committed) + 2
