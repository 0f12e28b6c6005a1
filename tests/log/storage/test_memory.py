"""The store in memory."""

from __future__ import annotations

import pytest

from tests.log.storage.contract import StoreContract
from tests.log.support import Clock, memory_url
from tidelog.log.storage import Store
from tidelog.log.storage.memory import MemoryStore


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore(memory_url())


def test_stores_with_the_same_url_share_their_files() -> None:
    url = memory_url()
    MemoryStore(url).put_if_absent("a", b"1")
    assert MemoryStore(f"{url}/").read("a") == b"1"
    assert MemoryStore(memory_url()).list("") == []


def test_times_come_from_the_system() -> None:
    store = MemoryStore(memory_url(), system=Clock(123_456))
    store.put_if_absent("a", b"")
    store.replace("b", b"")
    assert store.modified_ms("a") == store.modified_ms("b") == 123_456
