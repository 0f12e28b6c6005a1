"""The actions of each engine, run in a separate process: `python -m benchmarks.peers ENGINE ACTION ARGUMENTS`.

An action prints its figures as one JSON object: seconds, or milliseconds if the name says so, and `peak_mb`, the peak
memory of the process (for Spark, of its Java process).
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from benchmarks import tables
from benchmarks.timing import peak_mb, timed

Action: TypeAlias = Callable[..., dict[str, float]]

# Files and commits of a table that a process opens first, so that imports are not measured.
_TINY = (10, 2)
# Files and partitions of such a table.
_FEW = (20, 2)
# The first commits of a process are slower.
_WARM_UP = 2
# No table has files with numbers from here on when it is made.
_NEW_FILES = 10**8
_SPARK_MEMORY = "6g"


# The partition that exists of `tables.one_real_partition`.
_REAL = "p = 'real'"


def _of_partition(path: str, act: Callable[[str], object]) -> dict[str, float]:
    """The milliseconds of what is done with the real partition of a table, after the same with a small table."""
    small = tables.one_real_partition(*_FEW)
    with TemporaryDirectory(prefix="tidelog-bench-") as folder:
        act(str(tables.clone(small, Path(folder) / "table")))
    with timed() as spent:
        act(path)
    return {"milliseconds": spent["seconds"] * 1000}


class Tidelog:
    """tidelog, through its public API."""

    def open_list(self, path: str) -> dict[str, float]:
        from tidelog.log import Table

        _ = Table.open(str(tables.checkpointed(*_TINY, "tidelog"))).at().files()
        with timed() as spent:
            _ = Table.open(path).at().files()
        return spent

    def scan_partition(self, path: str) -> dict[str, float]:
        from tidelog.log import Table

        return _of_partition(path, lambda table: Table.open(table).scan(_REAL).to_arrow())

    def delete_row(self, path: str) -> dict[str, float]:
        from tidelog.log import Table

        return _of_partition(path, lambda table: Table.open(table).delete(f"{_REAL} AND id = 5"))

    def write_checkpoint(self, path: str) -> dict[str, float]:
        from tidelog.log import Table

        table = Table.open(path)
        _ = table.at().files()
        with timed() as spent:
            table.checkpoint()
        return spent

    def refresh(self, path: str, commits: int) -> dict[str, float]:
        from tidelog.log import Table

        table = Table.open(path)
        _ = table.at().files()

        def refresh() -> None:
            _ = table.refresh().at().files()

        return {"milliseconds": _after_commits(Path(path), table.version, commits, refresh)}

    def append(self, short: str, long: str, commits: int) -> dict[str, float]:
        from tidelog.log import Table

        opened = {"short_ms": Table.open(short), "long_ms": Table.open(long)}
        return _in_turn({name: partial(_append, table) for name, table in opened.items()}, commits)

    def lookup(self, path: str, times: int) -> dict[str, float]:
        from tidelog.log import Table
        from tidelog.log.system import to_datetime

        table = Table.open(path)
        last_ms = tables.START_MS + table.version * tables.SPACING_MS
        chosen = random.Random(1)
        moments = [to_datetime(chosen.randrange(tables.START_MS, last_ms)) for _ in range(times + 1)]
        spans = []
        for moment in moments:
            with timed() as spent:
                found = table.timeline.snapshot_version(moment)
            assert found == (int(moment.timestamp() * 1000) - tables.START_MS) // tables.SPACING_MS
            spans.append(spent["seconds"] * 1000)
        return {"first_ms": spans[0], "again_ms": statistics.median(spans[1:])}

    def at_timestamp(self, path: str, moment: str) -> dict[str, float]:
        from tidelog.log import Table

        table = Table.open(path)
        with timed() as spent:
            _ = table.at(timestamp=moment).files()
        return spent

    def start(self) -> dict[str, float]:
        with timed() as spent:
            import tidelog.streaming.datasource.source  # noqa: F401
        return spent

    def compact(self, **arguments: Any) -> dict[str, float]:
        from benchmarks import compactions

        return compactions.tidelog(**arguments)

    def changes_frame(self, path: str) -> dict[str, float]:
        from benchmarks import feed_ways

        return feed_ways.changes_frame(path)

    def share_out(self, path: str) -> dict[str, float]:
        from benchmarks import feed_ways

        return feed_ways.share_out(path)

    def scan(self, **arguments: Any) -> dict[str, float]:
        from benchmarks import scans

        return scans.tidelog(**arguments)

    def rebase_delete(self, path: str, files: int, rows: int, deletes: int) -> dict[str, float]:
        from benchmarks import rebases

        return rebases.delete_over_compaction(path, files, rows, deletes)

    def rebase_append(self, path: str, winners: int) -> dict[str, float]:
        from benchmarks import rebases

        return rebases.append_over_appends(path, winners)


class Deltalake:
    """deltalake (delta-rs), through its public API."""

    def scan_partition(self, path: str) -> dict[str, float]:
        from deltalake import DeltaTable, QueryBuilder

        def scan(table: str) -> Any:
            return QueryBuilder().register("t", DeltaTable(table)).execute(f"SELECT * FROM t WHERE {_REAL}").read_all()

        return _of_partition(path, scan)

    def delete_row(self, path: str) -> dict[str, float]:
        from deltalake import DeltaTable

        return _of_partition(path, lambda table: DeltaTable(table).delete(f"{_REAL} AND id = 5"))

    def open_list(self, path: str) -> dict[str, float]:
        from deltalake import DeltaTable

        _ = DeltaTable(str(tables.checkpointed(*_TINY, "tidelog"))).get_add_actions()
        with timed() as spent:
            _ = DeltaTable(path).get_add_actions()
        return spent

    def write_checkpoint(self, path: str) -> dict[str, float]:
        from deltalake import DeltaTable

        table = DeltaTable(path)
        with timed() as spent:
            table.create_checkpoint()
        return spent

    def refresh(self, path: str, commits: int) -> dict[str, float]:
        from deltalake import DeltaTable

        table = DeltaTable(path)
        # Without listing the files again, which favours deltalake.
        return {"milliseconds": _after_commits(Path(path), table.version(), commits, table.update_incremental)}

    def append(self, short: str, long: str, commits: int) -> dict[str, float]:
        from deltalake import DeltaTable
        from deltalake.transaction import AddAction, PostCommitHookProperties

        opened = {"short_ms": DeltaTable(short), "long_ms": DeltaTable(long)}
        # Without checkpoints in between, which favours deltalake.
        hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)

        def append(table: DeltaTable, number: int) -> None:
            values = tables.add_values(_NEW_FILES + number)
            add = AddAction(
                path=values["path"],
                size=values["size"],
                partition_values=values["partitionValues"],
                modification_time=values["modificationTime"],
                data_change=True,
                stats=tables.stats_text(_NEW_FILES + number),
            )
            schema, partitions = table.schema(), table.metadata().partition_columns
            table.create_write_transaction([add], "append", schema, partitions, post_commithook_properties=hooks)

        return _in_turn({name: partial(append, table) for name, table in opened.items()}, commits)

    def at_timestamp(self, path: str, moment: str) -> dict[str, float]:
        from deltalake import DeltaTable

        table = DeltaTable(path)
        with timed() as spent:
            table.load_as_version(datetime.fromisoformat(moment))
            _ = table.get_add_actions()
        return spent

    def compact(self, **arguments: Any) -> dict[str, float]:
        from benchmarks import compactions

        return compactions.deltalake(**arguments)

    def scan(self, **arguments: Any) -> dict[str, float]:
        from benchmarks import scans

        return scans.deltalake(**arguments)


class Polars:
    """Polars, which reads parquet files and knows no log."""

    def scan(self, **arguments: Any) -> dict[str, float]:
        from benchmarks import scans

        return scans.polars(**arguments)


class DeltaSpark:
    """delta-spark, through its Java API: the work of a query before it reads any data."""

    def open_list(self, path: str, warm_up: str) -> dict[str, float]:
        session = spark_session()
        _delta_log(session, warm_up).unsafeVolatileSnapshot().allFiles().count()
        with timed() as spent:
            # Counted on the executors and not collected, which favours delta-spark.
            _delta_log(session, path).unsafeVolatileSnapshot().allFiles().count()
        return {"seconds": spent["seconds"], "peak_mb": peak_mb(java_pid(session))}

    def write_checkpoint(self, path: str, warm_up: str) -> dict[str, float]:
        session = spark_session()
        _delta_log(session, warm_up).checkpoint()
        log = _delta_log(session, path)
        log.unsafeVolatileSnapshot().allFiles().count()
        with timed() as spent:
            log.checkpoint()
        return {"seconds": spent["seconds"], "peak_mb": peak_mb(java_pid(session))}

    def compact(self, **arguments: Any) -> dict[str, float]:
        from benchmarks import compactions

        return compactions.delta_spark(**arguments)

    def lookup(self, path: str, moment: str, times: int) -> dict[str, float]:
        session = spark_session()
        log = _delta_log(session, path)
        jvm = session.sparkContext._jvm
        assert jvm
        at = jvm.java.sql.Timestamp(int(datetime.fromisoformat(moment).timestamp() * 1000))
        none = jvm.scala.Option.empty()
        flags = (False, True, False)  # not the newest if `at` is later; one that can be rebuilt; not the earliest
        spans = []
        for _ in range(times):
            with timed() as spent:
                log.history().getActiveCommitAtTime(at, none, *flags)
            spans.append(spent["seconds"] * 1000)
        return {"first_ms": spans[0], "again_ms": statistics.median(spans[1:])}


ENGINES: dict[str, Any] = {
    "tidelog": Tidelog(),
    "deltalake": Deltalake(),
    "polars": Polars(),
    "delta_spark": DeltaSpark(),
}


def run(engine: str, action: str, arguments: dict[str, Any]) -> dict[str, float]:
    """Run one action in this process and return its figures."""
    chosen: Action = getattr(ENGINES[engine], action)
    figures = chosen(**arguments)
    return {"peak_mb": peak_mb(os.getpid()), **figures}


def _append(table: Any, number: int) -> None:
    from tidelog.log.format.actions import AddFile

    values = tables.add_values(_NEW_FILES + number)
    add = AddFile(
        path=values["path"],
        size=values["size"],
        partition_values=values["partitionValues"],
        modification_time=values["modificationTime"],
        data_change=True,
        stats=tables.stats_text(_NEW_FILES + number),
    )
    table.begin().stage_adds([add]).commit()


def _after_commits(path: Path, version: int, commits: int, refresh: Callable[[], None]) -> float:
    """The median time in ms of `refresh`, each time after a commit by another writer."""
    spans = []
    for number in range(1, commits + 1):
        tables.append_commit(path, version + number)
        with timed() as spent:
            refresh()
        spans.append(spent["seconds"] * 1000)
    return statistics.median(spans)


def _in_turn(actions: dict[str, Callable[[int], None]], times: int) -> dict[str, float]:
    """The median time in ms of each action. They run in turn, so that slow phases of the disk affect all alike."""
    spans: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(_WARM_UP + times):
        for name, action in actions.items():
            with timed() as spent:
                action(number)
            spans[name].append(spent["seconds"] * 1000)
    return {name: statistics.median(found[_WARM_UP:]) for name, found in spans.items()}


def spark_session(*, delta: bool = True, memory: str = _SPARK_MEMORY, settings: Mapping[str, str] | None = None) -> Any:
    """A session on two cores. With delta-spark, two partitions are set for its snapshots, enough for small logs."""
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", memory)
        .config("spark.sql.shuffle.partitions", "2")
    )
    for name, value in {**(_delta_settings() if delta else {}), **(settings or {})}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _delta_settings() -> dict[str, str]:
    from tests.interop.delta_spark import jars

    return {
        "spark.jars": ",".join(map(str, jars())),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
    }


def _delta_log(session: Any, path: str) -> Any:
    return session._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, path)


def java_pid(session: Any) -> int:
    """The id of Spark's Java process."""
    return int(session._jvm.java.lang.ProcessHandle.current().pid())


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))))
