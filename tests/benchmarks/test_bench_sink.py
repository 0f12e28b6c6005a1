from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks import sink
from benchmarks.engine_process import EngineFailedError, daemon
from benchmarks.harness import REPOSITORY, TIDELOG, Goal, Report
from benchmarks.sink import SinkBench, Sizes
from benchmarks.sink_streams import DELTA_FOREACHBATCH, NOOP, PARQUET, Rows, Spans
from tidelog.log import Table

CASES = {
    "machine",
    "small_add_batch",
    "small_add_batch_foreachbatch",
    "small_add_batch_noop",
    "small_trigger",
    "small_rows_lost_or_doubled",
    "large_add_batch",
    "large_add_batch_sink",
    "large_trigger",
    "large_rows_lost_or_doubled",
    "tail_add_batch_99th",
    "tail_add_batch_median",
    "tail_trigger_99th",
    "tail_trigger_median",
    "tail_rows_lost_or_doubled",
    "beside_add_batch_median",
    "beside_trigger_median",
    "beside_rows_lost_or_doubled",
    "life_growth",
    "life_python_memory_growth",
    "life_heap_memory_growth",
    "life_rows_lost_or_doubled",
}
RIGHT = {"found": (3_000, 4_498_500, 2_999), "expected": (3_000, 4_498_500, 2_999)}


@pytest.mark.nightly
@pytest.mark.spark
def test_a_quick_run_prints_every_case_and_loses_no_row(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.sink", "--quick"]
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = {line["case"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert lines.keys() == CASES
    timed = [line for line in lines.values() if line.get("unit") == "ms"]
    assert all(line[TIDELOG] > 0 and line[PARQUET] > 0 for line in timed)
    assert lines["small_add_batch"]["phases_ms"].keys() >= {"identify", "write", "commit"}
    # A turn of one batch and one of three, each after a batch that is left out.
    assert lines["small_rows_lost_or_doubled"]["tidelog_rows"] >= 6_000
    for case in ("small", "large", "tail"):
        assert lines[f"{case}_rows_lost_or_doubled"][TIDELOG] == lines[f"{case}_rows_lost_or_doubled"][PARQUET] == 0
    assert lines["life_heap_memory_growth"]["before_mb"] > 10
    assert not list((tmp_path / ".cache" / "tidelog-benchmarks").iterdir())


def test_each_case_is_a_method() -> None:
    public = {name for name in vars(SinkBench) if not name.startswith("_")}
    assert public - {"run", "close"} == set(sink.CASES)


class FakeProcess:
    """An engine with given batch times and rows."""

    def __init__(self, milliseconds: float, rows: dict[str, Any] | None) -> None:
        self.asked: list[str] = []
        self.folder = Path("unused")
        self._milliseconds = milliseconds
        self._rows = rows

    def ask(self, command: str, **arguments: Any) -> Any:
        self.asked.append(command)
        if command == "finish":
            return self._rows
        if self._milliseconds < 0:
            raise EngineFailedError("out of memory")
        spans = [self._milliseconds] * arguments["batches"]
        return {"add_batch_ms": spans, "trigger_ms": spans, "cpu_ms": 1.0, "batches": len(spans)}


def run_small(monkeypatch: pytest.MonkeyPatch, processes: dict[str, Any]) -> SinkBench:
    monkeypatch.setattr(SinkBench, "_process", lambda self, engine: processes[engine])  # noqa: ARG005
    report = Report("sink", peer=PARQUET, engines=sink.ENGINES)
    bench = SinkBench(report, Sizes(turns=2, small=4), Path("unused"), list(processes), "auto", with_daemon=False)
    bench.small()
    return bench


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    return {line["case"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}


def test_ratios_are_to_the_parquet_sink_and_to_delta_spark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    processes = {
        TIDELOG: FakeProcess(30, RIGHT),
        NOOP: FakeProcess(10, None),
        PARQUET: FakeProcess(40, RIGHT),
        DELTA_FOREACHBATCH: FakeProcess(300, RIGHT),
    }
    bench = run_small(monkeypatch, processes)
    lines = printed(capsys)
    first, second = lines["small_add_batch"], lines["small_add_batch_foreachbatch"]
    assert (first["ratio"], first["peer"], first["met"], first[NOOP]) == (0.75, PARQUET, False, 10)
    assert (second["ratio"], second["peer"], second["met"]) == (0.1, DELTA_FOREACHBATCH, True)
    assert bench.rows_are_right
    # The first turn is left out.
    assert processes[TIDELOG].asked == ["run", "run", "run", "finish"]


@pytest.mark.parametrize(
    ("found", "differences"),
    [((2_999, 4_498_500, 2_999), 1), ((4_000, 4_498_500, 2_999), 1_000), ((3_000, 4_498_500, 3_001), 1)],
)
def test_lost_and_doubled_rows_are_reported(
    found: Any, differences: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {**RIGHT, "found": found}
    assert Rows(**wrong).differences == differences
    bench = run_small(monkeypatch, {TIDELOG: FakeProcess(30, wrong), PARQUET: FakeProcess(40, RIGHT)})
    line = printed(capsys)["small_rows_lost_or_doubled"]
    assert (line[TIDELOG], line[PARQUET], line["met"]) == (differences, 0, False)
    assert not bench.rows_are_right


def test_a_peer_that_fails_is_left_out_but_tidelog_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_small(monkeypatch, {TIDELOG: FakeProcess(30, RIGHT), PARQUET: FakeProcess(-1, RIGHT)})
    out, err = capsys.readouterr()
    lines = {line["case"]: line for line in map(json.loads, out.splitlines())}
    assert (lines["small_add_batch"][PARQUET], lines["small_add_batch"]["met"]) == (None, None)
    assert err.count("parquet is left out from here on: out of memory") == 1
    with pytest.raises(EngineFailedError):
        run_small(monkeypatch, {TIDELOG: FakeProcess(-1, RIGHT), PARQUET: FakeProcess(40, RIGHT)})


def test_the_spans_of_several_turns_are_combined() -> None:
    spans = Spans([1.0], [2.0], {"write": [0.5]}, cpu_ms=7, batches=3)
    spans.add(Spans([3.0], [4.0], {"write": [0.7], "commit": [0.1]}, cpu_ms=5, batches=2))
    assert spans == Spans([1.0, 3.0], [2.0, 4.0], {"write": [0.5, 0.7], "commit": [0.1]}, cpu_ms=12, batches=5)


def test_the_daemon_runs_during_the_block_and_its_failure_is_reported(tmp_path: Path) -> None:
    path, output = tmp_path / "table", tmp_path / "output"
    table = Table.create(str(path), pa.schema([("n", pa.int64())]))
    for number in range(4):
        table.insert([{"n": number}])
    with daemon(path, output):
        deadline = time.monotonic() + 60
        while table.refresh().version == 4:
            assert time.monotonic() < deadline, output.read_text()
    assert table.scan().count() == 4
    with pytest.raises(EngineFailedError, match="the daemon ended with"), daemon(Path("s3:"), output):
        pass


def test_the_table_names_another_peer_of_a_goal(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("test", peer=PARQUET, engines=(TIDELOG, PARQUET, NOOP))
    report.figure("a", "ms", {TIDELOG: 1.0, NOOP: 2.0}, Goal(0.4), peer=NOOP)
    report.table()
    out, err = capsys.readouterr()
    assert json.loads(out)["met"] is False
    assert "ratio to noop <= 0.4" in err
