"""Which column a value gets into: fields of structs by their names, partition columns where they were written."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, MapType, StructField, StructType

from tests.log.rules.support import with_field_metadata
from tests.log.support import put_foreign
from tests.randomness import seed
from tests.streaming.datasource.sql_tables import rows
from tests.streaming.support import JVM_SOURCE, numbers_in
from tidelog.log import Table
from tidelog.log.state.loader import load
from tidelog.streaming import spark_versions, table

pytestmark = [pytest.mark.spark, JVM_SOURCE]

WHEN = {
    "whole rows": "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "rules": "WHEN MATCHED AND t.id >= 0 THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (v, id) VALUES (s.v, id)",
}


def a_type(draw: random.Random, depth: int) -> DataType:
    """A nested type whose leaves are numbers. All fields of a struct have one type: Spark could cast them by places."""
    kind = draw.choice(["struct", "struct", "array", "map", "leaf"]) if depth else "leaf"
    if kind == "leaf":
        return LongType()
    if kind == "array":
        return ArrayType(a_type(draw, depth - 1))
    if kind == "map":
        pair = StructType([StructField(name, LongType()) for name in "kl"])
        return MapType(draw.choice([LongType(), pair]), a_type(draw, depth - 1))
    inner = a_type(draw, depth - 1)
    return StructType([StructField(name, inner) for name in "abc"[: draw.randint(2, 3)]])


def permuted(draw: random.Random, kind: DataType) -> DataType:
    """The type with the fields of its structs in another order, and with narrower leaves."""
    if isinstance(kind, StructType):
        return StructType(draw.sample([StructField(f.name, permuted(draw, f.dataType)) for f in kind], len(kind)))
    if isinstance(kind, ArrayType):
        return ArrayType(permuted(draw, kind.elementType))
    if isinstance(kind, MapType):
        return MapType(permuted(draw, kind.keyType), permuted(draw, kind.valueType))
    return draw.choice([LongType(), IntegerType()])


def a_value(draw: random.Random, kind: DataType, *, nulls: bool = True) -> Any:
    """A value, whose structs are dicts."""
    if nulls and draw.random() < 0.15:
        return None
    if isinstance(kind, StructType):
        return {field.name: a_value(draw, field.dataType, nulls=nulls) for field in kind}
    if isinstance(kind, ArrayType):
        return [a_value(draw, kind.elementType) for _ in range(draw.randint(0, 2))]
    if isinstance(kind, MapType):
        return [(a_value(draw, kind.keyType, nulls=False), a_value(draw, kind.valueType))]
    return draw.randint(0, 99)


def for_spark(kind: DataType, value: Any) -> Any:
    """The value as `createDataFrame` takes it: structs by the places of the type's fields."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return tuple(for_spark(field.dataType, value[field.name]) for field in kind)
    if isinstance(kind, ArrayType):
        return [for_spark(kind.elementType, item) for item in value]
    if isinstance(kind, MapType):
        return {for_spark(kind.keyType, key): for_spark(kind.valueType, item) for key, item in value}
    return value


@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.nightly)])
def test_fields_of_structs_go_by_their_names(spark: SparkSession, tmp_path: Path, rounds: int) -> None:
    draw = random.Random(seed())
    for number in range(rounds):
        inner = a_type(draw, 2)
        kind = StructType([StructField(name, inner) for name in "xyz"])
        source = permuted(draw, kind)
        columns = StructType([StructField("id", LongType()), StructField("v", kind)])
        values = [a_value(draw, kind) for _ in range(4)]
        data = [(i, for_spark(source, value)) for i, value in enumerate(values)]
        given = StructType([StructField("id", LongType()), StructField("v", source)])
        spark.createDataFrame(data, given).createOrReplaceTempView("given")
        ways = {
            **{
                f"merge of {name}": f"MERGE INTO {{}} t USING given s ON t.id = s.id {when}"
                for name, when in WHEN.items()
            },
            "insert": "INSERT OVERWRITE {} BY NAME SELECT v, id FROM given",
            "upsert": "",
        }
        for way, statement in ways.items():
            made = Table.create(str(tmp_path / f"{number} {way}"), spark_versions.columns_to_arrow(columns))
            made.insert([{"id": 0, "v": None}])
            if statement:
                spark.sql(statement.format(f"tidelog.`{made.path}`"))
            else:
                table(spark, made.path).upsert(spark.table("given"), keys=["id"])
            found = made.refresh().scan().to_arrow().sort_by("id")["v"].to_pylist()
            assert found == values, (way, kind.simpleString(), source.simpleString())


