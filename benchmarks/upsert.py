"""Upserts by key: `make bench-upsert`; `BENCHARGS="--rows 1000000"` for one size, `--no-spark` without delta-spark.

A batch of random keys, nine of ten of which are in the table, is upserted by each engine into its own copy of one
table, in turns: with the key index, without it, by deltalake's merge and delta-spark's MERGE. Then what the index
costs: when rows are written, on disk, and when its runs are merged; what a read costs after the upserts; and UPDATE,
DELETE and MERGE of `spark.sql` beside delta-spark's.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import tables, upsert_beside, upsert_statements
from benchmarks.harness import DELTA_SPARK, DELTALAKE, TIDELOG, Goal, Report, run_parts
from benchmarks.peers import spark_session
from benchmarks.timing import timed
from tidelog.log import Table
from tidelog.log.cleanup.pieces import finished
from tidelog.log.data.key_runs import KEYS_FOLDER
from tidelog.log.operations.tend_index import tend_index
from tidelog.log.state.loader import load
from tidelog.log.system import REAL_SYSTEM

# tidelog's figure without the index, which stands beside the peers.
WITHOUT = "without_index"
# And that of an append of the same rows.
APPEND = "append"
# The same in the beginning, which stands beside the end; and without an order.
EARLY, UNORDERED = "early", "without_order"
# And with an index that has the columns of an order.
BY_ORDER = "by_order"
# And with an index in one run, beside one in many.
MERGED = "merged"
# And after a DELETE, beside without one.
UNDELETED = "undeleted"
ENGINES = (TIDELOG, WITHOUT, DELTALAKE, DELTA_SPARK)
# Of a batch's keys, this share is in the table.
_KNOWN = 10 / 11
# In milliseconds, for 1,000 keys, by the rows of the table.
_GOALS = {1_000_000: 40.0, 10_000_000: 50.0, 100_000_000: 60.0}
_WARM_UP = 1
# As many runs as nobody merges yet.
_RUNS = 10
# Rows of a batch that delete their keys.
_FEW = "v < 0.05"


@dataclass(frozen=True)
class Sizes:
    """The rows of the tables, those of the batches, and the number of measurements of each engine."""

    rows: Sequence[int] = (1_000_000, 10_000_000, 100_000_000)
    batch: int = 1000
    large_batch: int = 100_000
    repetitions: int = 7
    slow_repetitions: int = 2
    seconds: float = 120
    period_s: float = 1
    source: int = 10_000


QUICK = Sizes(
    (1000, 5000), batch=10, large_batch=100, repetitions=2, slow_repetitions=1, seconds=2, period_s=0.1, source=100
)
CASES = ("small", "large", "runs", "order", "deleted", "costs", "sink", "beside", "statements")


class UpsertBench:
    """The groups of cases, each a method named in CASES."""

    def __init__(self, report: Report, sizes: Sizes, spark: Any) -> None:
        self._report = report
        self._sizes = sizes
        self._spark = spark
        self._random = np.random.default_rng(7)

    def small(self) -> None:
        """Upsert a small batch, and read the table and one key afterwards."""
        for rows in self._sizes.rows:
            with tempfile.TemporaryDirectory(dir=tables.CACHE) as folder:
                ways = self._ways(rows, Path(folder))
                found = self._in_turn(ways, rows, self._sizes.batch)
                name = f"{self._sizes.batch:,} keys into {rows:,} rows"
                goal = Goal(_GOALS[rows], TIDELOG) if rows in _GOALS else None
                self._report.figure(name, "ms", found, goal)
                self._after(Path(folder), rows)

    def large(self) -> None:
        """Upsert a large batch into the largest table."""
        rows = self._sizes.rows[-1]
        with tempfile.TemporaryDirectory(dir=tables.CACHE) as folder:
            found = self._in_turn(self._ways(rows, Path(folder)), rows, self._sizes.large_batch)
            goal = Goal(0.05) if DELTA_SPARK in found else None
            self._report.figure(
                f"{self._sizes.large_batch:,} keys into {rows:,} rows", "ms", found, goal, peer=DELTA_SPARK
            )

    def runs(self) -> None:
        """Upsert a small batch into a table whose index is one run, and into one whose index is many, by CPU time."""
        rows, count = self._sizes.rows[min(1, len(self._sizes.rows) - 1)], self._sizes.batch
        with tempfile.TemporaryDirectory(dir=tables.CACHE) as folder:
            source = tables.keyed_in_runs(rows, _RUNS)
            merged, unmerged = (Table.open(str(tables.clone(source, Path(folder) / way))) for way in (MERGED, TIDELOG))
            finished(tend_index(merged.store, load(merged.store), REAL_SYSTEM))
            ways: dict[str, Callable[[pa.Table], object]] = {MERGED: merged.upsert, TIDELOG: unmerged.upsert}
            found = self._in_turn(ways, rows, count, "cpu_seconds")
        name = f"{count:,} keys into {rows:,} rows in {{}}: CPU"
        self._report.figure(name.format("one run"), "ms", {TIDELOG: found[MERGED]})
        self._report.figure(name.format(f"{_RUNS} runs"), "ms", found, Goal(1.5), peer=MERGED)

    def order(self) -> None:
        """Upsert a small batch by an order, all of whose rows are newer than those of the table, and without one."""
        for rows in self._sizes.rows:
            with tempfile.TemporaryDirectory(dir=tables.CACHE) as folder:
                table = Table.open(str(tables.clone(tables.keyed(rows), Path(folder) / "table")))
                self._order_in_index(table)
                number = itertools.count(1000)

                def newer(batch: pa.Table, table: Table = table, number: Iterator[int] = number) -> object:
                    order = pa.array(np.full(batch.num_rows, next(number)), pa.int64())
                    return table.upsert(batch.set_column(2, "k", order), delete_where=_FEW)

                plain = partial(table.upsert, order_by=(), delete_where=_FEW)
                ways: dict[str, Callable[[pa.Table], object]] = {TIDELOG: newer, UNORDERED: plain}
                found = self._in_turn(ways, rows, self._sizes.batch)
                name = f"{self._sizes.batch:,} keys into {rows:,} rows by an order, 5 % deletions"
                self._report.figure(name, "ms", found, peer=UNORDERED)

    def deleted(self) -> None:
        """Upsert a small batch by an order after a DELETE of half of the rows, and without it, by CPU time."""
        rows = self._sizes.rows[0]
        with tempfile.TemporaryDirectory(dir=tables.CACHE) as folder:
            ways: dict[str, Callable[[pa.Table], object]] = {}
            for way in (TIDELOG, UNDELETED):
                table = Table.open(str(tables.clone(tables.keyed(rows), Path(folder) / way)))
                self._order_in_index(table)
                if way == TIDELOG:
                    table.delete("id % 2 = 0")
                ways[way] = partial(table.upsert, order_by="k")
            found = self._in_turn(ways, rows, self._sizes.batch, "cpu_seconds")
        name = f"{self._sizes.batch:,} keys into {rows:,} rows by an order, half of them deleted: CPU"
        self._report.figure(name, "ms", found, Goal(1.5), peer=UNDELETED)

    @staticmethod
    def _order_in_index(table: Table) -> None:
        """Give the table an order, and write its index again, with the order."""
        table.set_properties({"tidelog.orderBy": "k"})
        shutil.rmtree(Path(table.path) / KEYS_FOLDER)
        finished(tend_index(table.store, load(table.store), REAL_SYSTEM))

    def costs(self) -> None:
        """What the index costs to write, to merge and to keep."""
        rows = self._sizes.rows[min(1, len(self._sizes.rows) - 1)]
        parts = max(1, rows // tables.KEYED_FILE_ROWS)
        ways: dict[str, tuple[bool, dict[str, object]]] = {
            TIDELOG: (True, {}),
            BY_ORDER: (True, {"tidelog.orderBy": "k"}),
            WITHOUT: (False, {}),
        }
        spans: dict[str, list[float]] = {way: [] for way in ways}
        with tempfile.TemporaryDirectory(dir=tables.CACHE) as folder:
            for repetition in range(_WARM_UP + self._sizes.slow_repetitions):
                for engine, (is_indexed, properties) in ways.items():
                    path = Path(folder) / f"{engine}-{repetition}"
                    with timed() as spent:
                        tables.write_keyed(path, rows, parts, is_indexed=is_indexed, properties=properties)
                    if repetition >= _WARM_UP:
                        spans[engine].append(spent["seconds"])
            medians = {engine: statistics.median(found) for engine, found in spans.items()}
            self._report.figure(f"writing {rows:,} rows in {parts} inserts", "s", medians, Goal(1.5), peer=WITHOUT)
            sizes: dict[str, float | None] = {}
            merges: dict[str, float | None] = {}
            for engine in (TIDELOG, BY_ORDER):
                written = Path(folder) / f"{engine}-0"
                sizes[engine] = sum(file.stat().st_size for file in (written / KEYS_FOLDER).iterdir()) / rows
                table = Table.open(str(written))
                with timed() as spent:
                    finished(tend_index(table.store, load(table.store), REAL_SYSTEM))
                merges[engine] = spent["seconds"]
            self._report.figure("bytes of the index for each row", "bytes", sizes, Goal(20, TIDELOG))
            self._report.figure(f"merging the runs of {rows:,} rows", "s", merges)

    def sink(self) -> None:
        """Micro-batches of a sink that upserts, beside those of one that appends."""
        if self._spark is None:
            return
        from tidelog.streaming import Sink

        rows, count = self._sizes.rows[0], self._sizes.batch
        with tempfile.TemporaryDirectory(dir=tables.CACHE) as folder:
            given = Path(folder) / "in"
            given.mkdir()
            batches = _WARM_UP + 2 * self._sizes.repetitions
            for number in range(batches):
                pq.write_table(self._batch(rows, count), given / f"{number:03}.parquet")
            found: dict[str, float | None] = {}
            for mode in ("append", "upsert"):
                path = tables.clone(tables.keyed(rows), Path(folder) / mode)
                stream = self._spark.readStream.schema("id long, v double, k long").option("maxFilesPerTrigger", 1)
                writer = stream.parquet(str(given)).writeStream.foreachBatch(Sink(str(path), mode=mode))
                query = writer.option("checkpointLocation", f"{folder}/{mode}-cp").trigger(availableNow=True).start()
                query.awaitTermination()
                spans = [each["durationMs"]["addBatch"] for each in query.recentProgress if each["numInputRows"]]
                found[mode] = statistics.median(spans[_WARM_UP:])
        figures = {TIDELOG: found["upsert"], APPEND: found["append"]}
        name = f"a sink's upsert of {count:,} rows into {rows:,} rows"
        self._report.figure(name, "ms", figures, Goal(1.5), peer=APPEND)

    def beside(self) -> None:
        """Upserts beside a daemon, for some time."""
        rows, sizes = self._sizes.rows[0], self._sizes
        with tempfile.TemporaryDirectory(dir=tables.CACHE) as folder:
            path = tables.clone(tables.keyed(rows), Path(folder) / "table")
            self._order_in_index(Table.open(str(path)))
            upsert_beside.measure(
                self._report,
                path,
                lambda: self._batch(rows, sizes.batch),
                peer=EARLY,
                seconds=sizes.seconds,
                period_s=sizes.period_s,
            )

    def statements(self) -> None:
        """UPDATE, DELETE and MERGE of `spark.sql`."""
        upsert_statements.measure(
            self._report,
            self._spark or spark_session(delta=False, memory="4g"),
            (TIDELOG,) if self._spark is None else (TIDELOG, DELTA_SPARK),
            rows=self._sizes.rows[0],
            source=self._sizes.source,
            repetitions=self._sizes.slow_repetitions,
        )

    def _after(self, folder: Path, rows: int) -> None:
        """Read one key by the index and without, and the whole table beside one that has had no upserts."""
        found: dict[str, float | None] = {}
        for engine in (TIDELOG, WITHOUT):
            table = Table.open(str(folder / engine))
            spans = []
            for _ in range(_WARM_UP + self._sizes.repetitions):
                with timed() as spent:
                    table.get([{"id": int(self._random.integers(rows))}])
                spans.append(spent["seconds"] * 1000)
            found[engine] = statistics.median(spans[_WARM_UP:])
        self._report.figure(f"one key of {rows:,} rows", "ms", found, peer=WITHOUT)

    def _ways(self, rows: int, folder: Path) -> dict[str, Callable[[pa.Table], object]]:
        """How each engine upserts a batch into its copy of the table."""
        for engine in ENGINES:
            source = tables.keyed(rows) if engine in (TIDELOG, WITHOUT) else tables.keyed_for_peers(rows)
            tables.clone(source, folder / engine)
        indexed, plain = Table.open(str(folder / TIDELOG)), Table.open(str(folder / WITHOUT))
        shutil.rmtree(folder / WITHOUT / KEYS_FOLDER)
        plain.set_properties({"tidelog.keyIndex": False})
        ways: dict[str, Callable[[pa.Table], object]] = {TIDELOG: indexed.upsert, WITHOUT: plain.upsert}
        ways[DELTALAKE] = lambda batch: _merged_by_deltalake(folder / DELTALAKE, batch)
        if self._spark is not None:
            ways[DELTA_SPARK] = lambda batch: self._merged_by_spark(folder / DELTA_SPARK, batch)
        return ways

    def _in_turn(
        self, ways: dict[str, Callable[[pa.Table], object]], rows: int, count: int, clock: str = "seconds"
    ) -> dict[str, float | None]:
        """The median milliseconds of each engine. The peers, which take seconds, run less often."""
        spans: dict[str, list[float]] = {engine: [] for engine in ways}
        for repetition in range(_WARM_UP + self._sizes.repetitions):
            for engine, upsert in ways.items():
                is_slow = engine in (DELTALAKE, DELTA_SPARK)
                if is_slow and repetition >= _WARM_UP + self._sizes.slow_repetitions:
                    continue
                batch = self._batch(rows, count)
                gc.collect()
                with timed() as spent:
                    upsert(batch)
                if repetition >= _WARM_UP:
                    spans[engine].append(spent[clock] * 1000)
        return {engine: statistics.median(found) for engine, found in spans.items()}

    def _batch(self, rows: int, count: int) -> pa.Table:
        keys = self._random.choice(int(rows / _KNOWN), count, replace=False)
        return pa.table({"id": keys, "v": self._random.random(count), "k": self._random.integers(0, 1000, count)})

    def _merged_by_spark(self, path: Path, batch: pa.Table) -> None:
        self._spark.createDataFrame(batch.to_pandas()).createOrReplaceTempView("batch")
        self._spark.sql(
            f"MERGE INTO delta.`{path}` AS t USING batch AS s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )


def _merged_by_deltalake(path: Path, batch: pa.Table) -> None:
    from deltalake import DeltaTable

    merge = DeltaTable(str(path)).merge(batch, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.upsert", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", help="the rows of the tables")
    parser.add_argument("--only", default="", help=f"measure the parts with this in their names: {', '.join(CASES)}")
    parser.add_argument("--no-spark", action="store_true", help="without delta-spark")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: only check that it runs")
    parser.add_argument("--minutes", type=float, default=2, help="how long to upsert beside the daemon")
    given = parser.parse_args()
    rows = tuple(given.rows) if given.rows else Sizes.rows
    sizes = QUICK if given.quick else Sizes(rows, seconds=given.minutes * 60)
    tables.CACHE.mkdir(parents=True, exist_ok=True)
    report = Report("upsert", engines=(*ENGINES, APPEND, EARLY, UNORDERED, BY_ORDER, MERGED, UNDELETED))
    report.machine()
    spark = None if given.no_spark else spark_session(memory="4g")
    run_parts(UpsertBench(report, sizes, spark), CASES, given.only)
    report.end(quick=given.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
