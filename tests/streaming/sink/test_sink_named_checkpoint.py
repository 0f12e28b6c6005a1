"""A Sink with `checkpoint=` in a classic session: the files of the checkpoint identify its batches."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.streaming.sink.support import Reports
from tests.streaming.support import Input, drain, forget_last_commit, numbers_in, refused, restore
from tidelog.log.errors import CheckpointResetError, ConfigurationError, NotInStreamError, StoreNotSupportedError
from tidelog.log.state.background_checkpoint import BackgroundCheckpoint
from tidelog.log.storage.local import LocalStore
from tidelog.streaming import BatchReport, Sink, Throttle
from tidelog.streaming.executors import session
from tidelog.streaming.sink import batch, batch_identity
from tidelog.streaming.sink.batch_identity import Identifier, StreamingCheckpoint

pytestmark = pytest.mark.spark


@pytest.fixture
def no_internals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark that keeps the query's checkpoint to itself."""

    def refuse(*_: object) -> Any:
        raise NotInStreamError("this Spark lacks the internal call", advice="pass the checkpoint's location")

    monkeypatch.setattr(batch_identity.known_runs, "of", refuse)


@pytest.mark.usefixtures("no_internals")
def test_a_replayed_batch_is_skipped_and_a_restored_checkpoint_refused(spark: SparkSession, tmp_path: Path) -> None:
    source, path, checkpoint = Input(tmp_path / "in").put(2), tmp_path / "table", tmp_path / "cp"
    reports = Reports(Sink(str(path), checkpoint=f"file://{checkpoint}"))
    drain(source.stream(spark), reports, checkpoint)
    shutil.copytree(checkpoint, tmp_path / "copy")
    forget_last_commit(checkpoint)
    drain(source.put().stream(spark), reports, checkpoint)
    assert numbers_in(path) == source.numbers
    assert [report.outcome for report in reports.all] == ["committed", "committed", "skipped", "committed"]
    ids = {(report.query_id, report.run_id) for report in reports.all}
    assert len(ids) == 2
    assert all(len(text) == 36 for found in ids for text in found)
    restore(checkpoint, tmp_path / "copy")
    (source.folder / "000002.parquet").unlink()
    refused(source.put().stream(spark), Sink(str(path), checkpoint=str(checkpoint)), checkpoint, CheckpointResetError)


