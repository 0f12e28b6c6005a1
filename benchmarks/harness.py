"""How a figure is measured: each run in a separate process, the engines in turn, and the median of several runs.

Taking turns spreads the machine's noise over all engines. A run is an action of `benchmarks.peers`. It times itself, so
the figure excludes starting Python, importing libraries and starting Spark. Peak memory is that of the whole process.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from rich.console import Console
from rich.table import Table

from benchmarks import peers

TIDELOG, DELTALAKE, DELTA_SPARK = ENGINES = ("tidelog", "deltalake", "delta_spark")
REPOSITORY = Path(__file__).parents[1]
# Longer than any run on two cores. A run that hangs must not block the rest.
RUN_TIMEOUT_S = 240
_PACKAGES = ("tidelog", "deltalake", "pyspark", "pyarrow", "numpy", "msgspec")

Figures: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Run:
    """One engine's run of a case. Before each run `arguments` is called with an empty folder for copies of tables."""

    engine: str
    action: str
    arguments: Callable[[Path], Mapping[str, object]]
    # For Spark, whose runs take a minute each and measure tens of seconds.
    once: bool = False


@dataclass(frozen=True, slots=True)
class Goal:
    """An upper or lower limit, either for tidelog's figure or, by default, for its ratio to the peer's figure."""

    limit: float
    of: str = "ratio"
    at_least: bool = False

    @property
    def relation(self) -> str:
        """The comparison as text."""
        return ">=" if self.at_least else "<="

    def is_met(self, value: float) -> bool:
        """Whether the figure or ratio meets the goal."""
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(slots=True)
class Report:
    """Prints each measurement as a JSON line to stdout at once, and all of them as a table to stderr at the end.

    Ratios are to the figures of `peer`, unless a measurement names another one of `engines`.
    """

    bench: str
    peer: str = DELTALAKE
    engines: Sequence[str] = ENGINES
    rows: list[dict[str, Any]] = field(default_factory=list)
    _console: Console = field(default_factory=lambda: Console(stderr=True, width=180))

    def machine(self, **facts: object) -> None:
        """Describe the machine. Call this before the first measurement puts load on it."""
        found = {
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "cores": os.cpu_count(),
            "load_average_before": [round(load, 2) for load in os.getloadavg()],
            "versions": {"python": platform.python_version(), **_versions()},
        }
        print(json.dumps({"bench": self.bench, "case": "machine", **found, **facts}), flush=True)
        self.say(f"{found['system']}, {found['cores']} cores, load before the run {found['load_average_before']}")
        self.say(", ".join(f"{name} {number}" for name, number in {**found["versions"], **facts}.items()))  # type: ignore[dict-item]

    def figure(
        self,
        case: str,
        unit: str,
        figures: Mapping[str, float | None],
        goal: Goal | None = None,
        *,
        cpu: Mapping[str, float | None] | None = None,
        peer: str | None = None,
        **facts: object,
    ) -> None:
        """Add one measurement: each engine's figure (None or absent if it has none), and whether `goal` is met.

        `cpu` is the CPU time behind the figures. Its ratio is distorted less if the machine is busy with other work.
        """
        peer = peer or self.peer
        own = figures.get(TIDELOG)
        ratio = _ratio(figures, peer)
        judged = None if goal is None else (ratio if goal.of == "ratio" else own)
        cpu_ratio = None if cpu is None else _ratio(cpu, peer)
        row = {
            "bench": self.bench,
            "case": case,
            "unit": unit,
            **{engine: _rounded(figures.get(engine)) for engine in self.engines},
            "peer": peer,
            "ratio": _rounded(ratio),
            "cpu_ratio": _rounded(cpu_ratio),
            "goal": goal and goal.limit,
            "goal_of": goal and goal.of,
            "goal_is": goal and goal.relation,
            "met": None if goal is None or judged is None else goal.is_met(judged),
            **facts,
        }
        self.rows.append(row)
        print(json.dumps(row), flush=True)

    def say(self, text: str) -> None:
        """Print a line to stderr."""
        self._console.print(text, markup=False, highlight=False)

    def end(self, *, quick: bool) -> None:
        """Print the table, and say so if the sizes were tiny."""
        self.table()
        if quick:
            self.say("these sizes only check that the benchmark runs: the figures and goals mean nothing")

    def table(self) -> None:
        """Print all measurements as a table."""
        table = Table(title=f"bench-{self.bench}; ratio: tidelog's figure to {self.peer}'s")
        for name in ("case", "unit", *self.engines, "ratio", "cpu_ratio", "goal", "met"):
            table.add_column(name, justify="left" if name in ("case", "unit", "met") else "right")
        for row in self.rows:
            other = f" to {row['peer']}" * (row["peer"] != self.peer)
            goal = "" if row["goal"] is None else f"{row['goal_of']}{other} {row['goal_is']} {row['goal']}"
            met = {None: "", True: "met", False: "MISSED"}[row["met"]]
            figures = [_text(row[name]) for name in (*self.engines, "ratio", "cpu_ratio")]
            table.add_row(row["case"], row["unit"], *figures, goal, met)
        self._console.print(table)
        judged = [row for row in self.rows if row["met"] is not None]
        missed = [row["case"] for row in judged if not row["met"]]
        self.say(
            f"{len(judged) - len(missed)} of {len(judged)} goals met"
            + ("; missed: " + ", ".join(missed)) * bool(missed)
        )


