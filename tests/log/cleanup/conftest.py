"""Fixtures for the tests of clean-up."""

from __future__ import annotations

import pytest

from tests.log.support import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()
