"""Archives that a cluster unpacks: the package alone, and a whole environment with native libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.application import log_of, plain, submitted
from tests.cluster.shipping import packed_environment, packed_folder
from tests.cluster.standalone import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(900)]

PARTS = [
    "sink_driver",
    "sink_tasks",
    "upsert_spark",
    "feed",
    "format_stream",
    "format_read",
    "statements",
    "compaction",
]


def test_the_package_as_an_archive_on_the_path_of_the_workers(
    cluster: Cluster, bare_python: Path, tmp_path: Path
) -> None:
    archive = packed_folder(tmp_path)
    ship = ["--archives", f"{archive}#shipped", "--conf", "spark.executorEnv.PYTHONPATH=./shipped"]
    plain(cluster, tmp_path, PARTS, python=bare_python, ship=ship)


def test_a_whole_environment_as_an_archive(cluster: Cluster, tmp_path: Path) -> None:
    """The driver starts where the environment is unpacked, since Spark plans reads with the same relative path."""
    archive = packed_environment(tmp_path / "environment")
    python = "./environment/bin/python"
    submitted(cluster, tmp_path, PARTS, python=python, ship=["--archives", f"{archive}#environment"])
    assert f"tidelog is in {tmp_path / 'environment'}" in log_of(tmp_path)
