"""Spark's workers, which are forked from a daemon, read and write a table in an object store."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.log.storage.servers import SECRET, Server
from tests.log.support import NUMBERS, read_numbers
from tidelog.log import Table
from tidelog.streaming import Sink, table

pytestmark = pytest.mark.spark


@pytest.mark.full
def test_a_stream_to_and_from_an_object_store(spark: SparkSession, s3: Server, tmp_path: Path) -> None:
    url, options = s3.store().url, {f"storageOption.{name}": text for name, text in s3.options.items()}
    spark.range(100).selectExpr("id as n").write.parquet(str(tmp_path / "in"))
    source = spark.readStream.schema("n bigint").parquet(str(tmp_path / "in"))
    writing = source.writeStream.foreachBatch(Sink(url, storage_options=s3.options))
    writing.option("checkpointLocation", str(tmp_path / "writer")).trigger(availableNow=True).start().awaitTermination()
    everything = list(range(100))
    assert read_numbers(Table.open(url, storage_options=s3.options)) == everything

    read = spark.read.format("tidelog").options(**options).load(url)
    assert sorted(row.n for row in read.collect()) == everything

    seen: list[int] = []

    def note(rows: DataFrame, number: int) -> None:
        del number
        seen.extend(row.n for row in rows.collect())

    following = spark.readStream.format("tidelog").options(**options).load(url).writeStream.foreachBatch(note)
    following = following.option("checkpointLocation", str(tmp_path / "follower")).trigger(availableNow=True)
    following.start().awaitTermination()
    assert sorted(seen) == everything

    explained = read._jdf.queryExecution().toString()
    stored = [
        path.read_bytes()
        for folder in ("writer", "follower")
        for path in (tmp_path / folder).rglob("*")
        if path.is_file()
    ]
    assert SECRET not in explained
    assert not [content for content in stored if SECRET.encode() in content]


def test_executors_change_the_rows_of_a_table_in_an_object_store(spark: SparkSession, s3: Server) -> None:
    made = Table.create(s3.store().url, NUMBERS, storage_options=s3.options)
    made.insert([{"n": n} for n in range(100)])
    changed = table(spark, made.path, storage_options=s3.options)
    changed.delete("n >= 50")
    changed.update("n < 10", {"n": "n + 1000"})
    assert read_numbers(made.refresh()) == [*range(10, 50), *range(1000, 1010)]
    changed.overwrite(spark.range(5).selectExpr("id as n"))
    assert read_numbers(made.refresh()) == list(range(5))


@pytest.mark.full
@pytest.mark.parametrize("writer", ["auto", "driver"])
def test_a_stream_into_the_partition_folders_of_a_table(
    writer: str, spark: SparkSession, s3: Server, tmp_path: Path
) -> None:
    """The first batch is one for the executors, where Python in the tasks writes: nothing can be moved there."""
    store, content = s3.store(), io.BytesIO()
    pq.write_table(pa.table({"n": [1000]}), content)
    store.put_if_absent("part=a%2Fb/f.parquet", content.getvalue())
    Table.convert(store.url, partition_by=["part"], storage_options=s3.options)
    spark.range(100).selectExpr("id as n", "if(id % 2 = 0, 'a/b', 'c d') part").write.parquet(str(tmp_path / "in"))
    source = spark.readStream.schema("n bigint, part string").parquet(str(tmp_path / "in"))
    writing = source.writeStream.foreachBatch(Sink(store.url, storage_options=s3.options, writer=writer))
    writing.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start().awaitTermination()
    found = Table.open(store.url, storage_options=s3.options)
    assert read_numbers(found) == [*range(100), 1000]
    folders = {path.rpartition("/")[0] for path, _ in store.walk() if not path.startswith("_")}
    assert folders == {"part=a%2Fb", "part=c d"}
