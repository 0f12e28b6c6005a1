"""Local files: the store contract, permissions, full disks and durability."""

from __future__ import annotations

import errno
import os
import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.log.storage.contract import StoreContract
from tests.log.support import NUMBERS, numbers, read_numbers
from tidelog.log import Table
from tidelog.log.errors import (
    PathNotWritableError,
    StoreAccessError,
    StoreNotSupportedError,
    StoreUnavailableError,
    TidelogError,
)
from tidelog.log.storage import Store
from tidelog.log.storage.local import Disk, LocalStore


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(str(tmp_path / "table"))


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "table"))


def test_names_agree_with_the_listing(store: LocalStore, tmp_path: Path) -> None:
    assert not store.names("log")
    for name in ("log/a", "log/b.json", "log/folder/c"):
        store.put_if_absent(name, b"1")
    (tmp_path / "table" / "log" / "link").symlink_to("a")
    assert sorted(store.names("log")) == [status.name for status in store.list("log")] == ["a", "b.json", "link"]


def test_no_temporary_file_is_left(store: LocalStore, tmp_path: Path) -> None:
    store.put_if_absent("a", b"1")
    with pytest.raises(FileExistsError):
        store.put_if_absent("a", b"2")
    store.replace("b", b"3")
    with store.create("c") as file:
        file.write(b"4")
    with pytest.raises(RuntimeError), store.create("d") as file:
        raise RuntimeError
    assert everything(tmp_path) == ["table/a", "table/b", "table/c"]


