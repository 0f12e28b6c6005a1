"""The lanes of the tests, and the markers that put a test into one.

    make test-fast   no Spark, server, crash or other engine, and few seeds of the simulation
    make test        each capability's main path, all of it real: what CI runs
    make test-full   everything but `nightly`
    make nightly     random and exhaustive tests, and the further shapes of long ones
    make test-spark  the streaming tests on another Spark; make test-oldest and test-newest: a short set

A test is `full`, `nightly` or `oldest` because its file says so. `oldest` is the short set that CI also runs on the
oldest and the newest Spark: one test for each part of Spark that tidelog calls, and what only an old one does. `spark`
and `server` follow from the fixtures that it uses and from its folder, so that a new test cannot slip into the fast
lane by mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

SPARK_FIXTURES = frozenset({"spark", "delta", "delta_spark"})
SERVER_FIXTURES = frozenset({"s3", "server_of", "broker", "browser", "postgres_server"})
SERVER_FOLDERS = ("tests/kafka/",)


def full_but(main: Iterable[Any], every: Iterable[Any]) -> list[Any]:
    """All of `every` as parameters, of which `make test` runs only those in `main`; their texts are their ids."""
    kept = list(main)
    assert kept
    every = list(every)
    assert all(value in every for value in kept)
    return [pytest.param(value, id=str(value), marks=[] if value in kept else pytest.mark.full) for value in every]


def full(*cases: tuple[Any, ...]) -> list[Any]:
    """Further cases of a test, which `make test` leaves out."""
    return [pytest.param(*case, marks=pytest.mark.full) for case in cases]


def slow_files_first(items: list[pytest.Item]) -> None:
    """Order the files so that two processes end at about the same time: the short ones fill the gaps at the end."""
    names = ("spark", "server", "crash", "interop", "simulation")
    slow = {item.path for item in items if any(item.get_closest_marker(name) for name in names)}
    items.sort(key=lambda item: item.path not in slow)


def mark(items: Iterable[pytest.Item]) -> None:
    """Add `spark` and `server` to the tests that need them."""
    for item in items:
        fixtures: Sequence[str] = getattr(item, "fixturenames", ())
        if SPARK_FIXTURES.intersection(fixtures):
            item.add_marker(pytest.mark.spark)
        if SERVER_FIXTURES.intersection(fixtures) or item.nodeid.startswith(SERVER_FOLDERS):
            item.add_marker(pytest.mark.server)