class Measure(Protocol):
    """Measures one part of a benchmark, and reports the figures."""

    def __call__(self, report: Report, *, quick: bool) -> None:
        """Measure; `quick` only checks that it runs."""


def run_parts(bench: object, parts: Sequence[str], only: str) -> None:
    """Call the methods of a benchmark that are named in `parts`, and whose names contain `only`."""
    for name in parts:
        if only in name:
            getattr(bench, name)()


def run_alone(name: str, measure: Measure) -> None:
    """Run one part of tidelog's figures as a program; `--quick` makes it tiny."""
    quick = "--quick" in sys.argv
    report = Report(name, engines=(TIDELOG,))
    report.machine()
    measure(report, quick=quick)
    report.end(quick=quick)


@dataclass(frozen=True, slots=True)
class Harness:
    """Takes measurements. Without `isolated` all runs share this process, which is quick but measures nothing."""

    report: Report
    repetitions: int
    work: Path
    isolated: bool = True

    def measure(self, runs: Sequence[Run]) -> dict[str, Figures]:
        """The median of each engine's figures. A peer that fails is left out, and stderr shows the error."""
        found: dict[str, list[Figures]] = {run.engine: [] for run in runs}
        for number in range(self.repetitions):
            for run in runs:
                if run.engine in found and not (run.once and number):
                    figures = self._measured(run)
                    if figures is None:
                        del found[run.engine]
                    else:
                        found[run.engine].append(figures)
        return {engine: _medians(all_figures) for engine, all_figures in found.items()}

    def _measured(self, run: Run) -> Figures | None:
        folder = Path(tempfile.mkdtemp(dir=self.work))
        try:
            arguments = dict(run.arguments(folder))
            return (_in_a_process if self.isolated else peers.run)(run.engine, run.action, arguments)
        except subprocess.SubprocessError as error:
            output = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
            self.report.say(f"{run.engine} is left out of {run.action}: {str(output)[-2000:]}")
            if run.engine == TIDELOG:
                raise
            return None
        finally:
            shutil.rmtree(folder)


def pick(figures: Mapping[str, Figures], name: str) -> dict[str, float | None]:
    """One figure of each engine."""
    return {engine: values.get(name) for engine, values in figures.items()}


def percentile(spans: Sequence[float], share: int) -> float | None:
    """The value below which `share` percent of `spans` are; None for fewer than two spans."""
    return statistics.quantiles(spans, n=100, method="inclusive")[share - 1] if len(spans) > 1 else None


def _ratio(figures: Mapping[str, float | None], peer: str) -> float | None:
    own, other = figures.get(TIDELOG), figures.get(peer)
    return None if own is None or not other else own / other


def _in_a_process(engine: str, action: str, arguments: dict[str, object]) -> Figures:
    command = [sys.executable, "-m", "benchmarks.peers", engine, action, json.dumps(arguments)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def _medians(all_figures: Iterable[Figures]) -> Figures:
    listed = list(all_figures)
    return {name: statistics.median(figures[name] for figures in listed) for name in listed[0]}


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "source tree"
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:,.3g}" if value < 100 else f"{value:,.0f}"  # noqa: PLR2004