def test_a_checkpoint_of_another_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    source, path, other = Input(tmp_path / "in").put(), tmp_path / "table", tmp_path / "other"
    sink = Sink(str(path), checkpoint=str(other))
    error = refused(source.stream(spark), sink, tmp_path / "cp", ConfigurationError)
    assert error.message == f"there is no streaming checkpoint at {other}"
    drain(source.stream(spark), lambda *_: None, other)
    error = refused(source.stream(spark), sink, tmp_path / "cp", ConfigurationError)
    assert f"the streaming checkpoint {other} belongs to query" in error.message
    (other / "metadata").write_text("{}")
    error = refused(source.stream(spark), Sink(str(path), checkpoint=str(other)), tmp_path / "cp", ConfigurationError)
    assert "does not name a query" in error.message
    (other / "metadata").unlink()
    (other / "metadata").mkdir()
    error = refused(source.stream(spark), Sink(str(path), checkpoint=str(other)), tmp_path / "cp", ConfigurationError)
    assert "does not name a query" in error.message
    assert not path.exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda cp: (cp / "offsets" / "1").unlink(), "has no offsets/1"),
        pytest.param(
            lambda cp: (cp / "commits" / "1").write_text("v1\n{}"),
            "has commits/1, so Spark has completed",
            marks=pytest.mark.full,
        ),
        pytest.param(
            lambda cp: (cp / "offsets" / "2").write_text("v1\n{}"),
            "has offsets/2, so it is at a later batch",
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_checkpoint_that_is_not_at_the_batch_is_refused(
    spark: SparkSession, tmp_path: Path, change: Any, reason: str
) -> None:
    source, path, checkpoint, copy = Input(tmp_path / "in").put(), *(tmp_path / name for name in ("table", "cp", "old"))
    drain(source.stream(spark), Sink(str(path), checkpoint=str(checkpoint)), checkpoint)
    sink = Sink(str(path), checkpoint=str(copy))

    def function(batch: DataFrame, number: int) -> None:
        # As a copy of the checkpoint that Spark does not use any more: the query is the same.
        shutil.copytree(checkpoint, copy)
        change(copy)
        sink(batch, number)

    error = refused(source.put().stream(spark), function, checkpoint, ConfigurationError)
    assert f"{copy} is not at batch 1, which the Sink was called for: it {reason}" in error.message
    assert numbers_in(path) == list(range(10))


def test_a_replay_is_skipped_though_the_function_names_its_job_group(spark: SparkSession, tmp_path: Path) -> None:
    source, path, checkpoint = Input(tmp_path / "in").put(), tmp_path / "table", tmp_path / "cp"
    reports = Reports(Sink(str(path), checkpoint=str(checkpoint)))
    failures = [RuntimeError("after the sink")]

    def function(batch: DataFrame, number: int) -> None:
        batch.sparkSession.sparkContext.setJobGroup("mine", "jobs of this function")
        reports(batch, number)
        if failures:
            raise failures.pop()

    with pytest.raises(StreamingQueryException, match="after the sink"):
        drain(source.stream(spark), function, checkpoint)
    drain(source.stream(spark), function, checkpoint)
    assert [report.outcome for report in reports.all] == ["committed", "skipped"]
    assert len({report.run_id for report in reports.all}) == 2
    assert numbers_in(path) == source.numbers


def test_offsets_that_were_cut_short_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    source, path, checkpoint = Input(tmp_path / "in").put(), tmp_path / "table", tmp_path / "cp"
    sink = Sink(str(path), checkpoint=str(checkpoint))

    def function(batch: DataFrame, number: int) -> None:
        (checkpoint / "offsets" / "0").write_text("v1\n{}")
        sink(batch, number)

    error = refused(source.stream(spark), function, checkpoint, ConfigurationError)
    assert error.message == f"offsets/0 of the streaming checkpoint {checkpoint} is damaged: it lists no sources"
    assert not path.exists()


def test_a_call_outside_the_stream_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotInStreamError, match="outside a streaming query's own thread"):
        Sink(str(tmp_path / "table"), checkpoint=str(tmp_path / "cp"))(spark.range(3).toDF("n"), 0)


