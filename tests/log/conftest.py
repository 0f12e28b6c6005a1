"""Fixtures for the tests of tidelog.log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.support import memory_url


@pytest.fixture(params=["memory", "local"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The path of a table that does not exist yet."""
    return memory_url() if request.param == "memory" else str(tmp_path / "table")
