"""Spark Declarative Pipelines on a server that has tidelog: what a definition can say, and how it may change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.streaming.connect.server import registered
from tidelog.log import Table
from tidelog.streaming.spark_versions import INSTALLED

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(INSTALLED < (4, 1), reason="Spark has pipelines from 4.1 on"),
]

PATIENCE_S = 600
SPEC = """
name: {name}
storage: file://{folder}/storage
catalog: tidelog
database: {name}
configuration:
  spark.sql.sources.default: tidelog
libraries:
  - glob:
      include: definitions/**
"""
CLIENT = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
for statement in sys.argv[2:]:
    spark.sql(statement).collect()
"""
HEAD = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.active()
SOURCE = "tidelog.raw.{name}"
"""
FLOWS = """
dp.create_streaming_table(
    "both", comment="two flows", partition_cols=["op"], table_properties={"team": "x", "tidelog.targetFileSize": "64mb"}
)


@dp.append_flow(target="both", name="first")
def first():
    return spark.readStream.table(SOURCE)


@dp.append_flow(target="both", name="second")
def second():
    return spark.readStream.table(SOURCE).withColumn("id", F.col("id") + 100)


@dp.materialized_view(partition_cols=["op"], comment="per op")
def per_op():
    return spark.read.table("both").groupBy("op").agg(F.count("*").alias("n"))


dp.create_sink("out", "tidelog", {"path": OUT})


@dp.append_flow(target="out", name="to_out")
def to_out():
    return spark.readStream.table("both")
"""
IN_SQL = """
CREATE STREAMING TABLE in_sql USING tidelog COMMENT 'by sql' AS SELECT id, name FROM STREAM both;
CREATE MATERIALIZED VIEW total USING tidelog TBLPROPERTIES ('a.b' = 'c') AS SELECT count(*) AS n FROM in_sql;
"""
EVOLVING = """
@dp.materialized_view(schema="id BIGINT COMMENT 'our number', name STRING")
def with_schema():
    return spark.read.table(SOURCE).select("id", "name")


@dp.materialized_view
def view():
    return spark.read.table(SOURCE).select("id", F.struct("op").alias("s")NEW)


@dp.table
def stream():
    return spark.readStream.table(SOURCE).select("id", F.struct("op").alias("s")NEW)
"""
CLUSTERED = """
@dp.materialized_view(cluster_by=["id"])
def clustered_view():
    return spark.read.table(SOURCE)


@dp.table(cluster_by=["id"])
def clustered_stream():
    return spark.readStream.table(SOURCE)
"""
CAPTURED = """
@dp.temporary_view
def records():
    return spark.readStream.table(SOURCE)


dp.create_streaming_table("captured")
dp.create_auto_cdc_flow(
    target="captured", source="records", keys=["id"], sequence_by=F.struct("ts", "op"), apply_as_deletes="op = 'D'",
    column_list=["id", "name"]MORE
)
"""
FIRST = "(1, 'a', 'I', 1), (2, 'b', 'I', 2), (1, 'a2', 'U', 3), (2, NULL, 'D', 4), (3, 'c', 'I', 5)"
# One of them is older than what is known.
THEN = "(3, 'c2', 'U', 7), (1, NULL, 'D', 6), (4, 'd', 'I', 8), (2, 'old', 'U', 3)"


class Pipeline:
    """A pipeline that reads the table `tidelog.raw.<name>` and writes into the schema `tidelog.<name>`."""

    def __init__(self, url: str, base: Path, name: str) -> None:
        self.name, self.folder, self._url = name, base / "pipelines" / name, url
        self.lake = base / "lake" / name
        (self.folder / "definitions").mkdir(parents=True)
        (self.folder / "spark-pipeline.yml").write_text(SPEC.format(name=name, folder=self.folder))
        made = f"CREATE TABLE tidelog.raw.{name} (id BIGINT, name STRING, op STRING, ts BIGINT)"
        self.sql(f"CREATE SCHEMA tidelog.{name}", made, f"INSERT INTO tidelog.raw.{name} VALUES {FIRST}")

    def define(self, python: str, sql: str = "") -> None:
        python = HEAD.format(name=self.name) + python.replace("OUT", repr(str(self.folder / "out")))
        (self.folder / "definitions" / "all.py").write_text(python)
        (self.folder / "definitions" / "all.sql").write_text(sql)
        if not sql:
            (self.folder / "definitions" / "all.sql").unlink()

    def insert(self, values: str) -> None:
        self.sql(f"INSERT INTO tidelog.raw.{self.name} VALUES {values}")

    def sql(self, *statements: str) -> None:
        """In a process of its own, since a client's session leaves settings in the environment."""
        command = [sys.executable, "-c", CLIENT, self._url, *statements]
        subprocess.run(command, check=True, timeout=PATIENCE_S)

    def run(self, *options: str, fails: str | None = None) -> None:
        environment = {**os.environ, "SPARK_REMOTE": self._url, "SPARK_CONNECT_MODE_ENABLED": "1"}
        command = [sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", "spark-pipeline.yml", *options]
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        printed = done.stdout + done.stderr
        assert (done.returncode == 0) == (fails is None), printed[-8000:]
        assert fails is None or fails in printed, printed[-8000:]

    def table(self, name: str) -> Table:
        return Table.open(str(self.lake / name))

    def rows(self, name: str, *columns: str) -> list[tuple[object, ...]]:
        return sorted(tuples(self.table(name).scan(columns=columns or None).to_arrow()), key=repr)

    @property
    def source(self) -> list[tuple[object, ...]]:
        return tuples(Table.open(str(self.lake.parent / "raw" / self.name)).scan().to_arrow())


def tuples(rows: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in rows.to_pylist()]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pipelines")


@pytest.fixture(scope="module")
def url(base: Path) -> Iterator[str]:
    with registered(base) as url:
        yield url


def test_flows_of_every_kind(url: str, base: Path) -> None:
    pipeline = Pipeline(url, base, "flows")
    pipeline.define(FLOWS, IN_SQL)

    def check(*, out: int = 1) -> None:
        both = [row for row in pipeline.source for row in (row, (row[0] + 100, *row[1:]))]  # type: ignore[operator]
        assert pipeline.rows("both", "id", "name", "op", "ts") == sorted(both, key=repr)
        assert sum(n for _, n in pipeline.rows("per_op", "op", "n")) == len(both)  # type: ignore[misc]
        assert pipeline.rows("in_sql") == sorted([row[:2] for row in both], key=repr)
        assert pipeline.rows("total") == [(len(both),)]
        assert Table.open(str(pipeline.folder / "out")).scan().count() == out * len(both)

    pipeline.run()
    check()
    pipeline.run()
    check()
    pipeline.insert(THEN)
    pipeline.run()
    check()
    both = pipeline.table("both").at()
    assert (both.partition_by, both.properties["team"]) == (("op",), "x")
    assert both.state.head.metadata.description == "two flows"
    assert pipeline.table("per_op").at().partition_by == ("op",)
    assert pipeline.table("in_sql").at().state.head.metadata.description == "by sql"
    assert pipeline.table("total").properties["a.b"] == "c"

    # The sink of the pipeline is not emptied, so its rows would come twice.
    pipeline.run("--full-refresh-all", fails="TIDELOG_CHECKPOINT_RESET")
    check()
    pipeline.define(FLOWS.replace('{"path": OUT}', '{"path": OUT, "onReset": "adopt"}'), IN_SQL)
    pipeline.run("--full-refresh-all")
    check(out=2)

    shutil.rmtree(pipeline.folder / "storage")
    pipeline.define(FLOWS, IN_SQL)
    pipeline.run(fails="TIDELOG_CHECKPOINT_RESET")


def test_new_columns_and_comments(url: str, base: Path) -> None:
    pipeline = Pipeline(url, base, "evolving")
    clustered = CLUSTERED if INSTALLED >= (4, 2) else ""
    pipeline.define(EVOLVING.replace("NEW", "") + clustered)
    pipeline.run()
    assert pipeline.rows("view") == pipeline.rows("stream")
    assert (pipeline.table("with_schema").schema.field("id").metadata or {})[b"comment"] == b"our number"

    more = EVOLVING.replace("NEW", ', F.lit(1.5).alias("new")').replace("our", "their")
    pipeline.define(more + clustered)
    pipeline.insert(THEN)
    pipeline.run()
    source = pipeline.source
    assert pipeline.rows("view") == sorted([(row[0], {"op": row[2]}, 1.5) for row in source], key=repr)
    assert pipeline.table("stream").scan("new = 1.5").count() == THEN.count("(")
    assert pipeline.table("stream").scan("new IS NULL").count() == FIRST.count("(")
    assert (pipeline.table("with_schema").schema.field("id").metadata or {})[b"comment"] == b"their number"
    if clustered:
        for name in ("clustered_view", "clustered_stream"):
            assert pipeline.table(name).properties["tidelog.clusterBy"] == "id"
            assert pipeline.rows(name) == sorted(source, key=repr)

    pipeline.run("--full-refresh", "stream")
    assert pipeline.rows("stream") == pipeline.rows("view")


@pytest.mark.skipif(INSTALLED < (4, 2), reason="Spark has AutoCDC from 4.2 on")
def test_auto_cdc_keeps_the_newest_rows(url: str, base: Path) -> None:
    pipeline = Pipeline(url, base, "captured")
    pipeline.define(CAPTURED.replace("MORE", ""))
    pipeline.run()
    assert pipeline.rows("captured", "id", "name") == [(1, "a2"), (3, "c")]
    pipeline.run()
    pipeline.insert(THEN)
    pipeline.run()
    assert pipeline.rows("captured", "id", "name") == [(3, "c2"), (4, "d")]
    pipeline.run("--full-refresh-all")
    assert pipeline.rows("captured", "id", "name") == [(3, "c2"), (4, "d")]
    pipeline.define(CAPTURED.replace('"name"]MORE', '"name", "ts"]'))
    pipeline.insert("(5, 'e', 'I', 9)")
    pipeline.run()
    assert pipeline.rows("captured", "id", "ts") == [(3, None), (4, None), (5, 9)]


@pytest.mark.skipif(INSTALLED < (4, 3), reason="Spark has type 2 from 4.3 on")
def test_auto_cdc_keeps_the_history_of_rows(url: str, base: Path) -> None:
    pipeline = Pipeline(url, base, "history")
    pipeline.define(CAPTURED.replace("MORE", ", stored_as_scd_type=2").replace('F.struct("ts", "op")', '"ts"'))
    first = [(1, "a", 1, 3), (1, "a2", 3, None), (2, "b", 2, 4), (3, "c", 5, None)]
    then = [(1, "a", 1, 3), (1, "a2", 3, 6), (2, "b", 2, 3), (2, "old", 3, 4), (3, "c", 5, 7), (3, "c2", 7, None)]
    columns = ("id", "name", "__START_AT", "__END_AT")
    pipeline.run()
    assert pipeline.rows("captured", *columns) == first
    pipeline.run()
    assert pipeline.rows("captured", *columns) == first
    pipeline.insert(THEN)
    pipeline.run()
    assert pipeline.rows("captured", *columns) == [*then, (4, "d", 8, None)]
    pipeline.run("--full-refresh-all")
    assert pipeline.rows("captured", *columns) == [*then, (4, "d", 8, None)]
