"""`lookup`: what a frame gets from a table, by keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, SchemaMismatchError, TableNotFoundError
from tidelog.streaming import lookup

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("name", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("seen", pa.timestamp("us", "UTC")),
    ]
)


def rows(*numbers: int, part: str = "a") -> list[dict[str, Any]]:
    return [{"id": n, "part": part, "name": f"n{n}", "tags": [str(n)], "seen": None} for n in numbers]


@pytest.fixture(params=["true", "false"])
def customers(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    properties = {"tidelog.primaryKey": "id", "tidelog.keyIndex": request.param}
    made = Table.create(str(tmp_path / "customers"), SCHEMA, partition_by=["part"], properties=properties)
    made.insert(rows(*range(10)))
    made.insert(rows(*range(10, 20), part="b"))
    made.delete("id = 4")
    made.upsert([{**rows(5)[0], "name": "five"}])
    return made


def frame(spark: SparkSession, *numbers: int | None) -> DataFrame:
    return spark.createDataFrame([(n, place) for place, n in enumerate(numbers)], "id long, `a.place` int")


def found(enriched: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in enriched.collect()), key=lambda row: row[1])


@pytest.mark.oldest
def test_rows_get_the_columns_of_their_key(spark: SparkSession, customers: Table) -> None:
    batch = frame(spark, 5, 99, None, 12, 5, 4)
    enriched = lookup(spark, batch, customers.path, on=["id"], columns=["name", "tags"])
    assert enriched.columns == ["id", "a.place", "name", "tags"]
    customers.delete("id = 12")  # later commits do not show
    assert found(enriched) == [
        (5, 0, "five", ["5"]),
        (99, 1, None, None),
        (None, 2, None, None),
        (12, 3, "n12", ["12"]),
        (5, 4, "five", ["5"]),
        (4, 5, None, None),
    ]
    inner = lookup(spark, batch, customers.path, on=["id"], columns=["name"], how="inner")
    assert [row[1:] for row in found(inner)] == [(0, "five"), (4, "five")]


def test_all_other_columns_and_every_row_of_a_key(spark: SparkSession, customers: Table) -> None:
    customers.insert(rows(7, part="c"))
    batch = frame(spark, 7, 8)
    enriched = lookup(spark, batch, customers.path, on=["id"])
    assert enriched.columns == ["id", "a.place", "part", "name", "tags", "seen"]
    assert sorted((row["id"], row["part"]) for row in enriched.collect()) == [(7, "a"), (7, "c"), (8, "a")]
    by_both = lookup(spark, batch.withColumn("part", F.lit("c")), customers.path, on=["part", "id"], columns=["name"])
    assert sorted((row["id"], row["name"]) for row in by_both.collect()) == [(7, "n7"), (8, None)]


def test_many_rows_in_many_tasks(spark: SparkSession, customers: Table) -> None:
    batch = spark.range(0, 40_000, 1, 3).selectExpr("id % 25 AS id", "id AS place")
    enriched = lookup(spark, batch, customers.path, on=["id"], columns=["name"])
    counts: dict[Any, int] = {row["name"]: row["count"] for row in enriched.groupBy("name").count().collect()}
    found_once: dict[Any, int] = {f"n{n}": 1600 for n in range(20) if n not in {4, 5}}
    assert counts == {None: 6 * 1600, "five": 1600, **found_once}


def test_keys_are_cast_to_the_tables_type_or_refused(spark: SparkSession, customers: Table) -> None:
    small = frame(spark, 5).selectExpr("cast(id AS int) AS id", "1 AS one")
    assert [row["name"] for row in lookup(spark, small, customers.path, on=["id"], columns=["name"]).collect()] == [
        "five"
    ]
    texts = frame(spark, 5).selectExpr("'five' AS id")
    with pytest.raises(PySparkException, match="TIDELOG_SCHEMA_MISMATCH"):
        lookup(spark, texts, customers.path, on=["id"], columns=["name"]).collect()


@pytest.mark.full
def test_a_frame_with_two_columns_of_one_name(spark: SparkSession, customers: Table) -> None:
    batch = frame(spark, 5, 6).selectExpr("id", "1 AS other", "2 AS other")
    enriched = lookup(spark, batch, customers.path, on=["id"], columns=["name"])
    assert enriched.columns == ["id", "other", "other", "name"]
    assert sorted(tuple(row) for row in enriched.collect()) == [(5, 1, 2, "five"), (6, 1, 2, "n6")]
    with pytest.raises(ConfigurationError, match="the frame has several columns 'id'"):
        lookup(spark, frame(spark, 5).selectExpr("id", "id"), customers.path, on=["id"])


def test_an_empty_frame_and_an_empty_table(spark: SparkSession, customers: Table) -> None:
    assert lookup(spark, frame(spark, 5).where("false"), customers.path, on=["id"]).collect() == []
    customers.truncate()
    assert found(lookup(spark, frame(spark, 5), customers.path, on=["id"], columns=["name"])) == [(5, 0, None)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on": ["missing"]}, "there is no key column 'missing'"),
        ({"on": ["name"]}, "the frame has no column 'name'"),
        ({"on": []}, "no keys are given"),
        ({"on": ["id"], "how": "outer"}, "how='outer' is not known"),
        ({"on": ["id"], "columns": ["id"]}, "the frame and the table both have a column 'id'"),
        ({"on": ["id"], "columns": ["missing"]}, "missing"),
        ({"on": ["id"], "columns": ["name", "name"]}, "twice"),
        ({"on": ["id"], "columns": "name"}, "not a string"),
    ],
)
def test_wrong_arguments(spark: SparkSession, customers: Table, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        lookup(spark, frame(spark, 1), customers.path, **arguments)


def test_what_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        lookup(spark, frame(spark, 1), str(tmp_path / "missing"), on=["id"])
    not_a_frame: Any = [{"id": 1}]
    with pytest.raises(SchemaMismatchError):
        lookup(spark, not_a_frame, str(tmp_path / "missing"), on=["id"])
