"""Change data capture: `make bench-cdc`; `BENCHARGS="--only freshness"` for one part, `--no-delta` without delta-spark.

A stream of Debezium's records is applied to a table of 10,000,000 rows at a trigger of one second: by `capture` and its
sink, and by delta-spark's MERGE in `foreachBatch`, with the same source.

- `changes`: how many changes a second pass, from a topic that is full, with at most so many in a micro-batch.
- `freshness`: from a commit in PostgreSQL to the visible row, through the real Debezium and Kafka, all on this machine;
  for tidelog with the compaction daemon beside it.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from benchmarks import tables
from benchmarks.engine_process import daemon
from benchmarks.harness import DELTA_SPARK, REPOSITORY, TIDELOG, Goal, Report, percentile, run_parts
from examples.cdc.connector import Connector
from examples.cdc.postgres import Postgres, postgres
from examples.kafka import topics
from examples.kafka.broker import broker
from tidelog.log import Table

PARTS = ("changes", "freshness")
TOPIC = "bench.public.rows"
_MEDIAN_S, _P99_S = 2.0, 5.0
_STOP_S = 120.0
_PERIOD_S = 0.05
_STEP = 10


@dataclass(frozen=True)
class Sizes:
    """The rows of the table, the most changes of a batch, the batches, and the rate and time of `freshness`."""

    rows: int = 10_000_000
    most: Sequence[int] = (1_000, 10_000, 50_000)
    warm_up: int = 2
    batches: int = 5
    rate: int = 1_000
    warm_up_s: float = 30.0
    seconds: float = 60.0
    # For a stream that does not keep up: how long to wait for the last change.
    longest_s: float = 180.0


QUICK = Sizes(5_000, most=(50,), warm_up=1, batches=2, rate=100, warm_up_s=2.0, seconds=4.0, longest_s=60.0)


class Stream:
    """`benchmarks.cdc_stream` for one engine. It prints a line for each micro-batch."""

    def __init__(self, engine: str, folder: Path, address: str, table: Path, most: int | None) -> None:
        self.batches: list[dict[str, Any]] = []
        self._folder = folder
        self._stop = folder / "stop"
        given = {
            "engine": engine,
            "address": address,
            "topic": TOPIC,
            "table": str(table),
            "checkpoint": str(folder / "checkpoint"),
            "most": most,
            "stop": str(self._stop),
        }
        with (folder / "stream.log").open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.cdc_stream", json.dumps(given)],
                cwd=REPOSITORY,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def require_running(self) -> None:
        """Raise RuntimeError with the end of its output if it has ended."""
        if self._process.poll() is not None:
            raise RuntimeError((self._folder / "stream.log").read_text()[-3000:])

    def end(self) -> None:
        """Stop the query and the process."""
        self._stop.touch()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("{"):
                self.batches.append(json.loads(line))


@contextmanager
def stream(engine: str, folder: Path, address: str, table: Path, most: int | None = None) -> Iterator[Stream]:
    """A stream that runs for the block."""
    folder.mkdir()
    started = Stream(engine, folder, address, table, most)
    try:
        yield started
    finally:
        started.end()


class CdcBench:
    """The parts, each a method named in PARTS."""

    def __init__(self, report: Report, sizes: Sizes, engines: Sequence[str]) -> None:
        self._report = report
        self._sizes = sizes
        self._engines = engines

    def changes(self) -> None:
        """Changes a second from a full topic, by the most changes of a micro-batch."""
        sizes = self._sizes
        with tempfile.TemporaryDirectory(dir=tables.CACHE) as name, broker(Path(name) / "broker") as running:
            topics.create(running.address, [TOPIC], partitions=1)
            _fill(running.address, sizes.rows, max(sizes.most) * (sizes.warm_up + sizes.batches + 1))
            for most in sizes.most:
                found = {engine: self._rate(engine, Path(name), running.address, most) for engine in self._engines}
                case = f"changes a second into {sizes.rows:,} rows, at most {most:,} a trigger of 1 s"
                self._report.figure(case, "1/s", found, Goal(1.0, at_least=True) if len(found) > 1 else None)

    def freshness(self) -> None:
        """From a commit in the database to the visible row."""
        sizes = self._sizes
        found = {engine: self._ages(engine) for engine in self._engines}
        case = f"freshness at {sizes.rate:,} changes a second into {sizes.rows:,} rows"
        medians = {engine: statistics.median(ages) for engine, ages in found.items()}
        self._report.figure(f"{case}: median", "s", medians, Goal(_MEDIAN_S, TIDELOG))
        slowest = {engine: percentile(ages, 99) for engine, ages in found.items()}
        self._report.figure(f"{case}: 99th percentile", "s", slowest, Goal(_P99_S, TIDELOG))

    def _rate(self, engine: str, work: Path, address: str, most: int) -> float:
        sizes = self._sizes
        folder = work / f"{engine}-{most}"
        table = self._table(engine, work / f"table-{engine}-{most}")
        with stream(engine, folder, address, table, most) as running:
            while len(running.batches) < sizes.warm_up + sizes.batches:
                running.require_running()
                time.sleep(0.1)
        first, *measured = running.batches[sizes.warm_up - 1 :]
        return float(sum(batch["rows"] for batch in measured) / (measured[-1]["visible"] - first["visible"]))

    def _ages(self, engine: str) -> list[float]:
        """The ages in seconds at which changes became visible, of all changes after the warm-up."""
        sizes = self._sizes
        with tempfile.TemporaryDirectory(dir=tables.CACHE) as name, ExitStack() as stack:
            root = Path(name)
            table = self._table(engine, root / "table")
            database = stack.enter_context(postgres(root / "postgres"))
            running = stack.enter_context(broker(root / "broker"))
            options = {"snapshot.mode": "no_data"}
            connector = Connector(
                root / "connect", running.address, database, prefix="bench", with_schema=False, options=options
            )
            stack.callback(connector.end)
            _make_rows(database, sizes.rows)
            topics.create(running.address, [TOPIC], partitions=1)
            connector.start()
            if engine == TIDELOG:
                stack.enter_context(daemon(table, root / "daemon.log"))
            following = stack.enter_context(stream(engine, root / "stream", running.address, table))
            workload = Workload(database, sizes)
            stack.callback(workload.end)
            workload.start()
            while not following.batches:  # Spark has started
                following.require_running()
                workload.require_running()
                time.sleep(0.1)
            begins = time.time() + sizes.warm_up_s
            ends = begins + sizes.seconds
            while time.time() < ends:
                workload.require_running()
                time.sleep(0.1)
            workload.end()
            connector_s = time.monotonic() + sizes.longest_s
            commits = _commits(running.address, begins, ends)
            while following.batches[-1]["ends"] <= max(commits) and time.monotonic() < connector_s:
                following.require_running()
                time.sleep(0.1)
        return _ages(commits, following.batches)

    def _table(self, engine: str, path: Path) -> Path:
        source = tables.keyed if engine == TIDELOG else tables.keyed_for_peers
        table = tables.clone(source(self._sizes.rows), path)
        if engine == TIDELOG:
            Table.open(str(table)).add_columns([pa.field("_order", pa.string())])
        return table


class Workload(Thread):
    """Changes the database's rows at a rate, in transactions of some twenty a second, from a thread."""

    def __init__(self, database: Postgres, sizes: Sizes) -> None:
        super().__init__(daemon=True)
        self._database, self._sizes = database, sizes
        self._random = random.Random(1)
        self._ended = Event()
        self._error: Exception | None = None

    def require_running(self) -> None:
        """Raise what it failed with."""
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Stop."""
        self._ended.set()

    def run(self) -> None:
        """Nine of ten changes are updates; the others are inserts, and deletions of what was inserted before."""
        count = max(1, int(self._sizes.rate * _PERIOD_S))
        new, old = self._sizes.rows + 1, self._sizes.rows + 1
        few = max(1, count // 20)
        number, begun_s = 0, time.monotonic()
        try:
            with self._database.connect() as connection:
                while not self._ended.wait(max(0.0, begun_s + number * _PERIOD_S - time.monotonic())):
                    number += 1
                    ids = [self._random.randrange(self._sizes.rows // _STEP) * _STEP for _ in range(count - 2 * few)]
                    with connection.transaction():
                        connection.execute("UPDATE rows SET v = random(), k = k + 1 WHERE id = ANY(%s)", [ids])
                        inserted = "INSERT INTO rows SELECT i, 0.5, 0 FROM generate_series(%s::bigint, %s) i"
                        connection.execute(inserted, [new, new + few - 1])
                        if new - old > self._sizes.rate:
                            connection.execute("DELETE FROM rows WHERE id >= %s AND id < %s", [old, old + few])
                            old += few
                    new += few
        except Exception as error:  # noqa: BLE001 - the main thread raises it
            self._error = error


def _make_rows(database: Postgres, rows: int) -> None:
    """A tenth of the table's rows: those that change."""
    with database.connect() as connection:
        connection.execute("CREATE TABLE rows (id bigint PRIMARY KEY, v double precision, k bigint)")
        made = f"INSERT INTO rows SELECT i, 0.5, 0 FROM generate_series(0, {rows - 1}, {_STEP}) i"
        connection.execute(made.encode())
        connection.execute("VACUUM ANALYZE rows")


