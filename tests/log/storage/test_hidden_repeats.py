"""aiohttp, below every cloud's library, repeats an idempotent request if its connection breaks.

The answer to the second try says nothing about the first: it may be stored although its repetition was throttled, or
could not even connect. So the repetition is switched off, and these tests see that it stays off in newer libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import aiohttp
import pytest

from tests.log.storage.faulty import Faulty, behind_a_proxy
from tests.log.storage.proxy import Fault
from tests.log.storage.servers import Server
from tests.log.support import NUMBERS, new_table, numbers, read_numbers
from tidelog.log import Table
from tidelog.log.errors import CommitStateUnknownError, ConfigurationError, StoreUnavailableError
from tidelog.log.storage import NotStoredError
from tidelog.log.storage.cloud import sent_once
from tidelog.log.storage.object_store import ObjectStore


def test_an_aiohttp_without_the_switch_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot be kept from repeating requests"):
        sent_once(cast("aiohttp.ClientSession", object()))


@pytest.mark.parametrize("name", ["moto", "fake-gcs-server", "azurite"])
def test_a_request_whose_connection_broke_is_sent_once(server_of: Callable[[str], Server], name: str) -> None:
    with behind_a_proxy(server_of(name)) as faulty:
        faulty.store.put_if_absent("a", b"1")
        struck = faulty.proxy.strike(Fault.DROPPED_BEFORE, "GET", "")
        assert faulty.store.read("a") == b"1"
        assert struck.times == 0
        assert len(faulty.clock.slept_s) == 1, "the store did not retry it, so a library did"


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("moto", Fault.SLOW_DOWN),
        ("moto", Fault.TOO_MANY),
        ("moto", Fault.DENIED),
        ("azurite", Fault.TOO_MANY),
        ("azurite", Fault.DENIED),
    ],
)
def test_a_refused_repetition_proves_nothing_about_a_stored_put(
    server_of: Callable[[str], Server], name: str, refusal: Fault
) -> None:
    with behind_a_proxy(server_of(name)) as faulty:
        faulty.store.put_if_absent("first", b"")
        faulty.proxy.strike(Fault.DROPPED_AFTER, "PUT", "/lease")
        faulty.proxy.strike(refusal, "PUT", "/lease", 1000)
        with pytest.raises(StoreUnavailableError) as raised:
            faulty.store.put_if_absent("lease", b"mine or another writer's")
        assert not isinstance(raised.value, NotStoredError)
        assert faulty.proxy.count("PUT", "/lease") == 1
        assert faulty.store.read("lease") == b"mine or another writer's"


@pytest.mark.parametrize("refusal", [Fault.SLOW_DOWN, Fault.TOO_MANY, Fault.DENIED])
def test_a_commit_that_is_stored_and_then_refused_is_recognised(faulty: Faulty, refusal: Fault) -> None:
    table = faulty.table()
    faulty.proxy.strike(Fault.DROPPED_AFTER, "PUT", "00001.json")
    faulty.proxy.strike(refusal, "PUT", "00001.json", 1000)
    assert table.insert(numbers([1])).version == 1
    assert read_numbers(Table.open(table.path, storage_options=faulty.options)) == [1]


def test_the_state_of_a_commit_is_unknown_if_its_server_stored_it_and_went_down(moto: Server) -> None:
    with behind_a_proxy(moto) as faulty:
        table = new_table(faulty.store, NUMBERS, system=faulty.clock)
        struck = faulty.proxy.strike(Fault.GONE_AFTER, "PUT", "00001.json")
        with pytest.raises(CommitStateUnknownError):
            table.insert(numbers([1]))
        assert struck.times == 0
    assert read_numbers(Table.open(table.path, storage_options=moto.options)) == [1]


def test_a_put_of_a_server_that_went_down_may_be_stored(moto: Server) -> None:
    with behind_a_proxy(moto) as faulty:
        faulty.store.put_if_absent("first", b"")
        faulty.proxy.strike(Fault.GONE_AFTER, "PUT", "/lease")
        with pytest.raises(StoreUnavailableError) as raised:
            faulty.store.put_if_absent("lease", b"1")
        assert not isinstance(raised.value, NotStoredError)
        with pytest.raises(NotStoredError):  # of this put it is proven: no connection, so it was never sent
            faulty.store.put_if_absent("another", b"1")
    assert ObjectStore(faulty.store.url, moto.options).read("lease") == b"1"
