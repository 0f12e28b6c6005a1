"""A streaming process is killed at each point of a batch, in every mode with either writer: each batch is there once.

Every kill is a SIGKILL to Python and its JVM while all scenarios of `sink_scenarios` wait at the same point. The next
process replays the batch that was cut short and is killed at the next point of the following batch. One scenario is
also killed within a Spark job, when one task's file is complete and another one's half written; other moments within a
job are left to chance in `test_killed_stream`.

`named` are queries by `writeStream.format("tidelog")`.

On Spark Connect, `connect` kills the client, the server and the processes of the batch functions at once, and `workers`
only the latter, while the server lives on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from tests.crash.sink_program import CLASSIC, CONNECT, NAMED
from tests.crash.sink_scenarios import (
    AFTER_COMMIT,
    BEFORE_COMMIT,
    BETWEEN_FILES,
    COMMITTED,
    GROUPS,
    POINTS,
    SCENARIOS,
    SCHEMA,
    Scenario,
    batch_rows,
    calls_on,
    expected,
    folder_of,
    group_of,
)
from tests.streaming.connect.server import ROOT, server
from tests.streaming.support import Input, wait_until
from tidelog.compaction_daemon import vacuum
from tidelog.log import Table
from tidelog.log.cleanup.references import References
from tidelog.log.data.indexed_key import IndexedKey
from tidelog.log.data.key_runs import KEYS_FOLDER, open_runs
from tidelog.log.errors import TableNotFoundError
from tidelog.log.format.paths import to_storage_path
from tidelog.log.state import files
from tidelog.log.state.commits import read_commit
from tidelog.log.state.loader import load
from tidelog.log.storage.local import LocalStore

# A group of scenarios runs through all points in about a minute on two idle cores.
pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]

TIMEOUT_S = 500
WORKERS = "workers"
# As CLASSIC at fewer points.
SHORT = "short"
# The scenarios of each way to run and kill.
WAYS = {
    SHORT: GROUPS["main"],
    CLASSIC: SCENARIOS,
    NAMED: GROUPS[NAMED],
    WORKERS: GROUPS[WORKERS],
    CONNECT: SCENARIOS,
}
LANES = {
    CLASSIC: [pytest.mark.full],
    NAMED: [pytest.mark.full],
    WORKERS: [pytest.mark.nightly],
    CONNECT: [pytest.mark.nightly],
}
RUNS = [(way, scenario) for way, scenarios in WAYS.items() for scenario in scenarios]
TABLES = [
    (way, scenario, table) for way, scenario in RUNS for table in dict.fromkeys(call.table for call in scenario.calls)
]

Rows = list[tuple[int, int, str]]


def points_of(way: str) -> tuple[str, ...]:
    """Where the processes of a way are killed. Each of them has a batch, and one more runs to the end."""
    return (BETWEEN_FILES, BEFORE_COMMIT, AFTER_COMMIT) if way == SHORT else POINTS


def batches_of(way: str) -> int:
    return len(points_of(way)) + 1


@dataclass(frozen=True)
class CrashResults:
    """The folder after all processes, and for each table and point what a kill there left.

    `rows` are the table's rows, `unnamed` the files that no commit refers to.
    """

    base: Path
    rows: Mapping[tuple[str, str], Rows]
    unnamed: Mapping[tuple[str, str], frozenset[str]]

    def path(self, table: str) -> Path:
        return folder_of(self.base, "tables", table)


@pytest.fixture(scope="module")
def results_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], CrashResults]:
    """The results of a group of scenarios, which run once."""

    def results(way: str, group: str) -> CrashResults:
        base = tmp_path_factory.mktemp("points")
        if way != WORKERS:
            return _run_all(CLASSIC if way == SHORT else way, group, base, points_of(way))
        with server(base / "server") as url:
            return _run_all(url, group, base, points_of(way))

    return cache(results)


@pytest.fixture
def results(results_of: Callable[[str, str], CrashResults], way: str, scenario: Scenario) -> CrashResults:
    return results_of(way, way if way in {WORKERS, NAMED} else group_of(scenario))


def _run_all(way: str, group: str, base: Path, points: Sequence[str]) -> CrashResults:
    tables = [call.table for scenario in GROUPS[group] for call in scenario.calls]
    source = Input(base / "input")
    rows: dict[tuple[str, str], Rows] = {}
    unnamed: dict[tuple[str, str], frozenset[str]] = {}
    for batch, point in enumerate(points):
        source.put_table(pa.Table.from_pylist(batch_rows(batch), schema=SCHEMA))
        run(way, group, base, batch, point, -signal.SIGKILL)
        for table in tables:
            path = folder_of(base, "tables", table)
            rows[table, point] = rows_in(path)
            unnamed[table, point] = unnamed_files(path)
    source.put_table(pa.Table.from_pylist(batch_rows(len(points)), schema=SCHEMA))
    run(way, group, base, -1, "", 0)
    return CrashResults(base, rows, unnamed)


def run(way: str, group: str, base: Path, killed_batch: int, point: str, returncode: int) -> None:
    """Run the program once in its own process group, and kill what is left of the group."""
    started = time.monotonic()
    with (base / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.sink_program", way, group, str(base), str(killed_batch), point],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )
    try:
        process.wait(timeout=TIMEOUT_S)
    finally:
        with suppress(ProcessLookupError):
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
    """Every file of the table except the log and the runs of the key index, which no commit names."""
    found = (str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
    return {name for name in found if not name.startswith(("_delta_log/", KEYS_FOLDER))}


def unnamed_files(path: Path) -> frozenset[str]:
    """Those of them that no commit refers to as data, change data or a deletion vector."""
    store = LocalStore(str(path))
    named = References()
    for commit in sorted((path / "_delta_log").glob("*.json")):
        named.add_commit(read_commit(store, int(commit.stem)))
    found = sorted(data_files(path))
    return frozenset(name for name, is_named in zip(found, named.named(found), strict=True) if not is_named)


def indexed_files(table: Table) -> list[list[str]]:
    """The data files of each run of the key index."""
    key = IndexedKey.of(load(table.store).head.metadata, table.schema)
    return [] if key is None else [run.paths.to_pylist() for run in open_runs(table.store, key)]


each_table = pytest.mark.parametrize(
    ("way", "scenario", "table"),
    [
        pytest.param(way, scenario, table, id=f"{way}-{table}", marks=LANES.get(way, ()))
        for way, scenario, table in TABLES
    ],
)


@pytest.mark.parametrize(
    ("way", "scenario", "table", "point"),
    [
        pytest.param(way, scenario, table, point, id=f"{way}-{table}-{point}", marks=LANES.get(way, ()))
        for way, scenario, table in TABLES
        for point in points_of(way)
    ],
)
def test_a_kill_leaves_the_whole_batch_or_nothing_of_it(
    results: CrashResults, way: str, scenario: Scenario, table: str, point: str
) -> None:
    batch = points_of(way).index(point)
    calls = calls_on(scenario, table, batch + (point in COMMITTED), complete=point in COMMITTED)
    assert results.rows[table, point] == expected(calls)


@each_table
def test_finally_each_table_has_the_rows_of_a_run_without_kills(
    results: CrashResults, way: str, scenario: Scenario, table: str
) -> None:
    assert rows_in(results.path(table)) == expected(calls_on(scenario, table, batches_of(way), complete=True))


@each_table
def test_each_batch_is_one_commit_in_a_log_without_gaps(
    results: CrashResults, way: str, scenario: Scenario, table: str
) -> None:
    log = results.path(table) / "_delta_log"
    calls = calls_on(scenario, table, batches_of(way), complete=True)
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
    assert records == [(call.name, batch) for call, batch in calls]


@each_table
def test_the_commits_alone_have_the_same_rows(results: CrashResults, way: str, scenario: Scenario, table: str) -> None:
    """Without checksums and checkpoints, which a killed process can leave incomplete."""
    path = results.path(table)
    for hint in [*(path / "_delta_log").glob("*.crc"), *(path / "_delta_log").glob("*checkpoint*")]:
        hint.unlink()
    assert rows_in(path) == expected(calls_on(scenario, table, batches_of(way), complete=True))


@pytest.mark.parametrize(
    ("way", "scenario"),
    [pytest.param(way, scenario, id=f"{way}-{scenario.name}", marks=LANES.get(way, ())) for way, scenario in RUNS],
)
def test_spark_has_recorded_each_batch(results: CrashResults, way: str, scenario: Scenario) -> None:
    commits = folder_of(results.base, "checkpoints", scenario.name) / "commits"
    assert sorted(int(file.name) for file in commits.iterdir() if file.name.isdigit()) == list(range(batches_of(way)))


@each_table
def test_vacuum_deletes_the_files_that_no_commit_refers_to(
    results: CrashResults, way: str, scenario: Scenario, table: str
) -> None:
    path = results.path(table)
    if table == scenario.calls[-1].table:
        # At these points files were written that no commit refers to, so the kills came where they should.
        for point in (BETWEEN_FILES, BEFORE_COMMIT):
            assert results.unnamed[table, point]
    if scenario.blocks_task and way in {SHORT, CLASSIC}:
        assert any("/_temporary/" in name for name in results.unnamed[table, BETWEEN_FILES])
    opened = Table.open(str(path))
    opened.set_properties({"tidelog.maxTransactionTime": "0 seconds"})
    newest = opened.history(1)[0].timestamp
    wait_until(lambda: datetime.now(UTC) > newest, "the newest commit is in the past")
    vacuum(opened, older_than=timedelta(0))
    assert rows_in(path) == expected(calls_on(scenario, table, batches_of(way), complete=True))
    assert not unnamed_files(path)
    live = set(opened.refresh().at().files()["path"].to_pylist())
    assert all(live.intersection(run) for run in indexed_files(opened)), "runs of files that are not live are gone"
    assert {to_storage_path(add.path) for add in files.to_adds(opened.refresh().at().files())} <= data_files(path)
