"""A session of Spark Connect, for the cases that `test_connect` runs in a process without a classic session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.streaming.connect.server import server, session


@pytest.fixture(scope="session")
def connect_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server(tmp_path_factory.mktemp("server") / "log") as url:
        yield url


@pytest.fixture(scope="session")
def connect(connect_url: str) -> Iterator[SparkSession]:
    """One session for all cases, as they would share a classic one."""
    shared = session(connect_url)
    yield shared
    shared.stop()
