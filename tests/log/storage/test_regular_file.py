"""Files that are none, or that change while they are read."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.log.storage import UnreadableFileError, regular_file
from tidelog.log.storage.regular_file import open_regular_file, read_regular_file


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


@pytest.fixture(autouse=True, params=["Linux", "elsewhere"])
def _system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "elsewhere":
        monkeypatch.setattr(regular_file, "_LINKS", Path("/none"))


NO_FILES: dict[str, Callable[[Path], None]] = {
    "FIFO": os.mkfifo,
    "folder": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "socket": a_socket,
}


@pytest.mark.parametrize("kind", list(NO_FILES))
@pytest.mark.parametrize("read", [read_regular_file, open_regular_file])
def test_what_is_not_a_file_is_refused_without_waiting(
    kind: str, read: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    NO_FILES[kind](Path("f"))
    with pytest.raises(UnreadableFileError, match=kind):
        read("f")


def test_a_file_that_is_exchanged_after_the_first_look_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, regular = tmp_path / "f", Path(__file__).stat()
    os.mkfifo(path)
    opened = open_files()
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", lambda _: regular)
        for read in (read_regular_file, open_regular_file):
            with pytest.raises(UnreadableFileError, match="FIFO"):
                read(str(path))
    assert open_files() == opened


def test_a_file_that_is_too_large_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, 2**40)
    with pytest.raises(UnreadableFileError, match="too many"):
        read_regular_file(str(path))
    assert open_regular_file(str(path)).size() == 2**40


@pytest.mark.parametrize("name", ["00000000000000000007.crc", "_last_checkpoint"])
def test_a_shortcut_has_a_smaller_bound(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.touch()
    os.truncate(path, regular_file.MAX_SHORTCUT_BYTES + 1)
    with pytest.raises(UnreadableFileError, match="too many"):
        read_regular_file(str(path))
    os.truncate(path, regular_file.MAX_SHORTCUT_BYTES)
    assert len(read_regular_file(str(path))) == regular_file.MAX_SHORTCUT_BYTES
    (tmp_path / "7.json").touch()
    os.truncate(tmp_path / "7.json", regular_file.MAX_SHORTCUT_BYTES + 1)
    assert len(read_regular_file(str(tmp_path / "7.json"))) > regular_file.MAX_SHORTCUT_BYTES


def test_a_file_that_the_memory_cannot_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"content")

    def fail(*_: int) -> bytes:
        raise MemoryError

    monkeypatch.setattr(os, "read", fail)
    for read in (read_regular_file, open_regular_file):
        with pytest.raises(UnreadableFileError, match="7 bytes are more than the memory holds"):
            read(str(path))


@pytest.mark.parametrize("size", [0, 1, regular_file._AT_ONCE_BYTES, 3 * regular_file._AT_ONCE_BYTES + 7])
def test_the_content_is_the_same_in_every_way(size: int, tmp_path: Path) -> None:
    path = tmp_path / "f"
    content = bytes(index * 7 % 251 for index in range(size))
    path.write_bytes(content)
    assert read_regular_file(str(path)) == content
    source = open_regular_file(str(path))
    assert (source.size(), source.read()) == (size, content)
    for start in (0, size // 3, max(0, size - 5), size):
        source.seek(start)
        assert source.read(10) == content[start : start + 10]
        assert source.tell() == start + len(content[start : start + 10])


def test_a_file_that_is_truncated_under_its_reader_gives_fewer_bytes(tmp_path: Path) -> None:
    """A memory map would end the process here (SIGBUS)."""
    path = tmp_path / "f"
    path.write_bytes(bytes(4 * regular_file._AT_ONCE_BYTES))
    source = open_regular_file(str(path))
    os.truncate(path, 100)
    assert len(source.read()) == 100


def test_the_descriptor_is_closed_with_the_last_user(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(2 * regular_file._AT_ONCE_BYTES))
    gc.collect()  # what other tests left open
    opened = open_files()
    source = open_regular_file(str(path))
    assert open_files() == opened + 1
    source.close()
    source.close()
    assert open_files() == opened
    source = open_regular_file(str(path))
    del source
    gc.collect()
    assert open_files() == opened