def test_temporary_files_are_hidden(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a commit is being written, only a hidden file exists, which Hadoop and tidelog ignore."""
    seen: list[str] = []
    link = os.link

    def look(source: Any, target: Any) -> None:
        seen.extend(status.name for status in store.list("_delta_log"))
        link(source, target)

    monkeypatch.setattr(os, "link", look)
    store.put_if_absent("_delta_log/00000000000000000000.json", b"{}")
    assert len(seen) == 1
    assert seen[0].startswith(".")


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK])
def test_a_file_system_without_hard_links_is_refused_and_left_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def link(source: Any, target: Any) -> None:
        raise OSError(code, os.strerror(code), str(source), None, str(target))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StoreNotSupportedError) as raised:
        Table.create(str(tmp_path / "table"), NUMBERS)
    assert raised.value.code in str(raised.value)
    assert everything(tmp_path) == []


def below_a_file(tmp_path: Path, below: str) -> str:
    (tmp_path / "file").write_bytes(b"mine")
    return str(tmp_path / "file" / below)


@pytest.mark.parametrize("below", ["", "table", "deeper/table"])
def test_a_path_at_or_below_a_file_is_not_writable(tmp_path: Path, below: str) -> None:
    store = LocalStore(below_a_file(tmp_path, below))
    with pytest.raises(PathNotWritableError):
        store.put_if_absent("_delta_log/00000000000000000000.json", b"x")
    with pytest.raises(PathNotWritableError):
        store.replace("_delta_log/_last_checkpoint", b"x")
    with pytest.raises(PathNotWritableError), store.create("part-1.parquet"):
        pass
    assert (tmp_path / "file").read_bytes() == b"mine"


@pytest.mark.parametrize("below", ["", "table", "deeper/table"])
def test_no_table_can_be_created_at_or_below_a_file(tmp_path: Path, below: str) -> None:
    with pytest.raises(PathNotWritableError) as raised:
        Table.create(below_a_file(tmp_path, below), NUMBERS)
    assert raised.value.advice


def test_errors_of_the_operating_system_are_converted(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for code, kind in (
        (errno.EACCES, PathNotWritableError),
        (errno.EROFS, PathNotWritableError),
        (errno.ENOSPC, StoreUnavailableError),
        (errno.EIO, StoreUnavailableError),
    ):

        def refuse(*_: Any, code: int = code) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "link", refuse)
        with pytest.raises(kind, match=os.strerror(code)):
            store.put_if_absent("a", b"1")
        assert everything(tmp_path) == []


def test_a_name_that_is_too_long_is_not_writable(store: LocalStore) -> None:
    with pytest.raises(PathNotWritableError):
        store.put_if_absent("x" * 300, b"1")


def test_a_folder_in_the_way_is_not_writable(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "table" / "a").mkdir(parents=True)
    with pytest.raises(PathNotWritableError):
        store.replace("a", b"1")


@pytest.fixture
def full_disk() -> Iterator[Callable[[], None]]:
    """Once called, no file can grow beyond 100 kB, which is as close to a full disk as a test gets."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_while_writing_data_leaves_nothing_behind(tmp_path: Path, full_disk: Callable[[], None]) -> None:
    table = Table.create(str(tmp_path / "table"), pa.schema([("n", pa.binary())]))
    full_disk()
    with pytest.raises(StoreUnavailableError):
        table.insert([{"n": random.randbytes(500_000)}])
    assert table.refresh().version == 0
    assert not [name for name in everything(tmp_path) if name.endswith(".parquet")]


def test_a_full_disk_while_writing_a_commit_commits_nothing(
    store: LocalStore, tmp_path: Path, full_disk: Callable[[], None]
) -> None:
    full_disk()
    with pytest.raises(StoreUnavailableError):
        store.put_if_absent("_delta_log/00000000000000000000.json", random.randbytes(500_000))
    assert everything(tmp_path) == []


def test_replacing_a_file_removes_its_hadoop_checksum(store: LocalStore, tmp_path: Path) -> None:
    store.replace("_delta_log/_last_checkpoint", b"1")
    stale = tmp_path / "table/_delta_log/._last_checkpoint.crc"
    stale.write_bytes(b"crc\x00")
    store.replace("_delta_log/_last_checkpoint", b"2")
    assert not stale.exists()


def test_content_is_durable_before_its_name(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash of the machine must not leave a name without content or lose the name of an acknowledged commit."""
    order: list[str] = []
    fsync, link = os.fsync, os.link

    def note_fsync(descriptor: int) -> None:
        order.append("folder" if Path(f"/proc/self/fd/{descriptor}").resolve().is_dir() else "file")
        fsync(descriptor)

    def note_link(source: Any, target: Any) -> None:
        order.append("link")
        link(source, target)

    store.put_if_absent("first", b"")
    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "link", note_link)
    store.put_if_absent("a", b"1")
    assert order == ["file", "link", "folder"]
    order.clear()
    store.put_if_absent("hint", b"1", durable=False)
    assert order == ["link"]
    order.clear()
    store.put_if_absent("new/folder/a", b"1")
    assert order == ["file", "folder", "folder", "link", "folder"], "the name of a new folder must be durable too"
    order.clear()
    with store.create("data") as file:
        file.write(b"x")
    assert order == ["file", "folder"]


@pytest.mark.parametrize("write", ["put_if_absent", "create"])
def test_a_folder_that_was_made_again_is_made_durable_again(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    """A clean-up removes empty folders, and a process that creates one again can die before it syncs the name."""
    synced: list[str] = []
    fsync, root = os.fsync, Path(store.url)

    def note_fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    def put(path: str) -> list[str]:
        synced.clear()
        if write == "create":
            with store.create(path) as file:
                file.write(b"1")
        else:
            store.put_if_absent(path, b"1")
        return [path for path in synced if Path(path).is_dir()]

    monkeypatch.setattr(os, "fsync", note_fsync)
    below, parent = str(root / "00"), str(root.parent)
    assert sorted(put("00/a")) == sorted([str(root), below, parent])
    assert put("00/b") == [below]
    for name in ("a", "b"):
        store.delete(f"00/{name}")
    (root / "00").rmdir()
    (root / "00").mkdir()
    os.utime(root, (0, 0))  # another time than before, even if the kernel's clock has not moved on
    assert str(root) in put("00/c")
    assert put("00/d") == [below]


def test_a_walk_does_not_follow_links(store: LocalStore, tmp_path: Path) -> None:
    """Links can lead out of the table or in circles."""
    store.put_if_absent("a/file", b"1")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/precious").write_bytes(b"2")
    root = Path(store.url)
    (root / "a/up").symlink_to(root)
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "precious").symlink_to(tmp_path / "outside/precious")
    assert [path for path, _ in store.walk()] == ["a/file"]


def test_ways_to_write_a_local_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Table.create(str(tmp_path / "t"), NUMBERS).insert(numbers([1]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("t", "./t", "~/t", f"file://{tmp_path}/t", f"file:{tmp_path}/t", str(tmp_path / "t") + "/"):
        table = Table.open(path)
        assert read_numbers(table) == [1]
        assert table.path == str(tmp_path / "t")


def test_a_table_stays_where_it_is_when_the_working_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    table = Table.create("t", NUMBERS)
    monkeypatch.chdir(tmp_path / "elsewhere")
    table.insert(numbers([1]))
    assert read_numbers(Table.open(str(tmp_path / "t"))) == [1]


def test_errors_of_a_store_are_tidelog_errors() -> None:
    for kind in (PathNotWritableError, StoreNotSupportedError, StoreUnavailableError):
        assert issubclass(kind, TidelogError)


def test_moving_files_removes_the_folders_that_it_empties(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    for path in ("data/x/p=1/part-0", "data/x/p=2/part-0", "data/x/p=2/other", "data/y/p=1/part-0"):
        store.put_if_absent(path, path.encode())
    moves = {
        "data/x/p=1/part-0": "data/x/part-0",
        "data/x/p=2/part-0": "new/day=a%2Fb/part-1",
        "data/y/p=1/part-0": "z",
    }
    for old, new in moves.items():
        store.move(old, new)
        assert store.read(new) == old.encode()
    assert sorted(path for path, _ in store.walk()) == sorted([*moves.values(), "data/x/p=2/other"])
    assert sorted(path.name for path in (tmp_path / "data").rglob("*") if path.is_dir()) == ["p=2", "x"]


# --- reading what this user may not read -----------------------------------------------------------------------------


READS: dict[str, Callable[[Store], object]] = {
    "read": lambda store: store.read("log/a"),
    "list": lambda store: store.list("log"),
    "names": lambda store: store.names("log"),
    "walk": lambda store: list(store.walk()),
    "open_input": lambda store: store.open_input("log/a"),
    "modified_ms": lambda store: store.modified_ms("log/a"),
}


class DeniedDisk(Disk):
    """A disk that may not be read. The tests may run as a user who may read anything, so the calls are replaced."""

    def read(self, path: str, start_bytes: int | None = None) -> bytes:  # noqa: ARG002
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    def open_input(self, path: Path) -> Any:
        return self.read(str(path))

    def entries(self, folder: Path) -> Any:
        return self.read(str(folder))

    def modified_ms(self, path: Path) -> Any:
        return self.read(str(path))


@pytest.fixture
def denied(store: LocalStore) -> LocalStore:
    store.put_if_absent("log/a", b"1")
    return LocalStore(store.url, disk=DeniedDisk())


@pytest.mark.parametrize("name", READS)
def test_an_unreadable_path_is_a_store_access_error(name: str, denied: LocalStore) -> None:
    with pytest.raises(StoreAccessError, match="Permission denied") as raised:
        READS[name](denied)
    assert raised.value.path == denied.url
    assert raised.value.advice


@pytest.mark.parametrize("path", ["log/a/below", "x" * 300])
def test_a_path_that_no_file_can_have_is_not_found(path: str, store: LocalStore) -> None:
    store.put_if_absent("log/a", b"1")
    for read in (store.read, store.open_input, store.modified_ms):
        with pytest.raises(FileNotFoundError):
            read(path)
    assert store.list(path) == []
    assert not store.names(path)
