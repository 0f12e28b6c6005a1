"""Fixtures for the tests of consumers."""

from __future__ import annotations

import pytest

from tests.log.consumers.support import Watch, overwritten
from tidelog.log import Table


@pytest.fixture
def clock() -> Watch:
    return Watch()


@pytest.fixture
def table(clock: Watch) -> Table:
    return overwritten(clock)
