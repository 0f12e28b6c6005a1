"""All readers see the rows of files from Spark's own writer, next to files of the driver and compacted with them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from tests.interop.delta_spark import DeltaSpark
from tests.interop.readers import POLARS, assert_same_everywhere
from tests.interop.test_everywhere import KINDS, rows
from tests.streaming.executors.test_frame_files import frame
from tidelog.compaction_daemon import compact
from tidelog.log import Table
from tidelog.streaming.executors.frame_files import write_frame

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.full]


@pytest.mark.parametrize("kind", list(KINDS))
def test_all_readers_see_the_rows(spark: SparkSession, delta: DeltaSpark, tmp_path: Path, kind: str) -> None:
    table = Table.create(str(tmp_path / "table"), rows(0, 1).schema, **KINDS[kind])
    transaction = table.begin()
    adds, count = write_frame(frame(spark, rows(0, 20)), transaction.writer)
    assert count == 20
    assert all(add.path.startswith("data/") for add in adds)
    transaction.stage_adds(adds).commit()
    table.insert(rows(20, 10))
    expected = pa.concat_tables([rows(0, 20), rows(20, 10)])
    assert_same_everywhere(table.path, expected, delta)
    table.delete("n = 7 OR n = 25")
    expected = expected.filter(pc.invert(pc.is_in(expected["n"], pa.array([7, 25]))))
    assert_same_everywhere(table.path, expected, delta, but=POLARS if "part" in table.partition_by else ())
    assert compact(table.path).did_anything
    assert_same_everywhere(table.path, expected, delta)
