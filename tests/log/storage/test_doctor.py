"""The doctor finds each broken promise, reports none for sound stores, and leaves nothing behind."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lanes import full_but
from tests.log.faults import Around
from tests.log.storage.proxy import Fault, in_front_of
from tests.log.storage.servers import Server
from tests.log.support import NUMBERS, Clock, memory_url, new_table, numbers, read_numbers
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, StoreNotSupportedError, StoreUnavailableError
from tidelog.log.storage import FileStatus, Store, doctor, open_store
from tidelog.log.storage.doctor import Diagnosis, examine

CHECKS = [
    "access",
    "put-if-absent",
    "race",
    "whole-files",
    "read-after-write",
    "list-after-write",
    "list-after-delete",
    "overwrite",
    "clock",
    "latency",
]


def failed(diagnosis: Diagnosis) -> list[str]:
    return [finding.name for finding in diagnosis.findings if not finding.ok]


# --- sound stores ----------------------------------------------------------------------------------------------------


# Each server has the promises that the doctor tests in its tests of `contract.py`.
@pytest.mark.parametrize("name", full_but(["versitygw"], ["moto", "versitygw", "fake-gcs-server", "azurite"]))
def test_object_stores_pass_and_are_left_as_they_were(server_of: Callable[[str], Server], name: str) -> None:
    server = server_of(name)
    store = server.store()
    table = Table.create(store.url, NUMBERS, storage_options=server.options)
    table.insert(numbers([1]))
    diagnosis = examine(store.url, storage_options=server.options, writers=4, rounds=3)
    assert [finding.name for finding in diagnosis.findings] == CHECKS
    assert diagnosis.ok, diagnosis
    assert diagnosis.path == store.url
    assert read_numbers(Table.open(store.url, storage_options=server.options)) == [1]
    prefix = f"{store._root.key}/_tidelog/"
    listed = store._cloud._fs.find(f"{store._root.bucket}/{prefix}")
    assert listed == []


def test_a_local_table_passes_and_is_left_as_it_was(tmp_path: Path) -> None:
    Table.create(str(tmp_path / "t"), NUMBERS).insert(numbers([1]))
    before = sorted(tmp_path.rglob("*"))
    diagnosis = examine(str(tmp_path / "t"))
    assert [finding.name for finding in diagnosis.findings] == CHECKS
    assert diagnosis.ok, diagnosis
    assert sorted(tmp_path.rglob("*")) == before


def test_a_missing_folder_is_still_missing_afterwards(tmp_path: Path) -> None:
    assert examine(str(tmp_path / "not" / "yet"), writers=2, rounds=1).ok
    assert list(tmp_path.iterdir()) == []


def test_memory_passes_and_is_left_as_it_was() -> None:
    url = memory_url()
    table = new_table(open_store(url))
    before = table.store.list("_delta_log")
    assert examine(url).ok
    assert table.store.list("_delta_log") == before
    assert [path for path in table.store._files if path.startswith("_tidelog")] == []  # type: ignore[attr-defined]


def test_findings_have_words_and_numbers() -> None:
    diagnosis = examine(memory_url(), writers=5, rounds=7)
    found = {finding.name: finding for finding in diagnosis.findings}
    assert "5 writers raced for one name, 7 times: exactly one won each time" in found["race"].words
    assert found["race"].numbers == {"writers": 5, "rounds": 7, "broken": 0, "unanswered": 0}
    for request in ("put", "read", "list", "replace"):
        assert 0 <= found["latency"].numbers[f"{request}_p50_ms"] <= found["latency"].numbers[f"{request}_max_ms"]
    again = json.loads(json.dumps(diagnosis.to_dict()))
    assert again["ok"] is True
    assert [finding["name"] for finding in again["findings"]] == CHECKS


@pytest.mark.parametrize(("writers", "rounds"), [(1, 1), (65, 1), (2, 0), (2, 1001)])
def test_writers_and_rounds_are_bounded(writers: int, rounds: int) -> None:
    with pytest.raises(ConfigurationError):
        examine(memory_url(), writers=writers, rounds=rounds)


def test_an_unsupported_store_is_an_error() -> None:
    with pytest.raises(StoreNotSupportedError):
        examine("ftp://host/t")


# --- faulty stores ---------------------------------------------------------------------------------------------------


class Overwrites(Around):
    """Checks the condition only sometimes."""

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        if "race" in path:
            self.inner.replace(path, content)
        else:
            self.inner.put_if_absent(path, content, durable=durable)


class AlwaysOverwrites(Around):
    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:  # noqa: ARG002
        self.inner.replace(path, content)


class RefusesAndOverwrites(Around):
    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        try:
            self.inner.put_if_absent(path, content, durable=durable)
        except FileExistsError:
            self.inner.replace(path, content)
            raise


class StaleListing(Around):
    """Lists each folder as it was at the previous listing."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.before: dict[str, list[FileStatus]] = {}

    def list(self, folder: str) -> list[FileStatus]:
        now = self.inner.list(folder)
        stale = self.before.get(folder, [])
        self.before[folder] = now
        return stale


