"""Many tables by one stream: each exactly once, and one that fails does not stop the others."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tests.streaming.support import Input, drain, forget_last_commit, numbers_in, refused, restore
from tidelog.log import Table
from tidelog.log.errors import (
    CheckpointResetError,
    ConfigurationError,
    FencedError,
    SchemaMismatchError,
    StoreUnavailableError,
)
from tidelog.log.format.properties import TRANSACTION_RETENTION
from tidelog.log.system import System
from tidelog.streaming import Sink, Sinks, wait_for

pytestmark = pytest.mark.spark
SCHEMA = "topic string, n long"


class Topics:
    """A stream of records of several topics; each call of `put` is a batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = Input(folder / "input")

    def put(self, *records: tuple[str | None, int]) -> None:
        topics, numbers = zip(*records, strict=True)
        self.source.put_table(pa.table({"topic": pa.array(topics, pa.string()), "n": pa.array(numbers, pa.int64())}))

    def sinks(self, **more: Any) -> Sinks:
        given = {"make": lambda topic: Sink(str(self.folder / topic)), "retry_after_s": 3600.0, **more}
        return Sinks(parked=str(self.folder / "_parked"), **given)

    def run(self, spark: SparkSession, sinks: Sinks) -> Sinks:
        drain(self.source.stream(spark, schema=SCHEMA), sinks, self.folder / "cp")
        return sinks

    def numbers(self, topic: str) -> list[int]:
        return numbers_in(self.folder / topic)

    def parked(self) -> list[tuple[str, int]]:
        rows = Table.open(str(self.folder / "_parked")).scan(columns=["_table", "n"]).to_arrow().to_pylist()
        return sorted((row["_table"], row["n"]) for row in rows)

    def refuse(self, topic: str, *, wrong: bool = True) -> None:
        """Make the table refuse all batches, or take them again."""
        Table.open(str(self.folder / topic)).set_properties(
            {TRANSACTION_RETENTION: "interval 1 day" if wrong else None}
        )


@pytest.fixture
def topics(tmp_path: Path) -> Topics:
    return Topics(tmp_path)


def test_tables_come_with_their_rows_and_only_those_of_a_batch_pay(spark: SparkSession, topics: Topics) -> None:
    made = []

    def make(topic: str) -> Sink:
        made.append(topic)
        return Sink(str(topics.folder / topic))

    topics.put(("a", 1), ("b", 2), ("a", 3))
    topics.put(("c", 4))
    topics.put(("c", 5), ("a", 6))
    sinks = topics.run(spark, topics.sinks(make=make))
    assert [topics.numbers(topic) for topic in "abc"] == [[1, 3, 6], [2], [4, 5]]
    assert made == ["a", "b", "c"]
    assert sinks.last.keys() == {"a", "c"}
    assert Table.open(str(topics.folder / "b")).version == 1
    assert topics.parked() == []


def test_a_replayed_batch_is_in_each_table_once(spark: SparkSession, topics: Topics) -> None:
    topics.put(("a", 1), ("b", 2), ("c", 3))
    topics.run(spark, topics.sinks())
    forget_last_commit(topics.folder / "cp")
    sinks = topics.run(spark, topics.sinks())
    assert all(report.skipped for report in sinks.last.values())
    # A crash between the commits: only one table has the batch.
    topics.put(("a", 4), ("b", 5))

    def killed(frame: DataFrame, name: str) -> DataFrame:
        if name == "b":
            raise FencedError("the query ends here")
        return frame

    with pytest.raises(StreamingQueryException, match="the query ends here"):
        topics.run(spark, topics.sinks(rows=killed))
    assert (topics.numbers("a"), topics.numbers("b")) == ([1, 4], [2])
    sinks = topics.run(spark, topics.sinks())
    assert {name: report.skipped for name, report in sinks.last.items()} == {"a": True, "b": False}
    assert {topic: topics.numbers(topic) for topic in "abc"} == {"a": [1, 4], "b": [2, 5], "c": [3]}


