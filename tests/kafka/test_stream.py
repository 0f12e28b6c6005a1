"""From a real broker's topic into tables and back: each record once, despite crashes, replays and restores."""

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
from tests.kafka.support import Topic, dead_letters_in, ids_in, into
from tests.streaming.support import drain, footprint, forget_last_commit, refused, restore, wait_until
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
    # A poisoned record did not stop the stream: there are several batches.
    assert Table.open(str(tmp_path / "table")).version > 2


@pytest.mark.full
def test_a_batch_with_only_poisoned_records_commits_nothing_to_the_table(
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
        raise RuntimeError(f"simulated crash at batch {number} of {batch.columns}")

    crashing: Any = crash
    with pytest.raises(StreamingQueryException, match="simulated crash"):
        drain(topic.stream(kafka_spark), replace(into(tmp_path), dead_letters=crashing), tmp_path / "cp")
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


@pytest.mark.full
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


@pytest.mark.full
@pytest.mark.parametrize("batches_since", [1, pytest.param(3, marks=pytest.mark.nightly)])
def test_an_older_copy_of_the_checkpoint_is_refused(
    kafka_spark: SparkSession, topic: Topic, tmp_path: Path, batches_since: int
) -> None:
    """With one batch since, the number is the newest, and only Kafka's offsets show that the rows differ."""
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


@pytest.mark.full
def test_a_deleted_checkpoint_is_refused(kafka_spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    ids = topic.good(4)
    drain(topic.stream(kafka_spark), into(tmp_path), tmp_path / "cp")
    shutil.rmtree(tmp_path / "cp")
    refused(topic.stream(kafka_spark), into(tmp_path), tmp_path / "cp", CheckpointResetError)
    assert ids_in(tmp_path) == ids


@pytest.mark.nightly
def test_a_running_query_survives_a_crash_of_the_broker(
    kafka: Broker, kafka_spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    ids = topic.good(20)
    writer = topic.stream(kafka_spark, per_batch=5).writeStream.foreachBatch(into(tmp_path))
    query = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(processingTime="200 milliseconds").start()
    try:
        wait_until(lambda: len(ids_in(tmp_path)) > 0, "the first batch is committed")
        kafka.crash()
        time.sleep(2)  # long enough for Spark to miss the broker
        kafka.start()
        ids += topic.good(20)
        wait_until(lambda: len(ids_in(tmp_path)) >= len(ids), "all events are committed")
        assert query.isActive
    finally:
        query.stop()
    assert ids_in(tmp_path) == ids


@pytest.mark.full
def test_a_replay_of_changes_to_a_topic_repeats_records_with_the_same_keys(
    kafka: Broker, kafka_spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    back = f"changes-{uuid4()}"
    topics.create(kafka.address, [back], partitions=2)

    def write_back() -> list[str]:
        """Write all changes back; returns the keys in the topic."""
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
    # Without new rows nothing is written.
    assert write_back() == ids
    # A crash between Kafka's acknowledgement and Spark's commit: the batch is written again, under the same keys.
    forget_last_commit(tmp_path / "back")
    assert write_back() == sorted(ids + ids)
    more = topic.good(6)
    drain(topic.stream(kafka_spark), into(tmp_path), tmp_path / "cp")
    assert write_back() == sorted(ids + ids + more)
