"""Predicates have bounds: one beyond them is refused before it costs anything, and one within them is evaluated."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa
import pytest

from tests.log.predicate.model import SCHEMA
from tests.log.support import memory_store, new_table
from tidelog.log import Table
from tidelog.log.errors import PredicateError, SchemaMismatchError
from tidelog.log.predicate.parser import MAX_CHARACTERS, MAX_LIST_VALUES, MAX_WORDS
from tidelog.log.predicate.tree import MAX_CONDITIONS

# Less than a second on an idle core; the parser alone takes more than ten for the longest of these texts.
SOON_S = 4.0
LONGEST_ERROR = 2_000


@pytest.fixture(scope="module")
def table() -> Table:
    made = new_table(memory_store(), SCHEMA)
    made.insert([{"id": 1, "i": 5, "s": "x"}])
    return made


TOO_LONG = {
    "AND": " AND ".join(["i = 1"] * 90_000),
    "OR": " OR ".join(["i = 1"] * 90_000),
    "+": "i = " + "+".join(["1"] * 500_000),
    "(": "(" * 500_000,
    "NOT": "NOT " * 250_000 + "i = 1",
    ".": ".".join(["i"] * 500_000),
    "-": "i = " + "- " * 500_000 + "1",
    "CASE": "CASE " + "WHEN i = 1 THEN 1 " * 50_000 + "END = 1",
    "a list": f"i IN ({', '.join(map(str, range(MAX_LIST_VALUES + 2)))})",
    "a string": f"s = '{'x' * MAX_CHARACTERS}'",
    "a comment with a quotation mark": "i = 1 -- '\\n" + " AND i = 1" * 50_000 + " AND s = ''",
    "a raw string that ends with a backslash": "s = r'\\' " + " AND i = 1" * 50_000 + " AND s = ''",
    "an escaped quotation mark": "s = 'it\\'s' " + " AND i = 1" * 50_000,
    "conditions": " AND ".join(["i = 1"] * (MAX_CONDITIONS + 1)),
    "conditions below": " AND ".join(["(i = 1 OR i = 2)"] * (MAX_CONDITIONS // 2)),
}


@pytest.mark.parametrize("name", TOO_LONG)
def test_a_predicate_beyond_the_bounds_is_refused_at_once(name: str, table: Table) -> None:
    began = time.monotonic()
    with pytest.raises(PredicateError, match="the predicate has more than") as raised:
        table.scan(where=TOO_LONG[name])
    assert time.monotonic() - began < SOON_S
    assert len(str(raised.value)) < LONGEST_ERROR


@pytest.mark.parametrize(
    "text",
    [
        " AND ".join(["i = 5"] * (MAX_CONDITIONS - 1)),
        " OR ".join(f"i = {number}" for number in range(MAX_CONDITIONS - 1)),
        f"i IN ({', '.join(map(str, range(MAX_WORDS * 2)))})",
        f"s IN ('x', {', '.join(repr(f'{number}-and or - not-{number}') for number in range(MAX_WORDS * 2))})",
        f"s != '{'a AND b, ' * 20_000}'",
        " + ".join(["i"] * 90) + " = 450",
    ],
    ids=["AND", "OR", "numbers", "texts", "a text", "a sum"],
)
def test_a_predicate_within_the_bounds_is_evaluated(text: str, table: Table) -> None:
    assert table.scan(where=text).count() == 1


@pytest.mark.parametrize("count", [110, 300, 440, 460, 2_000])
@pytest.mark.parametrize("sign", ["+", "*"])
def test_a_long_sum_is_nested_too_deeply(count: int, sign: str, table: Table) -> None:
    text = f" {sign} ".join(["i"] * count)
    for run in (lambda: table.scan(where=f"{text} = 1").count(), lambda: table.update("i = 5", {"i": text})):
        with pytest.raises(PredicateError, match="nested too deeply") as raised:
            run()
        assert len(str(raised.value)) < LONGEST_ERROR


def test_a_chain_keeps_the_meaning_of_its_parts(table: Table) -> None:
    """Null AND false is false, null AND true is null; the order of the parts does not matter."""
    for place in range(7):
        parts = ["i = 5"] * 7
        parts[place] = "small = 1"  # null
        assert table.scan(where=" AND ".join(parts)).count() == 0
        assert table.scan(where=f"NOT ({' AND '.join(parts)})").count() == 0
        parts = ["i = 4"] * 7
        parts[place] = "small = 1"
        assert table.scan(where=f"NOT ({' AND '.join(parts)})").count() == 1
        assert table.scan(where=" OR ".join(parts)).count() == 0
        parts[(place + 3) % 7] = "i = 5"
        assert table.scan(where=" OR ".join(parts)).count() == 1


def test_numbers_beyond_all_columns_are_compared(table: Table) -> None:
    long = "9" * 5_000
    for column in ("i", "f", "small", "m"):
        assert table.scan(where=f"{column} = {long}").count() == 0
        assert table.scan(where=f"{column} < -{long}").count() == 0
        many = ", ".join([long, f"-{long}", "1e400", *map(str, range(60))])
        assert table.scan(where=f"{column} IN ({many})").count() == (column == "i")
    assert table.scan(where=f"i < {long}").count() == 1
    assert table.scan(where=f"i = {'0' * 5_000}5").count() == 1
    with pytest.raises(SchemaMismatchError, match="the new value of 'i' is double"):
        table.update("i = 5", {"i": long})


@pytest.mark.parametrize("column", ["i", "small"])
@pytest.mark.parametrize("number", [str(2**63), str(2**64), "-99999999999999999999", "1e20", "-1e20", "1" + "0" * 90])
def test_a_long_list_takes_the_numbers_that_a_short_one_takes(column: str, number: str, table: Table) -> None:
    for others in (["5"], [*map(str, range(60))]):
        for values in ([number, *others], [*others, number]):
            listed = ", ".join(values)
            assert table.scan(where=f"{column} IN ({listed})").count() == (column == "i")
            assert table.scan(where=f"{column} NOT IN ({listed})").count() == 0


def test_the_levels_of_a_sum_are_those_of_the_page(table: Table) -> None:
    """A comparison is one level, and so is each term."""
    assert table.scan(where=" + ".join(["i"] * 99) + " = 495").count() == 1
    with pytest.raises(PredicateError, match="nested too deeply"):
        table.scan(where=" + ".join(["i"] * 100) + " = 500")


def test_an_expression_that_cannot_be_evaluated_has_advice() -> None:
    made = new_table(memory_store(), pa.schema([("k", pa.int64()), ("dec", pa.decimal128(38, 2))]))
    made.insert([{"k": 1}])
    calls: list[Callable[[], object]] = [
        lambda: made.scan(where=f"dec = 0.{'5' * 41}").count(),
        lambda: made.update("k = 1", {"k": "k + 9223372036854775807"}),
        lambda: made.update("k = 1", {"k": "9223372036854775807 + 1"}),
    ]
    for call in calls:
        with pytest.raises(PredicateError, match="cannot be evaluated") as raised:
            call()
        assert raised.value.advice
    assert made.scan(where=f"dec = 0.{'5' * 40}").count() == 0


@pytest.mark.parametrize("column", ["m", "i", "f"])
def test_a_number_of_more_than_76_digits_is_an_error(column: str, table: Table) -> None:
    number = "1." + "9" * 76
    calls: list[Callable[[], object]] = [
        lambda: table.scan(where=f"{column} = {number}"),
        lambda: table.scan(where=f"{column} + {number} = 1"),
        lambda: table.scan(where=f"{column} IN ({number}, 1)"),
        lambda: table.update("i = 5", {column: number}),
    ]
    for call in calls:
        with pytest.raises(PredicateError, match="has more than 76 digits"):
            call()


def test_statistics_of_a_decimal_column_do_not_limit_the_digits_of_a_constant() -> None:
    table = new_table(memory_store(), pa.schema([("d", pa.decimal128(38, 2))]))
    table.insert([{"d": None}, {"d": 2}])
    assert table.scan(where="d <= 1." + "9" * 39).count() == 0
    assert table.scan(where="d > 1." + "9" * 39).count() == 1


@pytest.mark.parametrize(
    "text", ["s = '\ud800'", "`\ud800` = 1", "s LIKE '\udfff%'", "s IN ('\ud800')", "s = = '\ud800'"]
)
def test_half_of_a_surrogate_pair_is_an_error(text: str, table: Table) -> None:
    for call in (
        lambda: table.scan(where=text),
        lambda: table.delete(text),
        lambda: table.update("i = 5", {"s": text}),
    ):
        with pytest.raises(PredicateError, match="half of a surrogate pair") as raised:
            call()
        str(raised.value).encode()