def test_a_failing_table_stops_no_other_and_loses_nothing(spark: SparkSession, topics: Topics) -> None:
    topics.put(("a", 1), ("b", 2))
    topics.run(spark, topics.sinks())
    topics.refuse("a")
    topics.put(("a", 3), ("b", 4))
    topics.put(("a", 5), ("b", 6))
    sinks = topics.run(spark, topics.sinks())
    assert sinks.failed["a"].startswith("TIDELOG_CONFIGURATION")
    assert topics.numbers("b") == [2, 4, 6]
    assert topics.parked() == [("a", 3), ("a", 5)]
    # It is still set aside after a restart, and what was parked is applied once, before what comes later.
    topics.put(("a", 7), ("b", 8))
    assert topics.run(spark, topics.sinks()).failed.keys() == {"a"}
    assert topics.parked() == [("a", 3), ("a", 5), ("a", 7)]
    topics.refuse("a", wrong=False)
    assert sinks.replay(spark) == {}
    assert (topics.numbers("a"), topics.parked(), sinks.failed) == ([1, 3, 5, 7], [], {})
    assert sinks.replay(spark) == {}
    forget_last_commit(topics.folder / "cp")
    topics.put(("a", 9))
    topics.run(spark, topics.sinks())
    assert (topics.numbers("a"), topics.parked()) == ([1, 3, 5, 7, 9], [])


def test_the_stream_itself_applies_what_is_parked(spark: SparkSession, topics: Topics) -> None:
    topics.put(("a", 1))
    topics.run(spark, topics.sinks())
    topics.refuse("a")
    topics.put(("a", 2))
    topics.run(spark, topics.sinks())
    topics.refuse("a", wrong=False)
    topics.put(("a", 3))
    assert topics.run(spark, topics.sinks()).failed == {}
    assert topics.numbers("a") == [1, 2, 3]


