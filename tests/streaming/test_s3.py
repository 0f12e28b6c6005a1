"""A stream into a table in S3 from a Spark without Hadoop's S3 connector, and the daemon on that table."""

from __future__ import annotations

import uuid
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.log.storage.servers import SECRET, Server
from tests.log.support import Clock, numbers, read_numbers
from tests.streaming.support import (
    NUMBERS,
    Input,
    drain,
    drain_feed,
    forget_last_commit,
    numbers_in,
    refused,
    wait_until,
)
from tidelog.compaction_daemon import Daemon, expire, vacuum
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, PrerequisiteError, TableNotFoundError
from tidelog.log.state.loader import load
from tidelog.log.storage import Store, open_store
from tidelog.log.system import REAL_SYSTEM
from tidelog.streaming import Sink

pytestmark = pytest.mark.spark
DAY_MS = 86_400_000


def store_now_ms(store: Store) -> int:
    path = f"_mine/{uuid.uuid4()}"
    store.put_if_absent(path, b"x")
    return store.modified_ms(path)


def test_a_checkpoint_in_a_store_identifies_the_batches(spark: SparkSession, s3: Server, tmp_path: Path) -> None:
    """Spark writes to a disk here, for it needs a connector; the sink finds a copy of each file in the store."""
    copy, source, checkpoint = s3.store("a checkpoint"), Input(tmp_path / "in").put(2), tmp_path / "cp"
    path = tmp_path / "table"
    outcomes: list[str] = []

    def function(batch: DataFrame, number: int) -> None:
        for file in checkpoint.rglob("[!.]*"):
            if file.is_file():
                copy.replace(str(file.relative_to(checkpoint)), file.read_bytes())
        sink = Sink(str(path), checkpoint=f"{copy.url}/".replace("s3://", "s3a://"), storage_options=s3.options)
        sink(batch, number)
        assert sink.last
        outcomes.append(sink.last.outcome)

    drain(source.stream(spark), function, checkpoint)
    copy.delete("commits/1")
    forget_last_commit(checkpoint)
    drain(source.put().stream(spark), function, checkpoint)
    assert outcomes == ["committed", "committed", "skipped", "committed"]
    forget_last_commit(checkpoint)
    copy.replace("commits/2", b"v1")
    error = refused(source.stream(spark), function, checkpoint, ConfigurationError)
    assert f"{copy.url} is not at batch 2" in error.message
    assert numbers_in(path) == source.numbers


def test_the_driver_writer_a_replay_the_daemon_and_the_feed_work_together(
    spark: SparkSession, s3: Server, tmp_path: Path
) -> None:
    url = s3.store("stream into s3").url
    source, checkpoint = Input(tmp_path / "in").put(3), tmp_path / "writer"
    drain(source.stream(spark), Sink(url, storage_options=s3.options, writer="driver"), checkpoint)
    for name in ("2", ".2.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    skipped: list[bool] = []
    sink = Sink(url, storage_options=s3.options, writer="driver", name="default")

    def again(batch: DataFrame, number: int) -> None:
        fresh = Sink(url, storage_options=s3.options, writer="driver") if number == 2 else sink
        fresh(batch, number)
        assert fresh.last
        skipped.append(fresh.last.skipped)

    drain(source.put().stream(spark), again, checkpoint)
    assert skipped == [True, False]

    options = {f"storageOption.{name}": text for name, text in s3.options.items()}
    batches = drain_feed(spark, url, tmp_path / "follower", **options)
    assert sorted(row.n for batch in batches for row in batch) == source.numbers
    table = Table.open(url, storage_options=s3.options)
    (step,) = Daemon([table]).step().tables
    assert step.error is None
    assert (step.compaction.files_removed, table.refresh().at().num_files) == (4, 1)
    assert read_numbers(table) == source.numbers
    assert drain_feed(spark, url, tmp_path / "follower", **options) == [], "a compaction is not a batch"


def test_without_the_connector_writer_spark_names_the_missing_jar(
    spark: SparkSession, s3: Server, tmp_path: Path
) -> None:
    url = s3.store().url
    source = Input(tmp_path / "in").put()
    sink = Sink(url, storage_options=s3.options, writer="spark")
    error = refused(source.stream(spark), sink, tmp_path / "checkpoint", PrerequisiteError)
    assert "no connector for s3a://bucket/" in str(error)
    assert "spark.jars.packages=org.apache.hadoop:hadoop-aws:3." in error.advice
    assert SECRET not in str(error)
    with pytest.raises(TableNotFoundError):
        Table.open(url, storage_options=s3.options)


def test_without_the_connector_writer_auto_writes_in_python_in_the_tasks(
    spark: SparkSession, s3: Server, tmp_path: Path
) -> None:
    url = s3.store().url
    source = Input(tmp_path / "in").put(2)
    drain(source.stream(spark, max_files=None), Sink(url, storage_options=s3.options), tmp_path / "checkpoint")
    table = Table.open(url, storage_options=s3.options)
    assert read_numbers(table) == source.numbers
    assert not [path for path, _ in table.store.walk("data")], "only Spark's own writer writes there"


def test_expire_and_vacuum_in_an_object_store_delete_what_a_dry_run_lists(s3: Server) -> None:
    store = open_store(s3.store().url, s3.options)
    table = Table.create(store.url, NUMBERS, storage_options=s3.options)
    for number in range(4):
        table.insert(numbers([number, number + 10]))
    table.delete("n = 0")
    (step,) = Daemon([table]).step().tables
    assert step.error is None
    # Files that a killed Spark leaves, and a file of another program.
    killed = "data/01234567-89ab-cdef-0123-456789abcdef/_temporary/0/_temporary/attempt_1/part.parquet"
    for path in (killed, "data/01234567-89ab-cdef-0123-456789abcdef/part.parquet", "_mine/file"):
        store.put_if_absent(path, b"x")
    # The store's clock shows whole seconds, and vacuum deletes what is older than the newest commit.
    wait_until(lambda: store_now_ms(store) > store.modified_ms(killed), "the store's clock has moved on")
    table.insert(numbers([4]))
    table.refresh().checkpoint()
    live = set(table.refresh().at().files()["path"].to_pylist())
    before = {path for path, _ in store.walk()}

    later = Table(store, load(store), Clock(REAL_SYSTEM.now_ms() + 40 * DAY_MS))
    planned = vacuum(later, older_than=timedelta(days=1, hours=1), dry_run=True)
    done = vacuum(later, older_than=timedelta(days=1, hours=1))
    assert done.files == planned.files
    assert done.failed == ()
    assert killed in done.files
    assert done.deletion_vectors == 1
    after = {path for path, _ in store.walk()}
    assert before - after == set(done.files)
    assert live | {"_mine/file"} <= after

    planned_log = expire(later, older_than=timedelta(days=2), dry_run=True)
    log = expire(later, older_than=timedelta(days=2))
    assert log.files == planned_log.files
    assert log.earliest_version == table.version
    assert log.commits == table.version
    assert after - {path for path, _ in store.walk()} == set(log.files)

    again = Table.open(store.url, storage_options=s3.options)
    assert read_numbers(again) == [1, 2, 3, 4, 10, 11, 12, 13]
    assert again.insert(numbers([5])).version == table.version + 3
    assert not expire(later, older_than=timedelta(days=2)).did_anything
    assert not vacuum(later, older_than=timedelta(days=1, hours=1)).did_anything
