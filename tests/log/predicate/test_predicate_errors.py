"""Invalid predicates raise errors that name the piece of SQL at fault, and nothing of tidelog's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.log.predicate.model import SCHEMA
from tests.log.support import memory_store, new_table
from tidelog.log import Table, predicate
from tidelog.log.errors import PredicateError, SchemaMismatchError
from tidelog.log.predicate.tree import to_sql

TABLE = new_table(memory_store(), SCHEMA)
TABLE.insert([{"id": 1, "i": 5, "s": "x"}])
INTERNALS = ("<class", "(path=", "Function '", "pyarrow", "sqlglot", "Decimal(")


def error_of(where: Any) -> PredicateError:
    with pytest.raises(PredicateError) as raised:
        TABLE.scan(where=where)
    assert not [part for part in INTERNALS if part in str(raised.value)], str(raised.value)
    assert "" not in raised.value.fields.values()
    return raised.value


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("initcap(s) = 'X'", "initcap"),
        ("concat_ws(',', s) = 'X'", "concat_ws"),
        ("uper(s) = 'X'", "upper"),
        ("in(i, 1)", "in("),
        ("upper(DISTINCT s) = 'X'", "DISTINCT"),
        ("count(*) = 1", "count"),
        ("sum(i) OVER () = 1", "OVER"),
        ("upper(s, s) = 'X'", "UPPER"),
        ("upper() = 'X'", "UPPER"),
        ("s LIKE s", "s LIKE s"),
        ("s LIKE 'a!b' ESCAPE '!'", "a!b"),
        ("s LIKE 'a\\\\'", "a\\"),
        ("s LIKE 'x' ESCAPE 'ab'", "ab"),
        ("s RLIKE 'a'", "RLIKE"),
        ("i IN (SELECT 1)", "SELECT"),
        ("EXISTS (SELECT 1)", "SELECT"),
        ("i > (SELECT max(i) FROM t)", "SELECT"),
        ("i BETWEEN SYMMETRIC 9 AND 1", "BETWEEN"),
        ("s LIKE ALL ('x')", "ALL"),
        ("i & 1 = 1", "&"),
        ("~i = 1", "~"),
        ("t > current_timestamp(3)", "current_timestamp"),
        ("CAST(i AS STRUCT<a: INT>) IS NULL", "STRUCT"),
        ("CAST(i AS DECIMAL(50, 2)) = 1", "50"),
        ("TRY_CAST(s AS INT) = 1", "TRY_CAST"),
        ("true = i < 2", "TRUE = i"),
        ("b = i IN (1)", "b = i"),
        ("s || i + d = 'a'", "(s || i) + d"),
        ("s = 'a' 'b'", "'a'"),
        ("d > d - INTERVAL i DAY", "INTERVAL"),
        ("d > d - INTERVAL '1 month 1 day'", "INTERVAL"),
        ("d > INTERVAL 1 DAY", "INTERVAL"),
        ("d > d - INTERVAL 1 EON", "EON"),
        ("extract(CENTURY FROM d) = 1", "CENTURY"),
        ("st['nowhere'] = 1", "nowhere"),
        ("st[0] = 1", "st[0]"),
        ("i['x'] = 1", "i['x']"),
        ("s.x['y'] = 1", "x"),
        ("i::struct<a: int> IS NULL", "STRUCT"),
        ("i = ?", "?"),
        ("i = :x", ":x"),
        ("i = 1 AS x", "x"),
        ("*", "*"),
        ("SELECT 1", "SELECT"),
        ("nowhere = 1", "nowhere"),
        ("st.nowhere = 1", "nowhere"),
        ("i.x = 1", "x"),
        ("i = 1; DROP TABLE x", "DROP"),
        ("i > 100; true", ";"),
        ("d = 'noon'", "noon"),
        ("t > '2020-13-01'", "2020-13-01"),
    ],
)
def test_unsupported_sql_names_the_token(text: str, token: str) -> None:
    error = error_of(text)
    assert token.lower() in str(error).lower()
    assert isinstance(error.fields["token"], str)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("i = ", "'=' (line 1, column 3)"),
        ("i = 1 AND", "'AND' (line 1, column 9)"),
        ("(i = 1", "'1' (line 1, column 6)"),
        ("i\n = = 3", "'=' (line 2, column 4)"),
        ("i = 'x", ""),
    ],
)
def test_a_syntax_error_shows_where_it_is(text: str, near: str) -> None:
    error = error_of(text)
    assert error.message == "the predicate cannot be parsed" + (f" near {near}" if near else "")
    assert error.fields == {"token": text}


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_predicate_is_an_error_without_a_token(text: str) -> None:
    error = error_of(text)
    assert (error.message, error.fields) == ("the predicate cannot be parsed: it is empty", {})


@pytest.mark.parametrize("value", [5, [], pa.scalar(1)], ids=str)
def test_a_predicate_must_be_text(value: Any) -> None:
    error = error_of(value)
    assert error.message == f"a predicate must be SQL text, not {type(value).__name__}"
    assert error.fields == {}


@pytest.mark.parametrize(
    ("text", "token", "types"),
    [
        ("i = DATE '2020-01-01'", "i = DATE '2020-01-01'", "i is int64"),
        ("i = b", "i = b", "i is int64, b is bool"),
        ("d = 1.5", "d = 1.5", "d is date32[day]"),
        ("d = true", "d = TRUE", "d is date32[day]"),
        ("st.x = true", "st.x = TRUE", "st.x is int64"),
        ("i LIKE 'a%'", "i LIKE 'a%'", "i is int64"),
        ("i + b = 1", "i + b", "i is int64, b is bool"),
        ("i NOT IN (true, NULL)", "i IN (TRUE, NULL)", "i is int64"),
        ("i IN ('5', true)", "i IN ('5', TRUE)", "i is int64"),
        ("b AND i = true OR s = 'k'", "i = TRUE", "i is int64"),
        ("i BETWEEN true AND 5", "i >= TRUE", "i is int64"),
        ("NOT i", "NOT i", "i is int64"),
        ("(i OR b) AND s = 'k'", "i OR b", "i is int64, b is bool"),
    ],
)
def test_types_that_do_not_match_name_the_smallest_part_and_its_columns(text: str, token: str, types: str) -> None:
    error = error_of(text)
    assert error.message == f"the types in {token!r} do not match: {types}"
    assert error.fields == {"token": token}


def test_types_of_constants_that_do_not_match_name_no_column() -> None:
    assert error_of("1 = true").message == "the types in '1 = TRUE' do not match"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("i = 'text'", "'text' is not an integer"),
        ("s > 5", "is not an integer"),
        ("b > 'a'", "'a' is not a boolean"),
        ("i + s = 1", "is not an integer"),
        ("i NOT IN ('a', NULL)", "'a' is not an integer"),
        ("i BETWEEN '1.5' AND 2", "'1.5' is not an integer"),
        (f"i IN ({', '.join(map(str, range(60)))}, 'a')", "'a' is not an integer"),
    ],
)
def test_a_text_that_is_not_what_stands_beside_it_fails_for_rows(text: str, reason: str) -> None:
    rows = pa.Table.from_pylist([{"i": 1, "s": "x", "b": True}], SCHEMA)
    with pytest.raises(PredicateError, match=reason) as raised:
        predicate.Condition(predicate.parse(text, SCHEMA), SCHEMA).mask(rows)
    assert raised.value.advice


@pytest.mark.parametrize("text", ["i", "s", "1", "'a'", "i + 1", "NULL", "st"])
def test_a_value_is_not_a_condition(text: str) -> None:
    error = error_of(text)
    assert (error.message, error.fields) == (f"{text!r} is not a condition", {"token": text})


def test_a_struct_cannot_be_compared() -> None:
    assert error_of("st = 1").fields == {"token": "st = 1"}


def test_a_column_in_quotation_marks_is_a_text_and_so_almost_certainly_a_mistake() -> None:
    for text in ('"i" = 5', "'I' = 's'", "\"s\" LIKE 'x'", "\"s\" IN ('x')", '"i" IS NOT NULL'):
        error = error_of(text)
        assert "in quotation marks is a text" in error.message
        assert error.advice == f"quote the column with backquotes: `{error.fields['token']}`"
    odd = new_table(memory_store(), pa.schema([("sp ace", pa.string())]))
    odd.insert([{"sp ace": "s"}])
    with pytest.raises(PredicateError, match="quote the column with backquotes: `sp ace`"):
        odd.scan(where="\"sp ace\" = 's'")
    assert odd.scan(where="`sp ace` = 's'").count() == 1
    assert TABLE.scan(where='s = "x"').count() == 1
    assert TABLE.scan(where="s != 'i'").count() == 1
    assert TABLE.scan(where='s = "s"').count() == 0


@pytest.mark.parametrize(
    ("column", "values", "first"),
    [
        ("b", [f"{number}.5" for number in range(60)], "b = 0.5"),
        ("d", [str(number) for number in range(60)], "d = 0"),
        ("i", [*map(str, range(60)), "true"], "i = TRUE"),
    ],
)
def test_a_long_list_takes_the_types_that_a_short_one_takes(column: str, values: list[str], first: str) -> None:
    error = error_of(f"{column} IN ({', '.join(values)})")
    assert error.message.startswith(f"the types in {first!r} do not match: {column} is ")
    assert error.fields == {"token": first}


@pytest.mark.parametrize(
    "text",
    [
        "i = 1 AND s = 'it\\'s' AND b",
        "(i = 1 OR b) AND NOT (s IS NULL)",
        "st.`In`.y LIKE 'a%'",
        "(i + 1) * 2 > -1.5",
        "d = DATE '2020-01-01' OR t < TIMESTAMP '2020-01-01 00:00:00+00:00'",
        "t > TIMESTAMP_NTZ '2020-01-01 00:00:00.000001'",
        "i IN (1, NULL) OR s = 'a\\\\b'",
        "(i = 1) = TRUE",
        "upper(s) LIKE '%x_' ESCAPE '!' OR -(i % 2) = 1",
        "CASE WHEN i = 1 THEN 'a' ELSE NULL END = CASE s WHEN 'a' THEN 'b' ELSE 'c' END",
        "CAST(i AS DECIMAL(5,2)) <=> 1 AND (s || 'x') = 'xx'",
        "t < t - INTERVAL 3 MONTH OR d < d + INTERVAL -3 DAY OR t < t + INTERVAL 1.5 SECOND",
    ],
)
def test_the_sql_text_of_a_tree_parses_to_the_same_tree(text: str) -> None:
    tree = predicate.parse(text, SCHEMA)
    assert predicate.parse(to_sql(tree), SCHEMA) == tree


def test_names_are_quoted_in_sql_text_only_if_needed() -> None:
    schema = pa.schema([("a b", pa.int64()), ("x`y", pa.int64()), ("plain_1", pa.int64())])
    text = "`a b` = 1 AND `x``y` = 2 AND plain_1 = 3"
    assert to_sql(predicate.parse(text, schema)) == text


# --- what to write instead --------------------------------------------------------------------------------------------

HELPFUL = pa.schema(
    [("id", pa.int64()), ("s", pa.string()), ("d", pa.date32()), ("raw", pa.binary()), ("and", pa.int64())]
)


def helpful(act: Callable[[Table], object]) -> str:
    table = new_table(memory_store(), HELPFUL)
    table.insert([{"id": 1, "s": "x", "raw": b"ab"}])
    with pytest.raises((PredicateError, SchemaMismatchError)) as raised:
        act(table)
    assert table.refresh().scan().to_arrow()["s"].to_pylist() == ["x"]
    return str(raised.value)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("abc", "'abc'"),
        ("new york", "'new york'"),
        ("a-b", "'a-b'"),
        ("me@x.org", "'me@x.org'"),
        ("", "''"),
        ("it's", "'it\\'s'"),
    ],
)
def test_a_new_value_that_is_a_text_without_quotes(value: str, written: str) -> None:
    said = helpful(lambda table: table.update("id = 1", {"s": value}))
    assert f'the text itself is written "{written}"' in said
    table = new_table(memory_store(), HELPFUL)
    table.insert([{"id": 1}])
    table.update("id = 1", {"s": written})
    assert table.scan().to_arrow()["s"].to_pylist() == [value]


@pytest.mark.parametrize(
    ("where", "advice"),
    [
        ("s = abc", "a text needs quotation marks inside of the SQL: 'abc'"),
        ('id = "abc"', "what stands in quotation marks, also in double ones, is a text"),
        ("id IN ('abc', 'b')", "what stands in quotation marks, also in double ones, is a text"),
        ("s = 5", "compare a column of texts with a text, such as s = '5'"),
        ("100 / (id - 1) > 1", "test first what an expression needs"),
        ("substring(raw, 1, 1) = 'a'", "CAST the value to STRING"),
        ("upper(raw) = 'A'", "CAST the value to STRING"),
        ("and = 1", "a column that is named like a word of SQL needs backquotes: `and`"),
        ("current_path = 'x'", "a column of that name is `current_path`"),
    ],
)
def test_an_error_says_what_to_write_instead(where: str, advice: str) -> None:
    assert advice in helpful(lambda table: table.scan(where).to_arrow())


def test_a_new_date_without_quotes() -> None:
    assert "such as DATE '2026-01-31'" in helpful(lambda table: table.update("id = 1", {"d": "2026-01-31"}))


def test_bytes_are_cast_to_text() -> None:
    table = new_table(memory_store(), HELPFUL)
    table.insert([{"id": 1, "raw": "é".encode()}, {"id": 2, "raw": b"xy"}, {"id": 3}])
    assert table.scan("substring(CAST(raw AS STRING), 1, 1) = 'é'").to_arrow()["id"].to_pylist() == [1]
    table.insert([{"id": 4, "raw": b"\xff"}])
    with pytest.raises(PredicateError, match="a value is not text in UTF-8"):
        table.scan("CAST(raw AS STRING) = 'a'").to_arrow()
