"""Fixtures of the tests of upkeep."""

from __future__ import annotations

import pytest

from tests.compaction_daemon.upkeep.support import Both


@pytest.fixture
def clock() -> Both:
    return Both()
