"""Late and wrong data: each case has one outcome, which docs/guides/change-data-capture.md says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.streaming.capture.envelopes import PLACEHOLDER, Topic, envelope, run
from tests.streaming.capture.test_captured_sink import SCHEMA, contents, row, rows_of, sink_of
from tests.streaming.capture.test_debezium import read
from tests.streaming.support import refused
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError
from tidelog.streaming import capture

pytestmark = pytest.mark.spark


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topic(tmp_path / "topic")


@pytest.mark.full
def test_a_topic_that_is_replayed_changes_nothing(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    history = [
        envelope("r", row(1, "one", "long"), lsn=10),
        envelope("c", row(2, "two"), lsn=11),
        envelope("u", row(1, "uno", PLACEHOLDER), lsn=12),
        envelope("d", before=row(2), lsn=13),
        envelope("u", row(3, "three"), row(1), lsn=14),
    ]
    topic.put(*history)
    run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)
    once = contents(tmp_path)
    assert once == [(3, "three", None)]
    for place, record in enumerate(history):
        topic.put(record, offsets=[place])
    run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)
    assert contents(tmp_path) == once
    assert contents(tmp_path, "dead") == []


@pytest.mark.full
def test_a_snapshot_that_is_taken_again(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    topic.put(
        envelope("r", row(1, "one"), lsn=10), envelope("r", row(2, "two"), lsn=10), envelope("u", row(1, "uno"), lsn=10)
    )
    # The connector goes on after 20, and reads the table again.
    topic.put(envelope("r", row(1, "one again"), lsn=22, commit=20))
    sink = sink_of(tmp_path)
    run(rows_of(topic, spark), sink, tmp_path)
    assert contents(tmp_path) == [(1, "one again", None), (2, "two", None)]
    # A new connector. The changes up to 30 were lost: 1 was updated, 2 deleted, 3 created.
    topic.put(envelope("r", row(1, "ein"), lsn=30), envelope("r", row(3, "drei"), lsn=30))
    run(rows_of(topic, spark), sink, tmp_path)
    assert contents(tmp_path) == [(1, "one again", None), (2, "two", None), (3, "drei", None)]
    topic.put(envelope("r", row(1, "ein"), lsn=30), envelope("r", row(3, "drei"), lsn=30))
    run(capture.debezium(topic.stream(spark), schema=SCHEMA, keys=["id"], epoch=1), sink, tmp_path)
    assert contents(tmp_path) == [(1, "ein", None), (2, "two", None), (3, "drei", None)]
    # What the snapshot does not have is older than it.
    Table.open(str(tmp_path / "table")).delete("_order < '01'")
    assert contents(tmp_path) == [(1, "ein", None), (3, "drei", None)]


@pytest.mark.full
def test_a_change_that_began_before_the_snapshot(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    """Its transaction wrote it while the replication slot was made, and committed after it: it is the first one sent.

    So its position is less than that of the snapshot, which has not seen it, and no commit was sent before it.
    """
    topic.put(envelope("r", row(1, "old"), lsn=100), envelope("r", row(2, "old"), lsn=100))
    topic.put(envelope("u", row(1, "new"), lsn=90), envelope("d", before=row(2), lsn=91))
    topic.put(envelope("u", row(1, "newer"), lsn=120, commit=115))
    run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)
    assert contents(tmp_path) == [(1, "newer", None)]


@pytest.mark.full
def test_a_deletion_is_forgotten_after_the_retention(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    topic.put(envelope("c", row(1, "one"), lsn=10), envelope("c", row(2, "two"), lsn=11))
    topic.put(envelope("d", before=row(1), lsn=20))
    topic.put(envelope("d", before=row(2), lsn=21))
    topic.put(envelope("u", row(1, "late"), lsn=15))
    properties = {"tidelog.tombstoneRetention": "interval 0 seconds"}
    run(rows_of(topic, spark), sink_of(tmp_path, properties=properties), tmp_path)
    forgotten = contents(tmp_path)
    run(rows_of(topic, spark), capture.sink(str(tmp_path / "kept"), keys=["id"]), tmp_path / "kept-state")
    assert contents(tmp_path, "kept") == []
    assert forgotten == [(1, "late", None)]


@pytest.mark.full
def test_two_databases(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    def of(server: str, record: dict[str, Any], clock: int) -> dict[str, Any]:
        return {**record, "source": {**record["source"], "name": server, "ts_ms": clock}}

    # The second one is behind by its positions, and ahead by its clock.
    topic.put(of("a", envelope("c", row(1, "a"), lsn=900), 1000), of("b", envelope("c", row(1, "b"), lsn=5), 9000))
    topic.put(
        of("a", envelope("u", row(1, "a again"), lsn=901), 2000), of("b", envelope("c", row(2, "b"), lsn=6), 9001)
    )
    for order, winner in [("position", "a again"), ("time", "b"), ("offset", "a again")]:
        rows = capture.debezium(topic.stream(spark), schema=SCHEMA, keys=["id"], order=order)
        run(rows, capture.sink(str(tmp_path / order), keys=["id"]), tmp_path / f"{order}-state")
        assert contents(tmp_path, order) == [(1, winner, None), (2, "b", None)]


@pytest.mark.full
def test_a_new_epoch_wins(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    topic.put(envelope("c", row(1, "one"), lsn=900))
    run(rows_of(topic, spark), sink, tmp_path)
    topic.put(envelope("r", row(1, "restored"), lsn=5))
    run(rows_of(topic, spark), sink, tmp_path)
    assert contents(tmp_path) == [(1, "one", None)]
    topic.put(envelope("r", row(1, "restored"), lsn=5))
    run(capture.debezium(topic.stream(spark), schema=SCHEMA, keys=["id"], epoch=1), sink, tmp_path)
    assert contents(tmp_path) == [(1, "restored", None)]


@pytest.mark.full
def test_a_truncate_does_not_know_rows_that_come_after_it(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    topic.put(envelope("t", lsn=10))
    topic.put(envelope("c", row(1, "of another partition"), lsn=9))
    run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)
    assert contents(tmp_path) == [(1, "of another partition", None)]
    topic.put(envelope("t", lsn=11))
    run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)
    assert contents(tmp_path) == []


@pytest.mark.full
def test_a_left_out_value_of_a_row_that_is_gone(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    topic.put(envelope("c", row(1, "one", "long"), lsn=10), envelope("c", row(2, "two", "long"), lsn=10))
    topic.put(envelope("d", before=row(1), lsn=20), envelope("u", row(2, "newer", "newer"), lsn=30))
    # Older than the deletion and than the row: neither has an effect, and neither is a dead letter.
    topic.put(envelope("u", row(1, "late", PLACEHOLDER), lsn=15), envelope("u", row(2, "late", PLACEHOLDER), lsn=15))
    # Newer than the row, with an older record of the batch: the table's value is newer than that one's.
    topic.put(envelope("u", row(2, "old", "old"), lsn=25), envelope("u", row(2, "newest", PLACEHOLDER), lsn=40))
    run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)
    assert contents(tmp_path) == [(2, "newest", "newer")]
    assert contents(tmp_path, "dead") == []


def test_a_table_without_the_order_is_refused(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), capture_schema(), properties={"tidelog.primaryKey": "id"})
    table.insert([{"id": 1, "name": "before", "note": None}])
    topic.put(envelope("u", row(1, "after"), lsn=5))
    error = refused(rows_of(topic, spark), sink_of(tmp_path, properties={}), tmp_path / "cp", ConfigurationError)
    assert "has no column '_order'" in error.message


def capture_schema() -> pa.Schema:
    return pa.schema([("id", pa.int64()), ("name", pa.string()), ("note", pa.string())])


# --- any split, any order ---------------------------------------------------------------------------------------------

_STEPS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("cudkt"), st.integers(0, 3)), min_size=1, max_size=14)


def history_of(steps: list[tuple[int, str, int]]) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """A database's records, and its rows at the end."""
    rows: dict[int, str] = {}
    records = []
    for lsn, (key, step, other) in enumerate(steps, start=1):
        name = f"v{lsn}"
        if step == "t":
            continue
        if step in "cu":
            records.append(envelope("u" if key in rows else "c", row(key, name), lsn=lsn))
            rows[key] = name
        elif key in rows and step == "d":
            records.append(envelope("d", before=row(key), lsn=lsn))
            del rows[key]
        elif key in rows and other not in rows:
            records.append(envelope("u", row(other, name), row(key, rows.pop(key)), lsn=lsn))
            rows[other] = name
    return records, rows


