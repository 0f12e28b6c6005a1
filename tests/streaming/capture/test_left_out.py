"""Values that a source leaves out: where they are when keys change, and what becomes of those that are nowhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tests.streaming.capture.envelopes import PLACEHOLDER, Topic, envelope, run
from tests.streaming.capture.test_captured_sink import SCHEMA, contents, row, rows_of, sink_of
from tests.streaming.support import refused
from tidelog.log import Table
from tidelog.log.errors import CommitContentionError, ConflictError, DataError
from tidelog.streaming import capture
from tidelog.streaming.sink.batch import Batch

pytestmark = pytest.mark.spark


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topic(tmp_path / "topic")


def moved(old: int, new: int, lsn: int, note: Any = PLACEHOLDER, name: str = "moved") -> list[dict[str, Any]]:
    """What Debezium sends for an update of the key."""
    return [envelope("d", before=row(old), lsn=lsn), envelope("c", row(new, name, note), lsn=lsn)]


def test_values_follow_the_rows_whose_keys_change(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    topic.put(*(envelope("c", row(number, "old", f"of {number}"), lsn=number) for number in range(1, 8)))
    topic.put(
        # 1 and 2 change places in one transaction, and 3 goes on and on, in part with a new value.
        *moved(1, -1, 20), *moved(2, 1, 21), *moved(-1, 2, 22),
        *moved(3, 30, 23), envelope("u", row(30, "again", PLACEHOLDER), lsn=24), *moved(30, 31, 25),
        envelope("u", row(4, "new", "new of 4"), lsn=26), *moved(4, 40, 27),
        # The old key has a new row.
        *moved(5, 50, 28), envelope("c", row(5, "new", "another"), lsn=29),
        # It was deleted, and another row has the key now.
        envelope("d", before=row(6), lsn=30), *moved(7, 6, 31),
    )  # fmt: skip
    run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)
    assert contents(tmp_path) == sorted(
        [
            (1, "moved", "of 2"), (2, "moved", "of 1"), (31, "moved", "of 3"), (40, "moved", "new of 4"),
            (5, "new", "another"), (50, "moved", "of 5"), (6, "moved", "of 7"),
        ],
        key=str,
    )  # fmt: skip
    assert contents(tmp_path, "dead") == []


@pytest.mark.full
def test_what_is_moved_twice_counts_once(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    """A topic that is read again: the old key is gone, or has another row."""
    history = [envelope("c", row(1, "one", "long"), lsn=1), *moved(1, 2, 2), envelope("c", row(1, "new", "x"), lsn=3)]
    topic.put(*history)
    topic.put(*history, offsets=[0, 1, 2, 3])
    topic.put(*history[1:3], offsets=[1, 2])
    run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)
    assert contents(tmp_path) == [(1, "new", "x"), (2, "moved", "long")]
    assert contents(tmp_path, "dead") == []


@pytest.mark.full
def test_a_source_can_send_a_new_key_again(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    """A connector that was killed sends what it had sent, with greater offsets; the old row is gone by then."""
    topic.put(*(envelope("c", row(number, "old", f"of {number}"), lsn=number) for number in (1, 3)))
    topic.put(*moved(1, 2, 10), *moved(3, 4, 11))
    topic.put(*moved(1, 2, 10), *moved(3, 4, 11), envelope("u", row(4, "new", PLACEHOLDER), lsn=12))
    run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)
    assert contents(tmp_path) == [(2, "moved", "of 1"), (4, "new", "of 3")]
    assert contents(tmp_path, "dead") == []


@pytest.mark.full
@pytest.mark.parametrize("gone", [[], pytest.param([2], marks=pytest.mark.full)])
def test_a_row_of_the_same_time_can_be_another_one(
    spark: SparkSession, topic: Topic, tmp_path: Path, gone: list[int]
) -> None:
    """By a clock, a row can be deleted and another one get its key at the same time."""
    topic.put(envelope("c", row(1, "old", "long"), lsn=1), envelope("c", row(2, "other", "short"), lsn=10))
    topic.put(*(envelope("d", before=row(number), lsn=9) for number in gone), *moved(1, 2, 10))
    rows = capture.debezium(topic.stream(spark), schema=SCHEMA, keys=["id"], order="time")
    run(rows, sink_of(tmp_path), tmp_path)
    assert contents(tmp_path) == [(2, "moved", "long" if gone else "short")]


def follow_with_headers(spark: SparkSession, topic: Topic, tmp_path: Path, **options: Any) -> None:
    """Apply all that has arrived; the old key in the headers is 1."""
    header = F.struct(F.lit("__debezium.oldkey").alias("key"), F.lit(b'{"id":1}').alias("value"))
    records = topic.stream(spark).withColumn("headers", F.array(header))
    run(capture.debezium(records, schema=SCHEMA, keys=["id"], **options), sink_of(tmp_path), tmp_path)


@pytest.mark.full
def test_an_old_key_of_a_header_needs_its_deletion(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    gone, created = moved(1, 10, 20)
    topic.put(envelope("c", row(1, "old", "long"), lsn=1))
    # The deletion is in another partition. So can be an update before it, and both are read later.
    topic.put(created)
    topic.put(created, envelope("u", row(1, "new", "longer"), lsn=19), gone, offsets=[7, 500, 501])
    follow_with_headers(spark, topic, tmp_path)
    assert contents(tmp_path) == [(10, "moved", "longer")]
    assert [number for number, *_ in contents(tmp_path, "dead")] == [10]


@pytest.mark.full
def test_a_clock_that_says_too_little_of_an_old_key(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    gone = moved(1, 10, 20)[0]
    # The key was deleted twice at that time, and had another row between.
    topic.put(envelope("c", row(1, "first", "first"), lsn=20))
    topic.put(gone, envelope("c", row(1, "between", "short"), lsn=20), gone, moved(1, 11, 20)[1])
    # Then it has a row, which was updated, but not deleted.
    topic.put(envelope("c", row(1, "newer", "newer"), lsn=20))
    topic.put(envelope("u", row(1, "newest", "newest"), lsn=21), moved(1, 12, 21)[1])
    follow_with_headers(spark, topic, tmp_path, order="time")
    assert [number for number, *_ in contents(tmp_path, "dead")] == [11, 12]


@pytest.mark.full
def test_a_value_of_an_old_key_must_be_sure(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    topic.put(*(envelope("c", row(number, "old", "long"), lsn=number) for number in (1, 2, 3)))
    topic.put(moved(1, 10, 20)[1])  # its deletion is in a partition that is read later, and perhaps an update before it
    # Another row of the table had the new key, and the deletion of the old key was lost.
    topic.put(envelope("d", before=row(2), lsn=21), moved(9, 2, 22)[1])
    topic.put(envelope("t", lsn=30), *moved(3, 33, 31))  # the truncate has deleted it
    run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)
    assert contents(tmp_path) == []
    assert [number for number, *_ in contents(tmp_path, "dead")] == [10, 2, 33]


_STEPS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("wldkkk"), st.integers(0, 3)), min_size=1, max_size=16)


def history_of(steps: list[tuple[int, str, int]]) -> tuple[list[list[dict[str, Any]]], list[Any]]:
    """A database's changes, each with its records, and its rows at the end. Long values are only sent with new ones."""
    rows: dict[int, tuple[str, str]] = {}
    changes = []
    for lsn, (key, step, other) in enumerate(steps, start=1):
        name, note = f"name {lsn}", f"note {lsn}"
        if step == "w" or key not in rows:
            changes.append([envelope("u" if key in rows else "c", row(key, name, note), lsn=lsn)])
            rows[key] = (name, note)
        elif step == "l":
            changes.append([envelope("u", row(key, name, PLACEHOLDER), lsn=lsn)])
            rows[key] = (name, rows[key][1])
        elif step == "d":
            changes.append([envelope("d", before=row(key), lsn=lsn)])
            del rows[key]
        elif other not in rows:
            changes.append(moved(key, other, lsn, name=name))
            rows[other] = (name, rows.pop(key)[1])
    return changes, sorted(((key, *values) for key, values in rows.items()), key=str)