def _fill(address: str, rows: int, count: int) -> None:
    """Fill the topic with records as Debezium sends them without their schema: a tenth new keys, a tenth gone."""
    randomness = random.Random(1)
    producer: Any = KafkaProducer(bootstrap_servers=address, linger_ms=50, batch_size=1 << 20)
    try:
        for number in range(count):
            kind = randomness.random()
            operation = "c" if kind < 0.1 else "d" if kind < 0.2 else "u"  # noqa: PLR2004 - tenths
            key = rows + number if operation == "c" else randomness.randrange(rows)
            producer.send(TOPIC, key=f'{{"id":{key}}}'.encode(), value=_envelope(operation, key, number))
        producer.flush()
    finally:
        producer.close()


def _envelope(operation: str, key: int, number: int) -> bytes:
    row = {"id": key, "v": number / 7, "k": number}
    lsn, now_ms = 23_950_312 + 100 * number, 1_795_686_071_000 + number
    gone = {"id": key, "v": None, "k": None}
    source = {
        "version": "3.3.2.Final",
        "connector": "postgresql",
        "name": "bench",
        "ts_ms": now_ms,
        "snapshot": "false",
        "db": "postgres",
        "sequence": f'["{lsn}","{lsn}"]',
        "ts_us": now_ms * 1000,
        "ts_ns": now_ms * 1_000_000,
        "schema": "public",
        "table": "rows",
        "txId": 700 + number,
        "lsn": lsn,
        "xmin": None,
    }
    envelope = {
        "before": gone if operation == "d" else None,
        "after": None if operation == "d" else row,
        "source": source,
        "transaction": None,
        "op": operation,
        "ts_ms": now_ms,
        "ts_us": now_ms * 1000,
        "ts_ns": now_ms * 1_000_000,
    }
    return json.dumps(envelope, separators=(",", ":")).encode()


