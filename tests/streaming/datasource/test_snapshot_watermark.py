"""A snapshot that is read in parts does not go with a watermark: its files are not in the order of the rows' times."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tests.randomness import seed
from tests.streaming.support import JVM_SOURCE, drain, feed
from tidelog.log import Table
from tidelog.streaming import Sink

pytestmark = [pytest.mark.spark, JVM_SOURCE]
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DAYS = (10, 1, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [({}, None), ({"maxFilesPerTrigger": 1}, "the query has a watermark"), ({"maxFilesPerTrigger": 3}, None)],
)
def test_no_row_is_dropped_as_late(
    spark: SparkSession, tmp_path: Path, options: dict[str, str | int], message: str | None
) -> None:
    events = Table.create(str(tmp_path / "events"), pa.schema([("at", pa.timestamp("us", "UTC"))]))
    for day in DAYS:
        events.insert([{"at": START + dt.timedelta(days=day)}])
    stream = feed(spark, events.path, initialSnapshot="true", **options).withWatermark("at", "1 hour")
    days = stream.dropDuplicates(["at"]).select(F.dayofyear("at").alias("day"))
    sink = Sink(str(tmp_path / "days"))
    if message is None:
        drain(days, sink, tmp_path / "cp")
        assert sorted(Table.open(str(tmp_path / "days")).scan().to_arrow()["day"].to_pylist()) == [2, 6, 11]
        return
    with pytest.raises(StreamingQueryException, match=message):
        drain(days, sink, tmp_path / "cp")
    assert not (tmp_path / "days").exists()
    # Without a watermark, parts lose nothing.
    drain(feed(spark, events.path, initialSnapshot="true", **options), sink, tmp_path / "other")
    assert Table.open(str(tmp_path / "days")).scan().count() == len(DAYS)


@pytest.mark.nightly
def test_no_row_of_any_snapshot_is_dropped_as_late(spark: SparkSession, tmp_path: Path) -> None:
    """A query with a watermark has all rows of the snapshot, or it is refused because it would read it in parts."""
    draw = random.Random(seed())
    for number in range(6):
        days = draw.sample(range(1, 300), draw.randint(2, 4))
        events = Table.create(str(tmp_path / f"events {number}"), pa.schema([("at", pa.timestamp("us", "UTC"))]))
        for day in days:
            events.insert([{"at": START + dt.timedelta(days=day - 1)}])
        files = draw.randint(1, len(days) + 1) if number % 3 else None
        options = {} if files is None else {"maxFilesPerTrigger": files}
        stream = feed(spark, events.path, initialSnapshot="true", **options).withWatermark("at", "1 hour")
        found = stream.dropDuplicates(["at"]).select(F.dayofyear("at").alias("day"))
        path, checkpoint = tmp_path / f"days {number}", tmp_path / f"cp {number}"
        if files is not None and files < len(days):
            with pytest.raises(StreamingQueryException, match="the query has a watermark"):
                drain(found, Sink(str(path)), checkpoint)
            assert not path.exists()
        else:
            drain(found, Sink(str(path)), checkpoint)
            assert sorted(Table.open(str(path)).scan().to_arrow()["day"].to_pylist()) == sorted(days), (days, files)


def test_a_watermark_in_another_part_of_the_query_does_not_matter(spark: SparkSession, tmp_path: Path) -> None:
    """Of two feeds of one table the snapshot in parts is the one without a watermark."""
    events = Table.create(str(tmp_path / "events"), pa.schema([("at", pa.timestamp("us", "UTC"))]))
    for day in DAYS:
        events.insert([{"at": START + dt.timedelta(days=day)}])
    in_parts: dict[str, str | int] = {"initialSnapshot": "true", "maxFilesPerTrigger": 1}
    sink = Sink(str(tmp_path / "days"))

    def run(with_watermark: dict[str, str | int], without: dict[str, str | int], checkpoint: str) -> None:
        timed = feed(spark, events.path, **with_watermark).withWatermark("at", "1 hour").dropDuplicates(["at"])
        drain(timed.unionByName(feed(spark, events.path, **without)), sink, tmp_path / checkpoint)

    with pytest.raises(StreamingQueryException, match="the query has a watermark"):
        run(in_parts, {}, "refused")
    run({}, in_parts, "cp")
    found = Table.open(str(tmp_path / "days")).scan().to_arrow()["at"].to_pylist()
    assert sorted(at.day for at in found) == [2, 2, 6, 6, 11, 11]
