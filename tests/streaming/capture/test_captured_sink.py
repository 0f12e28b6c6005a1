"""The sink of change records: dead letters, left-out values, truncates, and which columns a table gets."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.streaming.capture.envelopes import PLACEHOLDER, Topic, base64_of, envelope, field, run, wrapped
from tests.streaming.support import Input, refused
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, DataError, SchemaMismatchError
from tidelog.streaming import Sink, capture

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT, name STRING, note STRING"


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topic(tmp_path / "topic")


@pytest.fixture(params=["spark", pytest.param("driver", marks=pytest.mark.full)])
def writer(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def rows_of(topic: Topic, spark: SparkSession) -> DataFrame:
    return capture.debezium(topic.stream(spark), schema=SCHEMA, keys=["id"])


def sink_of(tmp_path: Path, writer: str = "auto", **options: Any) -> Sink:
    options = {"dead_letters": str(tmp_path / "dead"), **options}
    return capture.sink(str(tmp_path / "table"), keys=["id"], writer=writer, **options)


def contents(tmp_path: Path, name: str = "table", columns: tuple[str, ...] = ("id", "name", "note")) -> list[Any]:
    rows = Table.open(str(tmp_path / name)).scan(columns=list(columns)).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=str)


def row(number: int, name: str | None = None, note: str | None = None) -> dict[str, Any]:
    return {"id": number, "name": name, "note": note}


def test_a_stream_follows_the_table(spark: SparkSession, topic: Topic, tmp_path: Path, writer: str) -> None:
    topic.put(envelope("r", row(1, "one"), lsn=10), envelope("r", row(2, "two"), lsn=10))
    topic.put(
        envelope("u", row(1, "uno", "x"), lsn=12), envelope("d", before=row(2), lsn=13), None,
        envelope("u", row(4, "four"), row(3), lsn=14), envelope("c", row(3, "three"), lsn=11),
    )  # fmt: skip
    run(rows_of(topic, spark), sink_of(tmp_path, writer), tmp_path)
    assert contents(tmp_path) == [(1, "uno", "x"), (4, "four", None)]
    table = Table.open(str(tmp_path / "table"))
    assert table.schema.names == ["id", "name", "note", "_order"]
    assert table.properties["tidelog.orderBy"] == "_order"
    assert contents(tmp_path, "dead") == []


def test_what_cannot_be_read_is_a_dead_letter(spark: SparkSession, topic: Topic, tmp_path: Path, writer: str) -> None:
    topic.put(envelope("c", row(1, "one"), lsn=5), b"{not json", envelope("c", {"id": "x"}, lsn=6))
    run(rows_of(topic, spark), sink_of(tmp_path, writer), tmp_path)
    assert contents(tmp_path) == [(1, "one", None)]
    of_id, of_json = contents(tmp_path, "dead", ("_reason", "_raw"))
    assert of_id[0] == "the column id: 'x' does not fit bigint exactly"
    assert of_json[0].startswith("the record is not JSON")
    assert of_json[1] == b"{not json"


def test_without_dead_letters_it_is_an_error(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    topic.put(envelope("c", row(1, "one"), lsn=5), b"{not json")
    error = refused(rows_of(topic, spark), sink_of(tmp_path, dead_letters=None), tmp_path / "cp", DataError)
    assert "1 change records of the batch cannot be applied; of one of them the record is not JSON" in error.message


def test_a_left_out_value_stays(spark: SparkSession, topic: Topic, tmp_path: Path, writer: str) -> None:
    topic.put(envelope("c", row(1, "one", "long"), lsn=5), envelope("c", row(2, "two", "other"), lsn=5))
    topic.put(
        envelope("u", row(1, "uno", PLACEHOLDER), lsn=6),
        envelope("u", row(2, "zwei", "changed"), lsn=7), envelope("u", row(2, "due", PLACEHOLDER), lsn=8),
        envelope("c", row(3, "three", "in the batch"), lsn=9), envelope("u", row(3, "drei", PLACEHOLDER), lsn=10),
        envelope("u", row(4, "nobody", PLACEHOLDER), lsn=11),
    )  # fmt: skip
    run(rows_of(topic, spark), sink_of(tmp_path, writer), tmp_path)
    assert contents(tmp_path) == [(1, "uno", "long"), (2, "due", "changed"), (3, "drei", "in the batch")]
    ((number, reason, raw),) = contents(tmp_path, "dead", ("id", "_reason", "_raw"))
    assert number == 4
    assert "left out the value of note" in reason
    assert json.loads(raw)["after"]["name"] == "nobody"


def test_records_that_are_equally_new_are_dead_letters_with_their_bytes(
    spark: SparkSession, topic: Topic, tmp_path: Path, writer: str
) -> None:
    values = [envelope("c", row(1, name), lsn=5) for name in ("one", "uno")]
    # What differs only in the envelope is one row.
    same = [envelope("c", row(2, "two"), lsn=5, ts_ms=number) for number in (1, 2)]
    topic.put(*values, *same, offsets=[0, 0, 0, 0])
    run(rows_of(topic, spark), sink_of(tmp_path, writer), tmp_path)
    assert contents(tmp_path) == [(2, "two", None)]
    letters = contents(tmp_path, "dead", ("_reason", "_raw"))
    assert [json.loads(raw) for _, raw in letters] == values
    assert {reason for reason, _ in letters} == {"several rows have this key, and none of them is the newest"}


def test_a_truncate_deletes_what_is_older(spark: SparkSession, topic: Topic, tmp_path: Path, writer: str) -> None:
    topic.put(envelope("c", row(1, "one"), lsn=5), envelope("c", row(2, "two"), lsn=20))
    topic.put(envelope("c", row(3, "three"), lsn=6), envelope("t", lsn=10), envelope("c", row(4, "four"), lsn=11))
    topic.put(envelope("u", row(1, "late"), lsn=8), envelope("u", row(3, "late"), lsn=9))
    run(rows_of(topic, spark), sink_of(tmp_path, writer), tmp_path)
    assert contents(tmp_path) == [(2, "two", None), (4, "four", None)]


def test_dead_letters_beside_a_truncate_have_their_bytes(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    """By a clock, a row can be as new as a truncate, which deletes an older one."""
    older, newer = envelope("c", row(1, "one"), lsn=1), envelope("c", row(1, "uno"), lsn=3)
    older["source"]["ts_ms"] -= 1
    topic.put(older, envelope("t", lsn=2), newer)
    rows = capture.debezium(topic.stream(spark).drop("offset"), schema=SCHEMA, keys=["id"], order="time")
    run(rows, sink_of(tmp_path), tmp_path)
    assert contents(tmp_path) == []
    assert [json.loads(raw) for (raw,) in contents(tmp_path, "dead", ("_raw",))] == [older, newer]


@pytest.mark.full
def test_a_table_can_keep_the_transaction(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    topic.put(envelope("c", row(1, "one"), lsn=5))
    run(rows_of(topic, spark), sink_of(tmp_path, keep=["_transaction"], partition_by=["name"]), tmp_path)
    topic.put(envelope("c", row(2, "two"), lsn=6))
    run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)  # the table has the column
    assert contents(tmp_path, columns=("id", "_transaction")) == [(1, "700"), (2, "700")]
    assert Table.open(str(tmp_path / "table")).partition_by == ("name",)


@pytest.mark.full
def test_columns_that_appear_follow_schema_evolution(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    sink = sink_of(tmp_path, schema_evolution=True)

    def apply(batch: DataFrame, number: int) -> None:
        sink(capture.debezium(batch, keys=["id"]), number)

    first = [field("id", "int64"), field("name", "string")]
    topic.put(wrapped(envelope("c", {"id": 1, "name": "one"}, lsn=5), *first))
    later = wrapped(envelope("u", {"id": 1, "name": "uno", "note": "new"}, lsn=6), *first, field("note", "string"))
    topic.put(wrapped(envelope("c", {"id": 2, "name": "two"}, lsn=6), *first), later)
    run(topic.stream(spark), apply, tmp_path)
    assert contents(tmp_path) == [(1, "uno", "new"), (2, "two", None)]


WIDENING = {"delta.enableTypeWidening": "true"}
DECIMAL = "org.apache.kafka.connect.data.Decimal"


def numbers(number: int, amount: int, lsn: int, *, wide: bool, op: str = "c") -> dict[str, Any]:
    """A record of a table with an integer as its key, a numeric and a real, before and after they were widened."""
    digits = {"scale": "2", "connect.decimal.precision": "12" if wide else "6"}
    fields = [
        field("id", "int64" if wide else "int32"),
        field("amount", "bytes", DECIMAL, parameters=digits),
        field("ratio", "double" if wide else "float"),
        field("tags", "array", items={"type": "int64" if wide else "int32"}),
    ]
    values = {"id": number, "amount": base64_of(amount), "ratio": 0.1 if wide else 0.5, "tags": [number]}
    return wrapped(envelope(op, values, lsn=lsn), *fields)


def widened(tmp_path: Path) -> list[Any]:
    return contents(tmp_path, columns=("id", "amount", "ratio"))


BIG = 3_000_000_000


@pytest.mark.full
def test_columns_of_the_database_that_are_widened(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    """Also the key, whose deletions are remembered in the narrow type, and in one batch with records of both types."""
    sink = sink_of(tmp_path, schema_evolution=True, properties=WIDENING)

    def apply(batch: DataFrame, number: int) -> None:
        sink(capture.debezium(batch, keys=["id"]), number)

    gone = wrapped(envelope("d", before={"id": 2}, lsn=12), field("id", "int32"))
    topic.put(numbers(1, 125, 10, wide=False), numbers(2, 150, 11, wide=False))
    topic.put(gone, numbers(3, 175, 13, wide=False), numbers(BIG, BIG, 14, wide=True))
    topic.put(numbers(2, 1, 11, wide=False), numbers(1, BIG, 15, wide=True), b"no JSON")
    run(topic.stream(spark), apply, tmp_path)
    big = Decimal(BIG).scaleb(-2)
    expected = [(1, big, 0.1), (3, Decimal("1.75"), 0.5), (BIG, big, 0.1)]
    assert widened(tmp_path) == sorted(expected, key=str)
    types = {name.name: name.type for name in Table.open(str(tmp_path / "table")).schema}
    assert types["id"] == pa.int64()
    assert (types["amount"], types["tags"].value_type) == (pa.decimal128(12, 2), pa.int64())
    assert Table.open(str(tmp_path / "dead")).schema.field("id").type == pa.int64()


@pytest.mark.full
def test_a_truncate_and_left_out_values_of_a_widened_table(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    """A batch whose records all have the narrow type meets rows of the wide one."""
    sink = sink_of(tmp_path, schema_evolution=True, properties=WIDENING)
    left_out = [field("id", "int32"), field("tags", "array", items={"type": "int32"}), field("name", "string")]
    placeholder = {"id": 1, "tags": [*b"__debezium_unavailable_value"], "name": "new"}

    def apply(batch: DataFrame, number: int) -> None:
        sink(capture.debezium(batch, keys=["id"]), number)

    wide = [field("id", "int64"), field("tags", "array", items={"type": "int64"}), field("name", "string")]
    topic.put(wrapped(envelope("c", {"id": BIG, "tags": [], "name": "other"}, lsn=10), *wide))
    created = wrapped(envelope("c", {"id": 7, "tags": [], "name": "last"}, lsn=12), *left_out)
    topic.put(wrapped(envelope("t", lsn=11), *left_out), created)
    topic.put(wrapped(envelope("c", {"id": 1, "tags": [BIG], "name": "old"}, lsn=13), *wide))
    topic.put(wrapped(envelope("u", placeholder, lsn=14), *left_out))
    run(topic.stream(spark), apply, tmp_path)
    assert contents(tmp_path, columns=("id", "tags", "name")) == [(1, [BIG], "new"), (7, [], "last")]


@pytest.mark.full
def test_without_the_property_a_column_that_was_widened_stops_the_stream(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    sink = sink_of(tmp_path, schema_evolution=True)

    def apply(batch: DataFrame, number: int) -> None:
        sink(capture.debezium(batch, keys=["id"]), number)

    topic.put(numbers(1, 125, 10, wide=False))
    topic.put(numbers(2, BIG, 11, wide=True))
    error = refused(topic.stream(spark), apply, tmp_path / "cp", SchemaMismatchError)
    assert error.column in ("amount", "ratio")
    assert "set the table property delta.enableTypeWidening" in error.advice
    # Once it is set, the stream goes on.
    Table.open(str(tmp_path / "table")).set_properties(WIDENING)
    run(topic.stream(spark), apply, tmp_path)
    assert widened(tmp_path) == [(1, Decimal("1.25"), 0.5), (2, Decimal(BIG).scaleb(-2), 0.1)]


@pytest.mark.full
def test_a_column_whose_type_stays_does_not_stop_the_stream(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    """Such as a float by which the table is partitioned. The others are widened."""
    sink = sink_of(tmp_path, schema_evolution=True)
    schema = pa.schema([("id", pa.int32()), ("ratio", pa.float32()), ("_order", pa.string())])
    path = str(tmp_path / "table")
    Table.create(path, schema, partition_by=["ratio"], properties=WIDENING)

    def apply(batch: DataFrame, number: int) -> None:
        sink(capture.debezium(batch, schema=Table.open(path), keys=["id"], new_columns=True), number)

    topic.put(numbers(1, 125, 10, wide=False), numbers(BIG, BIG, 11, wide=True))
    run(topic.stream(spark), apply, tmp_path)
    assert contents(tmp_path, columns=("id", "ratio")) == [(1, 0.5), (BIG, float(np.float32(0.1)))]


@pytest.mark.parametrize("widens", [True, pytest.param(False, marks=pytest.mark.full)])
def test_the_columns_of_a_table_follow_the_records_if_it_can_be_widened(
    spark: SparkSession, topic: Topic, tmp_path: Path, widens: bool
) -> None:
    sink = sink_of(tmp_path, schema_evolution=True)
    schema = pa.schema([("id", pa.int32()), ("amount", pa.decimal128(6, 2)), ("_order", pa.string())])
    path = str(tmp_path / "table")
    Table.create(path, schema, properties=WIDENING if widens else {})

    def apply(batch: DataFrame, number: int) -> None:
        sink(capture.debezium(batch, schema=Table.open(path), keys=["id"], new_columns=True), number)

    topic.put(numbers(1, 125, 10, wide=False), numbers(BIG, 1, 11, wide=True), numbers(2, BIG, 12, wide=True))
    run(topic.stream(spark), apply, tmp_path)
    big = Decimal(BIG).scaleb(-2)
    found = contents(tmp_path, columns=("id", "amount"))
    assert found == ([(1, Decimal("1.25")), (2, big), (BIG, Decimal("0.01"))] if widens else [(1, Decimal("1.25"))])
    if not widens:
        reasons = [reason for (reason,) in contents(tmp_path, "dead", ("_reason",))]
        assert reasons == [
            "the column amount: 'ALLQXgA=' does not fit decimal(6,2) exactly",
            f"the column id: {BIG} does not fit int exactly",
        ]


def test_other_rows_are_refused(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    topic.put(envelope("c", row(1, "one")))
    rows = rows_of(topic, spark).drop("_unchanged")
    assert refused(rows, sink_of(tmp_path), tmp_path / "cp", SchemaMismatchError).column == "_unchanged"
    with pytest.raises(ConfigurationError, match="captured needs mode='upsert'"):
        Sink(str(tmp_path / "table"), captured=[])


@pytest.mark.full
def test_a_left_out_value_beside_a_variant_is_a_dead_letter(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    created = envelope("c", row(1, "one", "[1]"), lsn=5)
    left_out = envelope("u", row(1, PLACEHOLDER, "{}"), lsn=6)
    topic.put(created, envelope("c", row(2, "two", "[2]"), lsn=5), left_out)
    rows = capture.debezium(topic.stream(spark), schema="id BIGINT, name STRING, note VARIANT", keys=["id"])
    run(rows, sink_of(tmp_path), tmp_path)
    assert contents(tmp_path, columns=("id", "name")) == [(2, "two")]
    ((reason, raw),) = contents(tmp_path, "dead", ("_reason", "_raw"))
    assert "left out the value of name, which cannot be kept in a row with a VARIANT, the column note" in reason
    assert json.loads(raw) == left_out
    # Without a place for it, the stream stops.
    topic.put(left_out)
    error = refused(rows, sink_of(tmp_path, dead_letters=None), tmp_path / "cp", DataError)
    assert "the column note" in error.message


@pytest.mark.full
def test_a_truncate_beside_a_value_that_was_left_out(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    """What the truncate deletes of the batch itself does not come back with a record that is sent again."""
    created = envelope("c", row(1, "old"), lsn=10)
    topic.put(
        created, envelope("t", lsn=20), envelope("c", row(2, "two", "x"), lsn=21),
        envelope("u", row(2, "zwei", PLACEHOLDER), lsn=22),
    )  # fmt: skip
    topic.put(created)
    run(rows_of(topic, spark), sink_of(tmp_path), tmp_path)
    assert contents(tmp_path) == [(2, "zwei", "x")]


@pytest.mark.full
def test_a_truncate_whose_order_is_any_text(spark: SparkSession, tmp_path: Path) -> None:
    source = Input(tmp_path / "input")
    source.put_table(pa.table({"id": [1, 2], "op": ["c", "c"], "at": ["a'1", "c\\'"]}))
    source.put_table(pa.table({"id": [0], "op": ["t"], "at": ["b'"]}))
    rows = capture.operations(source.stream(spark, schema="id long, op string, at string"), order="at")
    run(rows, sink_of(tmp_path), tmp_path)
    assert contents(tmp_path, columns=("id",)) == [(2,)]
