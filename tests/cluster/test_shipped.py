"""tidelog on a standalone cluster, whose workers have it only because it is shipped to them."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.application import log_of, plain, start_plain, submitted
from tests.cluster.program import expected, tuples
from tests.cluster.standalone import Cluster, clean_environment, processes_of_session, wait_until
from tests.log.storage.servers import SECRET, Server
from tidelog.log import Table
from tidelog.log.state.files import to_adds

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(900)]

APPENDING = ["sink_driver", "sink_spark", "sink_overwrite", "sink_tasks", "sink_many_files"]
WRITING = [*APPENDING, "upsert_driver", "upsert_spark", "writing"]
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
KILLED = Path(__file__).with_name("killed_program.py")
MAIN = ["sink_driver", "sink_spark", "upsert_spark", "feed", "statements"]


def test_the_python_of_the_workers_has_all_but_tidelog(bare_python: Path, tmp_path: Path) -> None:
    for imported, code in (("msgspec, numpy, pyarrow, pyroaring, pyspark", 0), ("tidelog", 1)):
        command = [str(bare_python), "-c", f"import {imported}"]
        done = subprocess.run(
            command, env=clean_environment(), cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
    assert "No module named 'tidelog'" in done.stderr


def test_a_driver_and_workers_that_have_only_what_spark_submit_ships(
    cluster: Cluster, bare_python: Path, package: Path, tmp_path: Path
) -> None:
    submitted(cluster, tmp_path, MAIN, python=bare_python, ship=["--py-files", str(package)])
    assert f"tidelog is in {package}" in log_of(tmp_path)


def test_a_worker_is_killed_while_a_stream_and_a_compaction_write(
    cluster: Cluster, bare_python: Path, package: Path, tmp_path: Path
) -> None:
    parts = ["killed_stream", "killed_compaction"]
    ship = ["--py-files", str(package)]
    with start_plain(cluster, tmp_path, parts, python=bare_python, ship=ship, program=KILLED) as driver:
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
        left = require_only_garbage_left(table, count)
    assert left, "the killed task of the compaction had written a file"


def is_held_or_ended(held: Path, driver: subprocess.Popen[bytes]) -> bool:
    return held.exists() or driver.poll() is not None


def require_only_garbage_left(table: Table, count: int) -> int:
    """Check that a vacuum deletes what the killed tasks left; the number of those files."""
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
    return len(left)


@pytest.mark.nightly
def test_credentials_of_a_store_travel_with_the_tasks(
    cluster: Cluster, bare_python: Path, package: Path, s3: Server, tmp_path: Path
) -> None:
    """The executors have none of their own, and Spark's JVM has no connector."""
    (tmp_path / "store.json").write_text(json.dumps([s3.store("from a cluster").url, s3.options]))
    plain(cluster, tmp_path, ["object_store"], python=bare_python, ship=["--py-files", str(package)])
    assert SECRET not in log_of(tmp_path)


def test_everything_from_spark_submit(cluster: Cluster, bare_python: Path, package: Path, tmp_path: Path) -> None:
    rest = [part for part in [*WRITING, *READING, *CHANGING] if part not in MAIN]
    submitted(cluster, tmp_path, rest, python=bare_python, ship=["--py-files", str(package)])


@pytest.mark.nightly
def test_everything_from_a_python_program(cluster: Cluster, bare_python: Path, package: Path, tmp_path: Path) -> None:
    parts = [*WRITING, *READING, *CHANGING]
    plain(cluster, tmp_path, parts, python=bare_python, ship=["--py-files", str(package)], path_for_planning=False)
