"""What all tests share: one Spark session, since starting one costs seconds, and the servers for object stores."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from examples.shared.small_spark import FEW_FORKS, SETTINGS
from tests import lanes, randomness
from tests.chromium import browser
from tests.log.storage.serving import (
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
    s3,
    server_of,
)
from tidelog.streaming import register
from tidelog.streaming.datasource import jvm_source

# Found here by pytest: a browser, the servers for object stores, and the lines at the end about which of them ran.
__all__ = [
    "browser",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "pytest_testnodedown",
    "s3",
    "server_of",
    "spark",
]

randomness.load_hypothesis_profile()

# TESTS_SOURCE=python: as in a session that cannot have the class of the JVM.
if os.environ.get("TESTS_SOURCE") == "python":

    def _not_installed(spark: SparkSession) -> bool:  # noqa: ARG001 - as `install`
        return False

    jvm_source.install = _not_installed

# The short sets on other versions run with Spark's default.
_FASTER = {"4.2": FEW_FORKS}


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses among them
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lanes.mark(items)
    lanes.slow_files_first(items)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local Spark that knows `format("tidelog")`."""
    # Spark takes the first `python3` on PATH for its workers otherwise, which may lack tidelog.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder: Path = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tidelog tests")
        .config(map={**SETTINGS, **_FASTER.get(pyspark.__version__[:3], {})})
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    yield session
    session.stop()
