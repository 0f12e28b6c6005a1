"""`tidelog doctor`."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.support import lines, on_terminal, run
from tidelog.log import Table
from tidelog.log.storage.local import LocalStore


def test_doctor_prints_what_it_checked(tmp_path: Path) -> None:
    place = tmp_path / "not" / "there"
    result = run("doctor", place, "--writers", 3, "--rounds", 2)
    assert result.exit_code == 0
    assert "3 writers raced for one name, 2 times: exactly one won each time" in result.stdout
    assert result.stdout.splitlines()[-1] == f"{place} keeps every promise that was checked"
    assert not place.exists()
    (found,) = lines(run("doctor", place, "--json", "--rounds", 1))
    assert (found["path"], found["ok"]) == (str(place), True)
    assert {"put-if-absent", "read-after-write", "list-after-write"} <= {each["name"] for each in found["findings"]}


def test_doctor_finds_a_store_that_overwrites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overwrite(self: LocalStore, path: str, content: bytes, *, durable: bool = True) -> None:
        del durable
        self.replace(path, content)

    monkeypatch.setattr(LocalStore, "put_if_absent", overwrite)
    result = run("doctor", tmp_path)
    assert result.exit_code == 1
    assert re.search(r"^BROKEN  put-if-absent ", result.stdout, re.MULTILINE)
    assert result.stdout.splitlines()[-1] == f"{tmp_path} cannot hold a table safely"
    assert run("doctor", tmp_path, "--json").exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_doctor_misses_tombstones_that_another_program_deleted(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path), pa.schema([("k", pa.int64()), ("at", pa.int64())]))
    table.upsert([{"k": 1, "at": 5}], keys=["k"], order_by="at", delete_where="at = 5")
    assert run("doctor", tmp_path, "--rounds", 1).exit_code == 0
    (file,) = (tmp_path / "_tidelog" / "tombstones").iterdir()
    file.unlink()
    result = run("doctor", tmp_path, "--rounds", 1)
    assert result.exit_code == 1
    assert re.search(rf"^BROKEN  tombstones  .*{file.name} gone", result.stdout, re.MULTILINE)
    assert "keeps every promise" in result.stdout.splitlines()[-1]


def test_wrong_use_of_doctor(tmp_path: Path) -> None:
    assert run("doctor", tmp_path, "--writers", 1).exit_code == 2
    secret = run("doctor", "s4://bucket/x", "--storage-option", "key=hush")
    assert (secret.exit_code, "hush" in secret.output) == (2, False)


def test_a_narrow_terminal_shows_each_finding_on_lines_of_its_own(tmp_path: Path) -> None:
    shown = on_terminal("doctor", tmp_path / "x", "--rounds", 1, columns=40)
    assert shown.code == 0
    findings = [number for number, line in enumerate(shown.lines) if line.startswith("ok  ")]
    assert len(findings) >= 8
    assert shown.lines[findings[1]] == "ok  put-if-absent"
    assert all(len(line) <= 40 for line in shown.lines[: findings[-1] + 1])
    assert "exactly one won" in " ".join(" ".join(shown.lines).split())
