"""What is no path is refused by every way of naming a table, before anything is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.log.support import NUMBERS
from tidelog.compaction_daemon import Daemon
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, PathNotWritableError, TableNotFoundError
from tidelog.log.storage import open_store
from tidelog.log.storage.doctor import examine

NO_PATHS: list[Any] = [
    "",
    "  ",
    None,
    0,
    1.5,
    True,
    b"/data/t",
    [],
    ["/data/t"],
    object,
    "file:",
    "file://",
    "memory://",
    "memory:",
    "s3://",
    "s3:///",
    "abfss://",
    "a\0b",
    "/data/\ud800",
    "s3://bucket/\ud800",
    "~nobody-has-this-name/t",
    "file://host/tmp/t",
    "FILE://127.0.0.1/tmp/t",
    "file://localhost",
]
USES: dict[str, Callable[[Any], object]] = {
    "open": Table.open,
    "create": lambda path: Table.create(path, NUMBERS),
    "create or open": lambda path: Table.create(path, NUMBERS, exist_ok=True),
    "drop": Table.drop,
    "daemon": lambda path: Daemon([path]),
    "doctor": examine,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("path", NO_PATHS, ids=repr)
def test_what_is_no_path_is_refused(path: Any, use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as raised:
        USES[use](path)
    assert raised.value.advice
    assert not list(tmp_path.iterdir())


def test_a_path_object_is_a_path(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", NUMBERS)  # type: ignore[arg-type]
    assert table.path == str(tmp_path / "t")
    Daemon([tmp_path / "t"])  # type: ignore[list-item]


def test_a_deleted_current_folder_has_no_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigurationError, match="cannot be made absolute"):
        Table.open("t")


@pytest.mark.parametrize(
    "path", ["x" * 300, "t/" + "x" * 300, "/".join(["x" * 200] * 30)], ids=["name", "below", "all"]
)
def test_a_name_that_is_too_long_is_no_table(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TableNotFoundError):
        Table.open(path)
    with pytest.raises(PathNotWritableError):
        Table.create(path, NUMBERS)


def test_a_name_that_is_not_utf_8_is_a_path(tmp_path: Path) -> None:
    """Linux gives such names to programs with surrogate escapes, which stand for bytes."""
    path = str(tmp_path / os.fsdecode(b"caf\xe9"))
    assert open_store(path).url == path


@pytest.mark.parametrize("prefix", ["file://", "file:", "file://localhost", "FILE://LocalHost"])
def test_a_file_url_can_name_this_machine(prefix: str, tmp_path: Path) -> None:
    Table.create(f"{prefix}{tmp_path}/t", NUMBERS)
    assert Table.open(str(tmp_path / "t")).path == str(tmp_path / "t")
