"""A process that streams is stopped at every point of a batch: whatever point, mode and writer, each batch comes once.

Each stop is a SIGKILL to Python and to its JVM, while all scenes of `sink_scenes` (each mode by each writer, two sinks
into one table, two tables) wait at that very point. The next process begins with the batch that was cut short, and is
stopped at the next point of the batch after it. Within a task of Spark's one scene is stopped too, with the file of one
task in its place and that of another half written; other moments there are left to `test_killed_stream`'s chance.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from tests.crash.sink_scenes import (
    BEFORE_COMMIT,
    BETWEEN_FILES,
    COMMITTED,
    POINTS,
    SCENES,
    SCHEMA,
    Scene,
    batch_rows,
    calls_of,
    expected,
    folder_of,
)
from tests.streaming.support import Input
from tidelog.compaction_daemon import vacuum
from tidelog.log import Table
from tidelog.log.cleanup.references import References
from tidelog.log.errors import TableNotFoundError
from tidelog.log.format.paths import to_storage_path
from tidelog.log.state import files
from tidelog.log.state.commits import read_commit
from tidelog.log.storage.local import LocalStore

# All lives of the program are one fixture. On two quiet cores it takes less than a minute or two.
pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]

PATIENCE_S = 500
BATCHES = len(POINTS) + 1
TABLES = [(scene, table) for scene in SCENES for table in dict.fromkeys(part.table for part in scene.parts)]
TABLE_NAMES = [table for _, table in TABLES]

Rows = list[tuple[int, int, str]]


@dataclass(frozen=True)
class Aftermath:
    """What the processes left: after each stop the rows of each table and its files, and in the end the folder."""

    base: Path
    rows: Mapping[tuple[str, str], Rows]
    unnamed: Mapping[tuple[str, str], frozenset[str]]

    def path(self, table: str) -> Path:
        return folder_of(self.base, "tables", table)


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory: pytest.TempPathFactory) -> Aftermath:
    base = tmp_path_factory.mktemp("points")
    source = Input(base / "input")
    rows: dict[tuple[str, str], Rows] = {}
    unnamed: dict[tuple[str, str], frozenset[str]] = {}
    for batch, point in enumerate(POINTS):
        source.put_table(pa.Table.from_pylist(batch_rows(batch), schema=SCHEMA))
        run(base, batch, point, -signal.SIGKILL)
        for table in TABLE_NAMES:
            path = folder_of(base, "tables", table)
            rows[table, point] = rows_in(path)
            unnamed[table, point] = unnamed_files(path)
    source.put_table(pa.Table.from_pylist(batch_rows(BATCHES - 1), schema=SCHEMA))
    run(base, -1, "", 0)
    return Aftermath(base, rows, unnamed)


def run(base: Path, doomed: int, point: str, returncode: int) -> None:
    """One life of the program, in a process group of its own, which is gone afterwards."""
    started = time.monotonic()
    with (base / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.sink_program", str(base), str(doomed), point],
            cwd=Path(__file__).parents[2],
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )
    try:
        process.wait(timeout=PATIENCE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert process.returncode == returncode, (base / "errors").read_text()[-4000:]
    print(f"{point or 'to the end'}: {time.monotonic() - started:.1f} s")


def rows_in(path: Path) -> Rows:
    try:
        table = Table.open(str(path))
    except TableNotFoundError:
        return []
    return sorted((row["id"], row["made"], row["op"]) for row in table.scan().to_arrow().to_pylist())


def data_files(path: Path) -> set[str]:
    """Every file below the table but for the log."""
    found = (str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
    return {name for name in found if not name.startswith("_delta_log/")}


def unnamed_files(path: Path) -> frozenset[str]:
    """Those of them that no commit names: as data, change data or deletion vector."""
    store = LocalStore(str(path))
    named = References()
    for commit in sorted((path / "_delta_log").glob("*.json")):
        named.add_commit(read_commit(store, int(commit.stem)))
    found = sorted(data_files(path))
    return frozenset(name for name, is_named in zip(found, named.named(found), strict=True) if not is_named)


each_table = pytest.mark.parametrize(("scene", "table"), TABLES, ids=TABLE_NAMES)


@each_table
@pytest.mark.parametrize("point", POINTS)
def test_a_stop_leaves_the_batch_whole_or_not_at_all(
    aftermath: Aftermath, scene: Scene, table: str, point: str
) -> None:
    batch = POINTS.index(point)
    calls = calls_of(scene, table, batch + (point in COMMITTED), last_of_all=point in COMMITTED)
    assert aftermath.rows[table, point] == expected(calls)


@each_table
def test_in_the_end_the_table_is_that_of_a_run_without_a_stop(aftermath: Aftermath, scene: Scene, table: str) -> None:
    assert rows_in(aftermath.path(table)) == expected(calls_of(scene, table, BATCHES, last_of_all=True))


@each_table
def test_each_batch_is_one_commit_in_a_log_without_a_gap(aftermath: Aftermath, scene: Scene, table: str) -> None:
    log = aftermath.path(table) / "_delta_log"
    calls = calls_of(scene, table, BATCHES, last_of_all=True)
    commits = sorted(log.glob("*.json"))
    assert [file.name for file in commits] == [f"{version:020d}.json" for version in range(len(calls) + 1)]
    records, entries = [], []
    for file in commits[1:]:
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        record = actions[0]["commitInfo"]["tidelog"]["batch"]
        records.append((record["sink"], record["batchId"]))
        query_id = record["queryId"]
        entries.append({a["txn"]["appId"]: a["txn"]["version"] for a in actions if "txn" in a})
        assert entries[-1][f"tidelog/{query_id}/{record['sink']}"] == record["batchId"]
        assert entries[-1][f"tidelog/{query_id}/{record['sink']}/offsets"] == record["fingerprint"]
    assert records == [(part.name, batch) for part, batch in calls]


@each_table
def test_the_log_alone_tells_the_same(aftermath: Aftermath, scene: Scene, table: str) -> None:
    """Without the hints, which a killed process may have left behind half done or not at all."""
    path = aftermath.path(table)
    for hint in [*(path / "_delta_log").glob("*.crc"), *(path / "_delta_log").glob("*checkpoint*")]:
        hint.unlink()
    assert rows_in(path) == expected(calls_of(scene, table, BATCHES, last_of_all=True))


@pytest.mark.parametrize("scene", SCENES, ids=[scene.name for scene in SCENES])
def test_spark_noted_each_batch(aftermath: Aftermath, scene: Scene) -> None:
    commits = folder_of(aftermath.base, "checkpoints", scene.name) / "commits"
    assert sorted(int(file.name) for file in commits.iterdir() if file.name.isdigit()) == list(range(BATCHES))


@each_table
def test_what_no_commit_names_is_there_and_goes_with_a_vacuum(aftermath: Aftermath, scene: Scene, table: str) -> None:
    path = aftermath.path(table)
    if table == scene.parts[-1].table:
        # The points are where they are said to be: files were written, and no commit came to name them.
        for point in (BETWEEN_FILES, BEFORE_COMMIT):
            assert aftermath.unnamed[table, point]
    if scene.halts_tasks:
        assert any("/_temporary/" in name for name in aftermath.unnamed[table, BETWEEN_FILES])
    opened = Table.open(str(path))
    opened.set_properties({"tidelog.maxTransactionTime": "0 seconds"})
    time.sleep(0.01)
    vacuum(opened, older_than=timedelta(0))
    assert rows_in(path) == expected(calls_of(scene, table, BATCHES, last_of_all=True))
    assert not unnamed_files(path)
    assert {to_storage_path(add.path) for add in files.to_adds(opened.refresh().at().files())} <= data_files(path)
