"""Each column of a record has a place in the rows, is left out on purpose, or makes the record a dead letter."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tests.randomness import seed
from tests.streaming.capture.envelopes import Topic, envelope, field, records, run, wrapped
from tests.streaming.support import refused
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, SchemaMismatchError
from tidelog.streaming import capture
from tidelog.streaming.capture.changes import ChangeRows
from tidelog.streaming.capture.column_names import Names, Rename
from tidelog.streaming.capture.debezium import Debezium
from tidelog.streaming.capture.schemas import types_of
from tidelog.streaming.capture.values import Encoding

_TYPES = {"int64": LongType(), "string": StringType()}


def columns(*names: str) -> StructType:
    return StructType([StructField(name, LongType() if name == "id" else StringType()) for name in names])


def read(schema: StructType, rename: Rename, *values: Any, has_all: bool = False) -> list[dict[str, Any]]:
    """What a task makes of records, without Spark."""
    content = pa.array([json.dumps(value).encode() for value in values], pa.binary())
    batch = pa.record_batch(
        [content, pa.array(range(len(content))), pa.nulls(len(content), pa.binary())], ["v", "o", "k"]
    )
    rows = ChangeRows(schema, ("id",), Encoding(), Debezium(("id",)), "", rename, has_all)
    return [line for found in rows.batches()(iter([batch])) for line in found.to_pylist()]


def found_in(rename: Rename, *values: Mapping[str, Any], known: Sequence[str] = ()) -> StructType:
    """The columns of records, as the driver finds them."""
    types = types_of([json.dumps(value["schema"]) for value in values], Names(rename, known))
    return StructType([StructField(name, kind) for name, kind in types.items()])


def record(**row: Any) -> dict[str, Any]:
    fields = (field(name, "int64" if type(value) is int else "string") for name, value in row.items())
    return wrapped(envelope("c", row), *fields)


# --- rename


@pytest.mark.parametrize(
    ("rename", "row", "reason"),
    [
        ({"A": "b"}, {"A": "x", "b": "y"}, "a column 'b', and rename gives the name 'b' to the column 'A'"),
        ({"A": "b"}, {"B": "y", "A": "x"}, "a column 'B', and rename gives the name 'b' to the column 'A'"),
        ({"A": "b"}, {"b": "y"}, "a column 'b', and rename gives the name 'b' to the column 'A'"),
        ({"a": "b"}, {"A": "x"}, "a column 'A', and rename spells it 'a'"),
        ({}, {"B": "x"}, "a column 'B', and the rows have 'b'"),
        ({"A": "b"}, {"A": "x"}, None),
        ({"A": "b", "b": None}, {"A": "x", "b": "y"}, None),
        ({"A": "b", "b": "c"}, {"A": "x", "b": "y"}, None),
        ({}, {"b": "x", "B": "y"}, None),
        # It may be there later.
        ({"later": "c"}, {"b": "x"}, None),
        ({"later": None}, {"b": "x"}, None),
    ],
)
def test_no_column_takes_the_name_of_another(rename: Rename, row: dict[str, Any], reason: str | None) -> None:
    (line,) = read(columns("id", "b", "c"), rename, envelope("c", {"id": 1, **row}))
    if reason is None:
        assert (line["_reason"], line["b"]) == (None, "x")
        return
    assert reason in line["_reason"]
    assert json.loads(line["_raw"])["after"] == {"id": 1, **row}


@pytest.mark.parametrize("row", [{"A": "x", "b": "y"}, {"A": "x", "B": "y"}, {"b": "y"}])
def test_a_rename_that_no_record_goes_with_is_an_error(row: dict[str, Any]) -> None:
    taken = record(id=1, **row)
    with pytest.raises(SchemaMismatchError, match="rename gives the name 'b' to the column 'A'") as error:
        found_in({"A": "b"}, taken)
    assert error.value.column in ("b", "B")
    # One record among others is a dead letter.
    other = record(id=2, A="x")
    schema = found_in({"A": "b"}, other, taken)
    assert schema.names == ["id", "b"]
    lines = read(schema, {"A": "b"}, other, taken, has_all=True)
    assert [(line["b"], line["_reason"] is None) for line in lines] == [("x", True), (None, False)]


# --- schemas of single records

_NAMES = ("a", "A", "b", "B", "", "x" * 10_000, "a\n\x00", "_op", "_ORDER", "_commit_version", "c.d`e", "ä", "Ä")
_RENAMES: Sequence[Rename] = ({}, {"a": "b"}, {"_op": "what", "A": None}, {"b": "a", "a": "b"}, {"B": "ä"})


def _require_placed(chance: random.Random) -> None:
    rename = chance.choice(_RENAMES)
    values = []
    for number in range(chance.randrange(1, 5)):
        row = {name: chance.choice((number, f"text {number}")) for name in chance.sample(_NAMES, chance.randrange(4))}
        values.append(record(id=number, **row))
    try:
        schema = found_in(rename, *values)
    except SchemaMismatchError:
        schema = columns("id")
    assert len({name.lower() for name in schema.names}) == len(schema.names)
    assert not {"_op", "_order", "_commit_version"} & {name.lower() for name in schema.names}
    if "id" not in schema.names:
        return
    for value, line in zip(values, read(schema, rename, *values, has_all=True), strict=True):
        row = value["payload"]["after"]
        if line["_reason"] is not None:
            assert json.loads(line["_raw"]) == value
            continue
        kept = {rename.get(name, name): content for name, content in row.items() if rename.get(name, name) is not None}
        assert len(kept) == sum(rename.get(name, name) is not None for name in row)
        assert {name: str(line[str(name)]) for name in kept} == {name: str(content) for name, content in kept.items()}


def test_random_columns_have_a_place_or_are_dead_letters() -> None:
    chance = random.Random(seed())
    for _ in range(150):
        _require_placed(chance)


@pytest.mark.nightly
def test_many_random_columns_have_a_place_or_are_dead_letters() -> None:
    chance = random.Random(seed())
    for _ in range(5_000):
        _require_placed(chance)


def test_the_type_that_came_first_counts() -> None:
    number, text = record(id=1, a=5), record(id=2, a="x")
    schema = found_in({}, number, text)
    assert schema["a"].dataType == LongType()
    lines = read(schema, {}, number, text, record(id=3, a="7"), has_all=True)
    assert [(line["a"], line["_reason"] is None) for line in lines] == [(5, True), (None, False), (7, True)]
    assert found_in({}, text, number)["a"].dataType == StringType()


def test_a_schema_that_is_none_gives_no_columns() -> None:
    decimal = field(
        "d", "bytes", "org.apache.kafka.connect.data.Decimal", parameters={"connect.decimal.precision": "0"}
    )
    none = wrapped(envelope("c", {"id": 1, "d": "AQ=="}), field("id", "int64"), decimal)
    many = wrapped(envelope("c", {"id": 1}), *(field(f"c{number}", "int64") for number in range(4_097)))
    assert found_in({}, none)["d"].dataType == StringType()
    assert found_in({}, many).names == []
    halves = [wrapped(envelope("c"), *(field(f"{part}{number}", "int64") for number in range(3_000))) for part in "ab"]
    assert len(found_in({}, *halves)) == 3_000


BAD = {
    "a name of the sink's": wrapped(
        envelope("c", {"id": 9, "_Raw": "x"}), field("id", "int64"), field("_Raw", "string")
    ),
    "a name of the feed's": record(id=9, _commit_timestamp=5),
    "twins": record(id=9, NAME="x"),
    "another type": record(id="9x"),
    "no schema": envelope("c", {"id": "9x"}),
    "junk": b"{",
}


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("known", [False, True])
def test_one_record_s_schema_stops_no_stream(spark: SparkSession, tmp_path: Path, known: bool) -> None:
    path = str(tmp_path / "t")
    sink = capture.sink(path, keys=["id"], dead_letters=str(tmp_path / "dead"), schema_evolution=True)
    # Among others, alone in a batch, and the others after it.
    topic = Topic(tmp_path / "topic").put(record(id=1, name="a"), *BAD.values(), record(id=2, name="b"))
    topic.put(BAD["a name of the sink's"]).put(record(id=3, name="c", more="new"))

    def apply(batch: Any, number: int) -> None:
        schema = Table.open(path) if known and number else None
        sink(capture.debezium(batch, schema=schema, keys=["id"], new_columns=schema is not None), number)

    run(topic.stream(spark), apply, tmp_path)
    table = Table.open(path)
    assert sorted(table.scan(columns=["id", "name", "more"]).to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "name": "a", "more": None},
        {"id": 2, "name": "b", "more": None},
        {"id": 3, "name": "c", "more": "new"},
    ]
    letters = Table.open(str(tmp_path / "dead")).scan(columns=["_raw"]).to_arrow()["_raw"].to_pylist()
    given = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in BAD.values()]
    assert sorted(letters) == sorted([*given, given[0]])


@pytest.mark.spark
def test_the_schemas_of_a_batch_are_judged_together(spark: SparkSession) -> None:
    taken = record(id=1, A="x", b="y")
    with pytest.raises(SchemaMismatchError, match="rename gives the name 'b' to the column 'A'"):
        capture.debezium(records(spark, taken, taken), keys=["id"], rename={"A": "b"})
    # The schema that most records have comes first.
    frame = records(spark, *BAD.values(), taken, record(id=2, A="x"), record(id=3, A="z"))
    rows = capture.debezium(frame, keys=["id"], rename={"A": "b"}).collect()
    assert {line["id"]: line["b"] for line in rows if line["_reason"] is None} == {2: "x", 3: "z", 9: None}
    assert len(rows) == len(BAD) + 3


@pytest.mark.full
@pytest.mark.spark
def test_a_new_table_needs_a_record_that_says_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    sink = capture.sink(str(tmp_path / "t"), keys=["id"], dead_letters=str(tmp_path / "dead"))

    def apply(batch: Any, number: int) -> None:
        sink(capture.debezium(batch, keys=["id"]), number)

    topic = Topic(tmp_path / "topic").put(BAD["a name of the sink's"])
    error = refused(topic.stream(spark), apply, tmp_path / "cp", ConfigurationError)
    assert "of one of them the record has a column '_Raw'" in error.message
