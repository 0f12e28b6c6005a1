"""The lanes of the tests, and the markers that put a test into one.

    make test-fast   no Spark, server, crash or other engine
    make test        each capability's main path, all of it real: what CI runs
    make test-full   everything but `nightly`
    make nightly     random and exhaustive tests

A test is `full` or `nightly` because its file says so. `spark` and `server` follow from the fixtures that it uses and
from its folder, so that a new test cannot slip into the fast lane by mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

SPARK_FIXTURES = frozenset({"spark", "delta", "delta_spark"})
SERVER_FIXTURES = frozenset({"s3", "server_of", "broker"})
SERVER_FOLDERS = ("tests/kafka/",)


def mark(items: Iterable[pytest.Item]) -> None:
    """Add `spark` and `server` to the tests that need them."""
    for item in items:
        fixtures: Sequence[str] = getattr(item, "fixturenames", ())
        if SPARK_FIXTURES.intersection(fixtures):
            item.add_marker(pytest.mark.spark)
        if SERVER_FIXTURES.intersection(fixtures) or item.nodeid.startswith(SERVER_FOLDERS):
            item.add_marker(pytest.mark.server)
