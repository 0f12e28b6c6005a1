"""Expressions have the type and the values that Spark gives them, and fail where they fail in Spark.

Spark evaluates many expressions in one job. A job that fails is cut in halves, until each failing expression is alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.log.predicate.expressions import EXPRESSIONS, GROUPINGS
from tests.log.predicate.values import SCHEMA, rows
from tests.log.support import memory_store, new_table
from tidelog.log import predicate
from tidelog.log.errors import PredicateError
from tidelog.log.predicate.evaluation import bind
from tidelog.log.predicate.rows import RowBlock

ROWS = rows(24, seed=1)
_COLUMNS = """y tinyint, i int, n bigint, g float, f double, m decimal(9,2), w decimal(30,10), s string, u string,
    b boolean, c boolean, d date, e date, t timestamp, z timestamp_ntz, st struct<x: bigint, In: struct<y: string>>"""
FAILS = "fails"


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    found = spark.createDataFrame(ROWS, _COLUMNS).cache()
    assert found.count() == ROWS.num_rows
    return found


def of_spark(frame: DataFrame, texts: Sequence[str]) -> list[Any]:
    """What Spark gives for each text."""
    try:
        found = frame.selectExpr(*[f"{text} AS c{number}" for number, text in enumerate(texts)]).toArrow()
    except PySparkException:
        half = len(texts) // 2
        return [FAILS] if not half else of_spark(frame, texts[:half]) + of_spark(frame, texts[half:])
    return [shown(column.combine_chunks()) for column in found.columns]


def of_tidelog(text: str) -> Any:
    bound = bind(predicate.parse(text, SCHEMA), SCHEMA)
    try:
        return shown(bound.array(RowBlock.of(ROWS)))
    except pa.ArrowException:
        return FAILS


def shown(values: pa.Array) -> tuple[str, list[str]]:
    """The type and the values, as text; those of moments as numbers, since Python lacks some."""
    numbers = {pa.date32(): pa.int32()}.get(values.type, pa.int64() if pt.is_timestamp(values.type) else values.type)
    return str(values.type), list(map(repr, values.cast(numbers).to_pylist()))


def check(frame: DataFrame, texts: Sequence[str]) -> None:
    for text, theirs in zip(texts, of_spark(frame, texts), strict=True):
        assert (text, of_tidelog(text)) == (text, theirs)


def several(count: int) -> st.SearchStrategy[list[str]]:
    """Expressions of all types, the same number of each."""
    return st.tuples(*[st.lists(EXPRESSIONS[name], min_size=count, max_size=count) for name in EXPRESSIONS]).map(
        lambda drawn: [text for texts in drawn for text in texts]
    )


_QUICK = settings(phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)


@settings(_QUICK, max_examples=2)
@given(several(5))
def test_generated_expressions(frame: DataFrame, texts: list[str]) -> None:
    check(frame, texts)


@pytest.mark.nightly
@settings(_QUICK, max_examples=100)
@given(several(6))
def test_many_generated_expressions(frame: DataFrame, texts: list[str]) -> None:
    check(frame, texts)


@settings(_QUICK, max_examples=1)
@given(st.lists(GROUPINGS, min_size=60, max_size=60, unique=True))
def test_operators_are_grouped_as_in_spark(spark: SparkSession, texts: list[str]) -> None:
    check_groups(spark, texts)


@pytest.mark.nightly
@settings(_QUICK, max_examples=20)
@given(st.lists(GROUPINGS, min_size=100, max_size=100, unique=True))
def test_many_operators_are_grouped_as_in_spark(spark: SparkSession, texts: list[str]) -> None:
    check_groups(spark, texts)


def check_groups(spark: SparkSession, texts: Sequence[str]) -> None:
    """What is an error for Spark is one for tidelog, and the rest has Spark's values for all rows that there can be."""
    schema = pa.schema([(name, pa.bool_()) for name in "abc"])
    table = pa.table(list(zip(*itertools.product([True, False, None], repeat=3), strict=True)), schema=schema)
    frame = spark.createDataFrame(table)
    read = spark._jsparkSession.sessionState().sqlParser().parseExpression
    good = []
    for text in texts:
        try:
            read(f"({text})")  # without parentheses, a word at the end could be its name
            good.append(text)
        except PySparkException:
            with pytest.raises(PredicateError, match=r"cannot be parsed|is not supported"):
                predicate.parse(text, schema)
    columns = frame.selectExpr(*(f"({text}) AS c{number}" for number, text in enumerate(good))).toArrow()
    for text, theirs in zip(good, columns.columns, strict=True):
        ours = bind(predicate.parse(text, schema), schema).array(RowBlock.of(table))
        assert (text, ours.to_pylist()) == (text, theirs.to_pylist())


