"""Change records of several topics into a table each: what dead letters and records without a schema do there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.streaming.capture.envelopes import envelope, field, wrapped
from tests.streaming.support import Input, drain
from tidelog.log import Table
from tidelog.log.errors import StoreUnavailableError
from tidelog.streaming import Sink, Sinks, capture
from tidelog.streaming.sink.batch import Batch

pytestmark = pytest.mark.spark
_SCHEMA = pa.schema([("topic", pa.string()), ("value", pa.binary()), ("offset", pa.int64())])


class Topics:
    """A stream of change records of several topics; each call of `put` is a batch, and runs it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder, self._count = spark, folder, 0
        self._input = Input(folder / "input")

    def sinks(self, *, dead: str | None = "{}-dead", schema: str | None = "id BIGINT", **options: Any) -> Sinks:
        def make(topic: str) -> Sink:
            letters = None if dead is None else str(self._folder / dead.format(topic))
            return capture.sink(str(self._folder / topic), keys=["id"], dead_letters=letters, **options)

        return Sinks(
            make,
            rows=lambda records, _topic: capture.debezium(records, schema=schema, keys=["id"]),
            parked=str(self._folder / "_parked"),
            retry_after_s=0,
        )

    def put(self, sinks: Sinks, *records: tuple[str, Any]) -> dict[str, str]:
        rows = []
        for topic, value in records:
            content = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            rows.append({"topic": topic, "value": content, "offset": self._count})
            self._count += 1
        self._input.put_table(pa.Table.from_pylist(rows, _SCHEMA))
        stream = self._input.stream(self._spark, schema="topic string, value binary, offset long")
        drain(stream, sinks, self._folder / "cp")
        return sinks.failed

    def column(self, name: str, column: str = "id") -> list[Any]:
        rows = Table.open(str(self._folder / name)).scan(columns=[column]).to_arrow()[column].to_pylist()
        return sorted(rows)


@pytest.fixture
def topics(spark: SparkSession, tmp_path: Path) -> Topics:
    return Topics(spark, tmp_path)


def created(number: int) -> dict[str, Any]:
    return envelope("c", {"id": number}, lsn=number)


@pytest.mark.full
def test_a_table_that_fails_after_its_dead_letters_is_tried_again(
    spark: SparkSession, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = Batch._commit_once, 0

    def commit_once(self: Batch, rows: Any) -> Any:
        nonlocal failures
        if self._settings.path.endswith("/a") and failures:
            failures -= 1
            raise StoreUnavailableError("the store is away")
        return real(self, rows)

    monkeypatch.setattr(Batch, "_commit_once", commit_once)
    monkeypatch.setattr("tidelog.log.system.System.sleep_s", lambda *_: None)
    sinks = topics.sinks()
    assert topics.put(sinks, ("a", created(1))) == {}
    failures = 2
    assert topics.put(sinks, ("a", created(2)), ("a", b"junk")) == {}
    failures = 6  # three attempts of the stream, and three of the first replay
    assert "the store is away" in topics.put(sinks, ("a", created(3)))["a"]
    assert "the store is away" in sinks.replay(spark)["a"]
    assert sinks.replay(spark) == {}
    assert topics.column("a") == [1, 2, 3]
    assert topics.column("a-dead", "_raw") == [b"junk"]


@pytest.mark.full
def test_a_batch_without_any_schema_is_no_failure(topics: Topics) -> None:
    def known(number: int) -> dict[str, Any]:
        return wrapped(created(number), field("id", "int64"))

    sinks = topics.sinks(schema=None, schema_evolution=True)
    # The second topic begins with a tombstone, and has no table yet.
    assert topics.put(sinks, ("a", known(1))) == {}
    assert topics.put(sinks, ("a", None), ("b", None)) == {}
    assert topics.put(sinks, ("a", b"junk"), ("b", b"more")) == {}
    assert topics.put(sinks, ("a", known(2)), ("b", known(3))) == {}
    assert (topics.column("a"), topics.column("b")) == ([1, 2], [3])
    assert (topics.column("a-dead", "_raw"), topics.column("b-dead", "_raw")) == ([b"junk"], [b"more"])
    # Neither are changes whose columns nobody knows.
    assert topics.put(sinks, ("a", created(4)), ("c", created(5))) == {}
    assert topics.put(sinks, ("c", known(6))) == {}
    assert topics.column("c") == [6]
    assert topics.column("a-dead", "_raw")[1:] == [json.dumps(created(4)).encode()]
    assert topics.column("c-dead", "_raw") == [json.dumps(created(5)).encode()]


@pytest.mark.full
def test_several_tables_can_have_one_table_of_dead_letters(topics: Topics) -> None:
    sinks = topics.sinks(dead="dead")
    assert topics.put(sinks, ("a", b"one"), ("b", b"two")) == {}
    assert topics.put(topics.sinks(dead="dead"), ("a", created(1)), ("b", b"three")) == {}
    assert topics.column("dead", "_raw") == [b"one", b"three", b"two"]


@pytest.mark.full
def test_two_tables_cannot_share_the_name_of_their_dead_letters(tmp_path: Path, topics: Topics) -> None:
    letters = str(tmp_path / "dead")
    sinks = Sinks(
        lambda topic: capture.sink(str(tmp_path / topic), keys=["id"], dead_letters=Sink(letters)),
        rows=lambda records, _topic: capture.debezium(records, schema="id BIGINT", keys=["id"]),
        parked=str(tmp_path / "_parked"),
        most_open=1,
    )
    assert topics.put(sinks, ("a", created(1))) == {}
    failed = topics.put(sinks, ("b", created(1)))
    assert "make returned the same table of dead letters for 'b' as for 'a'" in failed["b"]


@pytest.mark.full
def test_dead_letters_that_are_added_later_stop_no_other_table(topics: Topics) -> None:
    sinks = topics.sinks(dead=None)
    assert topics.put(sinks, ("a", created(1)), ("b", created(1))) == {}
    assert topics.put(sinks, ("a", b"junk")).keys() == {"a"}
    assert "TIDELOG_CHECKPOINT_RESET" in topics.put(topics.sinks(), ("a", created(2)), ("c", created(2)))["a"]
    assert topics.column("c") == [2]
    assert topics.put(topics.sinks(on_reset="adopt"), ("b", created(3))) == {}
    assert (topics.column("a"), topics.column("b")) == ([1, 2], [1, 3])
    assert topics.column("a-dead", "_raw") == [b"junk"]
