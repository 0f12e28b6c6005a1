"""Frames with variants are written by the sink, on both paths, and by `table(...)`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.log.test_variants import ONE, TEXT, variant_table
from tests.streaming.support import Input, drain
from tidelog.log import Table
from tidelog.log.storage import open_store
from tidelog.streaming import Sink, table

pytestmark = pytest.mark.spark

ROWS: list[dict[str, Any]] = [
    {"n": 1, "v": ONE, "s": {"i": ONE}, "l": [ONE, None], "m": [("a", ONE)]},
    {"n": 2, "v": None, "s": {"i": None}, "l": [None, None], "m": [("a", None)]},
    {"n": 3, "v": TEXT, "s": {"i": TEXT}, "l": [TEXT, None], "m": [("a", TEXT)]},
]


def texts() -> pa.Table:
    return pa.table({"n": [1, 2, 3], "t": ["1", None, '"a"']}, pa.schema([("n", pa.int64()), ("t", pa.string())]))


def parsed(frame: DataFrame) -> DataFrame:
    return frame.selectExpr(
        "n",
        "parse_json(t) AS v",
        "named_struct('i', parse_json(t)) AS s",
        "array(parse_json(t), NULL) AS l",
        "map('a', parse_json(t)) AS m",
    )


def rows_of(path: str) -> list[dict[str, Any]]:
    return sorted(Table.open(path).scan().to_arrow().to_pylist(), key=lambda row: int(row["n"]))


@pytest.mark.parametrize("writer", ["driver", "spark"])
def test_a_sink_takes_variants(spark: SparkSession, tmp_path: Path, writer: str) -> None:
    made = variant_table(open_store(str(tmp_path / "table")))
    source = Input(tmp_path / "input").put_table(texts())
    sink = Sink(made.path, writer=writer)

    def function(batch: DataFrame, number: int) -> None:
        sink(parsed(batch), number)

    drain(source.stream(spark, schema="n long, t string"), function, tmp_path / "cp")
    assert rows_of(made.path) == ROWS


@pytest.mark.full
def test_executors_change_rows_with_variants(spark: SparkSession, tmp_path: Path) -> None:
    made = variant_table(open_store(str(tmp_path / "table")))
    changed = table(spark, made.path)
    frame = parsed(spark.createDataFrame(texts().to_pylist(), "n long, t string"))
    changed.upsert(frame, keys=["n"])
    changed.update("n = 1", {"n": "10"})
    changed.upsert(frame.where("n = 1"), keys=["n"])
    changed.compact("major", cluster_by=["n"])
    assert rows_of(made.path) == [*ROWS, {**ROWS[0], "n": 10}]
