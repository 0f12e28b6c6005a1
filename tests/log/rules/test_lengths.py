"""Columns of the types varchar(n) and char(n), which Spark has beside string."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.log.rules.support import default, generated, rows_of, ruled_table
from tidelog.log import Table
from tidelog.log.errors import ConstraintViolationError, UnsupportedFeatureError

SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.string()), ("copy", pa.string())])


def typed(kind: str) -> dict[str, str]:
    return {"__CHAR_VARCHAR_TYPE_STRING": kind}


def short(**more: Any) -> Table:
    return ruled_table(SCHEMA, fields={"a": typed("varchar(3)")}, properties={"tidelog.primaryKey": "k"}, **more)


def test_a_text_that_is_too_long_is_refused_by_every_statement() -> None:
    table = short()
    table.insert([{"k": 1, "a": "abc"}, {"k": 2, "a": "äöü"}, {"k": 3, "a": "😀😀😀"}, {"k": 4, "a": None}, {"k": 5}])
    bad = [{"k": 1, "a": "ok"}, {"k": 2, "a": "abcd"}]
    statements: list[Callable[[], object]] = [
        lambda: table.insert(bad),
        lambda: table.insert(pa.Table.from_pylist(bad)),
        lambda: table.overwrite(bad),
        lambda: table.upsert(bad),
        lambda: table.update("k = 2", {"A": "'abcd'"}),
    ]
    for statement in statements:
        with pytest.raises(ConstraintViolationError, match=r"'a'.*too long for varchar\(3\)") as raised:
            statement()
        error = raised.value
        assert (error.column, error.constraint, error.expression, error.row) == ("a", "a", "varchar(3)", "a='abcd'")
    assert table.refresh().version == 1


def test_spaces_that_are_too_many_are_cut_off() -> None:
    fields = {"a": typed("varchar(3)"), "copy": generated("concat(a, '|')")}
    table = ruled_table(SCHEMA, fields=fields, constraints={"c": "length(a) <= 3"})
    table.insert([{"k": 1, "a": "a" + " " * 5}, {"k": 2, "a": "abc  "}, {"k": 3, "a": "b "}])
    assert [row["copy"] for row in rows_of(table)] == ["a  |", "abc|", "b |"]
    table.update("k = 2", {"a": "'xyz  '"})
    assert [(row["a"], row["copy"]) for row in rows_of(table)] == [("a  ", "a  |"), ("xyz", "xyz|"), ("b ", "b |")]
    for wrong in ("abc d", "abc\t", "abc\u00a0"):
        with pytest.raises(ConstraintViolationError):
            table.insert([{"k": 4, "a": wrong}])


def test_values_that_are_computed_have_to_fit() -> None:
    fields = {"a": typed("varchar(3)") | default("'long'"), "copy": typed("VARCHAR(5)") | generated("concat(a, a)")}
    table = ruled_table(SCHEMA, fields=fields)
    for row, column in (({"k": 1}, "a"), ({"k": 1, "a": "abc"}, "copy")):
        with pytest.raises(ConstraintViolationError) as raised:
            table.insert([row])
        assert raised.value.constraint == column
    table.insert([{"k": 1, "a": "ab"}])
    with pytest.raises(ConstraintViolationError, match="copy"):
        table.update("k = 1", {"a": "'abc'"})
    assert rows_of(table) == [{"k": 1, "a": "ab", "copy": "abab"}]


def test_a_text_of_the_type_char_gets_the_spaces_that_it_lacks() -> None:
    table = ruled_table(SCHEMA, fields={"a": typed("char(3)")}, properties={"tidelog.primaryKey": "k"})
    table.insert([{"k": 1, "a": "x"}, {"k": 2, "a": "abc  "}, {"k": 3, "a": None}, {"k": 4, "a": "\u00fc"}])
    table.upsert([{"k": 2, "a": ""}], keys=["k"])
    table.update("k = 3", {"a": "'z'"})
    assert sorted((row["k"], row["a"]) for row in rows_of(table)) == [
        (1, "x  "),
        (2, "   "),
        (3, "z  "),
        (4, "\u00fc  "),
    ]
    with pytest.raises(ConstraintViolationError, match=r"'a'.*too long for char\(3\)"):
        table.insert([{"k": 5, "a": "abcd"}])
    assert sorted(row["k"] for row in table.scan("a = 'x'").to_arrow().to_pylist()) == [1]


@pytest.mark.parametrize("kind", ["char(5000)", "array<varchar(3)>", "struct<x:char(2)>", "varchar", 3])
def test_a_type_that_tidelog_does_not_write_is_refused_by_name(kind: Any) -> None:
    table = ruled_table(SCHEMA, fields={"a": typed(kind)})
    statements: list[Callable[[], object]] = [
        lambda: table.insert([{"k": 1, "a": "abc"}]),
        lambda: table.insert([{"k": 1}]),
        lambda: table.upsert([{"k": 1}], keys=["k"]),
        lambda: table.update("true", {"k": "1"}),
    ]
    for statement in statements:
        with pytest.raises(UnsupportedFeatureError, match="column 'a' has the type") as raised:
            statement()
        assert raised.value.features == str(kind)
    table.delete("true")
    assert rows_of(table) == []