def _commits(address: str, begins: float, ends: float) -> dict[int, float]:
    """The time of the commit of each change in this span, by its offset; reads until one comes after it."""
    consumer: Any = KafkaConsumer(bootstrap_servers=address, group_id=None, auto_offset_reset="earliest")
    place = TopicPartition(TOPIC, 0)
    found: dict[int, float] = {}
    deadline_s = time.monotonic() + _STOP_S
    try:
        consumer.assign([place])
        quiet = 0
        while quiet < 5 and time.monotonic() < deadline_s:  # noqa: PLR2004 - polls without a record
            polled = consumer.poll(timeout_ms=1000)
            quiet = 0 if polled else quiet + 1
            for record in polled.get(place, ()):
                if record.value is not None:
                    committed = json.loads(record.value)["source"]["ts_us"] / 1e6
                    if begins <= committed < ends:
                        found[record.offset] = committed
    finally:
        consumer.close()
    return found


def _ages(commits: dict[int, float], batches: Sequence[dict[str, Any]]) -> list[float]:
    """The age of each change when its batch became visible. A change that never did counts with its age now."""
    ages, place = [], 0
    ordered = sorted(batches, key=lambda batch: batch["batch"])
    for offset, committed in sorted(commits.items()):
        while place < len(ordered) - 1 and ordered[place]["ends"] <= offset:
            place += 1
        visible = ordered[place]["visible"] if offset < ordered[place]["ends"] else time.time()
        ages.append(visible - committed)
    return ages


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.cdc", description=__doc__)
    parser.add_argument("--only", default="", help=f"parts whose names contain this: {', '.join(PARTS)}")
    parser.add_argument("--no-delta", action="store_true", help="without delta-spark")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, which only check that it runs")
    options = parser.parse_args()
    engines = (TIDELOG,) if options.no_delta else (TIDELOG, DELTA_SPARK)
    report = Report("cdc", peer=DELTA_SPARK, engines=(TIDELOG, DELTA_SPARK))
    report.machine()
    tables.CACHE.mkdir(parents=True, exist_ok=True)
    run_parts(CdcBench(report, QUICK if options.quick else Sizes(), engines), PARTS, options.only)
    report.end(quick=options.quick)


if __name__ == "__main__":
    main()
