"""Object stores over a network that fails: lost answers, throttling, outages."""

from __future__ import annotations

import random
from collections.abc import Callable
from http import HTTPStatus

import pytest

from tests.lanes import full_but
from tests.log.storage.faulty import Faulty, behind_a_proxy
from tests.log.storage.proxy import Fault
from tests.log.storage.servers import Server
from tests.log.support import Clock, numbers, read_numbers
from tidelog.log import Table
from tidelog.log.commit.version_put import MAX_PUTS, MAX_SETTLEMENTS
from tidelog.log.errors import CommitStateUnknownError, StoreUnavailableError
from tidelog.log.storage import NotStoredError
from tidelog.log.storage.object_store import ATTEMPTS, ObjectStore


@pytest.mark.parametrize("fault", [Fault.DROPPED_AFTER, Fault.ERROR_AFTER])
@pytest.mark.parametrize("times", [1, 2])
def test_a_commit_whose_answer_got_lost_is_recognised(faulty: Faulty, fault: Fault, times: int) -> None:
    table = faulty.table()
    struck = faulty.proxy.strike(fault, "PUT", "00001.json", times)
    committed = table.insert(numbers([1]))
    assert struck.times < times, "the fault did not happen"
    assert (committed.version, committed.rebased_over) == (1, ())
    assert read_numbers(Table.open(table.path, storage_options=faulty.options)) == [1]


@pytest.mark.parametrize("times", full_but([1], [1, MAX_PUTS, MAX_PUTS + MAX_SETTLEMENTS]))
def test_a_held_put_never_lands_behind_the_back_of_its_writer(faulty: Faulty, times: int) -> None:
    """A put that was reported as failed lands after the caller did what the error said."""
    table = faulty.table()
    faulty.proxy.strike(Fault.HELD, "PUT", "00001.json", times)
    landed = 0
    try:
        table.insert(numbers([1]))
    except CommitStateUnknownError:
        landed = 1
    answers = faulty.proxy.release()
    assert len(answers) == times
    assert sum(status == HTTPStatus.OK for status in answers) == landed
    assert read_numbers(Table.open(table.path, storage_options=faulty.options)) == [1]


def test_a_server_that_cannot_be_reached_has_stored_nothing() -> None:
    """The error is not a CommitStateUnknownError: the request was never sent."""
    options = {"endpoint_url": "http://127.0.0.1:9", "key": "k", "secret": "s"}
    with pytest.raises(NotStoredError):
        ObjectStore("s3://bucket/t", options, system=Clock()).put_if_absent("a", b"1")


def test_an_unanswered_put_is_not_repeated(faulty: Faulty) -> None:
    faulty.store.put_if_absent("first", b"")
    faulty.proxy.strike(Fault.ERROR_AFTER, "PUT", "/lease")
    with pytest.raises(StoreUnavailableError):
        faulty.store.put_if_absent("lease", b"mine or another writer's")
    assert faulty.proxy.count("PUT", "/lease") == 1
    assert faulty.clock.slept_s == []


@pytest.mark.parametrize(
    ("name", "method", "part"), [("azurite", "PUT", "/lease"), ("fake-gcs-server", "POST", "upload")]
)
def test_an_unanswered_put_is_not_repeated_by_a_library(
    server_of: Callable[[str], Server], name: str, method: str, part: str
) -> None:
    """By default, gcsfs and Azure's library repeat a conditional put, and then find their own object."""
    with behind_a_proxy(server_of(name)) as faulty:
        store, proxy = faulty.store, faulty.proxy
        store.put_if_absent("first", b"")
        before = proxy.count(method, part)
        struck = proxy.strike(Fault.ERROR_AFTER, method, part)
        with pytest.raises(StoreUnavailableError):
            store.put_if_absent("lease", b"mine or another writer's")
        assert struck.times == 0
        assert proxy.count(method, part) == before + 1
        with pytest.raises(FileExistsError):
            store.put_if_absent("lease", b"second")


@pytest.mark.parametrize("fault", [Fault.DROPPED_AFTER, Fault.ERROR_AFTER])
def test_a_data_file_whose_answer_got_lost_is_written_once(faulty: Faulty, fault: Fault) -> None:
    content = random.Random(1).randbytes(20_000_000)
    faulty.store.put_if_absent("first", b"")
    struck = faulty.proxy.strike(fault, "PUT", "part-1")
    with faulty.store.create("part-1") as file:
        file.write(content)
    assert struck.times == 0
    assert faulty.store.read("part-1") == content


def test_a_data_file_with_a_taken_name_is_refused(faulty: Faulty) -> None:
    for other in (b"other", b"longer than it was"):
        faulty.store.replace("part-1", other)
        with pytest.raises(FileExistsError), faulty.store.create("part-1") as file:
            file.write(b"mine!")
        assert faulty.store.read("part-1") == other


@pytest.mark.parametrize(
    "fault",
    full_but([Fault.DROPPED_BEFORE], [Fault.DROPPED_BEFORE, Fault.ERROR_AFTER, Fault.SLOW_DOWN, Fault.TOO_MANY]),
)
def test_idempotent_requests_are_retried_with_growing_waits(faulty: Faulty, fault: Fault) -> None:
    store = faulty.store
    store.put_if_absent("f/a", b"1")
    for method, part, request in (
        ("GET", "f/a", lambda: store.read("f/a")),
        ("GET", "list-type=2", lambda: store.list("f")),
        ("HEAD", "f/a", lambda: store.modified_ms("f/a")),
        ("PUT", "f/pointer", lambda: store.replace("f/pointer", b"1")),
        ("DELETE", "f/a", lambda: store.delete("f/a")),
    ):
        faulty.clock.slept_s.clear()
        struck = faulty.proxy.strike(fault, method, part, 3)
        request()
        assert struck.times == 0
        assert len(faulty.clock.slept_s) == 3
        assert all(0 <= waited <= 0.1 * 2**number for number, waited in enumerate(faulty.clock.slept_s))


@pytest.mark.parametrize("fault", full_but([Fault.SLOW_DOWN], [Fault.SLOW_DOWN, Fault.TOO_MANY, Fault.CONFLICT]))
def test_a_rejected_put_is_retried(faulty: Faulty, fault: Fault) -> None:
    faulty.store.put_if_absent("first", b"")
    faulty.proxy.strike(fault, "PUT", "/rejected", 3)
    faulty.store.put_if_absent("rejected", b"1")
    assert faulty.proxy.count("PUT", "/rejected") == 4
    with pytest.raises(FileExistsError):
        faulty.store.put_if_absent("rejected", b"2")
    assert faulty.store.read("rejected") == b"1"


def test_a_store_that_stays_down_is_an_error_after_bounded_retries(faulty: Faulty) -> None:
    faulty.proxy.strike(Fault.SLOW_DOWN, "GET", "", 1000)
    with pytest.raises(StoreUnavailableError, match="SlowDown"):
        faulty.store.read("a")
    assert len(faulty.proxy.seen) == ATTEMPTS
    assert len(faulty.clock.slept_s) == ATTEMPTS - 1
    assert sum(faulty.clock.slept_s) < 12


def test_an_endpoint_without_a_server_is_unavailable() -> None:
    store = ObjectStore(
        "s3://bucket/t", {"endpoint_url": "http://127.0.0.1:9", "key": "k", "secret": "s"}, system=Clock()
    )
    with pytest.raises(StoreUnavailableError) as raised:
        store.list("")
    assert raised.value.advice
