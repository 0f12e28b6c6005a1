"""A Sink on Spark Connect."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.lanes import full_but
from tests.streaming.capture.envelopes import PLACEHOLDER, Topic, envelope
from tests.streaming.sink.test_sink_types import compact_text, two_rows
from tests.streaming.support import PATIENCE_S, Input, drain, forget_last_commit, numbers_in, started, wait_until
from tidelog.log import Table
from tidelog.streaming import Sink, Sinks, Throttle, capture, observed, read, spark_versions

each_writer = pytest.mark.parametrize("writer", full_but(["spark"], ["driver", "spark"]))


class Noted:
    """A batch function with a Sink, in the process beside the server; it writes the reports into a file."""

    def __init__(self, sink: Sink, file: Path) -> None:
        self.sink = sink
        self.file = file

    def __call__(self, batch: DataFrame, number: int) -> None:
        self.sink(batch, number)
        assert self.sink.last
        with self.file.open("a") as out:
            out.write(self.sink.last.to_json() + "\n")

    @property
    def reports(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()]


@each_writer
def test_each_batch_is_there_once(connect: SparkSession, tmp_path: Path, writer: str) -> None:
    source, path, checkpoint = Input(tmp_path / "in").put(2), tmp_path / "table", tmp_path / "cp"
    noted = Noted(Sink(str(path), checkpoint=str(checkpoint), writer=writer), tmp_path / "reports")
    drain(source.stream(connect), noted, checkpoint)
    forget_last_commit(checkpoint)
    source.put()
    drain(source.stream(connect), noted, checkpoint)
    assert numbers_in(path) == source.numbers
    assert [report["outcome"] for report in noted.reports] == ["committed", "committed", "skipped", "committed"]
    assert {report["writer"] for report in noted.reports} == {writer, None}


@pytest.mark.full
def test_change_records(connect: SparkSession, tmp_path: Path) -> None:
    topic, checkpoint = Topic(tmp_path / "topic"), tmp_path / "cp"
    dead = Sink(str(tmp_path / "dead"), name="dead", checkpoint=str(checkpoint), schema_evolution=True)
    sink = capture.sink(str(tmp_path / "table"), keys=["id"], checkpoint=str(checkpoint), dead_letters=dead)
    topic.put(envelope("c", {"id": 1, "v": "one"}, lsn=5), envelope("c", {"id": 2, "v": "two"}, lsn=6), b"{bad")
    topic.put(envelope("u", {"id": 1, "v": PLACEHOLDER}, lsn=7), envelope("d", before={"id": 2}, lsn=8))
    topic.put(envelope("t", lsn=6), envelope("c", {"id": 3, "v": "three"}, lsn=9))
    topic.put(envelope("d", before={"id": 3}, lsn=10), envelope("c", {"id": 4, "v": PLACEHOLDER}, lsn=10))
    rows = capture.debezium(topic.stream(connect), schema="id BIGINT, v STRING", keys=["id"])
    drain(rows, sink, checkpoint)
    found = Table.open(str(tmp_path / "table")).scan(columns=["id", "v"]).to_arrow().to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [{"id": 1, "v": "one"}, {"id": 4, "v": "three"}]
    assert Table.open(str(tmp_path / "dead")).scan().count() == 1


def sorted_rows(path: Path) -> list[tuple[int, str]]:
    return sorted((row["k"], row["v"]) for row in Table.open(str(path)).scan().to_arrow().to_pylist())


KEYED = "k long, v string, part string, op string"


def keyed(*rows: tuple[int, str, str, str]) -> pa.Table:
    names = ("k", "v", "part", "op")
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])


@pytest.mark.full
@each_writer
def test_an_upsert_with_order_and_deletes(connect: SparkSession, tmp_path: Path, writer: str) -> None:
    source, path, checkpoint = Input(tmp_path / "in"), tmp_path / "table", tmp_path / "cp"
    source.put_table(keyed((1, "a", "x", "u"), (2, "b", "x", "u"), (3, "c", "y", "u")))
    source.put_table(keyed((1, "d", "x", "u"), (1, "e", "x", "u"), (2, "z", "x", "d"), (4, "f", "y", "u")))
    sink = Sink(
        str(path),
        checkpoint=str(checkpoint),
        writer=writer,
        mode="upsert",
        keys=["k"],
        order_by="v",
        delete_where="op = 'd'",
        properties={"delta.enableChangeDataFeed": True},
    )
    drain(source.stream(connect, schema=KEYED), sink, checkpoint)
    assert sorted_rows(path) == [(1, "e"), (3, "c"), (4, "f")]
    changes = Table.open(str(path)).changes(after=1).to_arrow().to_pylist()
    assert sorted((row["k"], row["_change_type"]) for row in changes if row["_commit_version"] > 1) == [
        (1, "update_postimage"),
        (1, "update_preimage"),
        (2, "delete"),
        (4, "insert"),
    ]


@pytest.mark.full
@each_writer
def test_an_overwrite_of_partitions(connect: SparkSession, tmp_path: Path, writer: str) -> None:
    source, path, checkpoint = Input(tmp_path / "in"), tmp_path / "table", tmp_path / "cp"
    source.put_table(keyed((1, "a", "x", "u"), (2, "b", "x", "u"), (3, "c", "y", "u")))
    source.put_table(keyed((5, "d", "x", "u")))
    sink = Sink(
        str(path), checkpoint=str(checkpoint), writer=writer, mode="overwrite-partitions", partition_by=["part"]
    )
    drain(source.stream(connect, schema=KEYED), sink, checkpoint)
    assert sorted_rows(path) == [(3, "c"), (5, "d")]


@pytest.mark.full
def test_a_query_whose_name_was_taken_over_is_fenced(connect: SparkSession, tmp_path: Path) -> None:
    source, path = Input(tmp_path / "in").put(), tmp_path / "table"
    old, new = tmp_path / "old", tmp_path / "new"
    drain(source.stream(connect), Sink(str(path), checkpoint=str(old)), old)
    drain(source.stream(connect), Sink(str(path), checkpoint=str(new), on_reset="adopt"), new)
    text = refusal(source.put().stream(connect), Sink(str(path), checkpoint=str(old)), old)
    assert "TIDELOG_FENCED: another query has taken over sink name 'default'" in text
    assert Table.open(str(path)).version == 2


def refusal(stream: DataFrame, function: Any, checkpoint: Path) -> str:
    with pytest.raises(StreamingQueryException) as raised:
        drain(stream, function, checkpoint)
    return str(raised.value)


def test_without_a_checkpoint_the_error_says_what_to_pass(connect: SparkSession, tmp_path: Path) -> None:
    source, path = Input(tmp_path / "in").put(), tmp_path / "table"
    text = refusal(source.stream(connect), Sink(str(path)), tmp_path / "cp")
    assert "TIDELOG_NOT_IN_STREAM: on Spark Connect a Sink cannot ask Spark for the query's checkpoint; pass" in text
    assert "Sink(path, checkpoint=c) and .option('checkpointLocation', c)" in text
    assert not path.exists()


@pytest.mark.full
def test_a_checkpoint_that_is_not_the_querys_own_is_refused(connect: SparkSession, tmp_path: Path) -> None:
    source, path, other = Input(tmp_path / "in").put(), tmp_path / "table", tmp_path / "other"
    sink = Sink(str(path), checkpoint=str(other))
    assert f"there is no streaming checkpoint at {other}" in refusal(source.stream(connect), sink, tmp_path / "cp")
    drain(source.stream(connect), sink, other)
    source.put()
    text = refusal(source.stream(connect), sink, tmp_path / "cp")
    # Since Spark 4.3 a batch function does not know its query, and the files of the checkpoint speak.
    knows_query = spark_versions.INSTALLED < (4, 3)
    why = "belongs to query" if knows_query else "is not at batch 0, which the Sink was called for"
    assert f"TIDELOG_CONFIGURATION: the streaming checkpoint {other} {why}" in text
    assert numbers_in(path) == list(range(10))


class SideBySide:
    """A batch function that holds its batch until that of the other query has begun, or has ended.

    So the checkpoint that both of them name is in the same batch for both.
    """

    def __init__(self, sink: Sink, own: Path, *, first: bool) -> None:
        self.noted = Noted(sink, own)
        self.first = first

    def __call__(self, batch: DataFrame, number: int) -> None:
        folder = self.noted.file.parent
        try:
            if not self.first:
                wait_until((folder / "committed").exists, "the first query has committed its batch")
            self.noted(batch, number)
        finally:
            (folder / ("committed" if self.first else "called")).touch()
        if self.first:
            wait_until((folder / "called").exists, "the second query has called its sink")


@pytest.mark.full
def test_two_queries_that_name_one_checkpoint_lose_no_rows(connect: SparkSession, tmp_path: Path) -> None:
    first, second, path = Input(tmp_path / "in").put(), Input(tmp_path / "in 2"), tmp_path / "table"
    second.count = 1
    second.put()
    checkpoints = [tmp_path / "cp", tmp_path / "cp 2"]
    sink = Sink(str(path), checkpoint=str(checkpoints[0]))
    queries = []
    for source, checkpoint in zip((first, second), checkpoints, strict=True):
        function = SideBySide(sink, tmp_path / f"reports of {checkpoint.name}", first=source is first)
        writer = source.stream(connect).writeStream.foreachBatch(function).trigger(availableNow=True)
        queries.append(started(writer.option("checkpointLocation", str(checkpoint))))
    assert queries[0].awaitTermination(PATIENCE_S)
    if not Noted(sink, tmp_path / "reports of cp").reports[0]["run_id"]:
        pytest.skip("on this Spark a batch function's session lists no queries")
    with pytest.raises(
        StreamingQueryException, match=r"as version 1, so two queries called a Sink whose checkpoint is .*/cp"
    ):
        queries[1].awaitTermination(PATIENCE_S)
    drain(second.stream(connect), Sink(str(path), name="second", checkpoint=str(checkpoints[1])), checkpoints[1])
    assert numbers_in(path) == list(range(20))


@pytest.mark.full
def test_a_restored_and_a_deleted_checkpoint_are_refused(connect: SparkSession, tmp_path: Path) -> None:
    source, path, checkpoint = Input(tmp_path / "in").put(), tmp_path / "table", tmp_path / "cp"
    sink = Sink(str(path), checkpoint=str(checkpoint))
    drain(source.stream(connect), sink, checkpoint)
    shutil.copytree(checkpoint, tmp_path / "copy")
    drain(source.put().stream(connect), sink, checkpoint)
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "copy", checkpoint)
    # The second file is replaced, so the second batch comes back with other rows.
    (source.folder / "000001.parquet").unlink()
    text = refusal(source.put().stream(connect), sink, checkpoint)
    assert "TIDELOG_CHECKPOINT_RESET: batch 1 of query" in text
    shutil.rmtree(checkpoint)
    assert "belongs to another query" in refusal(source.stream(connect), sink, checkpoint)
    assert numbers_in(path) == list(range(20))


class Compared:
    """Puts batches into a table, and notes them as Spark writes them to JSON, exact in every digit."""

    def __init__(self, sink: Sink, file: Path) -> None:
        self.sink = sink
        self.file = file

    def __call__(self, batch: DataFrame, number: int) -> None:
        self.file.write_text("\n".join(compact_text(batch)))
        self.sink(batch, number)


@each_writer
def test_values_of_every_type_come_back_unchanged(connect: SparkSession, tmp_path: Path, writer: str) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    sink = Sink(str(path), checkpoint=str(checkpoint), writer=writer)
    drain(two_rows(connect, tmp_path / "in"), Compared(sink, tmp_path / "given"), checkpoint)
    assert "\n".join(compact_text(read(connect, str(path)))) == (tmp_path / "given").read_text()


@pytest.mark.full
def test_a_stopped_query_does_not_wait_for_the_throttle(connect: SparkSession, tmp_path: Path) -> None:
    source, path, checkpoint = Input(tmp_path / "in").put(2), tmp_path / "table", tmp_path / "cp"
    drain(source.stream(connect), Sink(str(path), checkpoint=str(checkpoint)), checkpoint)
    sink = Sink(str(path), checkpoint=str(checkpoint), throttle=Throttle(max_debt_files=1, max_delay_s=3600))
    writer = source.put().stream(connect).writeStream.foreachBatch(sink)
    query = started(writer.option("checkpointLocation", str(checkpoint)))
    wait_until((checkpoint / "offsets" / "2").exists, "the batch begins")
    query.stop()
    assert not query.isActive


@pytest.mark.full
def test_figures_about_the_rows_reach_the_client(connect: SparkSession, tmp_path: Path) -> None:
    source, path, checkpoint = Input(tmp_path / "in").put(), tmp_path / "table", tmp_path / "cp"
    stream = observed(source.stream(connect), event_time="n")
    writer = stream.writeStream.foreachBatch(Sink(str(path), checkpoint=str(checkpoint), writer="driver"))
    query = started(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True))
    assert query.awaitTermination(PATIENCE_S)
    progress = query.lastProgress
    assert progress
    figures = progress.observedMetrics["tidelog"]
    # On Spark Connect, 4.2 gives the values without their names.
    assert figures["values"] == [10, 0, 9]


@pytest.mark.full
def test_a_table_in_memory_is_refused(connect: SparkSession, tmp_path: Path) -> None:
    sink = Sink("memory://table", checkpoint=str(tmp_path / "cp"))
    text = refusal(Input(tmp_path / "in").put().stream(connect), sink, tmp_path / "cp")
    assert "TIDELOG_CONFIGURATION: memory://table is in this process's memory" in text


@pytest.mark.full
def test_many_tables_and_one_that_fails(connect: SparkSession, tmp_path: Path) -> None:
    """The batch function's process is another one, so the tables say what happened."""
    source, base, checkpoint = Input(tmp_path / "in"), tmp_path / "tables", tmp_path / "cp"

    def make(name: str) -> Sink:
        return Sink(str(base / name), checkpoint=str(checkpoint))

    def put(*records: tuple[str, int]) -> None:
        source.put_table(pa.Table.from_pylist([{"topic": topic, "n": number} for topic, number in records]))

    put(("a", 1), ("../b", 2))
    put(("c", 3), ("a", 4))
    sinks = Sinks(make, parked=str(base / "_parked"), checkpoint=str(checkpoint))
    drain(source.stream(connect, schema="topic string, n long"), sinks, checkpoint)
    forget_last_commit(checkpoint)
    drain(source.stream(connect, schema="topic string, n long"), sinks, checkpoint)
    assert (numbers_in(base / "a"), numbers_in(base / "c"), numbers_in(base / "_parked")) == ([1, 4], [3], [2])
    assert sinks.replay(connect).keys() == {"../b"}
