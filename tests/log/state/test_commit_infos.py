"""Reading the commitInfo of a commit, however large the commit is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.support import add
from tidelog.log.errors import CorruptLogError
from tidelog.log.format import filenames
from tidelog.log.format.actions import CommitInfo, encode_commit
from tidelog.log.state.commits import read_info
from tidelog.log.storage.local import LocalStore

INFO: CommitInfo = {"operation": "WRITE", "txnId": "t"}
SMALL, LARGE = 1, 10_000


class StartOnly(LocalStore):
    """Cannot read a file whole."""

    def read(self, path: str) -> bytes:
        raise AssertionError(path)


def put(store: LocalStore, content: bytes) -> None:
    store.put_if_absent(filenames.commit_path(0), content)


def content_of(info: CommitInfo, files: int) -> bytes:
    return encode_commit(info, [add(f"{number:0200}") for number in range(files)])


@pytest.mark.parametrize("files", [SMALL, LARGE])
def test_the_info_of_a_large_commit_is_read_without_the_rest(tmp_path: Path, files: int) -> None:
    store = StartOnly(str(tmp_path))
    put(store, content_of(INFO, files))
    assert read_info(store, 0) == INFO


@pytest.mark.parametrize("files", [SMALL, LARGE])
def test_the_info_may_be_anywhere(tmp_path: Path, files: int) -> None:
    """Other writers put it last."""
    store = LocalStore(str(tmp_path))
    first, rest = content_of(INFO, files).split(b"\n", 1)
    put(store, rest + first)
    assert read_info(store, 0) == INFO


def test_an_info_may_be_large(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    info = {**INFO, "userMetadata": "x" * 3_000_000}
    put(store, content_of(info, SMALL))
    assert read_info(store, 0) == info


@pytest.mark.parametrize("files", [SMALL, LARGE])
def test_a_commit_may_have_no_info(tmp_path: Path, files: int) -> None:
    store = LocalStore(str(tmp_path))
    put(store, content_of({}, files).partition(b"\n")[2])
    assert read_info(store, 0) == {}


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"nonsense\n", b"nonsense\n" * 200_000], ids=lambda content: str(len(content))
)
def test_a_damaged_commit_has_no_info(tmp_path: Path, content: bytes) -> None:
    store = LocalStore(str(tmp_path))
    put(store, content)
    with pytest.raises(CorruptLogError):
        read_info(store, 0)
