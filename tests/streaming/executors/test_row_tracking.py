"""Row ids are kept by what Spark's executors and the sink do, too."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.log.row_tracking import TRACKING, ids, mark, tracked_table
from tests.streaming.support import Input, drain
from tidelog.log import Table
from tidelog.log.storage import open_store
from tidelog.streaming import Sink, table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("one_file_a_task")]

ROWS = "n long, v long"


def filled(path: Path) -> Table:
    made = tracked_table(open_store(str(path)), properties={**TRACKING, "delta.enableChangeDataFeed": "true"})
    for start in range(3):
        made.insert([{"n": n, "v": 0} for n in range(start, 30, 3)])
    return made


def frame(spark: SparkSession, *numbers: int) -> DataFrame:
    return spark.createDataFrame([(n, 1) for n in numbers], ROWS).repartition(2)


def files_on_disk(path: Path) -> set[str]:
    return {file.name for file in path.glob("??/part-*.parquet")}


def test_row_changes_and_compactions_on_executors(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "table"
    made, changed = filled(path), table(spark, str(path))
    before = ids(made)
    changed.upsert(frame(spark, 3, 4, 50), keys=["n"])
    expected = {**before, 3: (before[3][0], 4), 4: (before[4][0], 4)}
    found = ids(made)
    assert found.pop(50)[0] > 29
    assert found == expected
    live = {Path(add["path"]).name for add in made.refresh().at().files().select(["path"]).to_pylist()}
    assert files_on_disk(path) == live, "the files without ids are gone"
    changed.update("n < 2", {"v": "7"})
    changed.delete("n IN (5, 50)")
    expected |= {0: (before[0][0], 5), 1: (before[1][0], 5)}
    del expected[5]
    assert ids(made) == expected
    changed.compact("major", cluster_by=["v", "n"])
    assert ids(made) == expected
    highest = mark(made)
    changed.overwrite(frame(spark, 1, 2))
    assert {row_id for row_id, _ in ids(made).values()} == {highest + 1, highest + 2}


@pytest.mark.full
def test_an_upsert_with_an_order(spark: SparkSession, tmp_path: Path) -> None:
    made = filled(tmp_path / "table")
    before = ids(made)
    made.update("n = 4", {"v": "9"})
    expected = ids(made)
    table(spark, made.path).upsert(frame(spark, 3, 4, 50), keys=["n"], order_by="v")
    found = ids(made)
    assert found.pop(50)[0] > 29
    assert found == {**expected, 3: (before[3][0], 5)}


@pytest.mark.parametrize("writer", ["driver", "spark"])
def test_a_sink_that_upserts(spark: SparkSession, tmp_path: Path, writer: str) -> None:
    made = filled(tmp_path / "table")
    before = ids(made)
    source = Input(tmp_path / "input")
    sink = Sink(made.path, mode="upsert", keys=["n"], writer=writer)
    source.put_table(pa.table({"n": [3, 70], "v": [1, 1]}, made.schema))
    drain(source.stream(spark, schema=ROWS), sink, tmp_path / "cp")
    found = ids(made)
    assert found.pop(70)[0] > 29
    assert found == {**before, 3: (before[3][0], 4)}