def as_text(kind: DataType, value: Any) -> str:
    """A value as an SQL constant, with the fields of structs in the order of the type."""
    if value is None:
        return f"CAST(NULL AS {kind.simpleString()})"
    if isinstance(kind, StructType):
        fields = [f"'{field.name}', {as_text(field.dataType, value[field.name])}" for field in kind]
        return f"named_struct({', '.join(fields)})"
    if isinstance(kind, ArrayType):
        return f"array({', '.join(as_text(kind.elementType, item) for item in value)})"
    if isinstance(kind, MapType):
        entries = [f"{as_text(kind.keyType, key)}, {as_text(kind.valueType, item)}" for key, item in value]
        return f"map({', '.join(entries)})"
    return f"{value}L" if kind == LongType() else str(value)


@pytest.mark.parametrize("rounds", [1, pytest.param(40, marks=pytest.mark.nightly)])
def test_fields_of_constants_go_by_their_names(spark: SparkSession, tmp_path: Path, rounds: int) -> None:
    """Spark's optimizer forgets them."""
    draw = random.Random(seed())
    for number in range(rounds):
        inner = a_type(draw, 2)
        kind = draw.choice([StructType([StructField(name, inner) for name in "xyz"]), ArrayType(inner)])
        value = a_value(draw, kind, nulls=False)
        columns = StructType([StructField("id", LongType()), StructField("v", kind)])
        text = as_text(permuted(draw, kind), value)
        source = "MERGE INTO {} t USING (SELECT 1L AS id, true AS c) s ON t.id = s.id WHEN MATCHED"
        for way, statement in {
            "update": f"UPDATE {{}} SET v = {text} WHERE id = 1",
            "merge": f"{source} THEN UPDATE SET v = {text}",
            "branch": f"{source} THEN UPDATE SET v = IF(s.c, {text}, NULL)",
            "second action": f"{source} AND t.id > 1 THEN DELETE WHEN MATCHED THEN UPDATE SET v = {text}",
        }.items():
            made = Table.create(str(tmp_path / f"{number} {way}"), spark_versions.columns_to_arrow(columns))
            made.insert([{"id": 1, "v": None}, {"id": 2, "v": None}])
            spark.sql(statement.format(f"tidelog.`{made.path}`"))
            found = made.refresh().scan().to_arrow().sort_by("id")["v"].to_pylist()
            assert found == [value, None], (way, text, kind.simpleString())


def pairs(folder: Path, **more: Any) -> Table:
    kind = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    made = Table.create(str(folder / "pairs"), pa.schema([("id", pa.int64()), ("s", kind)]), **more)
    made.insert([{"id": 1, "s": {"a": 0, "b": 0}}])
    return made


MERGE = "MERGE INTO {} t USING (SELECT 1L AS id, true AS c, named_struct('x', 2L, 'y', 1L) AS s) s ON t.id = s.id"


@pytest.mark.parametrize(
    "statement",
    [
        f"{MERGE} WHEN MATCHED THEN UPDATE SET *",
        f"{MERGE} WHEN MATCHED THEN UPDATE SET s = named_struct('x', 2L, 'y', 1L)",
        "UPDATE {} SET s = named_struct('x', 2L, 'y', 1L)",
    ],
)
def test_fields_that_have_no_names_in_the_column_are_refused(
    spark: SparkSession, tmp_path: Path, statement: str
) -> None:
    made = pairs(tmp_path)
    with pytest.raises(PySparkException, match="INCOMPATIBLE_DATA_FOR_TABLE"):
        spark.sql(statement.format(f"tidelog.`{made.path}`"))
    assert made.refresh().version == 1
    spark.sql(f"CREATE TABLE named_pairs USING tidelog LOCATION '{made.path}'")
    try:
        with pytest.raises(PySparkException, match="INCOMPATIBLE_DATA_FOR_TABLE"):
            spark.sql(statement.format("named_pairs"))
    finally:
        spark.sql("DROP TABLE named_pairs")


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE {} SET s = named_struct('b', id, 'a', 7L)", {"a": 7, "b": 1}),
        pytest.param(
            f"{MERGE} WHEN MATCHED AND s.id > 1 THEN DELETE WHEN MATCHED THEN UPDATE SET s = struct(t.id AS b, 2 AS a)",
            {"a": 2, "b": 1},
            marks=pytest.mark.full,
        ),
        pytest.param("UPDATE {} SET s.b = s.a + 5", {"a": 0, "b": 5}, marks=pytest.mark.full),
    ],
)
def test_structs_of_the_values_of_a_row(
    spark: SparkSession, tmp_path: Path, statement: str, expected: dict[str, int]
) -> None:
    made = pairs(tmp_path)
    spark.sql(statement.format(f"tidelog.`{made.path}`"))
    assert made.refresh().scan().to_arrow()["s"].to_pylist() == [expected]


