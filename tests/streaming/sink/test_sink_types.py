"""Values of every Spark type come back from the table unchanged, in any session time zone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.lanes import full_but
from tests.streaming.support import Input, drain, read, refused
from tidelog.log import Table
from tidelog.log.errors import SchemaMismatchError
from tidelog.streaming import Sink

pytestmark = pytest.mark.spark

# A batch has two rows: row 0 has these values, row 1 nulls.
COLUMNS = {
    "a_byte": "cast(7 as tinyint)",
    "a_short": "cast(-300 as smallint)",
    "an_int": "cast(70000 as int)",
    "a_float": "cast(0.1 as float)",
    "a_double": "double('-Infinity')",
    "a_bool": "true",
    "a_text": "'ü, \\'\\n'",
    "a_blob": "x'00ff'",
    "a_date": "date'1900-02-28'",
    "a_moment": "timestamp'2026-03-08 02:30:00.123456 UTC'",
    "an_old_moment": "timestamp'1883-11-18 16:59:59.999999 UTC'",
    "a_wall_time": "timestamp_ntz'2026-03-08 02:30:00.123456'",
    "a_decimal": "cast('-12345678901234567890.123456789' as decimal(38,9))",
    "a_small_decimal": "cast('1.50' as decimal(5,2))",
    "a_struct": "named_struct('x', 1, 'at', timestamp'2026-07-01 00:00:00 UTC', 'inner', named_struct('y', cast(null as int)))",  # noqa: E501
    "an_array": "array(1, null, 3)",
    "some_structs": "array(named_struct('d', cast('1.5' as decimal(3,1))), null)",
    "a_map": "map('k', array(timestamp'2026-01-01 00:00:00 UTC'), 'none', null)",
}


@pytest.fixture(params=["America/New_York", pytest.param("Asia/Kolkata", marks=pytest.mark.full)])
def time_zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


IN_ZONES = pytest.mark.usefixtures("time_zone")


def two_rows(spark: SparkSession, folder: Path) -> DataFrame:
    source = Input(folder).put_table(pa.table({"n": pa.array([0, 1], pa.int64())}))
    values = [f"if(n = 0, {value}, null) as {name}" for name, value in COLUMNS.items()]
    return source.stream(spark).selectExpr("n", *values)


def compact_text(frame: DataFrame) -> list[str]:
    """The rows as Spark writes them to JSON, exact in every digit."""
    return sorted(row[0] for row in frame.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))").collect())


@IN_ZONES
@pytest.mark.parametrize("writer", ["driver", "spark"])
def test_values_of_every_type_come_back_unchanged(spark: SparkSession, tmp_path: Path, writer: str) -> None:
    path = tmp_path / "table"
    stream = two_rows(spark, tmp_path / "input")
    given: list[str] = []
    sink = Sink(str(path), writer=writer)

    def function(batch: DataFrame, number: int) -> None:
        given.extend(compact_text(batch))
        sink(batch, number)

    drain(stream, function, tmp_path / "cp")
    back = read(spark, path)
    # Types only: every column of a table that the sink creates is nullable.
    assert back.schema.simpleString() == stream.schema.simpleString()
    assert compact_text(back) == given
    assert len(given) == 2


@IN_ZONES
def test_python_sees_the_same_values_in_utc(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    drain(two_rows(spark, tmp_path / "input"), Sink(path), tmp_path / "cp")
    row: dict[str, Any] = Table.open(path).scan("n = 0").to_arrow().to_pylist()[0]
    moment = dt.datetime(2026, 3, 8, 2, 30, 0, 123456, dt.UTC)
    assert row["a_moment"] == moment
    assert row["an_old_moment"] == dt.datetime(1883, 11, 18, 16, 59, 59, 999999, dt.UTC)
    assert row["a_wall_time"] == moment.replace(tzinfo=None)
    assert row["a_decimal"] == Decimal("-12345678901234567890.123456789")
    assert row["a_struct"] == {"x": 1, "at": dt.datetime(2026, 7, 1, tzinfo=dt.UTC), "inner": {"y": None}}
    assert row["some_structs"] == [{"d": Decimal("1.5")}, None]
    assert dict(row["a_map"]) == {"k": [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)], "none": None}
    nulls: dict[str, Any] = Table.open(path).scan("n = 1").to_arrow().to_pylist()[0]
    assert {name: nulls[name] for name in COLUMNS} == dict.fromkeys(COLUMNS)


@IN_ZONES
def test_partition_values_of_any_type_come_back(spark: SparkSession, tmp_path: Path) -> None:
    names = ["a_date", "a_moment", "a_small_decimal", "a_bool", "an_int", "a_text"]
    path = tmp_path / "table"
    stream = two_rows(spark, tmp_path / "input").select("n", *names)
    drain(stream, Sink(str(path), partition_by=names), tmp_path / "cp")
    # In UTC in the log, so that every engine reads the same moment.
    values = [dict(entry) for entry in Table.open(str(path)).at().files()["partitionValues"].to_pylist()]
    assert {entry["a_moment"] for entry in values} == {"2026-03-08T02:30:00.123456Z", None}
    back = read(spark, path).where("n = 0").selectExpr("a_moment = timestamp'2026-03-08 02:30:00.123456 UTC'", "*")
    (row,) = back.collect()
    assert row[0] is True
    assert (row.a_date, row.a_small_decimal, row.a_bool, row.an_int, row.a_text) == (
        dt.date(1900, 2, 28),
        Decimal("1.50"),
        True,
        70000,
        "ü, '\n",
    )
    (null,) = read(spark, path).where("n = 1").select(*names).collect()
    assert null.asDict() == dict.fromkeys(names)


@pytest.mark.parametrize("writer", ["driver", "spark"])
@pytest.mark.parametrize("time_zone", ["America/New_York"], indirect=True)
def test_wall_times_that_the_clock_skips_are_separate_partitions(
    spark: SparkSession, tmp_path: Path, time_zone: str, writer: str
) -> None:
    """When the clocks go forward, two wall times are one moment, but they are two partition values."""
    assert time_zone
    source = Input(tmp_path / "input").put_table(pa.table({"n": pa.array([2, 3], pa.int64())}))
    wall_time = "if(n = 2, timestamp_ntz'2026-03-08 02:30:00', timestamp_ntz'2026-03-08 03:30:00') as wall_time"
    path = str(tmp_path / "table")
    sink = Sink(path, partition_by=["wall_time"], writer=writer)
    drain(source.stream(spark).selectExpr("n", wall_time), sink, tmp_path / "cp")
    rows = Table.open(path).scan().to_arrow().to_pylist()
    assert {row["n"]: row["wall_time"].hour for row in rows} == {2: 2, 3: 3}


@pytest.mark.parametrize("name", full_but(["a`b"], ["a.b", "a b", "a`b", "A-b"]))
@pytest.mark.parametrize("writer", ["driver", "spark"])
def test_partition_columns_can_have_any_name(spark: SparkSession, tmp_path: Path, name: str, writer: str) -> None:
    source = Input(tmp_path / "input").put_table(pa.table({"n": pa.array([2, 3], pa.int64())}))
    stream = source.stream(spark).selectExpr("n", f"n % 2 as `{name.replace('`', '``')}`")
    for mode in ("append", "overwrite-partitions"):
        path = str(tmp_path / mode)
        sink = Sink(path, mode=mode, partition_by=[name], writer=writer)
        drain(stream, sink, tmp_path / f"cp {mode}")
        rows = Table.open(path).scan().to_arrow().to_pylist()
        assert {row["n"]: row[name] for row in rows} == {2: 0, 3: 1}


LATE = {
    "date": "date_add(date'9999-12-31', cast(n as int))",
    "zoned": "timestamp_micros(253402300799999999 + n)",
    "ntz": "to_timestamp_ntz(to_timestamp_ntz('9999-12-31 00:00:00') + make_dt_interval(cast(n as int)))",
}


@pytest.mark.parametrize("writer", ["driver", "spark"])
@pytest.mark.parametrize("kind", full_but(["zoned"], LATE))
def test_dates_outside_of_pythons_years(spark: SparkSession, tmp_path: Path, writer: str, kind: str) -> None:
    """A column can have them. A partition cannot, and then nothing of the batch is written."""
    source = Input(tmp_path / "input").put_table(pa.table({"n": pa.array([0, 1], pa.int64())}))
    stream = source.stream(spark).selectExpr("n", f"{LATE[kind]} as d")
    path = tmp_path / "table"
    drain(stream, Sink(str(path), writer=writer), tmp_path / "cp")
    back = Table.open(str(path)).scan(f"d > {'TIMESTAMP ' * (kind != 'date')}'9999-12-31'").to_arrow()
    late = pc.cast(back["d"], pa.string()).to_pylist()
    assert [text[:10] for text in late if text.startswith("1")] == ["10000-01-0"], late
    partitioned = Sink(str(tmp_path / "partitioned"), partition_by=["d"], writer=writer)
    error = refused(stream, partitioned, tmp_path / "cp partitioned", SchemaMismatchError)
    assert "'d' has the value 10000-01-01" in str(error)
    assert not list((tmp_path / "partitioned").rglob("*.parquet"))