def test_a_crash_after_a_parked_batch_was_applied_applies_it_once(
    spark: SparkSession, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.put(("a", 1))
    topics.run(spark, topics.sinks())
    topics.refuse("a")
    topics.put(("a", 2))
    sinks = topics.run(spark, topics.sinks())
    topics.refuse("a", wrong=False)
    with monkeypatch.context() as patched:
        patched.setattr("tidelog.streaming.sink.parking.Parking.forget", lambda *_: 1 / 0)
        assert sinks.replay(spark)["a"].startswith("ZeroDivisionError")
    assert (topics.numbers("a"), topics.parked()) == ([1, 2], [("a", 2)])
    assert sinks.replay(spark) == {}
    assert (topics.numbers("a"), topics.parked()) == ([1, 2], [])


def test_a_batch_that_was_parked_and_is_run_again_is_not_applied_twice(spark: SparkSession, topics: Topics) -> None:
    topics.put(("a", 1), ("b", 1))
    topics.run(spark, topics.sinks())
    topics.refuse("a")
    topics.put(("a", 2), ("b", 2))
    topics.run(spark, topics.sinks())
    forget_last_commit(topics.folder / "cp")
    topics.run(spark, topics.sinks())  # refused again
    assert topics.parked() == [("a", 2)]
    forget_last_commit(topics.folder / "cp")
    topics.refuse("a", wrong=False)
    topics.run(spark, topics.sinks())
    assert (topics.numbers("a"), topics.numbers("b"), topics.parked()) == ([1, 2], [1, 2], [])


@pytest.mark.full
def test_a_batch_that_runs_again_can_be_refused_by_further_tables(spark: SparkSession, topics: Topics) -> None:
    """The batch was parked for one table when the process was killed. Now others refuse it, which have its rows."""

    def rows(frame: DataFrame, name: str) -> DataFrame:
        if name == "c" and refuses:
            raise ValueError("no rows of c")
        return frame

    refuses = False
    topics.put(("a", 1), ("b", 1), ("d", 1))
    topics.run(spark, topics.sinks(rows=rows))
    topics.refuse("a")
    topics.put(("a", 2), ("b", 2), ("c", 2), ("d", 2))
    topics.run(spark, topics.sinks(rows=rows))
    assert topics.parked() == [("a", 2)]
    refuses = True
    topics.refuse("b")
    for parked in ([("a", 2), ("b", 2), ("c", 2)], [("a", 2)]):  # the second time it is known that the others have it
        forget_last_commit(topics.folder / "cp")
        sinks = topics.run(spark, topics.sinks(rows=rows))
        assert sinks.failed.keys() == {"a", "b", "c"}
        assert topics.parked() == parked
        assert {name: backlog.batches for name, backlog in sinks.parked.items()} == dict.fromkeys(dict(parked), 1)
    topics.put(("a", 3), ("b", 3), ("c", 3), ("d", 3))
    sinks = topics.run(spark, topics.sinks(rows=rows))
    assert topics.numbers("d") == [1, 2, 3]
    refuses = False
    topics.refuse("a", wrong=False)
    topics.refuse("b", wrong=False)
    assert sinks.replay(spark) == {}
    assert [topics.numbers(name) for name in "abc"] == [[1, 2, 3], [1, 2, 3], [2, 3]]
    assert (topics.parked(), sinks.parked) == ([], {})


@pytest.mark.full
def test_how_much_is_parked_and_since_when(spark: SparkSession, topics: Topics) -> None:
    topics.put(("a", 1), ("b", 1))
    sinks = topics.run(spark, topics.sinks())
    assert sinks.parked == {}
    topics.refuse("a")
    topics.refuse("b")
    topics.put(("a", 2), ("b", 2))
    topics.put(("a", 3))
    sinks = topics.run(spark, topics.sinks())
    assert {name: backlog.batches for name, backlog in sinks.parked.items()} == {"a": 2, "b": 1}
    since = {name: backlog.since for name, backlog in sinks.parked.items()}
    assert since["a"] == since["b"]
    again = topics.sinks()
    assert again.replay(spark, ["b"]).keys() == {"b"}
    assert {name: (backlog.batches, backlog.since) for name, backlog in again.parked.items()} == {"b": (1, since["b"])}
    topics.refuse("a", wrong=False)
    assert sinks.replay(spark, ["a"]) == {}
    assert {name: backlog.batches for name, backlog in sinks.parked.items()} == {"b": 1}


@pytest.mark.full
def test_a_table_that_first_failed_is_made_when_it_can_be(spark: SparkSession, topics: Topics) -> None:
    """Also in a later batch, and in one of another process."""
    (topics.folder / "b").write_text("no table")
    topics.put(("a", 1))
    topics.put(("a", 2), ("b", 2))
    topics.put(("a", 3), ("b", 3))
    sinks = topics.run(spark, topics.sinks())
    assert sinks.failed.keys() == {"b"}
    (topics.folder / "b").unlink()
    assert topics.sinks().replay(spark, ["b"]) == {}
    assert topics.numbers("b") == [2, 3]


def test_a_table_that_was_lost_is_not_made_again(spark: SparkSession, topics: Topics) -> None:
    topics.put(("a", 1), ("b", 1))
    topics.run(spark, topics.sinks())
    (topics.folder / "a").rename(topics.folder / "away")
    topics.put(("a", 2), ("b", 2))
    sinks = topics.run(spark, topics.sinks())
    assert "there is no table at" in sinks.failed["a"]
    assert topics.numbers("b") == [1, 2]
    (topics.folder / "away").rename(topics.folder / "a")
    assert sinks.replay(spark) == {}
    assert topics.numbers("a") == [1, 2]


def test_a_restored_checkpoint_stops_the_stream(spark: SparkSession, topics: Topics) -> None:
    copy = topics.folder / "copy"
    topics.put(("a", 1))
    topics.run(spark, topics.sinks())
    shutil.copytree(topics.folder / "cp", copy)
    topics.put(("a", 2))
    topics.put(("a", 3))
    topics.run(spark, topics.sinks())
    restore(topics.folder / "cp", copy)
    stream = topics.source.stream(spark, schema=SCHEMA)
    refused(stream, topics.sinks(), topics.folder / "cp", CheckpointResetError)
    shutil.rmtree(topics.folder / "cp")
    refused(stream, topics.sinks(), topics.folder / "cp", CheckpointResetError)
    assert (topics.numbers("a"), topics.parked()) == ([1, 2, 3], [])


def test_names_that_could_leave_the_folder_are_parked(spark: SparkSession, topics: Topics) -> None:
    bad = ["../out", "a/b", "..", ".hidden", "", "a\nb", "s3://b", None]
    topics.put(*((name, n) for n, name in enumerate(bad)), ("good", 99))
    sinks = topics.run(spark, topics.sinks())
    assert sinks.failed.keys() == {name or "" for name in bad}
    assert topics.parked() == sorted((name or "", n) for n, name in enumerate(bad))
    assert topics.numbers("good") == [99]
    assert {path.name for path in topics.folder.iterdir()} == {"input", "cp", "good", "_parked"}


def test_an_error_that_passes_is_tried_again(
    spark: SparkSession, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    failures = 2

    def rows(frame: DataFrame, name: str) -> DataFrame:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise StoreUnavailableError(f"{name} is away")
        return frame

    monkeypatch.setattr("tidelog.log.system.System.sleep_s", lambda _, seconds: slept.append(seconds))
    topics.put(("a", 1))
    sinks = topics.run(spark, topics.sinks(rows=rows))
    assert (slept, sinks.failed, topics.numbers("a")) == ([0.5, 1.0], {}, [1])
    failures = 9
    topics.put(("a", 2))
    sinks = topics.run(spark, topics.sinks(rows=rows))
    assert (len(slept), [*sinks.failed], topics.parked()) == (4, ["a"], [("a", 2)])


def test_idle_tables_are_closed_and_opened_again(spark: SparkSession, topics: Topics) -> None:
    made: list[str] = []

    def make(topic: str) -> Sink:
        made.append(topic)
        return Sink(str(topics.folder / topic))

    names = ["a", "b", "c", "d"]
    topics.put(*((name, 1) for name in names))
    topics.put(("d", 2))
    topics.put(("a", 2))
    sinks = topics.run(spark, topics.sinks(make=make, most_open=2))
    assert made == [*names, "a"]
    assert len(sinks._open) == 2
    assert [topics.numbers(name) for name in names] == [[1, 2], [1], [1], [1, 2]]


def test_upserts_with_dead_letters_and_a_column_of_names(spark: SparkSession, topics: Topics) -> None:
    def make(name: str) -> Sink:
        letters = Sink(str(topics.folder / "dead"), name=name)
        return Sink(str(topics.folder / name), mode="upsert", keys=["n"], dead_letters=letters)

    def rows(frame: DataFrame, name: str) -> DataFrame:
        return frame.select(F.when(F.col("n") > 0, F.col("n")).alias("n"), F.lit(name).alias("from"))

    topics.put(("a", 1), ("a", -1))
    topics.put(("b", 2), ("b", -2), ("a", 1))
    topics.put(("b", -2))
    sinks = topics.run(spark, topics.sinks(make=make, rows=rows, by=F.concat(F.lit("t_"), F.col("topic"))))
    assert sinks.failed == {}
    assert (topics.numbers("t_a"), topics.numbers("t_b")) == ([1], [2])
    letters = Table.open(str(topics.folder / "dead")).scan(columns=["from"]).to_arrow()["from"].to_pylist()
    assert sorted(letters) == ["t_a", "t_b", "t_b"]


@pytest.mark.full
def test_parked_upserts_that_change_nothing_count_as_applied(spark: SparkSession, topics: Topics) -> None:
    def make(name: str) -> Sink:
        return Sink(str(topics.folder / name), mode="upsert", keys=["n"], delete_where="n > 5")

    topics.put(("a", 1))
    topics.run(spark, topics.sinks(make=make))
    topics.refuse("a")
    topics.put(("a", 2))
    topics.put(("a", 9))
    sinks = topics.run(spark, topics.sinks(make=make))
    topics.refuse("a", wrong=False)
    assert sinks.replay(spark) == {}
    assert (topics.numbers("a"), topics.parked()) == ([1, 2], [])
    ledger = Table.open(str(topics.folder / "a")).begin().transactions
    is_number = {name: name.endswith("/default") and not name.startswith("tidelog/sink/") for name in ledger}
    assert [version for name, version in ledger.items() if is_number[name]] == [2]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"most_open": 0}, "most_open=0 is no positive number"),
        ({"parallel": 0}, "parallel=0 is no positive number"),
        ({"retry_after_s": -1}, "retry_after_s=-1 is negative"),
        ({"make": "a"}, "make must be a function"),
        ({"rows": "a"}, "rows must be a function"),
    ],
)
def test_arguments(spark: SparkSession, topics: Topics, given: dict[str, Any], text: str) -> None:
    del spark
    with pytest.raises(ConfigurationError, match=text):
        topics.sinks(**given)


