"""tidelog on a standalone cluster, whose workers have it only because it is shipped to them."""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.application import log_of, plain, start_plain, submitted
from tests.cluster.program import CHANGES, expected, tuples
from tests.cluster.standalone import Cluster, processes_of_session, wait_until
from tidelog.log import Table
from tidelog.log.state.files import to_adds

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

WRITING = ["sink_driver", "sink_spark", "sink_tasks", "sink_many_files", "upsert_driver", "upsert_spark", "writing"]
READING = [
    "feed",
    "format_stream",
    "reading",
    "net_changes",
    "many_deletion_vectors",
    "format_read",
    "functions_of_sql",
]
CHANGING = ["statements", "compaction"]
MAIN = ["sink_driver", "sink_spark", "upsert_spark", "feed", "statements"]


def test_a_driver_and_workers_that_have_only_what_spark_submit_ships(
    cluster: Cluster, bare_python: Path, package: Path, tmp_path: Path
) -> None:
    submitted(cluster, tmp_path, MAIN, python=bare_python, ship=["--py-files", str(package)])
    assert f"tidelog is in {package}" in log_of(tmp_path)


def test_a_worker_is_killed_while_a_stream_and_a_compaction_write(
    cluster: Cluster, bare_python: Path, package: Path, tmp_path: Path
) -> None:
    parts = ["killed_stream", "killed_compaction"]
    with start_plain(cluster, tmp_path, parts, python=bare_python, ship=["--py-files", str(package)]) as driver:
        for part in parts:
            held = tmp_path / part / "held"
            wait_until(partial(is_held_or_ended, held, driver), f"{part} writes")
            assert driver.poll() is None, log_of(tmp_path)
            task = int(held.read_text())
            [lost] = [worker for worker in cluster.workers if task in processes_of_session(worker.session)]
            cluster.kill_worker(lost)
            cluster.add_worker()
        assert driver.wait(600) == 0, log_of(tmp_path)
    for part, count, version in (("killed_stream", 200, 2), ("killed_compaction", 60, 7)):
        table = Table.open(str(tmp_path / part / "table"))
        assert sorted(tuples(table.scan().to_arrow())) == expected(range(count)), part
        assert table.version == version, part
        only_garbage_is_left(table, count)
    assert table.properties[CHANGES] == "true"


def is_held_or_ended(held: Path, driver: subprocess.Popen[bytes]) -> bool:
    return held.exists() or driver.poll() is not None


def only_garbage_is_left(table: Table, count: int) -> None:
    """What the killed tasks left is what a vacuum deletes."""
    root = Path(table.path)
    versions = [table.at(version=version) for version in range(table.version + 1)]
    named = {add.path for at_version in versions for add in to_adds(at_version.files())}
    stored = {str(file.relative_to(root)) for file in root.rglob("*.parquet")}
    left = {path for path in stored - named if not path.startswith("_delta_log")}
    for path in left:
        os.utime(root / path, (0, 0))
    table.vacuum(older_than=timedelta(days=2))
    assert {path for path in left if (root / path).exists()} == set()
    assert named <= {str(file.relative_to(root)) for file in root.rglob("*.parquet")}
    assert table.refresh().scan().count() == count


@pytest.mark.full
def test_everything_from_spark_submit(cluster: Cluster, bare_python: Path, package: Path, tmp_path: Path) -> None:
    rest = [part for part in [*WRITING, *READING, *CHANGING] if part not in MAIN]
    submitted(cluster, tmp_path, rest, python=bare_python, ship=["--py-files", str(package)])


@pytest.mark.full
def test_everything_from_a_python_program(cluster: Cluster, bare_python: Path, package: Path, tmp_path: Path) -> None:
    parts = [*WRITING, *READING, *CHANGING]
    plain(cluster, tmp_path, parts, python=bare_python, ship=["--py-files", str(package)], path_for_planning=False)
