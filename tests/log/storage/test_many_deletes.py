"""Many deletions in few requests, on servers for S3, and what is done about those that fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.log.cleanup.support import AT_ONCE
from tests.log.storage.faulty import Faulty, behind_a_proxy
from tests.log.storage.proxy import Fault
from tests.log.storage.servers import Server
from tests.log.support import numbers, read_numbers
from tidelog.log.errors import StoreUnavailableError
from tidelog.log.storage.s3 import S3

PATHS = [f"data/a b&<{number}>.parquet" for number in range(7)]


@pytest.fixture(params=[pytest.param("moto", marks=pytest.mark.full), "versitygw"])
def filled(request: pytest.FixtureRequest, server_of: Callable[[str], Server]) -> Iterator[Faulty]:
    """A store with PATHS and one other file. The proxy counts only the requests that follow."""
    with behind_a_proxy(server_of(request.param)) as faulty:
        for path in (*PATHS, "kept"):
            faulty.store.put_if_absent(path, b"")
        faulty.proxy.seen.clear()
        yield faulty


def methods(faulty: Faulty) -> list[str]:
    """The methods of the requests so far."""
    return [request.split()[0] for request in faulty.proxy.seen]


def left_in(faulty: Faulty) -> list[str]:
    return sorted(path for path, _ in faulty.store.walk())


def test_one_request_deletes_many(filled: Faulty) -> None:
    assert filled.store.delete_each([*PATHS, "never-there"]) == {}
    assert methods(filled) == ["POST"]
    assert left_in(filled) == ["kept"]


def test_the_most_for_a_request_is_kept(filled: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(S3, "deletes_at_once", 3)
    assert filled.store.delete_each(PATHS) == {}
    assert sorted(methods(filled)) == ["DELETE", "POST", "POST"]  # 3, 3 and 1
    assert left_in(filled) == ["kept"]


def test_what_a_server_did_not_delete_is_deleted_by_itself(filled: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_key(filled, monkeypatch, PATHS[2])
    assert filled.store.delete_each(PATHS) == {}
    assert methods(filled) == ["POST", "DELETE"]
    assert left_in(filled) == ["kept"]


def test_what_cannot_be_deleted_is_named_with_its_error(filled: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_key(filled, monkeypatch, PATHS[2])
    filled.proxy.strike(Fault.DENIED, "DELETE", "")
    failed = filled.store.delete_each(PATHS)
    assert [*failed] == [PATHS[2]]
    assert "AccessDenied" in str(failed[PATHS[2]])
    assert left_in(filled) == sorted([PATHS[2], "kept"])


def test_a_server_without_the_request_gets_single_ones(filled: Faulty) -> None:
    filled.proxy.strike(Fault.DENIED, "POST", "delete")
    assert filled.store.delete_each(PATHS) == {}
    assert sorted(methods(filled)) == ["DELETE"] * len(PATHS) + ["POST"]
    assert left_in(filled) == ["kept"]


def test_a_store_that_does_not_answer_is_not_asked_for_each_file(filled: Faulty) -> None:
    filled.proxy.strike(Fault.SLOW_DOWN, "POST", "delete", times=100)
    failed = filled.store.delete_each(PATHS)
    assert [*failed] == PATHS
    assert all(isinstance(error, StoreUnavailableError) for error in failed.values())
    assert {*methods(filled)} == {"POST"}
    assert left_in(filled) == sorted([*PATHS, "kept"])


@pytest.mark.parametrize("name", [pytest.param("moto", marks=pytest.mark.full), "versitygw"])
def test_a_vacuum_deletes_with_one_request(server_of: Callable[[str], Server], name: str) -> None:
    with behind_a_proxy(server_of(name)) as faulty:
        table = faulty.table()
        table.set_properties(AT_ONCE)
        for number in range(2):
            table.overwrite(numbers([number]))
        # Objects have times in whole seconds. The last commit must be in a later one than the file that it removes.
        second = int(time.time())
        while int(time.time()) == second:
            time.sleep(0.01)
        table.overwrite(numbers([2]))
        faulty.proxy.seen.clear()
        report = table.vacuum()
        assert (len(report.files), report.failed) == (2, ())
        deleted = [request for request in faulty.proxy.seen if request.startswith("DELETE") and ".parquet" in request]
        assert (faulty.proxy.count("POST", "delete"), deleted) == (1, [])
        assert read_numbers(table.refresh()) == [2]


def refuse_key(faulty: Faulty, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """The server deletes all but this file, and says so in its answer."""
    file_system: Any = faulty.store._cloud._fs
    call = file_system.call_s3

    def call_s3(method: str, *arguments: Any, **named: Any) -> Any:
        if method != "delete_objects":
            return call(method, *arguments, **named)
        objects = named["Delete"]["Objects"]
        (refused,) = [each for each in objects if each["Key"].endswith(path)]
        others = [each for each in objects if each != refused]
        answer = call(method, *arguments, **{**named, "Delete": {**named["Delete"], "Objects": others}})
        return {**answer, "Errors": [{**refused, "Code": "InternalError", "Message": "try again"}]}

    monkeypatch.setattr(file_system, "call_s3", call_s3)