def test_what_make_returns(spark: SparkSession, topics: Topics) -> None:
    def make(name: str) -> Any:
        return {"c": None, "d": Sink(str(topics.folder / "_parked"))}.get(name, Sink(str(topics.folder / "same")))

    topics.put(*((name, 1) for name in "abcd"))
    sinks = topics.run(spark, topics.sinks(make=make))
    assert "the same table for 'b' as for 'a'" in sinks.failed["b"]
    assert "make returned NoneType for 'c'" in sinks.failed["c"]
    assert "the table of parked records for 'd'" in sinks.failed["d"]
    assert topics.numbers("same") == [1]


def test_a_column_with_a_name_of_parked_records_is_refused(spark: SparkSession, topics: Topics) -> None:
    topics.put(("a", 1))
    stream = topics.source.stream(spark, schema=SCHEMA).withColumn("_batch", F.lit(1))
    refused(stream, topics.sinks(), topics.folder / "cp", SchemaMismatchError)


@pytest.mark.full
def test_if_records_cannot_be_parked_the_stream_stops_and_the_batch_runs_again(
    spark: SparkSession, topics: Topics
) -> None:
    topics.put(("a", 1), ("b", 1))
    topics.run(spark, topics.sinks())
    topics.refuse("a")
    topics.refuse("_parked")
    topics.put(("a", 2), ("b", 2))
    with pytest.raises(StreamingQueryException, match="TIDELOG_CONFIGURATION"):
        topics.run(spark, topics.sinks())
    assert (topics.numbers("b"), topics.parked()) == ([1, 2], [])
    topics.refuse("_parked", wrong=False)
    topics.run(spark, topics.sinks())
    assert (topics.numbers("b"), topics.parked()) == ([1, 2], [("a", 2)])


