"""Columns that are named like functions and words of SQL: a bare name means in tidelog what it means in Spark."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.log.rules.support import generated, ruled_table
from tests.log.support import memory_store, new_table
from tests.randomness import seed
from tidelog.log import Table, predicate
from tidelog.log.errors import ConstraintViolationError, PredicateError
from tidelog.log.predicate.evaluation import bind
from tidelog.log.predicate.rows import RowBlock

FORMS = (
    "{0}",
    "{0} = 1",
    "{1} + 1",
    "2 > {1}",
    "NOT {0} = 1",
    "{1} IS NOT NULL",
    "{0} IN (1, 2)",
    "abs({0}) + {0}",
    "CASE WHEN {0} = 1 THEN {1} END",
    "{1} BETWEEN {0} AND 5",
    "-{0}",
    "CAST({0} AS string)",
    "{0} <=> 1 AND {1} < 9",
    "st.{0} - 1",
    "`{0}` % 2",
)
# They must win, as it is with them that rows were lost.
ALWAYS = ("current_date", "current_timestamp", "current_user", "user", "session_user", "localtime", "localtimestamp",
          "current_time", "now", "if", "any", "date", "comment")  # fmt: skip
# Words that need backquotes, because an expression can have them: an error, never another value.
# fmt: off
WORDS = frozenset({
    "and", "as", "between", "case", "current_path", "distinct", "else", "false", "for", "from", "ilike", "in",
    "interval", "is", "like", "not", "null", "or", "regexp", "rlike", "select", "then", "true", "union", "when",
    "while", "with", "array", "list", "map", "range", "struct",
})
# fmt: on


def names_of(spark: SparkSession) -> list[str]:
    words = {row[0].lower() for row in spark.sql("SELECT keyword FROM sql_keywords()").collect()}
    functions = {row[0].lower() for row in spark.sql("SHOW FUNCTIONS").collect()}
    return sorted(name for name in words | functions if name.isidentifier() and name != "st")


def of_spark(frame: DataFrame, texts: Sequence[str]) -> list[Any]:
    """What Spark gives for each text; an error is an Ellipsis."""
    try:
        row = frame.selectExpr(*[f"{text} AS c{number}" for number, text in enumerate(texts)]).collect()[0]
    except PySparkException:
        half = len(texts) // 2
        return [...] if not half else of_spark(frame, texts[:half]) + of_spark(frame, texts[half:])
    return list(row)


def check(spark: SparkSession, names: Sequence[str]) -> None:
    kinds = [(name, pa.int32()) for name in names]
    schema = pa.schema([*kinds, ("st", pa.struct(kinds))])
    values = {name: number % 3 for number, name in enumerate(names)}
    rows = pa.Table.from_pylist([{**values, "st": {name: 7 - value for name, value in values.items()}}], schema)
    frame = spark.createDataFrame(rows)
    texts = {form.format(name, name.upper()): name for name in names for form in FORMS}
    for (text, name), theirs in zip(texts.items(), of_spark(frame, list(texts)), strict=True):
        try:
            bound = bind(predicate.parse(predicate.at_time(text, lambda: 0), schema), schema)
        except PredicateError:
            assert theirs is ... or name in WORDS, text
            continue
        if theirs is not ...:
            assert (text, bound.array(RowBlock.of(rows)).to_pylist()) == (text, [theirs])


def test_a_bare_name_is_what_it_is_in_spark(spark: SparkSession) -> None:
    names = [name for name in names_of(spark) if name not in ALWAYS]
    check(spark, [*ALWAYS, *random.Random(seed()).sample(names, 3)])


@pytest.mark.nightly
def test_every_word_and_function_of_spark(spark: SparkSession) -> None:
    names = names_of(spark)
    for start in range(0, len(names), 60):
        check(spark, names[start : start + 60])


# --- statements, rules and scans --------------------------------------------------------------------------------------

OLD, NEW = dt.date(2020, 1, 1), dt.date(2040, 1, 1)
DAY = "DATE '2030-01-01'"


def made(name: str, **properties: str) -> Table:
    schema = pa.schema([("id", pa.int64()), (name, pa.date32()), ("x", pa.date32())])
    table = new_table(memory_store(), schema, properties=properties)
    table.insert([{"id": 1, name: OLD}, {"id": 2, name: NEW}])
    return table


def deleted(table: Table, name: str) -> None:
    table.delete(f"{name} > {DAY}")


def updated(table: Table, name: str) -> None:
    table.update("id = 1", {"x": name})
    table.update(f"{name} > {DAY} OR x <> {name}", {"id": "9"})
    assert table.scan("x IS NOT NULL").to_arrow()["x"].to_pylist() == [OLD]
    table.delete("id = 9")


def upserted(table: Table, name: str) -> None:
    rows = [{"id": 1, name: OLD}, {"id": 2, name: NEW}]
    table.upsert(rows, keys=["id"], delete_where=f"{name} > {DAY}")


def upserted_in_part(table: Table, name: str) -> None:
    rows = [{"id": 1, name: OLD}, {"id": 2, name: NEW}]
    table.upsert(rows, keys=["id"], delete_where=f"{name} > {DAY}", columns="partial")


def merged(table: Table, name: str) -> None:
    table.upsert([{"id": 2}], keys=["id"], when_matched=[(f"{name} > {DAY}", "delete")])
    table.upsert([{"id": 1}], keys=["id"], when_matched=[(f"target.{name} > {DAY}", "delete")])


def overwritten(table: Table, name: str) -> None:
    table.overwrite([{"id": 1, name: OLD}], where=f"{name} < {DAY}")
    table.delete(f"{name} > {DAY}")


@pytest.mark.parametrize("name", ["current_date", "CURRENT_TIMESTAMP", "localtimestamp"])
@pytest.mark.parametrize("change", [deleted, updated, upserted, upserted_in_part, merged, overwritten])
def test_changes_of_rows_read_the_column(change: Callable[[Table, str], None], name: str) -> None:
    table = made(name)
    change(table, name.lower())
    assert table.refresh().scan().to_arrow().select(["id", name]).to_pylist() == [{"id": 1, name: OLD}]


def test_reads_read_the_column() -> None:
    table = made("Current_Date")
    where = f"current_date < {DAY}"
    assert [row["id"] for row in table.scan(where).to_arrow().to_pylist()] == [1]
    assert table.scan(where).count() == table.at().scan(where).count() == 1
    assert table.changes(where=where).to_arrow()["id"].to_pylist() == [1]
    parted = new_table(memory_store(), table.schema, partition_by=["Current_Date"])
    parted.insert(table.scan().to_arrow())
    assert parted.at().files(where).num_rows == 1
    parted.truncate(where=where)
    assert parted.scan().to_arrow()["id"].to_pylist() == [2]


def test_a_name_of_both_sides_of_a_merge_is_ambiguous() -> None:
    table = made("current_date")
    rows = [{"id": 2, "current_date": NEW}]
    with pytest.raises(PredicateError, match="'current_date' is a column of the source and of the target"):
        table.upsert(rows, keys=["id"], when_matched=[(f"current_date > {DAY}", "delete")])
    with pytest.raises(PredicateError, match="'current_date' is a column of the source and of the target"):
        table.upsert(rows, keys=["id"], when_matched=[(None, {"x": "current_date"})])
    table.upsert(rows, keys=["id"], when_matched=[("current_date() > DATE '2026-01-01'", {"x": "source.current_date"})])
    assert table.scan("x IS NOT NULL").to_arrow()["x"].to_pylist() == [NEW]


def test_rules_of_other_engines_read_the_column() -> None:
    schema = made("current_date").schema
    rule = {"x": generated("current_date")}
    table = ruled_table(schema, constraints={"early": f"current_date < {DAY}"}, fields=rule)
    table.insert([{"id": 3, "current_date": OLD}])
    assert table.scan().to_arrow()["x"].to_pylist() == [OLD]
    with pytest.raises(ConstraintViolationError, match="violate the constraint 'early'"):
        table.insert([{"id": 4, "current_date": NEW}])
    table.update("id = 3", {"current_date": "current_date + INTERVAL 1 DAY"})
    assert table.scan().to_arrow()["x"].to_pylist() == [OLD + dt.timedelta(1)]