@pytest.mark.full
@settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))
@given(steps=_STEPS, data=st.data())
def test_any_split_keeps_the_values(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[int, str, int]],
    data: st.DataObject,
) -> None:
    changes, expected = history_of(steps)
    tmp_path = tmp_path_factory.mktemp("split")
    topic, begin = Topic(tmp_path / "topic"), 0
    while begin < len(changes):
        end = data.draw(st.integers(begin + 1, len(changes)))
        places = range(data.draw(st.integers(0, begin)), end)  # from there on it is sent again
        topic.put(
            *(record for place in places for record in changes[place]),
            offsets=[10 * place + number for place in places for number, _ in enumerate(changes[place])],
        )
        begin = end
    run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)
    assert contents(tmp_path) == expected
    assert contents(tmp_path, "dead") == []


def delete_before_the_commit(monkeypatch: pytest.MonkeyPatch, table: Path, error: Exception | None = None) -> None:
    """Another writer deletes all rows of the table between two attempts to commit a batch; or the batch fails."""
    real: Callable[..., Any] = Batch._put
    calls: list[Batch] = []

    def put(self: Batch, transaction: Any) -> Any:
        if self._settings.path.endswith(table.name) and not calls:
            calls.append(self)
            transaction.abort()
            Table.open(str(table)).delete("id > 0")
            raise error or ConflictError("another writer was first")
        return real(self, transaction)

    monkeypatch.setattr(Batch, "_put", put)