def test_a_reader_waits_until_all_tables_have_a_batch(
    spark: SparkSession, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, parked = str(topics.folder / "cp"), str(topics.folder / "_parked")
    assert not wait_for(checkpoint, batch=0, timeout_s=0)
    topics.put(("a", 1), ("b", 1))
    topics.run(spark, topics.sinks())
    assert wait_for(checkpoint, batch=0, parked=parked)
    assert not wait_for(checkpoint, batch=1, timeout_s=0)
    topics.refuse("a")
    topics.put(("a", 2), ("b", 2))
    sinks = topics.run(spark, topics.sinks())
    assert wait_for(checkpoint, batch=1)
    assert not wait_for(checkpoint, batch=1, parked=parked, timeout_s=0)
    assert wait_for(checkpoint, batch=0, parked=parked)
    topics.refuse("a", wrong=False)
    # It looks again after a pause.
    monkeypatch.setattr("tidelog.log.system.System.sleep_s", lambda *_: sinks.replay(spark))
    assert wait_for(checkpoint, batch=1, parked=parked)


def test_a_reader_waits_for_offsets_of_kafka(tmp_path: Path) -> None:
    for folder, names in (("commits", "01"), ("offsets", "012")):
        (tmp_path / folder).mkdir()
        for name in names:
            text = f'v1\n{{}}\n{{"orders":{{"0":{name}0,"1":5}},"lines":{{"0":7}}}}\n{{"logOffset":3}}'
            (tmp_path / folder / name).write_text(text)
    assert wait_for(str(tmp_path), offsets={"orders": {0: 10, 1: 5}, "lines": {0: 7}}, timeout_s=0)
    assert not wait_for(str(tmp_path), offsets={"orders": {0: 11}}, timeout_s=0)
    assert not wait_for(str(tmp_path), offsets={"orders": {2: 1}}, timeout_s=0)
    assert not wait_for(str(tmp_path), offsets={"others": {0: 1}}, timeout_s=0)
    with pytest.raises(ConfigurationError, match="needs a batch or offsets"):
        wait_for(str(tmp_path))


@pytest.mark.parametrize("ends", [(20, 10), (10, 20)])
def test_two_sources_of_one_topic_count_as_far_as_both_have_come(tmp_path: Path, ends: tuple[int, int]) -> None:
    for folder in ("commits", "offsets"):
        (tmp_path / folder).mkdir()
        sources = [f'{{"orders":{{"0":{end},"{place + 1}":5}}}}' for place, end in enumerate(ends)]
        (tmp_path / folder / "0").write_text("\n".join(["v1", "{}", *sources]))
    assert wait_for(str(tmp_path), offsets={"orders": {0: 10, 1: 5, 2: 5}}, timeout_s=0)
    assert not wait_for(str(tmp_path), offsets={"orders": {0: 11}}, timeout_s=0)


@pytest.mark.full
def test_the_stream_does_not_wait_for_all_that_is_parked(spark: SparkSession, topics: Topics) -> None:
    class Slow(System):
        seconds = 0.0

        def monotonic_s(self) -> float:
            self.seconds += 4
            return self.seconds

    topics.put(("a", 1), ("b", 1))
    topics.run(spark, topics.sinks())
    topics.refuse("a")
    for number in (2, 3, 4, 5):
        topics.put(("a", number))
    topics.run(spark, topics.sinks())
    topics.refuse("a", wrong=False)
    topics.put(("b", 2))
    sinks = topics.run(spark, topics.sinks(system=Slow()))
    assert (topics.numbers("a"), [*sinks.failed]) == ([1, 2, 3], ["a"])
    topics.put(("a", 6))
    topics.put(("a", 7))
    topics.run(spark, sinks)
    assert (topics.numbers("a"), topics.numbers("b")) == ([1, 2, 3, 4, 5, 6, 7], [1, 2])
    assert (topics.parked(), sinks.failed) == ([], {})
