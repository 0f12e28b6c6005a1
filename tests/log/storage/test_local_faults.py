"""Errors of the operating system around the durable step of a local commit: each is reported as what it is."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.log.support import NUMBERS, Clock, numbers, read_numbers
from tidelog.log import Table
from tidelog.log.errors import CommitStateUnknownError, PathNotWritableError, StoreUnavailableError
from tidelog.log.state.loader import load
from tidelog.log.storage import NotDurableError, NotStoredError
from tidelog.log.storage.local import Disk, LocalStore
from tidelog.log.storage.store import NotReadError


class Faulty(Disk):
    """One kind of call fails, before or after its effect, while a commit is put."""

    def __init__(self) -> None:
        self.kind = ""
        self.code = 0
        self.after = False
        self._linked = False
        self.unreadable = ""

    def strike(self, kind: str, code: int, *, after: bool = False) -> None:
        self.kind, self.code, self.after, self._linked = kind, code, after, False

    def read(self, path: str, start_bytes: int | None = None) -> bytes:
        self._look(path)
        return super().read(path, start_bytes)

    def open_input(self, path: Path) -> Any:
        self._look(str(path))
        return super().open_input(path)

    def entries(self, folder: Path) -> list[os.DirEntry[str]]:
        self._look(f"{folder}/")
        return super().entries(folder)

    def open_descriptor(self, path: Path) -> int:
        if self.kind == "open folder" and path.name == "_delta_log":
            self._fail()
        return super().open_descriptor(path)

    def fsync(self, descriptor: int) -> None:
        if self.kind == "fsync file" or (self.kind == "fsync folder" and self._linked):
            self._fail()
        super().fsync(descriptor)

    def close(self, descriptor: int) -> None:
        super().close(descriptor)
        if self.kind == "close folder" and self._linked:
            self._fail()

    def link(self, source: Path, target: Path) -> None:
        ours = target.suffix == ".json"
        if self.kind == "link" and not self.after and ours:
            self._fail()
        super().link(source, target)
        self._linked = ours
        if self.kind == "link" and ours:
            self._fail()

    def rename(self, source: Path, target: Path) -> None:
        if self.kind == "rename":
            self._fail()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        if self.kind == "unlink checksum" and path.suffix == ".crc":
            self._fail()
        if self.kind == "unlink" and path.suffix == ".tmp" and not self.after:
            self._fail()
        super().unlink(path)
        if self.kind == "unlink" and path.suffix == ".tmp":
            self._fail()

    def _look(self, path: str) -> None:
        if self.unreadable and path.endswith(self.unreadable):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def _fail(self) -> None:
        raise OSError(self.code, os.strerror(self.code))


@pytest.fixture
def disk() -> Faulty:
    return Faulty()


@pytest.fixture
def table(tmp_path: Path, disk: Faulty) -> Table:
    store = LocalStore(str(Table.create(str(tmp_path / "t"), NUMBERS).path), disk=disk)
    return Table(store, load(store), Clock())


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES, errno.EIO])
@pytest.mark.parametrize(
    ("kind", "after"), [("unlink", False), ("unlink", True), ("close folder", True), ("link", True)]
)
def test_a_failure_after_the_link_does_not_deny_the_commit(
    table: Table, disk: Faulty, kind: str, after: bool, code: int
) -> None:
    """`unlink` fails in a folder with `chattr +a`. A link that was reported as failed is found."""
    disk.strike(kind, code, after=after)
    assert table.insert(numbers([1])).version == 1
    disk.strike("", 0)
    assert read_numbers(Table.open(table.path)) == [1]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_failed_fsync_of_the_log_folder_is_an_unknown_state(table: Table, disk: Faulty, code: int) -> None:
    disk.strike("fsync folder", code)
    with pytest.raises(CommitStateUnknownError, match="a crash of the machine may undo that"):
        table.insert(numbers([1]))
    disk.strike("fsync folder", code)
    with pytest.raises(NotDurableError):
        table.store.put_if_absent("_delta_log/x.json", b"")
    disk.strike("", 0)
    assert read_numbers(Table.open(table.path)) == [1], "its file has been kept"


class Watched(Disk):
    """Notes which folders are synced."""

    def __init__(self) -> None:
        self.opened: dict[int, Path] = {}
        self.synced: list[Path] = []

    def open_descriptor(self, path: Path) -> int:
        descriptor = super().open_descriptor(path)
        self.opened[descriptor] = path
        return descriptor

    def fsync(self, descriptor: int) -> None:
        super().fsync(descriptor)
        if descriptor in self.opened:
            self.synced.append(self.opened[descriptor])

    def close(self, descriptor: int) -> None:
        super().close(descriptor)
        self.opened.pop(descriptor, None)


def test_folders_that_others_made_are_durable_as_well(tmp_path: Path) -> None:
    """Whoever made them can have died before the sync. One look for each folder and process is enough."""
    root, disk = tmp_path / "t", Watched()
    (root / "a" / "b").mkdir(parents=True)
    store = LocalStore(str(root), disk=disk)
    store.put_if_absent("a/b/1", b"")
    assert set(disk.synced) == {tmp_path, root, root / "a", root / "a" / "b"}
    disk.synced.clear()
    store.put_if_absent("a/b/2", b"")
    assert disk.synced == [root / "a" / "b"]


def test_a_folder_that_was_removed_and_is_made_again_is_durable_again(tmp_path: Path) -> None:
    """Also if its maker is told that this failed, so that the next try finds it."""

    class LosesAnswer(Watched):
        loses = False

        def make_folder(self, path: Path) -> None:
            super().make_folder(path)
            if self.loses:
                raise OSError(errno.EIO, "the answer was lost")

    disk = LosesAnswer()
    store = LocalStore(str(tmp_path), disk=disk)
    store.put_if_absent("a/1", b"")
    store.delete("a/1")
    (tmp_path / "a").rmdir()
    disk.loses = True
    with pytest.raises(StoreUnavailableError):
        store.put_if_absent("a/2", b"")
    disk.synced.clear()
    store.put_if_absent("a/2", b"")
    assert tmp_path in disk.synced


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_fsync_folders_is_usable(table: Table, disk: Faulty, code: int) -> None:
    disk.strike("fsync folder", code)
    assert table.insert(numbers([1])).version == 1


def test_a_log_folder_that_cannot_be_read_is_refused_before_the_link(table: Table, disk: Faulty) -> None:
    """A folder with mode 0733 can be written, but not opened to make the new name durable."""
    disk.strike("open folder", errno.EACCES)
    with pytest.raises(PathNotWritableError):
        table.insert(numbers([1]))
    disk.strike("", 0)
    assert Table.open(table.path).version == 0
    assert [path for path, _ in table.store.walk() if not path.startswith("_delta_log/0")] == []


@pytest.mark.parametrize(
    ("kind", "code", "expected"),
    [
        ("link", errno.EACCES, PathNotWritableError),
        ("link", errno.ENOSPC, StoreUnavailableError),
        ("fsync file", errno.EIO, StoreUnavailableError),
    ],
)
def test_a_failure_before_the_link_says_that_nothing_was_committed(
    table: Table, disk: Faulty, kind: str, code: int, expected: type[Exception]
) -> None:
    disk.strike(kind, code)
    with pytest.raises(expected):
        table.insert(numbers([1]))
    disk.strike("", 0)
    assert Table.open(table.path).version == 0


def test_a_link_that_fails_and_may_still_be_carried_out_is_an_unknown_state(table: Table, disk: Faulty) -> None:
    disk.strike("link", errno.EIO)
    with pytest.raises(StoreUnavailableError) as raised:
        table.store.put_if_absent("_delta_log/x.json", b"")
    assert not isinstance(raised.value, NotStoredError)
    with pytest.raises(CommitStateUnknownError):
        table.insert(numbers([1]))


@pytest.mark.parametrize("kind", ["rename", "unlink checksum"])
def test_a_pointer_that_cannot_be_replaced_leaves_no_temporary_file(table: Table, disk: Faulty, kind: str) -> None:
    table.store.replace("pointer", b"1")
    before = sorted(path for path, _ in table.store.walk())
    disk.strike(kind, errno.EIO)
    with pytest.raises(StoreUnavailableError):
        table.store.replace("pointer", b"2")
    assert sorted(path for path, _ in table.store.walk()) == before
    assert table.store.read("pointer") == b"1"


def test_a_read_that_fails_is_a_store_that_does_not_answer(table: Table, disk: Faulty) -> None:
    table.insert(numbers([1]))
    Table.open(table.path).delete("n = 1")
    calls: dict[str, list[Callable[[], object]]] = {
        "2.json": [lambda: table.insert(numbers([2])), table.refresh],
        "_delta_log/": [lambda: load(table.store), lambda: table.store.names("_delta_log")],
    }
    for unreadable, fail in calls.items():
        for call in fail:
            disk.unreadable = unreadable
            with pytest.raises(StoreUnavailableError, match="failed: Input/output error; repair the disk") as caught:
                call()
            assert isinstance(pickle.loads(pickle.dumps(caught.value)), NotReadError)


@pytest.mark.parametrize("unreadable", [".crc", "_last_checkpoint", ".checkpoint.parquet"])
def test_a_shortcut_that_cannot_be_read_is_done_without(table: Table, disk: Faulty, unreadable: str) -> None:
    table.insert(numbers([1]))
    table.checkpoint()
    disk.unreadable = unreadable
    assert read_numbers(Table(table.store, load(table.store), Clock())) == [1]
    table.insert(numbers([2]))
    assert read_numbers(table) == [1, 2]