@pytest.mark.full
@pytest.mark.parametrize("others", [(b"junk",), ()])
def test_a_row_that_is_deleted_meanwhile_makes_a_dead_letter(
    spark: SparkSession, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: tuple[bytes, ...]
) -> None:
    topic.put(envelope("c", row(1, "one", "long"), lsn=1))
    run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)
    topic.put(envelope("u", row(1, "uno", PLACEHOLDER), lsn=2), envelope("c", row(2, "two"), lsn=3), *others)
    delete_before_the_commit(monkeypatch, tmp_path / "table")
    run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)
    assert contents(tmp_path) == [(2, "two", None)]
    reasons = sorted(reason[:22] for (reason,) in contents(tmp_path, "dead", ("_reason",)))
    assert reasons == sorted(["the source left out th", *(["the record is not JSON"] if others else [])])


@pytest.mark.full
@pytest.mark.parametrize("others", [(), pytest.param((b"junk",), id="junk")])
def test_a_row_that_is_deleted_before_a_restart_makes_a_dead_letter(
    spark: SparkSession, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: tuple[bytes, ...]
) -> None:
    topic.put(envelope("c", row(1, "one", "long"), lsn=1))
    run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)
    topic.put(
        envelope("u", row(1, "uno", PLACEHOLDER), lsn=2), envelope("u", row(3, "no", PLACEHOLDER), lsn=3), *others
    )
    delete_before_the_commit(monkeypatch, tmp_path / "table", CommitContentionError("the query ends here"))
    with pytest.raises(StreamingQueryException, match="the query ends here"):
        run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)
    assert len(contents(tmp_path, "dead")) == 1 + len(others)
    run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)
    assert contents(tmp_path) == []
    expected = [1, 3, *(None for _ in others)]
    assert [number for number, *_ in contents(tmp_path, "dead")] == expected


@pytest.mark.full
def test_without_dead_letters_a_row_that_is_deleted_meanwhile_is_an_error(
    spark: SparkSession, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.put(envelope("c", row(1, "one", "long"), lsn=1))
    sink = sink_of(tmp_path, dead_letters=None)
    run(rows_of(topic, spark), sink, tmp_path)
    topic.put(envelope("u", row(1, "uno", PLACEHOLDER), lsn=2))
    delete_before_the_commit(monkeypatch, tmp_path / "table")
    error = refused(rows_of(topic, spark), sink, tmp_path / "cp", DataError)
    assert "left out the value of note" in error.message
    assert contents(tmp_path) == []


def test_a_column_that_the_table_does_not_have_yet(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    table = Table.create(
        str(tmp_path / "table"),
        pa.schema([("id", pa.int64()), ("name", pa.string()), ("_order", pa.string())]),
        properties={"tidelog.primaryKey": "id", "tidelog.orderBy": "_order"},
    )
    table.insert([{"id": 1, "name": "one", "_order": None}, {"id": 2, "name": "two", "_order": None}])
    topic.put(envelope("u", row(1, "uno", PLACEHOLDER), lsn=2), envelope("u", row(2, PLACEHOLDER, "new"), lsn=3))
    run(rows_of(topic, spark), sink_of(tmp_path, properties={}, schema_evolution=True), tmp_path)
    assert contents(tmp_path) == [(1, "one", None), (2, "two", "new")]
    assert [number for number, *_ in contents(tmp_path, "dead")] == [1]