@pytest.mark.parametrize(
    ("location", "kind", "text"),
    [
        ("cp", ConfigurationError, "is a relative path"),
        ("", ConfigurationError, "names no table"),
        ("memory://cp", ConfigurationError, "in this process's memory"),
        ("hdfs://host/cp", StoreNotSupportedError, "'hdfs' is not a supported store"),
    ],
)
def test_locations_that_it_cannot_read_are_refused_at_once(
    tmp_path: Path, location: str, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        Sink(str(tmp_path / "table"), checkpoint=location)


def test_a_sink_is_picklable_and_begins_anew(spark: SparkSession, tmp_path: Path) -> None:
    source, path, checkpoint = Input(tmp_path / "in").put(), tmp_path / "table", tmp_path / "cp"
    sink = Sink(str(path), checkpoint=str(checkpoint), name="n", throttle=Throttle(max_delay_s=0), properties={"a": 1})
    drain(source.stream(spark), sink, checkpoint)
    copied = Reports(pickle.loads(pickle.dumps(sink)))
    assert copied.sink.last is None
    drain(source.put().stream(spark), copied, checkpoint)
    assert [(report.sink, report.batch_id) for report in copied.all] == [("n", 1)]
    assert numbers_in(path) == source.numbers


class Interrupted:
    """A batch function that calls sinks until one succeeds; the first attempts fail after the commit."""

    def __init__(self, attempts: list[Callable[[], Sink]], patched: pytest.MonkeyPatch) -> None:
        self.attempts = attempts
        self.errors: list[Exception] = []
        self.last: BatchReport | None = None
        # As on Spark Connect, where the files alone say which batch it is.
        patched.setattr(batch, "is_connect", lambda _: True)

    def __call__(self, frame: DataFrame, number: int) -> None:
        *failing, last = self.attempts
        for attempt in failing:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(BackgroundCheckpoint, "committed", self._fail)
                with pytest.raises(RuntimeError, match="after the commit"):
                    attempt()(frame, number)
        sink = last()
        try:
            sink(frame, number)
        except ConfigurationError as error:
            self.errors.append(error)
        self.last = sink.last

    @staticmethod
    def _fail(*_: object) -> None:
        raise RuntimeError("after the commit")


def test_a_function_can_try_again_after_a_commit_that_it_does_not_know_of(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, path, checkpoint = Input(tmp_path / "in").put(), tmp_path / "table", tmp_path / "cp"
    sink = partial(Sink, str(path), checkpoint=str(checkpoint))
    function = Interrupted([sink, sink], monkeypatch)
    drain(source.stream(spark), function, checkpoint)
    assert function.last
    assert function.last.outcome == "skipped"
    assert numbers_in(path) == source.numbers


def test_a_batch_that_another_process_committed_in_this_run_is_not_a_replay(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, path, checkpoint = Input(tmp_path / "in").put(), tmp_path / "table", tmp_path / "cp"
    sink = partial(Sink, str(path), checkpoint=str(checkpoint))

    def of_another_process() -> Sink:
        monkeypatch.setattr(batch, "_claims", {})
        monkeypatch.setattr(batch, "_begun", {})
        return sink()

    function = Interrupted([sink, of_another_process], monkeypatch)
    drain(source.stream(spark), function, checkpoint)
    (error,) = function.errors
    assert f"as version 1, so two queries called a Sink whose checkpoint is {checkpoint}; check" in str(error)
    forget_last_commit(checkpoint)
    # In the next run the same call is a replay.
    function = Interrupted([of_another_process], monkeypatch)
    drain(source.stream(spark), function, checkpoint)
    assert function.last
    assert function.last.outcome == "skipped"


def test_on_connect_a_query_runs_while_the_server_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "is_connect", lambda _: True)
    queries = [SimpleNamespace(id="a", isActive=True), SimpleNamespace(id="b", isActive=False)]
    one = cast("SparkSession", SimpleNamespace(streams=SimpleNamespace(active=queries)))
    assert [session.is_running(one, name) for name in ("a", "b", "c")] == [True, False, True]


def test_on_connect_the_files_identify_a_batch_whose_session_knows_no_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Spark 4.3, where a batch function has a session of its own."""
    monkeypatch.setattr(batch_identity, "is_connect", lambda _: True)
    batch = cast("DataFrame", SimpleNamespace(sparkSession=SimpleNamespace(streams=SimpleNamespace(active=[]))))
    for name, text in (("metadata", '{"id": "q"}'), ("offsets/0", 'v1\n{}\n{"a": 1}'), ("commits/0", "v1")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    identifier = Identifier(StreamingCheckpoint.of_store(LocalStore(str(tmp_path))))
    with pytest.raises(ConfigurationError, match="has commits/0, so Spark has completed that batch"):
        identifier.identify(batch, 0)
    with pytest.raises(ConfigurationError, match="has no offsets/1"):
        identifier.identify(batch, 1)
    (tmp_path / "commits/0").unlink()
    found = identifier.identify(batch, 0)
    assert (found.query_id, found.run_id, found.batch_id) == ("q", "", 0)
    (tmp_path / "metadata").write_text('{"id": "another"}')
    assert identifier.identify(batch, 0).query_id == "another"


def test_a_local_master_is_recognized(spark: SparkSession) -> None:
    assert session.is_local(spark)
    assert session.parallelism(spark) == 2