def test_statements_use_the_values_that_spark_gives(frame: DataFrame) -> None:
    """A predicate of a scan and a value of UPDATE, through a table."""
    table = new_table(memory_store(), SCHEMA)
    table.insert(ROWS)
    wheres = ["upper(s) LIKE '%A%' OR n % 5 = 2", "CASE WHEN b THEN i ELSE n END > 1", "st.In.y = 'a' OR d > t"]
    for where in wheres:
        assert table.scan(where).count() == frame.where(where).count()
    table.update("i % 2 = 1", {"s": "concat(lower(u), '-', i)", "n": "coalesce(n, 0) DIV 2", "t": "t + INTERVAL 1 DAY"})
    expected = frame.where("i % 2 = 1").selectExpr("concat(lower(u), '-', i) AS s", "coalesce(n, 0) DIV 2 AS n")
    updated = table.scan("i % 2 = 1", columns=["s", "n"]).to_arrow()
    assert sorted(map(repr, updated.to_pylist())) == sorted(map(repr, expected.toArrow().to_pylist()))


CASTS = [
    *[f"CAST('{text}' AS DATE)" for text in ("2020", "2020-1", " 2020-01-01 ", "2020-01-01T", "2020-13-01", "x")],
    "CAST('2020-01-01 y' AS DATE)",
    *[f"CAST('{text}' AS BOOLEAN)" for text in ("T", " yes ", "0", "2", "")],
    *[f"CAST('{text}' AS INT)" for text in (" 12 ", "+12", "-0", "1.5", "", "2147483648")],
    *[f"CAST('{text}' AS DOUBLE)" for text in ("1e3", "1d", ".5", "5.", "-Infinity", "nan", "1_0", "e", "1e999")],
    *[f"CAST('{text}' AS DECIMAL(6, 2))" for text in ("1e3", "1.255", "-1.255", "12345", " 7 ", "x")],
    *[
        f"CAST('{text}' AS TIMESTAMP)"
        for text in (
            "2020", "2020-01-01 10", "2020-01-01 10:00", "2020-01-01 1:2:3.5", "2020-01-01 10:00:00.123456789",
            "2020-01-01 10:00:00 UTC", "2020-01-01 10:00:00+1", "2020-01-01T10:00:00 -01:30",
            "2020-01-01 10:00:00+0130",
            "2020-01-01 10:00:00GMT+1", "2020-01-01 10:00:00+19:00", "2020-01-01 25:00:00", "noon",
        )
    ],
    "CAST('2020-01-01 10:00:00Z' AS TIMESTAMP_NTZ)", "CAST(t AS INT)", "CAST(f AS TINYINT)", "CAST(w AS INT)",
    "CAST(i AS TINYINT)", "CAST(1e10 AS INT)", "CAST(-0.6D AS INT)", "CAST(w AS DECIMAL(10, 2))", "CAST(NULL AS DATE)",
]  # fmt: skip
EDGES = [
    "5 / 0", "5 % 0", "5D / 0", "5D % 0", "1.5 / 0", "1.5 % 0", "CAST(NULL AS INT) / 0", "NULL % 0", "5 DIV 0",
    "-9223372036854775808 % -1", "-9223372036854775808", "-2147483647 - 2", "2147483647 + 1", "127Y + 1Y", "abs(-128Y)",
    "-(-128Y)", "9223372036854775807 * 2", "5.5 % -2", "-5.5D % 2", "pmod(-5, 3)", "pmod(-5, -3)", "w * w", "w / m",
    "w + 0.00000000001", "m / 3", "m / 7.0", "round(2.5)", "round(-2.5D)", "round(125, -1)", "round(99.95, 1)",
    "b AND 1 / i > 0", "i <> 0 AND 10 / i > 1", "i = 0 OR 10 / i > 1", "CASE WHEN i <> 0 THEN 10 % i END",
    "coalesce(i, 1 / 0)", "if(i IS NULL, 1 / 0, 2)", "nullif(i, 1 / 0)", "i BETWEEN 5 AND 1 / 0", "g + (- y)",
    "'it''s'", '"a""b"', "'\\101'", "'\\u00e9'", "'a\\qb'", "'\\\\%'", "r'a\\b'", 's = "a"', "NOT b = c",
    "-2 % 3", "- i % 3", "2 + 3 * 4", "NOT b AND c", "i = 1 OR i = 2 AND b", "!b", "!b = c", "b <=> c < b",
    "i < n BETWEEN b AND c", "b BETWEEN c AND b = c", "i = n IN (b, i > 1)", "'1' || i || 2", "1 + 2 || s",
    "-128Y::STRING", "-128::TINYINT", "-9223372036854775808L", "i = n IS NULL", "b IS UNKNOWN", "i < n = b",
    "b IS DISTINCT FROM n = i",
    "s LIKE ''", "s LIKE '%'", "s LIKE '_'", "s LIKE '%\\\\%%'", "s LIKE 'a%c'", "s LIKE '%b%'", "s LIKE '.*'",
    "s LIKE 'a!_%' ESCAPE '!'", "s LIKE '\\n'", "'a\nb' LIKE 'a_b'", "s LIKE NULL", "'' LIKE '%%'", "'ab' LIKE '%a%b%'",
    "d = t", "d < z", "t = z", "t > d", "d IN ('2020-02-29', '1970-01-01')", "d BETWEEN '1970-01-01' AND t",
    "least(d, t)", "coalesce(d, t)", "coalesce(i, m)", "coalesce(i, g)", "CASE WHEN b THEN i ELSE m END",
    "nullif(i, 1.0)",
    "t + INTERVAL 1 MONTH", "d - INTERVAL 24 HOURS", "d + INTERVAL '1 day 2 hours'", "d - INTERVAL -1 DAY",
    "substring('abc', 0, 2)", "substring('abc', -5, 3)", "substring('abc', 2, -1)", "lpad('abc', -1, 'x')",
    "lpad('a', 5, '')", "rpad('abc', 2)", "replace('abc', '', 'x')", "instr('abc', '')", "position('b', 'abc')",
    "ltrim('x', 'xay')", "trim('x', 'xax')", "btrim('xax', 'x')", "trim('')", "upper('ßŉǰ')", "lower('ΑΣ ΑΣ')",
    "length('é😀')", "reverse('é😀')", "concat('a', NULL)", "'a' || 1 || true || d", "trunc(d, 'nonsense')",
    "extract(DOW FROM d)", "sqrt(-1)", "floor(1.5)", "ceil(-1.5)", "sign(-2)", "isnan(f)", "unix_micros(t)",
    "floor(f)", "ceil(g)", "floor(1e300)", "ceil(CAST('-Infinity' AS FLOAT))", "floor(CAST('NaN' AS DOUBLE))",
    "floor(9223372036854775807D)", "round(-0.04, 1)", "round(-0.04D, 1)", "round(-0.0D)", "signum(-0.0D)", "-0.0D",
    "substr('abc', -2147483648)", "substr('abc', -2147483646)", "substring('abc', 2, 2147483647)",
    "substring('abc', 1, -2147483648)", "lpad('abc', -2147483648, 'x')", "lpad('abc', -2147483645, 'x')",
    "floor(CAST(w AS DECIMAL(38, 18))) < CAST(w AS DECIMAL(38, 18))", "CAST(m AS DECIMAL(38, 0)) < 1.5",
    "ceil(CAST(w AS DECIMAL(38, 18))) > CAST(w AS DECIMAL(38, 18))", "t > '0001-01-01 00:00:00+01:00'",
    "TIMESTAMP '0001-01-01 00:00:00+01:00'", "t IN (TIMESTAMP '0001-01-01 00:00:00+01:00', '2020-01-01')",
    "CAST(TIMESTAMP '0001-01-01 00:00:00+01:00' AS STRING)", "TIMESTAMP '9999-12-31 23:59:59.5-01:00'",
    "DATE '0000-02-29' < d", "CAST(DATE '0000-02-29' AS STRING)", "TIMESTAMP_NTZ '0000-01-01 00:00:00' < z",
    "CAST('2020-01-01 10:00:00+18:01' AS TIMESTAMP)", "CAST('2020-01-01 24:00:00' AS TIMESTAMP)",
    "st.x = 1", "st.In.y || 'x'", "st['X'] = 1", "st['In']['y']",
    "st.In['y'] = 'a'", "st['In'].y", "st IS NULL", "st.In IS NULL", "i <=> NULL", "NULL <=> NULL", "NULL = NULL",
]  # fmt: skip