@pytest.mark.full
def test_a_cast_of_the_user_goes_by_places(spark: SparkSession, tmp_path: Path) -> None:
    made = pairs(tmp_path)
    source = "(SELECT 1L AS id, named_struct('b', 2L, 'a', 1L) AS s)"
    spark.sql(
        f"MERGE INTO tidelog.`{made.path}` t USING {source} s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET s = CAST(s.s AS STRUCT<a: BIGINT, b: BIGINT>)"
    )
    assert made.refresh().scan().to_arrow()["s"].to_pylist() == [{"a": 2, "b": 1}]


@pytest.mark.full
def test_insert_without_by_name_goes_by_places(spark: SparkSession, tmp_path: Path) -> None:
    made = pairs(tmp_path)
    spark.sql(f"INSERT INTO tidelog.`{made.path}` SELECT 2L, named_struct('b', 2L, 'a', 1L)")
    assert made.refresh().scan(where="id = 2").to_arrow()["s"].to_pylist() == [{"a": 2, "b": 1}]


# --- partition columns ------------------------------------------------------------------------------------------------


@pytest.fixture
def name(spark: SparkSession) -> Iterator[str]:
    yield "moved"
    spark.sql("DROP TABLE IF EXISTS moved")


CREATES = {
    "columns": "CREATE TABLE moved (day INT, hits INT) USING tidelog PARTITIONED BY (day) LOCATION '{}'",
    "select": "CREATE TABLE moved USING tidelog PARTITIONED BY (day) LOCATION '{}' AS SELECT 1 AS day, 5 AS hits",
    "a table that is there": "CREATE TABLE moved (day INT, hits INT) USING TIDELOG PARTITIONED BY (day) LOCATION '{}'",
}


@pytest.mark.oldest
@pytest.mark.parametrize("way", CREATES)
def test_a_partition_column_stays_where_it_is(spark: SparkSession, tmp_path: Path, name: str, way: str) -> None:
    path = str(tmp_path / "table")
    if way == "a table that is there":
        Table.create(path, pa.schema([("day", pa.int32()), ("hits", pa.int32())]), partition_by=["day"])
    spark.sql(CREATES[way].format(path))
    assert spark.table(name).columns == ["day", "hits"]
    made = Table.open(path)
    assert (made.schema.names, made.partition_by) == (["day", "hits"], ("day",))
    spark.sql("INSERT INTO moved VALUES (20260101, 7)")
    assert made.refresh().scan(where="day > 1").to_arrow().to_pylist() == [{"day": 20260101, "hits": 7}]


@pytest.mark.nightly
def test_any_partition_columns_stay_where_they_are(spark: SparkSession, name: str) -> None:
    draw = random.Random(seed())
    for _ in range(10):
        columns = draw.sample("abcdef", draw.randint(2, 6))
        parted = draw.sample(columns, draw.randint(1, len(columns) - 1))
        values = {column: draw.randint(0, 99) for column in columns}
        given = ", ".join(f"{values[column]} AS {column}" for column in columns)
        typed = ", ".join(f"{column} INT" for column in columns)
        create = f"CREATE TABLE moved {{}} USING tidelog PARTITIONED BY ({', '.join(parted)}) {{}}"
        for statement in (create.format(f"({typed})", ""), create.format("", f"AS SELECT {given} WHERE false")):
            spark.sql(statement)
            spark.sql(f"INSERT INTO moved VALUES ({', '.join(str(value) for value in values.values())})")
            assert spark.table(name).columns == columns, statement
            for column, value in values.items():
                assert rows(spark, f"SELECT {column} FROM moved") == [(value,)], (statement, column)
            spark.sql("DROP TABLE moved")


@pytest.mark.full
def test_save_as_table_has_partition_columns_last_and_goes_by_names(spark: SparkSession, name: str) -> None:
    """As with Spark's own formats, so that a job that runs each day can make the table, and append to it."""
    frame = spark.range(1).select(F.lit(20260101).alias("day"), F.lit(5).alias("hits"))
    for columns in (["day", "hits"], ["hits", "day"]):
        for _ in range(2):
            writer = frame.select(*columns).write.format("tidelog").mode("append")
            writer.partitionBy("day").saveAsTable(name)
        assert spark.table(name).columns == ["hits", "day"]
        assert rows(spark, "SELECT day, hits FROM moved") == [(20260101, 5)] * 2
        spark.sql("DROP TABLE moved")


