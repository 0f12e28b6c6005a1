from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.shipping import python_without_tidelog, zipped
from tests.cluster.standalone import Cluster, cluster_of_two


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all tests of a process: starting takes some seconds, and it starts a worker for each that was killed."""
    with cluster_of_two(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with all that tidelog needs, but without tidelog."""
    return python_without_tidelog(tmp_path_factory.mktemp("python") / "venv")


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a zip file, for `--py-files`."""
    return zipped(tmp_path_factory.mktemp("package"))
