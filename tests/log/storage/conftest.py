"""Fixtures for tests of object stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.log.storage.faulty import Faulty, behind_a_proxy
from tests.log.storage.servers import Server


@pytest.fixture
def moto(server_of: Callable[[str], Server]) -> Server:
    return server_of("moto")


@pytest.fixture
def faulty(moto: Server) -> Iterator[Faulty]:
    with behind_a_proxy(moto) as faulty:
        yield faulty