def failing(texts: Sequence[str]) -> list[str]:
    return [text for text in texts if of_tidelog(text) == FAILS]


def test_chosen_expressions(frame: DataFrame) -> None:
    texts = [*CASTS, *EDGES]
    check(frame, sorted({*texts} - {*failing(texts)}))


@pytest.mark.full  # each is a job of its own, which Spark logs at length
def test_chosen_expressions_that_fail(frame: DataFrame) -> None:
    texts = failing([*CASTS, *EDGES])
    assert len(texts) > 30
    check(frame, texts)


# Texts next to values of other types. Of what fails, some fails for the type and some for a row.
TEXTS = [
    "i = '5'", "'5' = i", "i = ' 5 '", "n > '3'", "m = '1.5'", "m > '1e2'", "m <> 'NaN'", "f = '0.5'", "f <> 'nan'",
    "b = 'yes'", "b > 'false'", "'10' > 9", "'10' > '9'", "'2020-01-01' < d", "concat('2020', '-01-01') = t",
    "i IN ('1', '2')", "i IN (1, '2', NULL)", "m IN (2, '1.5')", "'5' IN (5, 6.0)", "b IN ('true', false)",
    "i IN (" + ", ".join(f"'{number}'" for number in range(60)) + ")", "i BETWEEN '-1' AND 5", "i <=> '5'",
    "CASE i WHEN '1' THEN 2 ELSE 3 END", "coalesce(i, '5')", "coalesce(m, '5')", "coalesce(d, '2020-01-01')",
    "if(b, i, '7')", "CASE WHEN b THEN '1' ELSE 2 END", "nullif(i, '5')", "nullif('5', i)", "i + '1'", "'1' + 1.5",
    "'2' * m", "'4' / 2", "'7' DIV 2", "f * '2'", "(i || '') = i", "st.x = '3'", "CAST(NULL AS STRING) = i", "f = '1d'",
    "i IN (length(s), '1')", "m = '1d'",
]  # fmt: skip
FAILING_TEXTS = [
    "i = '5.0'", "i = 'abc'", "n > '99999999999999999999'", "s = 5", "b = 'maybe'", "u > DATE '2020-01-01'",
    "'1e3' = i", "'a' IN (1, 'b')", "coalesce(i, '5.5')", "CASE WHEN b THEN 'x' ELSE 2 END", "'x' + 1", "'' = 0",

]  # fmt: skip


def test_texts_are_read_as_what_stands_beside_them(frame: DataFrame) -> None:
    check(frame, TEXTS)
    assert [text for text in FAILING_TEXTS if of_tidelog(text) != FAILS] == []
    for text in ("i = true", "i = d", "greatest(i, '5') = 5", "'1' + '2' = 3 + d", "i IN (1, d)"):
        with pytest.raises(PredicateError, match="do not match"):
            predicate.Condition(predicate.parse(text, SCHEMA), SCHEMA)


@pytest.mark.full
def test_texts_that_cannot_be_read_fail(frame: DataFrame) -> None:
    check(frame, FAILING_TEXTS)
