"""How a sink finds out which micro-batch it is called for, and what it says if it cannot."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

from tests.streaming.support import Input, drain, numbers_in
from tidelog.log.errors import NotInStreamError
from tidelog.log.storage.local import LocalStore
from tidelog.streaming import Sink
from tidelog.streaming.sink.batch_identity import Identifier, StreamingCheckpoint, run_of
from tidelog.streaming.sink.micro_batch import MicroBatch, fingerprint

pytestmark = pytest.mark.spark


def test_a_sink_called_outside_a_stream_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotInStreamError) as caught:
        Sink(str(tmp_path / "table"))(spark.range(3).toDF("n"), 0)
    assert "outside a streaming query's own thread; use it as df.writeStream.foreachBatch(" in str(caught.value)
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize("kind", [Thread, InheritableThread])
def test_a_thread_that_the_batch_function_starts_must_be_inheritable(
    spark: SparkSession, tmp_path: Path, kind: type[Thread]
) -> None:
    path, source = tmp_path / "table", Input(tmp_path / "input")
    errors: list[Exception] = []

    def in_a_thread(batch: DataFrame, number: int) -> None:
        def call() -> None:
            try:
                Sink(str(path))(batch, number)
            except NotInStreamError as error:
                errors.append(error)

        thread = kind(target=call)
        thread.start()
        thread.join()

    drain(source.put().stream(spark), in_a_thread, tmp_path / "cp")
    if kind is InheritableThread:
        assert errors == []
        assert numbers_in(path) == source.numbers
    else:
        (error,) = errors
        assert "a thread that you start yourself must be a pyspark.InheritableThread" in str(error)
        assert not path.exists()


def test_the_internal_call_that_finds_the_checkpoint_works(spark: SparkSession, tmp_path: Path) -> None:
    """A pin: if this fails on a new Spark, `identity.java_query` must learn where the call has moved to."""
    checkpoint = tmp_path / "cp"
    roots: list[str] = []
    batches: list[MicroBatch] = []
    named = Identifier(StreamingCheckpoint.of_store(LocalStore(str(checkpoint))))

    def function(batch: DataFrame, number: int) -> None:
        session = batch.sparkSession
        query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query_id
        roots.append(run_of(session, query_id).checkpoint)
        batches.append(Identifier(None).identify(batch, number))
        assert named.identify(batch, number) == batches[-1]

    # The offsets of this source determine its rows, so they alone make the fingerprint.
    generated = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    drain(generated, function, checkpoint)
    (root,), (batch,) = roots, batches
    assert root.removeprefix("file:").replace("//", "") == str(checkpoint)
    assert f'"id":"{batch.query_id}"' in (checkpoint / "metadata").read_text()
    assert batch.fingerprint == fingerprint((checkpoint / "offsets" / "0").read_text(), lambda *_: "")
    assert batch.run_id
    assert batch.run_id != batch.query_id


def test_a_checkpoint_is_read_through_hadoop_as_from_the_disk(spark: SparkSession, tmp_path: Path) -> None:
    drain(Input(tmp_path / "in").put().stream(spark), lambda *_: None, tmp_path / "cp")
    (tmp_path / "cp" / "sources" / "0").rename(tmp_path / "cp" / "sources" / "named")
    disk = StreamingCheckpoint.of_session(spark, f"file:{tmp_path}/cp")
    hadoop = StreamingCheckpoint.of_session(spark, f"FILE:{tmp_path}/cp")  # Hadoop's, because only it knows this name
    for checkpoint in (disk, hadoop):
        assert checkpoint.query_id() == disk.query_id()
        assert checkpoint.has("offsets/0")
        assert not checkpoint.has("offsets/1")
        assert "000000.parquet" in checkpoint.file_source_batch("0", 0)
        assert not checkpoint.file_source_batch("0", 1)
        assert not checkpoint.file_source_batch("other", 0)


def test_a_spark_without_the_internal_call_is_refused(spark: SparkSession) -> None:
    class WithoutTheCall:
        def sharedState(self) -> Any:  # noqa: N802 - Spark's name
            raise Py4JError("Method sharedState([]) does not exist")

    session = cast("SparkSession", SimpleNamespace(_jsparkSession=WithoutTheCall(), _jvm=spark._jvm))
    with pytest.raises(NotInStreamError) as caught:
        run_of(session, "00000000-0000-0000-0000-000000000001")
    assert "this Spark lacks the internal call that tidelog uses; pass the checkpoint's location to the Sink" in str(
        caught.value
    )


def test_an_unknown_query_is_refused(spark: SparkSession) -> None:
    with pytest.raises(NotInStreamError, match="cannot find the checkpoint of streaming query"):
        run_of(spark, "00000000-0000-0000-0000-000000000001")
