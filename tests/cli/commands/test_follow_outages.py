"""`tidelog changes --follow` above a store that does not answer for a while."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from typer.testing import Result

from tests.cli.support import run
from tests.log.faults import Around
from tests.log.support import NUMBERS, numbers
from tidelog.cli import follow as module
from tidelog.cli import parameters
from tidelog.cli.follow import Stop
from tidelog.log import Table
from tidelog.log.consumers.administration import remove_consumer
from tidelog.log.consumers.consumer_status import consumers
from tidelog.log.errors import StoreUnavailableError
from tidelog.log.state.loader import load
from tidelog.log.storage import FileStatus, Store
from tidelog.log.system import REAL_SYSTEM, System


class Outages(Around):
    """While `is_down`, nothing is stored or read below the folder or with the ending that `concerns` names."""

    def __init__(self, inner: Store, concerns: str = "") -> None:
        super().__init__(inner)
        self.is_down = False
        self.refused = 0
        self._concerns = concerns

    def _ask(self, path: str) -> None:
        if self.is_down and (path.startswith(self._concerns) or path.endswith(self._concerns)):
            self.refused += 1
            self._refuse(path)

    def _refuse(self, path: str) -> NoReturn:
        raise StoreUnavailableError("the store does not answer", path=path)

    def read(self, path: str) -> bytes:
        self._ask(path)
        return super().read(path)

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        self._ask(path)
        super().put_if_absent(path, content, durable=durable)

    def list(self, folder: str) -> list[FileStatus]:
        self._ask(folder)
        return super().list(folder)

    def walk(self, folder: str = "") -> Iterator[tuple[str, FileStatus]]:
        self._ask(folder)
        return super().walk(folder)

    def open_input(self, path: str) -> Any:
        self._ask(path)
        return super().open_input(path)

    def modified_ms(self, path: str) -> int:
        self._ask(path)
        return super().modified_ms(path)


class Clock(System):
    """A clock that only waits move."""

    def __init__(self) -> None:
        self.waited_s = 0.0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + round(self.waited_s * 1000)

    def monotonic_s(self) -> float:
        return self.waited_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the commands that follow."""
    found = Clock()
    monkeypatch.setattr(module, "REAL_SYSTEM", found)
    return found


@pytest.fixture
def following(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command in this process above a store. `at_wait` is called at its waits, and says whether to stop."""

    def follow(store: Store, at_wait: Callable[[int], bool], *arguments: str) -> Result:
        count = 0

        def wait(stop: Stop, seconds: float) -> None:
            nonlocal count
            count += 1
            assert count < 1000
            clock.waited_s += seconds
            stop.is_set = at_wait(count)

        with monkeypatch.context() as patched:
            patched.setattr(Stop, "wait", wait)
            patched.setattr(parameters, "open_table", lambda *_: Table(store, load(store)))
            return run("changes", store.url, "--follow", "--json", *arguments)

    return follow


def rows(result: Result) -> list[int]:
    return [json.loads(line)["n"] for line in result.stdout.splitlines()]


@pytest.mark.parametrize("concerns", ["", "_delta_log", ".parquet", "_tidelog/consumers"])
def test_an_outage_is_waited_out(counted: Table, following: Callable[..., Result], concerns: str) -> None:
    """Whatever fails between commits is repeated, and no row is printed twice: neither now nor after a restart."""
    store = Outages(counted.store, concerns)

    def at_wait(count: int) -> bool:
        if count == 1:
            counted.insert(numbers([4]))
            store.is_down = True
        store.is_down &= count != 6
        return count == 7

    done = following(store, at_wait, "--consumer", "c")
    assert store.refused >= 5
    assert (done.exit_code, rows(done)) == (0, [1, 2, 3, 4])
    first, second = done.stderr.splitlines()
    assert first.startswith("trying again for 10 minutes: TIDELOG_STORE_UNAVAILABLE: the store d")
    assert second.startswith("the store answers again, after ")
    (status,) = consumers(counted.store, counted.refresh().head, REAL_SYSTEM)
    assert (status.position, status.owner) == (4, None)


def test_a_long_outage_ends_the_command(counted: Table, following: Callable[..., Result], clock: Clock) -> None:
    store = Outages(counted.store)

    def at_wait(_count: int) -> bool:
        store.is_down = True
        return False

    done = following(store, at_wait)
    assert (done.exit_code, rows(done)) == (1, [1, 2, 3])
    assert 600 <= clock.waited_s < 640
    first, second = done.stderr.splitlines()
    assert first.startswith("trying again for 10 minutes: ")
    assert second.startswith("TIDELOG_STORE_UNAVAILABLE: the store does not answer")


def test_a_commit_in_between_ends_an_outage(counted: Table, following: Callable[..., Result], clock: Clock) -> None:
    """The bound is for one outage, not for all of them while a backlog is printed."""

    class Flaky(Outages):
        """Each data file can be read at the 12th attempt, after more than 3 minutes."""

        def open_input(self, path: str) -> Any:
            self.refused += 1
            if self.refused % 12:
                self._refuse(path)
            return super().open_input(path)

    for number in (4, 5):
        counted.insert(numbers([number]))
    store = Flaky(counted.store, "nothing")
    done = following(store, lambda _count: store.refused == 60)
    assert (done.exit_code, rows(done)) == (0, [1, 2, 3, 4, 5])
    assert clock.waited_s > 600
    assert done.stderr.count("trying again") == done.stderr.count("answers again") == 5


def test_a_signal_ends_an_outage(counted: Table, following: Callable[..., Result]) -> None:
    store = Outages(counted.store)

    def at_wait(count: int) -> bool:
        store.is_down = True
        return count == 4

    done = following(store, at_wait)
    assert (done.exit_code, rows(done)) == (0, [1, 2, 3])
    assert done.stderr.count("\n") == 1


def test_nothing_is_repeated_amid_the_rows_of_a_commit(tmp_path: Path, following: Callable[..., Result]) -> None:
    """Rows of the first of two files were printed when the second one cannot be read. A restart prints both."""

    class SecondFile(Outages):
        def open_input(self, path: str) -> Any:
            self.refused += 1
            if self.refused == 3:
                self._refuse(path)
            return super().open_input(path)

    table = Table.create(str(tmp_path / "t"), NUMBERS.append(pa.field("part", pa.int64())), partition_by=["part"])
    table.insert([{"n": 1, "part": 0}])
    table.insert([{"n": 2, "part": 0}, {"n": 3, "part": 1}])
    done = following(SecondFile(table.store, "nothing"), lambda _count: True, "--consumer", "c")
    assert (done.exit_code, rows(done)) == (1, [1, 2])
    assert done.stderr.startswith("TIDELOG_STORE_UNAVAILABLE")
    again = following(table.store, lambda _count: True, "--consumer", "c")
    assert (again.exit_code, rows(again)) == (0, [2, 3])


def test_who_lost_the_name_in_an_outage_prints_nothing_more(counted: Table, following: Callable[..., Result]) -> None:
    store = Outages(counted.store)

    def at_wait(count: int) -> bool:
        store.is_down = count < 8
        if count == 7:
            remove_consumer(counted.store, counted.head, "c", system=REAL_SYSTEM)
            counted.insert(numbers([4]))
        return count == 20

    done = following(store, at_wait, "--consumer", "c")
    assert (done.exit_code, rows(done)) == (1, [1, 2, 3])
    assert "TIDELOG_FENCED" in done.stderr