class StaleReads(Around):
    """Always returns the first content that it read."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.before: dict[str, bytes] = {}

    def read(self, path: str) -> bytes:
        return self.before.setdefault(path, self.inner.read(path))


class LateReads(Around):
    def read(self, path: str) -> bytes:
        if "/read/" in path:
            raise FileNotFoundError(path)
        return self.inner.read(path)


class Undead(Around):
    """Keeps listing deleted files."""

    def delete(self, path: str) -> None:
        if "/deleted/" not in path:
            self.inner.delete(path)


class HalfWritten(Around):
    """Readers see the first half of a large file before the rest."""

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        if "/whole/" in path:
            self.inner.put_if_absent(path, content[: len(content) // 2])
            for _ in range(200):
                self.inner.read(path)
                os.sched_yield()
        else:
            self.inner.put_if_absent(path, content, durable=durable)


class Fast(Around):
    """Its clock is ten minutes ahead."""

    def modified_ms(self, path: str) -> int:
        return self.inner.modified_ms(path) + 600_000


class Unreachable(Around):
    def list(self, folder: str) -> list[FileStatus]:  # noqa: ARG002
        raise StoreUnavailableError("no answer", path=self.url)


class NeverDeletes(Around):
    def delete(self, path: str) -> None:  # noqa: ARG002
        raise StoreUnavailableError("no answer to a delete", path=self.url)


@pytest.mark.parametrize(
    ("kind", "caught"),
    [
        (AlwaysOverwrites, ["put-if-absent"]),
        (RefusesAndOverwrites, ["put-if-absent"]),
        (Overwrites, ["race"]),
        (HalfWritten, ["whole-files"]),
        (StaleListing, ["list-after-write"]),
        (StaleReads, ["overwrite"]),
        (LateReads, ["read-after-write"]),
        (Undead, ["list-after-delete"]),
        (Fast, ["clock"]),
        (Unreachable, ["access"]),
        (NeverDeletes, ["list-after-delete", "clean-up"]),
    ],
)
def test_each_broken_promise_is_found(kind: type[Around], caught: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "open_store", lambda path, options: kind(open_store(path, options)))
    diagnosis = examine(memory_url(), writers=4, rounds=3)
    assert not diagnosis.ok
    assert failed(diagnosis) == caught
    assert all(finding.words for finding in diagnosis.findings)


def test_a_server_that_ignores_the_condition_is_a_finding(server_of: Callable[[str], Server]) -> None:
    moto = server_of("moto")
    store = moto.store()
    with in_front_of(moto.endpoint) as proxy:
        proxy.strike(Fault.UNCONDITIONAL, "PUT", "", 10**6)
        diagnosis = examine(store.url, storage_options={**moto.options, "endpoint_url": proxy.endpoint}, writers=2)
    assert failed(diagnosis) == ["put-if-absent"]
    assert "overwrote" in diagnosis.findings[-1].words
    assert store._cloud._fs.find(f"{store._root.bucket}/{store._root.key}") == []


def test_a_missing_bucket_is_a_finding(server_of: Callable[[str], Server]) -> None:
    diagnosis = examine("s3://no-such-bucket/t", storage_options=server_of("moto").options)
    assert failed(diagnosis) == ["access"]
    assert "does not exist" in diagnosis.findings[0].words


def test_a_folder_that_is_not_writable_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    diagnosis = examine(str(tmp_path / "file" / "t"))
    assert failed(diagnosis) == ["put-if-absent"]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_doctor_uses_the_system_clock(tmp_path: Path) -> None:
    diagnosis = examine(str(tmp_path), writers=2, rounds=1, system=Clock(1_000_000_000_000))
    assert failed(diagnosis) == ["clock"]
    skew: Any = diagnosis.findings[CHECKS.index("clock")].numbers["skew_ms"]
    assert skew > 10**11