@pytest.mark.full
@settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))
@given(steps=_STEPS, data=st.data())
def test_any_split_and_order_ends_in_the_same_rows(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[int, str, int]],
    data: st.DataObject,
) -> None:
    records, rows = history_of(steps)
    if not records:
        return
    tmp_path = tmp_path_factory.mktemp("split")
    topic = Topic(tmp_path / "topic")
    again = data.draw(st.lists(st.sampled_from(range(len(records))), max_size=3))
    order = data.draw(st.permutations([*range(len(records)), *again]))
    while order:
        size = data.draw(st.integers(1, len(order)))
        topic.put(*(records[place] for place in order[:size]), offsets=order[:size])
        order = order[size:]
    run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)
    assert contents(tmp_path, columns=("id", "name")) == sorted(rows.items())
    assert contents(tmp_path, "dead") == []


@settings(deadline=None, max_examples=200)
@given(steps=_STEPS, data=st.data())
def test_the_order_alone_says_what_is_newest(steps: list[tuple[int, str, int]], data: st.DataObject) -> None:
    """The same without a table: of the rows of each key the greatest one counts."""
    records, rows = history_of(steps)
    if not records:
        return
    shuffled = data.draw(st.permutations(records))
    newest: dict[int, tuple[Any, ...]] = {}
    for line in read(*shuffled, columns=("id", "_order", "_op", "name")):
        newest[line[0]] = max(newest.get(line[0], ("",) * 4)[1:], line[1:])
        newest[line[0]] = (line[0], *newest[line[0]])
    found = {key: line[3] for key, line in newest.items() if line[2] == "u"}
    assert found == rows
