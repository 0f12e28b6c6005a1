"""Columns of the type CHAR(n) are compared as Spark compares them: with spaces at the end."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.log.rules.support import ruled_table
from tests.log.support import START_MS, put_foreign
from tests.randomness import seed
from tidelog.log import Table, predicate
from tidelog.log.errors import ConstraintViolationError, PredicateError
from tidelog.log.format.actions import AddFile
from tidelog.log.predicate.evaluation import bind
from tidelog.log.predicate.rows import RowBlock

SCHEMA = pa.schema([("id", pa.int64()), ("c", pa.string()), ("d", pa.string()), ("v", pa.string()), ("s", pa.string())])
TYPES = {"c": "char(5)", "d": "CHAR(3)", "v": "varchar(4)"}
FIELDS = {name: {"__CHAR_VARCHAR_TYPE_STRING": kind} for name, kind in TYPES.items()}


def made(rows: pa.Table) -> Table:
    """A table with one file of these rows, as another engine would have written it."""
    table = ruled_table(SCHEMA, fields=FIELDS)
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    content = sink.getvalue().to_pybytes()
    table.store.put_if_absent("a.parquet", content)
    stats = msgspec.json.encode({"numRecords": rows.num_rows}).decode()
    file = AddFile(
        path="a.parquet", partition_values={}, size=len(content), modification_time=START_MS, data_change=True
    )
    put_foreign(table, msgspec.structs.replace(file, stats=stats))
    return table.refresh()


ROWS = pa.Table.from_pylist(
    [
        {"id": 1, "c": "ab   ", "d": "ab ", "v": "ab", "s": "ab"},
        {"id": 2, "c": "ab", "d": "abc", "v": "abc", "s": "ab   "},
        {"id": 3, "c": "abcde", "d": "x  ", "v": "x", "s": "abcde"},
        {"id": 4},
        {"id": 5, "c": "abcdefg", "d": "", "v": "", "s": ""},
    ],
    SCHEMA,
)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("c = 'ab'", [1, 2]),
        ("'ab       ' = c", [1, 2]),
        ("c <> 'ab'", [3, 5]),
        ("c IN ('abcdefgh', 'ab')", [1, 2]),
        ("c IN ('ab', NULL)", []),
        ("c <= 'ab' AND c >= concat('a', 'b')", [1, 2]),
        ("c = d", [1]),
        ("c = s", [2, 3]),
        ("c BETWEEN 'ab' AND 'ab'", []),
        ("c LIKE 'ab   '", [1, 2]),
        ("length(c) = 5", [1, 2, 3]),
        ("c IS NULL", [4]),
        ("v = 'ab '", []),
    ],
)
def test_rows_are_chosen_as_in_a_query_of_spark(where: str, expected: list[int]) -> None:
    table = made(ROWS)
    assert table.scan(where).to_arrow()["id"].to_pylist() == expected
    assert table.scan(where).count() == len(expected)
    assert table.changes(where=where, mode="append").to_arrow()["id"].to_pylist() == expected
    table.delete(where)
    assert table.scan().to_arrow()["id"].to_pylist() == [number for number in range(1, 6) if number not in expected]


def test_a_file_is_not_left_out_by_bounds_without_spaces() -> None:
    table = made(ROWS)
    (file,) = table.at().files().to_pylist()
    stats = {"numRecords": 5, "minValues": {"c": "ab"}, "maxValues": {"c": "abcdefg"}, "nullCount": {"c": 1}}
    action = AddFile(
        path=file["path"], partition_values={}, size=file["size"], modification_time=START_MS, data_change=False
    )
    put_foreign(table, msgspec.structs.replace(action, stats=msgspec.json.encode(stats).decode()))
    for where in ("c = 'ab'", "c < 'ab    z'", "c IN ('ab    ')"):
        assert 2 in table.refresh().scan(where).to_arrow()["id"].to_pylist()
    assert table.scan("c IS NULL").count() == 1


def test_the_length_is_bounded() -> None:
    with pytest.raises(PredicateError, match="would be padded to 5,000 characters"):
        made(ROWS).scan(f"c = '{'x' * 5_000}'")
    fields = {"c": {"__CHAR_VARCHAR_TYPE_STRING": "char(999999999)"}}
    with pytest.raises(PredicateError, match="would be padded to 999,999,999 characters"):
        ruled_table(SCHEMA, fields=fields).scan("length(c) > 5")


def test_new_rows_are_padded() -> None:
    table = made(ROWS)
    table.insert([{"id": 9, "c": "x", "d": "x    "}])
    assert table.scan("id = 9", columns=["c", "d"]).to_arrow().to_pylist() == [{"c": "x    ", "d": "x  "}]
    with pytest.raises(ConstraintViolationError, match=r"too long for char\(5\)"):
        table.insert([{"id": 10, "c": "abcdefg"}])


# --- compared with Spark ----------------------------------------------------------------------------------------------


def texts(drawn: random.Random, count: int) -> list[str]:
    """Expressions of which most read a column of the type CHAR."""

    def constant() -> str:
        text = "".join(drawn.choices("ab ", k=drawn.randrange(8)))
        return drawn.choice([f"'{text}'"] * 5 + [f"concat('{text}', 'a')", "NULL", f"trim('{text}')"])

    def side() -> str:
        return drawn.choice(["c", "c", "d", "d", "v", "s", "upper(s)", "c || d", constant(), constant()])

    def condition() -> str:
        column, symbol = drawn.choice("cd"), drawn.choice(["=", "<>", "<", "<=", ">", ">=", "<=>"])
        return drawn.choice(
            [
                f"{column} {symbol} {constant()}",
                f"{constant()} {symbol} {column}",
                f"{side()} {symbol} {side()}",
                f"{column} IN ({constant()}, {constant()})",
                f"{column} NOT IN ({constant()})",
                f"{column} IN ({side()}, {side()})",
                f"{side()} BETWEEN {side()} AND {side()}",
                f"{side()} LIKE 'a%'",
                f"length({side()}) > 3",
                f"nullif({column}, {constant()}) IS NULL",
                f"coalesce({column}, 'x') = {constant()}",
                f"CASE {column} WHEN {constant()} THEN {side()} = 'a' ELSE {column} = {constant()} END",
            ]
        )

    return [
        drawn.choice(["{0}", "NOT {0}", "{0} AND {1}", "{0} OR {1}"]).format(f"({condition()})", f"({condition()})")
        for _ in range(count)
    ]


def check(spark: SparkSession, folder: Path, count: int) -> None:
    drawn = random.Random(seed())

    def value(length: int) -> str | None:
        text = "".join(drawn.choices("ab ", k=drawn.randrange(length + 1)))
        return None if drawn.random() < 0.1 else text.ljust(length) if drawn.random() < 0.5 else text

    rows = pa.Table.from_pylist(
        [{"id": number, "c": value(5), "d": value(3), "v": value(4), "s": value(5)} for number in range(60)], SCHEMA
    )
    pq.write_table(rows, folder / "a.parquet")
    spark.sql(
        "CREATE TABLE chars (id BIGINT, c CHAR(5), d CHAR(3), v VARCHAR(4), s STRING) "
        f"USING parquet LOCATION '{folder}'"
    )
    try:
        wanted = texts(drawn, count)
        found = spark.table("chars").orderBy("id").selectExpr(*[f"({text}) AS x{n}" for n, text in enumerate(wanted)])
        theirs = found.toArrow()
    finally:
        spark.sql("DROP TABLE chars")
    schema = made(rows).schema
    for text, column in zip(wanted, theirs.columns, strict=True):
        mine = bind(predicate.parse(text, schema), schema).array(RowBlock.of(rows))
        assert (text, mine.to_pylist()) == (text, column.to_pylist())


def test_expressions_have_the_values_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    check(spark, tmp_path, 25)


@pytest.mark.nightly
def test_many_expressions_have_the_values_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    check(spark, tmp_path, 1_000)