def test_a_column_that_is_added_is_the_last(spark: SparkSession, name: str) -> None:
    spark.sql("CREATE TABLE moved (hits INT, day INT) USING tidelog PARTITIONED BY (day)")
    spark.sql("ALTER TABLE moved ADD COLUMNS (more INT)")
    assert spark.table(name).columns == ["hits", "day", "more"]
    spark.sql("INSERT INTO moved VALUES (1, 2, 3)")
    assert rows(spark, "SELECT hits, day, more FROM moved") == [(1, 2, 3)]


@pytest.mark.parametrize(
    "statement",
    [
        "EXECUTE IMMEDIATE 'CREATE TABLE moved (day INT, hits INT) USING tidelog PARTITIONED BY (day)'",
        "BEGIN CREATE TABLE moved (day INT, hits INT) USING tidelog PARTITIONED BY (day); END",
    ],
)
def test_an_order_that_is_not_known_is_refused(spark: SparkSession, name: str, statement: str) -> None:
    spark.conf.set("spark.sql.scripting.enabled", "true")  # Spark 4.0 has it off
    with pytest.raises(PySparkException, match="Spark has moved the partition columns behind the others"):
        spark.sql(statement)
    assert not spark.catalog.tableExists(name)


# --- texts of the type CHAR -------------------------------------------------------------------------------------------


CONDITIONS = [
    "c IN ('ab', 'abcde')",
    "c = 'ab'",
    "c = 'ab '",
    "c = 'abcdefg'",
    "c = 'abcde'",
    "c IN ('ab', 'q')",
    "length(c) = 5",
    "length(c) = 7",
    "c LIKE 'ab'",
    "c LIKE 'abcde%'",
    "c <=> 'abc'",
    "c > 'ab'",
    "concat(c, 'x') = 'ab   x'",
    "c = s",
    "substring(c, 1, 5) = 'abcde'",
    "coalesce(c, 'ab') = 'ab'",
    "c = d",
    "c = 'abcdefgh  '",
]


@pytest.mark.parametrize(
    "condition", [CONDITIONS[0], *(pytest.param(c, marks=pytest.mark.full) for c in CONDITIONS[1:])]
)
def test_a_text_of_the_type_char_is_compared_with_spaces(spark: SparkSession, tmp_path: Path, condition: str) -> None:
    # A file of another writer can have values of any length.
    texts = ["ab   ", "ab", "abc  ", None, "zz   ", "abcdefg", "abcde", "abcdefg  "]
    schema = pa.schema([("n", pa.int64()), *((name, pa.string()) for name in "cds")])
    made = Table.create(str(tmp_path / "table"), schema)
    others = [text and text[:3] for text in texts]
    made.insert([{"n": n, "c": text, "d": others[n], "s": texts[n - 1]} for n, text in enumerate(texts)])
    before = load(made.store).head.metadata
    kinds = {name: {"__CHAR_VARCHAR_TYPE_STRING": kind} for name, kind in {"c": "char(5)", "d": "char(3)"}.items()}
    typed = with_field_metadata(before.schema_string, kinds)
    put_foreign(made, msgspec.structs.replace(before, schema_string=typed))
    (tmp_path / "padded").mkdir()
    pq.write_table(made.scan().to_arrow(), tmp_path / "padded" / "rows.parquet")
    spark.sql(
        f"CREATE TABLE padded (n BIGINT, c CHAR(5), d CHAR(3), s STRING) USING parquet LOCATION '{tmp_path}/padded'"
    )
    try:
        expected = [n for (n,) in rows(spark, f"SELECT n FROM padded WHERE {condition}")]
    finally:
        spark.sql("DROP TABLE padded")
    named = f"tidelog.`{made.path}`"
    assert [n for (n,) in rows(spark, f"SELECT n FROM {named} WHERE {condition}")] == expected
    loaded = spark.read.format("tidelog").load(made.path)
    assert sorted(row.n for row in loaded.where(condition).collect()) == expected
    spark.sql(f"DELETE FROM {named} WHERE {condition}")
    assert numbers_in(Path(made.path)) == [n for n in range(len(texts)) if n not in expected]
