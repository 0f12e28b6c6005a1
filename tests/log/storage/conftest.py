"""Fixtures for tests of object stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.log.storage.faulty import Faulty
from tests.log.storage.proxy import in_front_of
from tests.log.storage.servers import Server
from tests.log.support import Clock
from tidelog.log.storage.object_store import ObjectStore


@pytest.fixture
def moto(server_of: Callable[[str], Server]) -> Server:
    return server_of("moto")


@pytest.fixture
def faulty(moto: Server) -> Iterator[Faulty]:
    with in_front_of(moto.endpoint) as proxy:
        url = moto.store().url
        clock = Clock()
        yield Faulty(proxy, ObjectStore(url, {**moto.options, "endpoint_url": proxy.endpoint}, system=clock), clock)
