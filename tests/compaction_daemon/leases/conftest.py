"""Fixtures for the tests of leases."""

from __future__ import annotations

import pytest

from tests.compaction_daemon.leases.support import Hosts


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()
