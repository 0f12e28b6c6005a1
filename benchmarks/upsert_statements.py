"""The part `statements` of `benchmarks.upsert`: UPDATE, DELETE and MERGE of `spark.sql`, beside delta-spark's.

Each engine runs a statement on copies of one table, in turns and in one Spark. A statement that delta-spark refuses or
does not finish has no figure, and its line says why in `peer_says`.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import InheritableThread
from pyspark.errors import PySparkException

from benchmarks import tables
from benchmarks.harness import DELTA_SPARK, TIDELOG, Goal, Report
from benchmarks.timing import timed
from tidelog.streaming import register

# A statement that takes longer has no result. delta-spark's slowest here takes a fifth of it.
LIMIT_S = 300
# How long Spark may take to end a statement that is cancelled.
_END_S = 60
_SMALL = 1000
# One of seven rows of the source; `{few}` and `{last}` are numbers near the ends of the table.
_RANGES = "(SELECT id AS lo, id + 3 AS hi, v, k FROM source WHERE k = 1 AND id < {few})"
STATEMENTS: Mapping[str, str] = {
    "UPDATE ... IN (subquery)": "UPDATE {t} SET v = v + 1 WHERE id IN (SELECT id FROM source)",
    "DELETE ... EXISTS": "DELETE FROM {t} t WHERE EXISTS (SELECT 1 FROM source s WHERE s.id = t.id AND s.k < 5)",
    "MERGE on a range, 4 clauses": f"MERGE INTO {{t}} t USING {_RANGES} s ON t.id >= s.lo AND t.id < s.hi "
    "WHEN MATCHED AND t.id % 3 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = t.v + s.v "
    "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.lo, s.v) "
    "WHEN NOT MATCHED BY SOURCE AND t.id > {last} THEN UPDATE SET v = 0",
    "MERGE by keys, 3 clauses": "MERGE INTO {t} t USING source s ON t.id = s.id WHEN MATCHED AND s.k = 0 THEN DELETE "
    "WHEN MATCHED THEN UPDATE SET v = t.v + s.v, name = upper(s.name) WHEN NOT MATCHED THEN INSERT *",
    "MERGE SET * INSERT *": "MERGE INTO {t} t USING source s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "UPDATE of one key": "UPDATE {t} SET v = v + 1 WHERE id = {few}",
    "DELETE of one key": "DELETE FROM {t} WHERE id = {few}",
}


@dataclass(slots=True)
class _Found:
    """The figures of an engine, what its table has in the end, and why it has none."""

    spans: list[float]
    rows: tuple[Any, ...] | None = None
    says: str | None = None


def case(name: str, source: int, rows: int) -> str:
    """The name of a statement's line."""
    return f"{name}: {source:,} rows of a source, {rows:,} of the table"


def measure(report: Report, session: Any, engines: Sequence[str], *, rows: int, source: int, repetitions: int) -> None:
    """Measure each statement."""
    register(session)
    with tempfile.TemporaryDirectory(dir=tables.CACHE) as folder:
        bench = _Statements(session, Path(folder), rows, source)
        for name, text in STATEMENTS.items():
            found = {engine: _Found([]) for engine in engines}
            for engine in engines:
                bench.run(engine, text, _SMALL)
            for _ in range(repetitions):
                for engine, own in found.items():
                    bench.measured(engine, text, own)
            _report(report, case(name, source, rows), found)


def _report(report: Report, name: str, found: Mapping[str, _Found]) -> None:
    if found[TIDELOG].says is not None:
        report.say(f"tidelog has no figure for {name}: {found[TIDELOG].says}")
    figures = {engine: statistics.median(own.spans) if own.spans else None for engine, own in found.items()}
    peer = found.get(DELTA_SPARK)
    facts: dict[str, Any] = {"says": found[TIDELOG].says}
    if peer is not None:
        facts |= {"peer_says": peer.says, "limit_s": LIMIT_S}
        facts["same_rows"] = None if None in (peer.rows, found[TIDELOG].rows) else peer.rows == found[TIDELOG].rows
    report.figure(name, "s", figures, None if peer is None else Goal(1.0), peer=DELTA_SPARK, **facts)


class _Statements:
    """Runs statements on copies of a table, with the view `source`."""

    def __init__(self, session: Any, folder: Path, rows: int, source: int) -> None:
        self._session = session
        self._folder = folder
        self._rows = rows
        # One of a hundred rows of the source is new.
        step = max(1, rows * 101 // (source * 100))
        ids = pa.array(range(0, source * step, step), pa.int64())
        columns = {
            "id": ids,
            "k": pa.array([number % 7 for number in range(source)], pa.int32()),
            "v": pa.array([0.5] * source),
            "name": pa.array(["new"] * source),
            "day": pa.array([20_000] * source, pa.int32()).cast(pa.date32()),
        }
        pq.write_table(pa.table(columns), folder / "source.parquet")
        session.read.parquet(str(folder / "source.parquet")).createOrReplaceTempView("source")

    def measured(self, engine: str, text: str, found: _Found) -> None:
        """Add a figure, unless the engine has refused the statement before."""
        if found.says is None:
            took, found.rows, found.says = self.run(engine, text, self._rows)
            if took is not None:
                found.spans.append(took)

    def run(self, engine: str, text: str, rows: int) -> tuple[float | None, tuple[Any, ...] | None, str | None]:
        """The seconds of a statement on a copy of the table of so many rows, and its sums; or why it has none."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            path = tables.clone(tables.for_statements(rows), Path(folder) / "table")
            name = f"{'tidelog' if engine == TIDELOG else 'delta'}.`{path}`"
            took, says = _run(self._session, text.format(t=name, few=rows // 50, last=rows - rows // 200))
            if says is not None:
                return None, None, says
            query = "SELECT count(*), sum(id), round(sum(v), 1), sum(length(name))"
            return took, tuple(self._session.sql(f"{query} FROM {name}").first()), None


def _run(session: Any, text: str) -> tuple[float, str | None]:
    """The seconds that a statement takes, and why it has failed."""
    failed: list[str] = []
    spans: list[float] = []

    def run() -> None:
        try:
            with timed() as spent:
                session.sql(text)
            spans.append(spent["seconds"])
        except PySparkException as error:
            failed.append(" ".join(str(error).split())[:200])

    thread = InheritableThread(run)
    thread.start()
    thread.join(LIMIT_S)
    if thread.is_alive():
        session.sparkContext.cancelAllJobs()
        thread.join(_END_S)
        if thread.is_alive():
            raise TimeoutError(f"Spark does not end {text}")
        return 0, f"no result in {LIMIT_S} s"
    return (spans[0], None) if spans else (0, f"refused: {failed[0]}")
