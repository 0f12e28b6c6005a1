"""Values without a type of Spark, NULL, `array()` and `map()`, and types that no table has."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.lanes import full, full_but
from tests.randomness import seed
from tests.streaming.support import Input, drain, read, refused
from tidelog.log import Table
from tidelog.log.errors import SchemaMismatchError
from tidelog.streaming import Sink, spark_versions, table

pytestmark = pytest.mark.spark

WRITERS = pytest.mark.parametrize("writer", full_but(["spark"], ["driver", "spark"]))
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("s", pa.string()),
        ("st", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("l", pa.list_(pa.int64())),
        ("m", pa.map_(pa.string(), pa.list_(pa.date32()))),
    ]
)
EMPTY = ["n", "NULL s", "named_struct('b', NULL, 'a', 1) st", "array() l", "map() m"]
EMPTY_ROW: dict[str, Any] = {"n": 1, "s": None, "st": {"a": 1, "b": None}, "l": [], "m": []}


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


def one(source: Input, n: int) -> Input:
    return source.put_table(pa.table({"n": pa.array([n], pa.int64())}))


def rows(path: Path | str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = Table.open(str(path)).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["n"])


@WRITERS
@pytest.mark.parametrize("mode", full_but(["append"], ["append", "upsert", "overwrite-partitions"]))
def test_what_has_no_type_gets_the_tables(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str, mode: str
) -> None:
    path = str(tmp_path / "table")
    Table.create(path, SCHEMA, partition_by=["n"])
    sink = Sink(path, mode=mode, keys=["n"] if mode == "upsert" else [], writer=writer)
    drain(one(source, 1).stream(spark).selectExpr(*EMPTY), sink, tmp_path / "cp")
    assert rows(path) == [EMPTY_ROW]


@WRITERS
def test_a_column_without_a_type_waits_for_it(spark: SparkSession, source: Input, tmp_path: Path, writer: str) -> None:
    path, checkpoint = str(tmp_path / "table"), tmp_path / "cp"
    sink = Sink(path, writer=writer)
    void = ["n", "NULL x", "array(named_struct('a', n, 'b', NULL)) y"]
    drain(one(source, 1).stream(spark).selectExpr(*void), sink, checkpoint)
    assert Table.open(path).schema.names == ["n", "y"]
    drain(one(source, 2).stream(spark).selectExpr(*void), Sink(path, writer=writer, schema_evolution=True), checkpoint)
    assert rows(path) == [{"n": 1, "y": [{"a": 1}]}, {"n": 2, "y": [{"a": 2}]}]
    typed = one(source, 3).stream(spark).selectExpr("n", "'text' x", "array(named_struct('a', n, 'b', 'c')) y")
    error = refused(typed.drop("y"), sink, checkpoint, SchemaMismatchError)
    assert error.column == "x"
    assert "schema_evolution=True" in error.advice
    drain(typed, Sink(path, writer=writer, schema_evolution=True), checkpoint)
    assert rows(path) == [
        {"n": 1, "y": [{"a": 1, "b": None}], "x": None},
        {"n": 2, "y": [{"a": 2, "b": None}], "x": None},
        {"n": 3, "y": [{"a": 3, "b": "c"}], "x": "text"},
    ]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("array() x", "'x' has only a part of a type"),
        *full(
            ("array(NULL) x", "'x' has only a part of a type"),
            ("map() x", "'x' is a map without a type for its keys"),
            ("map('a', array()) x", "'x' has only a part of a type"),
            ("named_struct('b', NULL) x", "'x' has only a part of a type"),
        ),
    ],
)
def test_a_new_column_whose_rows_differ_needs_a_type(
    spark: SparkSession, source: Input, tmp_path: Path, column: str, message: str
) -> None:
    """The length of a list, or whether a struct is null, would be lost."""
    path, stream = tmp_path / "table", one(source, 1).stream(spark).selectExpr("n", column)
    error = refused(stream, Sink(str(path)), tmp_path / "cp", SchemaMismatchError)
    assert (error.column, message in error.message, "cast it" in error.advice) == ("x", True, True)
    assert not path.exists()
    Table.create(str(path), pa.schema([("n", pa.int64())]))
    refused(stream, Sink(str(path), schema_evolution=True), tmp_path / "cp", SchemaMismatchError)
    with pytest.raises(Exception, match=message):
        spark.range(1).selectExpr("id n", column).write.format("tidelog").mode("append").save(str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()


@WRITERS
def test_a_condition_on_a_column_without_a_type(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str
) -> None:
    path = str(tmp_path / "table")
    sink = Sink(path, mode="upsert", keys=["n"], delete_where="op = 'd'", writer=writer)
    drain(one(source, 1).stream(spark).selectExpr("n", "NULL op"), sink, tmp_path / "cp")
    assert rows(path) == [{"n": 1}]


@pytest.mark.full
def test_a_spark_table_and_the_format(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    Table.create(path, SCHEMA)
    data = spark.range(1, 2).selectExpr("id n", *EMPTY[1:])
    table(spark, path).upsert(data, keys=["n"])
    assert rows(path) == [EMPTY_ROW]
    table(spark, path).overwrite(data)
    assert rows(path) == [EMPTY_ROW]
    data.write.format("tidelog").mode("append").save(path)
    assert rows(path) == [EMPTY_ROW, EMPTY_ROW]


TIMES = [("INTERVAL '1' DAY", "interval day"), ("INTERVAL '1' MONTH", "interval month")]
TIMES += [("make_interval(1)", "interval"), ("array(named_struct('i', INTERVAL '1' DAY))", "interval day")]
TIMES += [("TIME'10:00:00'", "time(6)")] if spark_versions.INSTALLED >= (4, 1) else []


@pytest.fixture
def with_times(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.timeType.enabled", "true")
    yield
    spark.conf.unset("spark.sql.timeType.enabled")


@pytest.mark.usefixtures("with_times")
@pytest.mark.parametrize(("value", "kind"), [TIMES[0], *full(*TIMES[1:])])
def test_intervals_and_times_are_refused_by_name(
    spark: SparkSession, source: Input, tmp_path: Path, value: str, kind: str
) -> None:
    path, text = tmp_path / "table", f"has Spark's type {kind}, which a Delta table cannot hold"
    stream = one(source, 1).stream(spark).selectExpr("n", f"{value} x")
    for writer in ("driver", "spark"):
        sink = Sink(str(path), writer=writer, schema_evolution=True)
        error = refused(stream, sink, tmp_path / f"cp-{path.exists()}", SchemaMismatchError)
        assert text in error.message
        assert "cast it to STRING" in error.advice
    assert not path.exists()
    Table.create(str(path), pa.schema([("n", pa.int64()), ("x", pa.int64())]))
    refused(stream, Sink(str(path)), tmp_path / "cp", SchemaMismatchError)
    data = spark.range(1).selectExpr("id n", f"{value} x")
    with pytest.raises(SchemaMismatchError):
        table(spark, str(path)).upsert(data, keys=["n"])
    with pytest.raises(SchemaMismatchError):
        table(spark, str(path)).overwrite(data)
    for place in (path, tmp_path / "other"):
        with pytest.raises(Exception, match="which a Delta table cannot hold"):
            data.write.format("tidelog").mode("append").save(str(place))


class Values:
    """SQL of random values of a type, without a type where there is nothing to say."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def kind(self, depth: int) -> Any:
        choice = self._chance.randrange(3 + (depth > 0) * 6)
        if choice < 3:
            return ("BIGINT", "STRING", "DATE")[choice]
        inner = [self.kind(depth - 1) for _ in range(self._chance.randint(1, 3))]
        return (("ARRAY", "MAP", "STRUCT")[choice % 3], inner)

    def value(self, kind: Any) -> str:
        empty = self._chance.random() < 0.4
        if isinstance(kind, str):
            return "NULL" if empty else {"BIGINT": "7L", "STRING": "'a'", "DATE": "DATE'2026-01-02'"}[kind]
        what, inner = kind
        if what == "STRUCT":
            fields = ", ".join(f"'f{place}', {self.value(each)}" for place, each in enumerate(inner))
            return f"named_struct({fields})"
        if what == "ARRAY":
            return "array()" if empty else f"array({self.value(inner[0])})"
        return "map()" if empty else f"map('k', {self.value(inner[0])})"


