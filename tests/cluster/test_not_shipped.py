"""What works on a cluster whose workers lack tidelog. The table in docs/guides/clusters.md says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.application import plain
from tests.cluster.standalone import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(900)]

WITHOUT_PYTHON = [
    "sink_driver",
    "sink_spark",
    "sink_overwrite",
    "upsert_driver",
    "reading",
    "feed",
    "format_stream",
    "format_read",
]
IN_TASKS = [
    "sink_tasks",
    "sink_many_files",
    "upsert_spark",
    "net_changes",
    "many_deletion_vectors",
    "compaction",
    "writing",
]


@pytest.mark.parametrize(
    "path_for_planning",
    [pytest.param(True, id="beside-the-driver", marks=pytest.mark.nightly), pytest.param(False, id="nowhere")],
)
def test_what_works_without_tidelog_on_the_workers(
    cluster: Cluster, bare_python: Path, tmp_path: Path, path_for_planning: bool
) -> None:
    """The functions of SQL need tidelog in a process beside the driver, and in the tasks as well."""
    failing = [f"!{part}" for part in (*IN_TASKS, "functions_of_sql")]
    parts = [*WITHOUT_PYTHON, *failing, "statements_without_tidelog"]
    plain(cluster, tmp_path, parts, python=bare_python, path_for_planning=path_for_planning)
