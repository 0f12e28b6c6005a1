"""The sink's speed compared with Spark's own sinks: `make bench-sink`; `BENCHARGS="--batches 500"` makes it shorter.

The goals are next to the cases. A missed goal is reported, but it is not a failure, since a benchmark is not a test. A
row that tidelog lost or doubled is a failure.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.engine_process import EngineFailedError, EngineProcess, daemon
from benchmarks.harness import TIDELOG, Goal, Report, percentile, run_parts
from benchmarks.sink_streams import (
    DELTA_FOREACHBATCH,
    DELTA_NATIVE,
    NOOP,
    PARQUET,
    PARQUET_FOREACHBATCH,
    PEERS,
    SMALL_ROWS,
    Rows,
    Spans,
)

CASES = ("small", "large", "tail", "beside", "life")
ENGINES = (TIDELOG, *PEERS)


@dataclass(frozen=True)
class Sizes:
    """The number and size of the batches of each case.

    `small`, `large` and `tail` are batches per turn. `life` is the total, of which the first and last `window` batches
    are compared. Memory is first measured after `settled` batches.
    """

    turns: int = 3
    small: int = 20
    large: int = 5
    large_rows: int = 1_000_000
    tail_turns: int = 5
    tail: int = 100
    life: int = 5_000
    settled: int = 500
    window: int = 100
    warm_up: int = 20
    # Batches left out after each start of a query, which are slower.
    skip: int = 5
    large_skip: int = 2
    # Whether `life` gets a new process, so that no other case affects its memory.
    fresh: bool = True


QUICK = Sizes(
    turns=1,
    small=3,
    large=2,
    large_rows=5_000,
    tail_turns=1,
    tail=4,
    life=10,
    settled=4,
    window=2,
    warm_up=1,
    skip=1,
    large_skip=1,
    fresh=False,
)
# Java starts faster, but its code stays slower.
QUICK_SETTINGS = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


class SinkBench:
    """The cases, each a method named in CASES. Engines take turns, each in a separate process."""

    def __init__(
        self, report: Report, sizes: Sizes, work: Path, engines: Sequence[str], writer: str, *, with_daemon: bool
    ) -> None:
        self._report = report
        self._sizes = sizes
        self._work = work
        self._engines = list(engines)
        self._arguments = {
            "writer": writer,
            "warm_up_batches": sizes.warm_up,
            "settings": QUICK_SETTINGS if sizes is QUICK else {},
        }
        self._processes: dict[str, EngineProcess] = {}
        self._started = 0
        self._with_daemon = with_daemon
        self.rows_are_right = True

    def small(self) -> None:
        """Batches of a thousand rows, for the cost per batch."""
        sizes = self._sizes
        found = self._turns("small", self._engines, SMALL_ROWS, sizes.turns, sizes.small)
        spans = _medians(found, "add_batch_ms")
        self._report.figure("small_add_batch", "ms", spans, Goal(0.7), phases_ms=_phases(found))
        self._report.figure("small_add_batch_foreachbatch", "ms", spans, Goal(0.2), peer=DELTA_FOREACHBATCH)
        self._report.figure("small_add_batch_noop", "ms", spans, Goal(1.3), peer=NOOP)
        self._report.figure("small_trigger", "ms", _medians(found, "trigger_ms"), cpu=_cpu(found))

    def large(self) -> None:
        """Batches of a million rows, for the cost per row."""
        sizes = self._sizes
        engines = [*self._engines, PARQUET_FOREACHBATCH]
        found = self._turns("large", engines, sizes.large_rows, sizes.turns, sizes.large, skip=sizes.large_skip)
        spans = _medians(found, "add_batch_ms")
        self._report.figure(
            *("large_add_batch", "ms", spans, Goal(1.0)),
            peer=PARQUET_FOREACHBATCH,
            rows_a_batch=sizes.large_rows,
            phases_ms=_phases(found),
        )
        self._report.figure("large_add_batch_sink", "ms", spans)
        self._report.figure("large_trigger", "ms", _medians(found, "trigger_ms"), cpu=_cpu(found))

    def tail(self) -> None:
        """The slowest of batches of a thousand rows, while the daemon works on tidelog's table."""
        sizes = self._sizes
        both = [engine for engine in self._engines if engine in (TIDELOG, PARQUET)]
        found = self._turns("tail", both, SMALL_ROWS, sizes.tail_turns, sizes.tail, during=self._daemon)
        for name in ("add_batch", "trigger"):
            spans = {engine: getattr(of_engine, f"{name}_ms") for engine, of_engine in found.items()}
            worst = {engine: percentile(found, 99) for engine, found in spans.items()}
            self._report.figure(f"tail_{name}_99th", "ms", worst, Goal(1), batches=len(spans[TIDELOG]))
            self._report.figure(f"tail_{name}_median", "ms", _medians(found, f"{name}_ms"))

    def beside(self) -> None:
        """Batches of a thousand rows with the daemon at a quarter of the cores, and without it, in turn."""
        sizes = self._sizes
        folder = self._process(TIDELOG).folder
        table, output = folder / "beside" / "table", folder / "beside-daemon"
        turn = partial(self._take_turn, name="beside", rows=SMALL_ROWS, batches=sizes.tail, skip=sizes.skip)
        turn({TIDELOG: Spans()})
        alone, together = {TIDELOG: Spans()}, {TIDELOG: Spans()}
        for _ in range(sizes.tail_turns):
            turn(alone)
            with daemon(table, output, "[daemon]\ncore_share = 0.25\n"):
                turn(together)
        for name in ("add_batch", "trigger"):
            (own,) = _medians(together, f"{name}_ms").values()
            (without,) = _medians(alone, f"{name}_ms").values()
            assert own
            assert without
            facts: dict[str, Any] = {"with_daemon_ms": own, "without_ms": without}
            case = f"beside_{name}_median"
            self._report.figure(case, "with/without", {TIDELOG: own / without}, Goal(1.2, TIDELOG), **facts)
        self._check_rows("beside", [TIDELOG])

    def life(self) -> None:
        """One long stream in a new process, with the daemon: it must not get slower or use more memory over time."""
        sizes = self._sizes
        if sizes.fresh:
            self.close()
        process = self._process(TIDELOG)
        stream = {"stream": "life", "rows": SMALL_ROWS}
        process.ask("run", **stream, batches=1, skip=0)
        with self._daemon("life"):
            first = Spans(**process.ask("run", **stream, batches=sizes.settled, skip=sizes.window))
            before: Mapping[str, float] = process.ask("memory")
            rest = Spans(**process.ask("run", **stream, batches=sizes.life - sizes.settled, skip=sizes.skip))
            after: Mapping[str, float] = process.ask("memory")
        ends = first.add_batch_ms[: sizes.window], rest.add_batch_ms[-sizes.window :]
        first_ms, last_ms = map(statistics.median, ends)
        facts: dict[str, Any] = {
            "first_ms": first_ms,
            "last_ms": last_ms,
            "batches": sizes.life,
            "daemon": self._with_daemon,
        }
        self._report.figure("life_growth", "last/first", {TIDELOG: last_ms / first_ms}, Goal(1.1, TIDELOG), **facts)
        for name in ("python", "heap"):
            sides = before[f"{name}_mb"], after[f"{name}_mb"]
            mb: dict[str, Any] = {"before_mb": sides[0], "after_mb": sides[1]}
            growth = {TIDELOG: sides[1] / sides[0]}
            self._report.figure(f"life_{name}_memory_growth", "last/first", growth, Goal(1.1, TIDELOG), **mb)
        self._check_rows("life", [TIDELOG])

    def close(self) -> None:
        """End all processes."""
        while self._processes:
            self._processes.popitem()[1].close()

    def _turns(
        self,
        name: str,
        engines: Sequence[str],
        rows: int,
        turns: int,
        batches: int,
        *,
        skip: int | None = None,
        during: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> dict[str, Spans]:
        """Each engine's figures, with `batches` per turn. `during` is entered for all turns but the first.

        The first turn of each engine is shorter and left out: it creates the table, and Java compiles the code.
        """
        skip = self._sizes.skip if skip is None else skip
        found = {engine: Spans() for engine in engines}
        self._take_turn(found, name, rows, max(1, batches // 4), skip)
        found = {engine: Spans() for engine in found}
        with during(name):
            for _ in range(turns):
                self._take_turn(found, name, rows, batches, skip)
        self._check_rows(name, list(found))
        return found

    def _take_turn(self, found: dict[str, Spans], name: str, rows: int, batches: int, skip: int) -> None:
        for engine in list(found):
            answer = self._asked(engine, "run", stream=name, rows=rows, batches=batches, skip=skip)
            if answer is None:
                del found[engine]
            else:
                found[engine].add(Spans(**answer))

    def _check_rows(self, name: str, engines: Sequence[str]) -> None:
        """Report how many rows each engine lost or doubled."""
        answers = {engine: self._asked(engine, "finish", stream=name) for engine in engines}
        rows = {engine: Rows(**answer) for engine, answer in answers.items() if answer is not None}
        differences = {engine: found.differences for engine, found in rows.items()}
        totals: dict[str, Any] = {f"{engine}_rows": found.found[0] for engine, found in rows.items()}
        self._report.figure(f"{name}_rows_lost_or_doubled", "rows", differences, Goal(0, TIDELOG), **totals)
        self.rows_are_right = self.rows_are_right and not differences[TIDELOG]

    def _asked(self, engine: str, command: str, **arguments: object) -> Any:
        """The answer, or None if a peer failed, which is left out from then on."""
        try:
            return self._process(engine).ask(command, **arguments)
        except EngineFailedError as error:
            self._report.say(f"{engine} is left out from here on: {error}")
            if engine == TIDELOG:
                raise
            self._engines.remove(engine)
            self._processes.pop(engine, None)
            return None

    def _process(self, engine: str) -> EngineProcess:
        if engine not in self._processes:
            self._started += 1
            folder = self._work / f"{self._started}-{engine}"
            self._processes[engine] = EngineProcess(engine, folder, self._arguments)
        return self._processes[engine]

    def _daemon(self, stream: str) -> AbstractContextManager[None]:
        if not self._with_daemon:
            return nullcontext()
        folder = self._processes[TIDELOG].folder
        return daemon(folder / stream / "table", folder / f"{stream}-daemon")


def _medians(found: Mapping[str, Spans], name: str) -> dict[str, float | None]:
    return {engine: statistics.median(getattr(spans, name)) for engine, spans in found.items()}


def _cpu(found: Mapping[str, Spans]) -> dict[str, float | None]:
    """CPU time per batch, in ms."""
    return {engine: spans.cpu_ms / spans.batches for engine, spans in found.items()}


def _phases(found: Mapping[str, Spans]) -> dict[str, float]:
    """The median time of each phase of tidelog's batches, for the JSON line."""
    return {name: round(statistics.median(spans), 2) for name, spans in found[TIDELOG].phases_ms.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-sink", description=__doc__)
    parser.add_argument("--batches", type=int, default=Sizes.life, help="batches in the long run")
    parser.add_argument("--rows", type=int, default=Sizes.large_rows, help="rows in a large batch")
    parser.add_argument("--writer", default="auto", help="tidelog's writer: auto, driver or spark")
    parser.add_argument("--no-delta", action="store_true", help="leave delta-spark out")
    parser.add_argument("--no-daemon", action="store_true", help="run tail and life without the daemon")
    parser.add_argument("--only", default="", help=f"run cases whose name contains this: {', '.join(CASES)}")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, without delta-spark, to check that it runs")
    given = parser.parse_args()
    sizes = QUICK if given.quick else Sizes(life=given.batches, large_rows=given.rows)
    if given.batches < Sizes.settled + 2 * Sizes.window:
        parser.error(
            f"--batches must be at least {Sizes.settled + 2 * Sizes.window}, to compare the first and last ones"
        )
    engines = [TIDELOG, PARQUET]
    if not given.quick:
        engines += [NOOP] if given.no_delta else [NOOP, DELTA_NATIVE, DELTA_FOREACHBATCH]
    report = Report("sink", peer=PARQUET, engines=ENGINES)
    report.machine(
        small_rows=SMALL_ROWS,
        large_rows=sizes.large_rows,
        life_batches=sizes.life,
        writer=given.writer,
        daemon=not given.no_daemon,
    )
    tables.CACHE.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="work-", dir=tables.CACHE))
    bench = SinkBench(report, sizes, work, engines, given.writer, with_daemon=not given.no_daemon)
    try:
        run_parts(bench, CASES, given.only)
    finally:
        bench.close()
        shutil.rmtree(work)
    report.end(quick=given.quick)
    if not bench.rows_are_right:
        sys.exit("tidelog lost or doubled rows")


if __name__ == "__main__":
    main()
