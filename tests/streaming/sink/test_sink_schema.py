"""The columns of a batch, written by both writers: new and nested ones, other case, reserved names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.lanes import full_but
from tests.log.support import put_foreign
from tests.streaming.support import Input, drain, footprint, refused, run_to_end
from tidelog.log import Table
from tidelog.log.errors import SchemaMismatchError, TidelogError
from tidelog.streaming import Feed, Sink

pytestmark = [pytest.mark.spark, pytest.mark.parametrize("writer", full_but(["spark"], ["driver", "spark"]))]


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


def rows(path: Path) -> list[dict[str, Any]]:
    return sorted(Table.open(str(path)).scan().to_arrow().to_pylist(), key=lambda row: row["n"])


def test_new_columns_and_nested_fields_are_added_by_the_batch_that_has_them(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str
) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    sink = Sink(str(path), schema_evolution=True, writer=writer)
    first = source.put_table(pa.table({"n": pa.array([1], pa.int64())})).stream(spark)
    drain(first.selectExpr("n", "named_struct('a', n) s"), sink, checkpoint)
    second = source.put_table(pa.table({"n": pa.array([2], pa.int64())})).stream(spark)
    wider = second.selectExpr("named_struct('b', 'x', 'A', n) S", "cast(n as int) N", "date'2026-11-21' day")
    drain(wider, sink, checkpoint)
    third = source.put_table(pa.table({"n": pa.array([3], pa.int64())})).stream(spark)
    drain(third, sink, checkpoint)

    table = Table.open(str(path))
    assert (table.version, table.schema.names) == (3, ["n", "s", "day"])
    found = [(row["n"], row["s"], str(row["day"])) for row in rows(path)]
    assert found == [
        (1, {"a": 1, "b": None}, "None"),
        (2, {"a": 2, "b": "x"}, "2026-11-21"),
        (3, None, "None"),
    ]
    kinds = [record.operation_class for record in table.history(3)]
    assert {str(kind) for kind in kinds} == {"INSERT"}, "the same commits added the columns and the rows"


@pytest.mark.parametrize(
    ("select", "evolve", "kind", "message"),
    [
        ("n; n + 1 more", False, SchemaMismatchError, "the data has a column 'more' that the table does not have"),
        (
            "named_struct('c', 1) s; n",
            False,
            SchemaMismatchError,
            "a column 's.c' that the table does not have",
        ),
        ("cast(n as string) n", False, SchemaMismatchError, "'n' is int64 in the table but string in the data"),
        ("cast(n as string) n", True, SchemaMismatchError, "'n' is int64 in the table but string in the data"),
        ("n; 1 N", True, SchemaMismatchError, "the data has the column 'N' twice"),
        ("n; array() more", True, SchemaMismatchError, "the data's new column 'more' has only a part of a type"),
        ("n; 1 _commit_version", True, SchemaMismatchError, "'_commit_version', which a change feed adds to a row"),
    ],
)
def test_a_column_that_does_not_fit_is_named_and_nothing_is_written(
    spark: SparkSession,
    source: Input,
    tmp_path: Path,
    writer: str,
    select: str,
    evolve: bool,
    kind: type[TidelogError],
    message: str,
) -> None:
    path = tmp_path / "table"
    Table.create(str(path), pa.schema([("n", pa.int64()), ("s", pa.struct([("a", pa.int64())]))]))
    before = footprint(path)
    stream = source.put().stream(spark).selectExpr(*select.split("; "))
    error = refused(stream, Sink(str(path), schema_evolution=evolve, writer=writer), tmp_path / "cp", kind)
    assert message in str(error)
    assert footprint(path) == before


@pytest.mark.parametrize(
    ("mode", "select", "column"),
    [
        ("append", "n; n + 1 More", "More"),
        ("append", "n; named_struct('a', 1L, 'c', 1) s", "s.c"),
        ("append", "n; array(named_struct('x', 1L, 'y', 2)) l", "l.element.y"),
        ("append", "n; map('k', named_struct('x', 1L, 'y', 2)) m", "m.value.y"),
        ("upsert", "n; n + 1 More", "More"),
        ("overwrite-partitions", "n; n + 1 More", "More"),
    ],
)
def test_a_new_column_is_refused_with_the_argument_that_would_add_it(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str, mode: str, select: str, column: str
) -> None:
    path = tmp_path / "table"
    inner = pa.struct([("x", pa.int64())])
    fields = [("n", pa.int64()), ("s", pa.struct([("a", pa.int64())])), ("l", pa.list_(inner))]
    schema = pa.schema([*fields, ("m", pa.map_(pa.string(), inner)), ("p", pa.int64())])
    Table.create(str(path), schema, partition_by=["p"])
    before = footprint(path)
    stream = source.put().stream(spark).selectExpr(*select.split("; "), "n % 2 p")
    sink = Sink(str(path), mode=mode, keys=["n"] if mode == "upsert" else (), writer=writer)
    error = refused(stream, sink, tmp_path / "cp", SchemaMismatchError)
    assert error.column == column
    assert error.advice == "pass schema_evolution=True to add it to the table, or drop it from the data"
    assert footprint(path) == before


def test_a_table_cannot_be_created_with_a_column_of_the_change_feed(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str
) -> None:
    path = tmp_path / "table"
    stream = source.put().stream(spark).selectExpr("n", "'x' _Change_Type")
    error = refused(stream, Sink(str(path), writer=writer), tmp_path / "cp", SchemaMismatchError)
    assert error.column == "_Change_Type"
    assert "by '-_change_type' among the columns of the feed" in error.advice
    assert not path.exists()


def test_a_feed_with_its_own_columns_is_told_how_to_leave_them_out(
    spark: SparkSession, tmp_path: Path, writer: str
) -> None:
    for name in ("a", "b"):
        Table.create(str(tmp_path / name), pa.schema([("n", pa.int64())])).insert([{"n": 1}])
    sink = Sink(str(tmp_path / "b"), writer=writer)
    with pytest.raises(StreamingQueryException, match="'-_commit_version' among the columns of the feed"):
        run_to_end(Feed(spark, str(tmp_path / "a"), columns=["n"]).foreachBatch(sink), tmp_path / "cp")
    bare = Feed(spark, str(tmp_path / "a"), columns=["n", "-_commit_version", "-_commit_timestamp"])
    run_to_end(bare.foreachBatch(sink), tmp_path / "cp2")
    assert Table.open(str(tmp_path / "b")).scan().to_arrow().to_pylist() == [{"n": 1}, {"n": 1}]


WIDENING = {"delta.enableTypeWidening": "true"}
NARROW = "cast(n as int) n; cast(n as float) f; cast(n as decimal(4, 1)) d; array(named_struct('a', cast(n as byte))) l"
WIDE = "n + 3000000000 n; n / 10D f; cast(n / 100D as decimal(6, 2)) d; array(named_struct('a', n + 1000)) l"


@pytest.mark.parametrize("mode", full_but(["append", "upsert"], ["append", "upsert", "overwrite-partitions"]))
def test_a_wider_type_is_that_of_the_table_from_its_batch_on(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str, mode: str
) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    own: dict[str, Any] = {"keys": ["n"], "order_by": "at"} if mode == "upsert" else {}
    if mode == "overwrite-partitions":
        own = {"partition_by": ["n"]}
    sink = Sink(str(path), mode=mode, schema_evolution=True, writer=writer, properties=WIDENING, **own)
    for select in (f"{NARROW}; 1 at", f"{WIDE}; 3000000000 at", f"{NARROW}; 2 at"):
        drain(source.put().stream(spark).selectExpr(*select.split("; ")), sink, checkpoint)
    table = Table.open(str(path))
    assert table.schema.field("n").type == table.schema.field("at").type == pa.int64()
    assert table.schema.field("f").type == pa.float64()
    assert table.schema.field("d").type == pa.decimal128(6, 2)
    assert table.schema.field("l").type.value_type.field(0).type == pa.int64()
    found = rows(path)
    expected = [*range(10), *range(20, 30), *(n + 3_000_000_000 for n in range(10, 20))]
    assert [row["n"] for row in found] == expected
    assert [row["f"] for row in found] == [*map(float, [*range(10), *range(20, 30)]), *(n / 10 for n in range(10, 20))]
    assert [row["l"][0]["a"] for row in found] == [*range(10), *range(20, 30), *range(1010, 1020)]
    assert [str(row["d"]) for row in found] == [
        *(f"{n}.00" for n in (*range(10), *range(20, 30))),
        *(f"0.{n}" for n in range(10, 20)),
    ]


@pytest.mark.parametrize(
    ("properties", "evolve", "advice"),
    [
        ({}, False, "to make the column bigint, set the table property delta.enableTypeWidening and pass "),
        ({}, True, "to make the column bigint, set the table property delta.enableTypeWidening"),
        (WIDENING, False, "to make the column bigint, pass schema_evolution=True"),
        ({**WIDENING, "delta.constraints.c": "n < 100"}, True, "because a rule of the table reads it"),
    ],
)
def test_a_wider_type_is_refused_with_what_would_widen_the_column(
    spark: SparkSession,
    source: Input,
    tmp_path: Path,
    writer: str,
    properties: dict[str, str],
    evolve: bool,
    advice: str,
) -> None:
    path = tmp_path / "table"
    own = {key: value for key, value in properties.items() if not key.startswith("delta.constraints")}
    table = Table.create(str(path), pa.schema([("n", pa.int32())]), properties=own)
    if own != properties:
        old = table.head.metadata
        put_foreign(table, msgspec.structs.replace(old, configuration={**old.configuration, **properties}))
    before = footprint(path)
    stream = source.put().stream(spark).selectExpr("n + 3000000000 n")
    sink = Sink(str(path), schema_evolution=evolve, writer=writer)
    error = refused(stream, sink, tmp_path / "cp", SchemaMismatchError)
    assert error.column == "n"
    assert advice in error.advice
    assert footprint(path) == before
