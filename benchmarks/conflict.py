"""Conflicting writers: `make bench-conflict`; `BENCHARGS="--seconds 10"` makes the race shorter.

The goals are next to the cases. A missed goal is reported, but it is not a failure, since a benchmark is not a test. A
row that is lost, doubled or wrong is a failure.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import contenders, loops, starvation, tables
from benchmarks.audit import Audit, audit, newest_version, unnamed_bytes
from benchmarks.harness import (
    DELTA_SPARK,
    DELTALAKE,
    REPOSITORY,
    TIDELOG,
    Goal,
    Harness,
    Report,
    Run,
    percentile,
    pick,
    run_parts,
)
from benchmarks.loops import Tally
from tidelog.log import Table
from tidelog.log.commit import loop

CASES = ("race", "starvation", "rebase_delete", "rebase_append")
# The time besides the race itself: starting, warming up, and finishing what was begun in time.
GRACE_S = 240
# What turns promise: a writer asks after a time, may find the request of a dead writer, and then comes soon.
LONGEST_GAP_MS = (loop.ASK_AFTER_S + loop.TURN_S + 1) * 1000


@dataclass(frozen=True)
class Sizes:
    """The length of the race, the sizes of the rebases, and the number of measurements."""

    seconds: float = 60
    warm_up_seconds: float = 5
    files: int = 1_000
    rows_per_file: int = 10_000
    deletes_per_file: int = 100
    winners: int = 1_000
    repetitions: int = 5
    writers: int = 8
    kills_every_s: float = 2.0


QUICK = Sizes(
    seconds=1,
    warm_up_seconds=0.2,
    files=5,
    rows_per_file=100,
    deletes_per_file=10,
    winners=5,
    repetitions=1,
    writers=2,
    kills_every_s=0.5,
)


@dataclass(frozen=True)
class Finish:
    """The result of a race: the tallies of the loops, and the checks of the table."""

    tallies: Mapping[str, Tally]
    audit: Audit
    versions: int
    unnamed_bytes: int

    def of(self, *roles: str) -> Tally:
        """The combined tally of these loops."""
        total = Tally()
        for tally in (self.tallies[role] for role in roles):
            total.attempted += tally.attempted
            total.done += tally.done
            total.spans_ms += tally.spans_ms
            total.seconds = max(total.seconds, tally.seconds)
            total.longest_gap_ms = max(total.longest_gap_ms, tally.longest_gap_ms)
            for name, number in tally.errors.items():
                total.errors[name] = total.errors.get(name, 0) + number
            for name, number in tally.counts.items():
                total.count(name, number)
        return total


class ConflictBench:
    """The groups of cases, each a method named in CASES."""

    def __init__(self, harness: Harness, sizes: Sizes, *, spark: bool) -> None:
        self._harness = harness
        self._report = harness.report
        self._sizes = sizes
        self._spark = spark
        self.rows_are_right = True

    def race(self) -> None:
        """A stream, deletes, updates and compactions at once on one table, each as fast as it can."""
        finishes = {TIDELOG: self._race_of_tidelog()}
        if self._spark:
            finishes[DELTA_SPARK] = self._race_of_spark()
        self._report_statements({name: finish.of(*loops.PARITY) for name, finish in finishes.items()})
        self._report_stream({name: finish.of("append") for name, finish in finishes.items()})
        # Of each writer that always has something to commit.
        gaps = {name: finish.of("append", *loops.PARITY).longest_gap_ms for name, finish in finishes.items()}
        self._report.figure("longest_without_a_commit", "ms", gaps, Goal(LONGEST_GAP_MS, TIDELOG))
        self._report_compactions(finishes)
        self._report.figure("versions", "versions", {name: finish.versions for name, finish in finishes.items()})
        audits = {name: finish.audit for name, finish in finishes.items()}
        facts: dict[str, Any] = {f"{name}_audit": str(found) for name, found in audits.items()}
        self._report.figure("rows", "rows", {name: found.rows for name, found in audits.items()})
        self._report.figure(
            "rows_lost_doubled_or_wrong",
            "rows",
            {name: found.differences for name, found in audits.items()},
            Goal(0, TIDELOG),
            **facts,
        )
        self.rows_are_right = self.rows_are_right and not audits[TIDELOG].differences

    def starvation(self) -> None:
        """Inserts by many writers, of which some are killed: how long a living one makes no commit."""
        sizes, work = self._sizes, self._harness.work
        found: dict[str, starvation.Outcome] = {}
        missing: dict[str, int] = {}
        for engine in (TIDELOG, DELTALAKE):
            path = work / f"starvation-{engine}"
            found[engine] = starvation.race(
                engine,
                str(path),
                work,
                writers=sizes.writers,
                seconds=sizes.seconds,
                kills_every_s=sizes.kills_every_s,
            )
            stored = Counter(Table.open(str(path)).scan().to_arrow()["id"].to_pylist())
            missing[engine] = sum(stored[row] != 1 for row in found[engine].ids) + sum(n > 1 for n in stored.values())
        facts = {f"{name}_{what}": getattr(each, what) for name, each in found.items() for what in ("kills", "errors")}
        gaps = {name: 1000 * each.longest_gap_s for name, each in found.items()}
        goal = Goal(LONGEST_GAP_MS, TIDELOG)
        self._report.figure("writers_longest_without_a_commit", "ms", gaps, goal, peer=DELTALAKE, **facts)
        rates = {name: len(each.ids) / sizes.seconds for name, each in found.items()}
        self._report.figure("writers_commits_per_second", "1/s", rates, peer=DELTALAKE, writers=sizes.writers)
        self._report.figure("writers_rows_lost_or_doubled", "rows", missing, Goal(0, TIDELOG), peer=DELTALAKE)
        self.rows_are_right = self.rows_are_right and not missing[TIDELOG]

    def rebase_delete(self) -> None:
        """Commit a delete of rows in every file, after a compaction of all files won."""
        size = {"files": self._sizes.files, "rows": self._sizes.rows_per_file}
        arguments = {**size, "deletes": self._sizes.deletes_per_file}
        self._rebase("rebase_delete", arguments, 50)

    def rebase_append(self) -> None:
        """Commit a blind append after very many other appends won."""
        self._rebase("rebase_append", {"winners": self._sizes.winners}, 100)

    def _rebase(self, action: str, arguments: Mapping[str, Any], limit_ms: float) -> None:
        runs = [Run(TIDELOG, action, lambda work: {"path": str(work / "table"), **arguments})]
        found = self._harness.measure(runs)
        for name, goal in (
            ("rules_ms", limit_ms),
            ("rules_cpu_ms", None),
            ("between_puts_ms", limit_ms),
            ("commit_ms", None),
        ):
            self._report.figure(
                f"{action}_{name.removesuffix('_ms')}",
                "ms",
                pick(found, name),
                None if goal is None else Goal(goal, TIDELOG),
                **arguments,
            )

    def _report_statements(self, tallies: Mapping[str, Tally]) -> None:
        # Only successful statements count for tidelog, but all attempts for the peer.
        rates = {name: _rate(tally, tally.failed if name == TIDELOG else 0) for name, tally in tallies.items()}
        self._report.figure("statements_per_second", "1/s", rates, Goal(10, at_least=True))
        self._report.figure("statements_attempted", "statements", {n: t.attempted for n, t in tallies.items()})
        self._report.figure("statements_succeeded", "statements", {n: len(t.done) for n, t in tallies.items()})
        self._report.figure(
            "statements_failed",
            "statements",
            {name: tally.failed for name, tally in tallies.items()},
            Goal(0, TIDELOG),
            **_facts(tallies),
        )
        for name, share in (("median", 50), ("99th", 99)):
            spans = {engine: percentile(tally.spans_ms, share) for engine, tally in tallies.items()}
            self._report.figure(f"statement_{name}", "ms", spans)

    def _report_stream(self, tallies: Mapping[str, Tally]) -> None:
        appended = {name: len(tally.done) for name, tally in tallies.items()}
        failed = {name: tally.failed for name, tally in tallies.items()}
        self._report.figure("batches_appended", "batches", appended)
        self._report.figure("batches_failed", "batches", failed, Goal(0, TIDELOG), **_facts(tallies))
        medians = {name: percentile(tally.spans_ms, 50) for name, tally in tallies.items()}
        self._report.figure("batch_median", "ms", medians)

    def _report_compactions(self, finishes: Mapping[str, Finish]) -> None:
        tallies = {name: finish.of("compact") for name, finish in finishes.items()}
        commits = {name: tally.counts.get("commits", 0) for name, tally in tallies.items()}
        self._report.figure("compactions", "commits", commits)
        failed = {name: tally.failed for name, tally in tallies.items()}
        self._report.figure("compactions_failed", "attempts", failed, **_facts(tallies))
        written = {name: tally.counts.get("bytes_written", 0) / 1e6 for name, tally in tallies.items()}
        self._report.figure("compactions_written", "MB", written)
        lost = {name: _thrown_away(finish) for name, finish in finishes.items()}
        self._report.figure("compactions_thrown_away", "bytes", lost, Goal(0, TIDELOG))

    def _race_of_tidelog(self) -> Finish:
        path, warm_up = (str(self._harness.work / name) for name in ("tidelog", "tidelog-warm-up"))
        contenders.create(path)
        contenders.create(warm_up)
        arguments = json.dumps(self._arguments(path, warm_up))
        commands = [["benchmarks.contenders", role, arguments] for role in loops.ROLES]
        tallies = race(commands, self._sizes.seconds)
        rows = Table.open(path).scan(columns=["k", "v"]).to_arrow()
        return Finish(tallies, audit(rows, tallies), newest_version(Path(path)), unnamed_bytes(Path(path)))

    def _race_of_spark(self) -> Finish:
        import pyarrow as pa

        path, warm_up, rows = (self._harness.work / name for name in ("spark", "spark-warm-up", "spark-rows.arrow"))
        arguments = self._arguments(str(path), str(warm_up)) | {"rows": str(rows)}
        tallies = race([["benchmarks.contenders_spark", json.dumps(arguments)]], self._sizes.seconds)
        with pa.ipc.open_file(str(rows)) as reader:
            found = audit(reader.read_all(), tallies)
        return Finish(tallies, found, newest_version(path), unnamed_bytes(path))

    def _arguments(self, path: str, warm_up: str) -> dict[str, object]:
        times = {"seconds": self._sizes.seconds, "warm_up_seconds": self._sizes.warm_up_seconds}
        return {"path": path, "warm_up": warm_up, **times}


def race(commands: Sequence[Sequence[str]], seconds: float) -> dict[str, Tally]:
    """Start the processes, wait until all are ready, let them go at once, and return the tally of each loop."""
    with ExitStack() as stack:
        running = [stack.enter_context(_started(command)) for command in commands]
        for process in running:
            stack.callback(process.kill)
        for process in running:
            assert process.stdout
            line = process.stdout.readline()
            if line != "ready\n":
                raise subprocess.SubprocessError(f"{process.args!r} is not ready: it printed {line!r}")
        for process in running:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [process.communicate(timeout=seconds + GRACE_S)[0] for process in running]
        for process in running:
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, process.args)
    found = [json.loads(answer.splitlines()[-1]) for answer in answers]
    return {role: Tally(**tally) for part in found for role, tally in part.items()}


def _started(command: Sequence[str]) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-m", *command], cwd=REPOSITORY, stdin=pipe, stdout=pipe, text=True)


def _thrown_away(finish: Finish) -> int:
    """The bytes that compactions wrote and deleted again, and those of files without a commit."""
    return finish.of("compact").counts.get("bytes_thrown_away", 0) + finish.unnamed_bytes


def _rate(tally: Tally, left_out: int) -> float:
    return (tally.attempted - left_out) / tally.seconds


def _facts(tallies: Mapping[str, Tally]) -> dict[str, Any]:
    """The errors and other counts of the loops, for the JSON line."""
    return {f"{name}_{what}": getattr(t, what) for name, t in tallies.items() for what in ("errors", "counts")}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-conflict", description=__doc__)
    parser.add_argument("--seconds", type=float, default=Sizes.seconds, help="how long the loops run")
    parser.add_argument("--repetitions", type=int, default=Sizes.repetitions, help="rebases of which the median counts")
    parser.add_argument("--no-spark", action="store_true", help="leave delta-spark out")
    parser.add_argument("--only", default="", help=f"run groups whose name contains this: {', '.join(CASES)}")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, without delta-spark, to check that it runs")
    given = parser.parse_args()
    sizes = QUICK if given.quick else Sizes(seconds=given.seconds, repetitions=given.repetitions)
    report = Report("conflict", peer=DELTA_SPARK)
    report.machine(seconds=sizes.seconds, seed_rows=loops.SEED_ROWS, batch_rows=loops.BATCH_ROWS)
    tables.CACHE.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="work-", dir=tables.CACHE))
    try:
        harness = Harness(report, sizes.repetitions, work, isolated=not given.quick)
        bench = ConflictBench(harness, sizes, spark=not (given.quick or given.no_spark))
        run_parts(bench, CASES, given.only)
    finally:
        shutil.rmtree(work)
    report.end(quick=given.quick)
    if not bench.rows_are_right:
        sys.exit("tidelog has lost, doubled or wrong rows")


if __name__ == "__main__":
    main()
