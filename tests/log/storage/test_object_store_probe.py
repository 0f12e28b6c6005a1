"""The proof, before the first write, that a server honours conditional puts."""

from __future__ import annotations

import pytest

from tests.log.storage.faulty import Faulty
from tests.log.storage.proxy import Fault
from tests.log.storage.servers import Server
from tests.log.support import NUMBERS
from tidelog.log import Table
from tidelog.log.errors import (
    StoreNotSupportedError,
)
from tidelog.log.storage.object_store import ObjectStore


def test_a_server_that_ignores_the_condition_is_refused_before_any_write(faulty: Faulty, moto: Server) -> None:
    faulty.proxy.strike(Fault.UNCONDITIONAL, "PUT", "", 10**6)
    for _ in range(2):
        with pytest.raises(StoreNotSupportedError, match="overwrote"):
            Table.create(faulty.store.url, NUMBERS, storage_options=faulty.options)
    here = ObjectStore(faulty.store.url, moto.options)
    assert here.list("") == here.list("_delta_log") == here.list("_tidelog") == []
    for write in (
        lambda: faulty.store.put_if_absent("a", b""),
        lambda: faulty.store.replace("a", b""),
        lambda: faulty.store.create("a").__enter__(),
    ):
        with pytest.raises(StoreNotSupportedError):
            write()


def test_a_bucket_is_probed_once_and_left_as_it_was(faulty: Faulty) -> None:
    for number in range(3):
        ObjectStore(f"{faulty.store.url}/{number}", faulty.options).put_if_absent("a", b"")
    assert faulty.proxy.count("PUT", "_tidelog/probe-") == 2
    assert faulty.proxy.count("DELETE", "_tidelog/probe-") == 1
    assert faulty.store.list("0/_tidelog") == []


def test_reading_does_not_probe(faulty: Faulty) -> None:
    assert faulty.store.list("") == []
    with pytest.raises(FileNotFoundError):
        faulty.store.read("a")
    faulty.store.delete("a")
    assert faulty.proxy.count("PUT", "") == 0


def test_a_probe_whose_answers_get_lost_passes(faulty: Faulty) -> None:
    faulty.proxy.strike(Fault.ERROR_AFTER, "PUT", "_tidelog/probe-", 2)
    faulty.store.put_if_absent("a", b"1")
    assert faulty.store.read("a") == b"1"
