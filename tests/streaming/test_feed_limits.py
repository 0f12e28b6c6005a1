"""The limits of a micro-batch, in a real Spark: it knows each by another name. test_feed.py limits files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.lanes import full_but
from tests.log.support import live_files
from tests.streaming.support import NUMBERS, SINCE_LIMITS
from tests.streaming.ways import WAYS, follow
from tidelog.log import Table


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Three files of two rows each, and of about one size."""
    made = Table.create(str(tmp_path_factory.mktemp("limits") / "table"), NUMBERS)
    for n in (1, 3, 5):
        made.insert([{"n": n}, {"n": n + 1}])
    return made.refresh()


@SINCE_LIMITS
@pytest.mark.parametrize("way", full_but(["format"], WAYS))
@pytest.mark.parametrize("limit", ["max_bytes", "max_rows"])
def test_bytes_and_rows(spark: SparkSession, table: Table, tmp_path: Path, way: str, limit: str) -> None:
    """Two of the files fit."""
    most = {"max_bytes": max(file.size for file in live_files(table)) * 2, "max_rows": 5}
    options: dict[str, Any] = {limit: most[limit]}
    batches = follow(spark, way, table, tmp_path / "cp", **options)
    assert batches == [[1, 2, 3, 4], [5, 6]]


@SINCE_LIMITS
@pytest.mark.parametrize("way", full_but(["format"], WAYS))
def test_trigger_once_reads_everything_in_one_micro_batch(
    spark: SparkSession, table: Table, tmp_path: Path, way: str
) -> None:
    limits: dict[str, Any] = {"max_files": 1, "max_bytes": 1, "max_rows": 1}
    assert follow(spark, way, table, tmp_path / "cp", once=True, **limits) == [[1, 2, 3, 4, 5, 6]]