def ddl(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    what, inner = kind
    if what == "STRUCT":
        return f"STRUCT<{', '.join(f'f{place}: {ddl(each)}' for place, each in enumerate(inner))}>"
    return f"ARRAY<{ddl(inner[0])}>" if what == "ARRAY" else f"MAP<STRING, {ddl(inner[0])}>"


@pytest.mark.parametrize(("rounds", "columns"), [(1, 12), pytest.param(20, 12, marks=pytest.mark.nightly)])
def test_random_values_with_parts_without_a_type(
    spark: SparkSession, tmp_path: Path, rounds: int, columns: int
) -> None:
    """As Spark itself inserts them into Parquet."""
    chance = random.Random(seed())
    values = Values(chance)
    for number in range(rounds):
        kinds = [values.kind(2) for _ in range(columns)]
        typed = ["n BIGINT", *(f"c{place} {ddl(kind)}" for place, kind in enumerate(kinds))]
        empty = spark.createDataFrame([], ", ".join(typed))
        given = ["n", *(f"{values.value(kind)} c{place}" for place, kind in enumerate(kinds))]
        spark.range(1, 2).selectExpr("id n", *given[1:]).to(empty.schema).write.parquet(str(tmp_path / f"p{number}"))
        expected = spark.read.parquet(str(tmp_path / f"p{number}")).collect()
        for writer in ("driver", "spark"):
            path = tmp_path / f"{writer}{number}"
            Table.create(str(path), spark_versions.columns_to_arrow(empty.schema))
            stream = Input(tmp_path / f"in-{writer}{number}").put_table(pa.table({"n": pa.array([1], pa.int64())}))
            mode = chance.choice(["append", "upsert"])
            sink = Sink(str(path), mode=mode, keys=["n"] if mode == "upsert" else [], writer=writer)
            drain(stream.stream(spark).selectExpr(*given), sink, tmp_path / f"cp-{writer}{number}")
            assert read(spark, path).collect() == expected, given
