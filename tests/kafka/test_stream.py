"""From a real broker's topic into tables and back: each record once, with crashes, replays and restored checkpoints."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from examples.kafka import topics
from examples.kafka.broker import Broker
from examples.kafka.events import POISONS
from examples.kafka.pipeline import back_into_topic
from tests.kafka.support import Topic, dead_letters_in, forget_last_commit, ids_in, into, restore
from tests.streaming.support import drain, footprint, refused, wait_until
from tidelog.log import Table
from tidelog.log.errors import CheckpointResetError

pytestmark = pytest.mark.spark


def test_each_record_goes_to_one_of_the_two_tables(kafka_spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    ids: list[str] = []
    places = {}
    for kind in POISONS:
        ids += topic.good(2)
        places[kind] = topic.poison(kind)
    drain(topic.stream(kafka_spark, per_batch=10), into(tmp_path), tmp_path / "cp")
    assert ids_in(tmp_path) == ids
    letters = {(row["partition"], row["offset"]): row for row in dead_letters_in(tmp_path)}
    assert len(letters) == len(POISONS)
    for kind, place in places.items():
        row = letters[place.partition, place.offset]
        assert (row["topic"], row["key"], row["payload"]) == (topic.name, place.key, place.value), kind
        assert row["error"] == POISONS[kind].error
        assert row["timestamp"] is not None
    # The stream went on: there were batches after the first with a poisoned record.
    assert Table.open(str(tmp_path / "table")).version > 2


def test_a_batch_of_poisoned_records_only_commits_nothing_to_the_table(
    kafka_spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.good(2)
    drain(topic.stream(kafka_spark), into(tmp_path), tmp_path / "cp")
    version = Table.open(str(tmp_path / "table")).version
    topic.poison("tombstone")
    drain(topic.stream(kafka_spark), into(tmp_path), tmp_path / "cp")
    assert Table.open(str(tmp_path / "table")).version == version
    assert len(dead_letters_in(tmp_path)) == 1


def test_a_crash_between_the_two_commits_leaves_each_record_once(
    kafka_spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    ids = topic.good(4)
    topic.poison("cut in half")

    def crash(batch: DataFrame, number: int) -> None:
        del batch, number
        raise RuntimeError("the machine is gone")

    class Gone:
        def __call__(self, batch: DataFrame, number: int) -> None:
            crash(batch, number)

    gone: Any = Gone()
    with pytest.raises(StreamingQueryException, match="the machine is gone"):
        drain(topic.stream(kafka_spark), replace(into(tmp_path), dead_letters=gone), tmp_path / "cp")
    assert ids_in(tmp_path) == ids
    assert dead_letters_in(tmp_path) == []
    again = into(tmp_path)
    drain(topic.stream(kafka_spark), again, tmp_path / "cp")
    assert ids_in(tmp_path) == ids
    assert len(dead_letters_in(tmp_path)) == 1
    assert again.table.last is not None
    assert again.table.last.skipped
    assert again.dead_letters.last is not None
    assert not again.dead_letters.last.skipped


def test_a_replayed_batch_is_skipped_by_both_sinks(kafka_spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    ids: list[str] = []
    for _ in range(3):
        ids += topic.good(4)
        topic.poison("a list")
        drain(topic.stream(kafka_spark), into(tmp_path), tmp_path / "cp")
        forget_last_commit(tmp_path / "cp")
    drain(topic.stream(kafka_spark), into(tmp_path), tmp_path / "cp")
    assert ids_in(tmp_path) == ids
    assert len(dead_letters_in(tmp_path)) == 3


@pytest.mark.parametrize("batches_since", [1, 3])
def test_an_older_copy_of_the_checkpoint_is_refused(
    kafka_spark: SparkSession, topic: Topic, tmp_path: Path, batches_since: int
) -> None:
    """With one batch since, the number is the newest and only Kafka's offsets tell that the rows are others."""
    checkpoint, copy = tmp_path / "cp", tmp_path / "copy"
    topic.good(4)
    drain(topic.stream(kafka_spark), into(tmp_path), checkpoint)
    shutil.copytree(checkpoint, copy)
    for _ in range(batches_since):
        topic.good(4)
        drain(topic.stream(kafka_spark), into(tmp_path), checkpoint)
    before = footprint(tmp_path / "table")
    restore(checkpoint, copy)
    topic.good(2)
    error = refused(topic.stream(kafka_spark), into(tmp_path), checkpoint, CheckpointResetError)
    assert "with other source offsets" in str(error)
    assert footprint(tmp_path / "table") == before


def test_a_deleted_checkpoint_is_refused(kafka_spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    ids = topic.good(4)
    drain(topic.stream(kafka_spark), into(tmp_path), tmp_path / "cp")
    shutil.rmtree(tmp_path / "cp")
    refused(topic.stream(kafka_spark), into(tmp_path), tmp_path / "cp", CheckpointResetError)
    assert ids_in(tmp_path) == ids


def test_a_running_query_outlives_a_crash_of_the_broker(
    kafka: Broker, kafka_spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    ids = topic.good(20)
    writer = topic.stream(kafka_spark, per_batch=5).writeStream.foreachBatch(into(tmp_path))
    query = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(processingTime="200 milliseconds").start()
    try:
        wait_until(lambda: len(ids_in(tmp_path)) > 0, "the first batch is there")
        kafka.crash()
        time.sleep(2)
        kafka.start()
        ids += topic.good(20)
        wait_until(lambda: len(ids_in(tmp_path)) >= len(ids), "all events are there")
        assert query.isActive
    finally:
        query.stop()
    assert ids_in(tmp_path) == ids


def test_changes_go_back_to_a_topic_where_a_replay_repeats_records_but_no_keys(
    kafka: Broker, kafka_spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    back = f"changes-{uuid4()}"
    topics.create(kafka.address, [back], partitions=2)

    def write_back() -> list[str]:
        """The keys on the topic after the consumer has seen all."""
        query = (
            back_into_topic(kafka_spark, tmp_path / "table", kafka.address, back)
            .option("checkpointLocation", str(tmp_path / "back"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return sorted(record.key.decode() for record in topics.read(kafka.address, back, partitions=2))

    ids = topic.good(6)
    drain(topic.stream(kafka_spark), into(tmp_path), tmp_path / "cp")
    assert write_back() == ids
    # Nothing new, nothing written.
    assert write_back() == ids
    # A crash between Kafka's acknowledgement and Spark's commit: the batch is written again, under the same keys.
    forget_last_commit(tmp_path / "back")
    assert write_back() == sorted(ids + ids)
    more = topic.good(6)
    drain(topic.stream(kafka_spark), into(tmp_path), tmp_path / "cp")
    assert write_back() == sorted(ids + ids + more)
