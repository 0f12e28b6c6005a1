"""Predicates against a plain evaluation in Python, with SQL's third truth value."""

from __future__ import annotations

import datetime as dt
import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.support import memory_store, new_table
from tidelog.log.errors import PredicateError

UTC = dt.UTC
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("i", pa.int64()),
        ("small", pa.int8()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("m", pa.decimal128(9, 2)),
        ("st", pa.struct([("x", pa.int64()), ("In", pa.struct([("y", pa.string())]))])),
    ]
)

Row = dict[str, Any]
Truth = bool | None


@dataclass(frozen=True)
class Case:
    """A predicate as SQL text, and what it means for a row: true, false or (None) neither."""

    text: str
    holds: Callable[[Row], Truth]

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Operand:
    """An expression as SQL text, and its value for a row."""

    text: str
    value: Callable[[Row], Any]


# --- values: few, so that comparisons often hit ----------------------------------------------------------------------

INTEGERS = st.integers(-3, 3)
FLOATS = st.sampled_from([-1.5, -1.0, 0.0, 0.5, 2.0])
TEXTS = st.sampled_from(["", "a", "ab", "abc", "b", "A", "é", "it's", "50%", "a_c"])
DATES = st.sampled_from([dt.date(1969, 12, 31), dt.date(2020, 2, 29), dt.date(2020, 3, 1)])
TIMES = st.sampled_from(
    [dt.datetime(2020, 1, 1, tzinfo=UTC), dt.datetime(2020, 1, 1, 0, 0, 0, 1, UTC), dt.datetime(2021, 1, 1, tzinfo=UTC)]
)
DECIMALS = st.sampled_from([Decimal("-1.50"), Decimal("0.00"), Decimal("0.10"), Decimal("2.00")])


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(values, values, values, st.none())


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": optional(INTEGERS),
            "small": optional(INTEGERS),
            "f": optional(FLOATS),
            "s": optional(TEXTS),
            "b": optional(st.booleans()),
            "d": optional(DATES),
            "t": optional(TIMES),
            "m": optional(DECIMALS),
            "st": optional(
                st.fixed_dictionaries(
                    {"x": optional(INTEGERS), "In": optional(st.fixed_dictionaries({"y": optional(TEXTS)}))}
                )
            ),
        }
    ),
    max_size=6,
)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"


def field(row: Row, *path: str) -> Any:
    value: Any = row
    for name in path:
        value = None if value is None else value[name]
    return value


def column(*path: str, text: str | None = None) -> Operand:
    return Operand(text or ".".join(path), lambda row: field(row, *path))


def literal(text: str, value: Any) -> Operand:
    return Operand(text, lambda _: value)


def literals(values: st.SearchStrategy[Any], spell: Callable[[Any], str]) -> st.SearchStrategy[Operand]:
    return values.map(lambda value: literal(spell(value), value)) | st.just(literal("NULL", None))


INTEGER_COLUMNS = st.sampled_from([column("i"), column("small"), column("i", text="`I`"), column("st", "x")])
NUMBER_COLUMNS = INTEGER_COLUMNS | st.sampled_from([column("f")])
INTEGER_LITERALS = literals(INTEGERS, str)
NUMBER_LITERALS = INTEGER_LITERALS | literals(FLOATS, repr)


def arithmetic(operands: st.SearchStrategy[Operand]) -> st.SearchStrategy[Operand]:
    functions = {"+": operator.add, "-": operator.sub, "*": operator.mul}

    def combine(symbol: str, left: Operand, right: Operand) -> Operand:
        def value(row: Row) -> Any:
            values = left.value(row), right.value(row)
            return None if None in values else functions[symbol](*values)

        return Operand(f"({left.text} {symbol} {right.text})", value)

    return st.builds(combine, st.sampled_from(list(functions)), operands, operands)


def half(operand: Operand) -> Operand:
    """Spark's `/` is never integer division."""
    return Operand(f"({operand.text} / 2)", lambda row: None if operand.value(row) is None else operand.value(row) / 2)


# Arithmetic over integers, so that Python and Arrow agree to the last bit.
COMPUTED = arithmetic(INTEGER_COLUMNS | INTEGERS.map(lambda value: literal(str(value), value)))
NUMBERS = NUMBER_COLUMNS | COMPUTED | INTEGER_COLUMNS.map(half)
FAMILIES: list[tuple[st.SearchStrategy[Operand], st.SearchStrategy[Operand]]] = [
    (NUMBERS, NUMBERS | NUMBER_LITERALS),
    (st.sampled_from([column("s"), column("st", "In", "y")]), literals(TEXTS, quoted)),
    (st.just(column("b")), literals(st.booleans(), str)),
    (
        st.just(column("d")),
        literals(DATES, lambda value: f"DATE '{value}'") | literals(DATES, lambda value: f"'{value}'"),
    ),
    (st.just(column("t")), literals(TIMES, lambda value: f"'{value.isoformat()}'")),
    (st.just(column("t")), literals(TIMES, lambda value: f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S.%f}'")),
    (st.just(column("m")), literals(DECIMALS, str)),
]
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compare(symbol: str, left: Any, right: Any) -> Truth:
    return None if left is None or right is None else COMPARISONS[symbol](left, right)


def both(left: Truth, right: Truth) -> Truth:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def negate(truth: Truth) -> Truth:
    return None if truth is None else not truth


def either(left: Truth, right: Truth) -> Truth:
    return negate(both(negate(left), negate(right)))


@st.composite
def comparisons(draw: st.DrawFn) -> Case:
    lefts, rights = draw(st.sampled_from(FAMILIES))
    left, right, symbol = draw(lefts), draw(rights), draw(st.sampled_from(list(COMPARISONS)))
    if draw(st.booleans()):
        left, right = right, left
    return Case(f"{left.text} {symbol} {right.text}", lambda row: compare(symbol, left.value(row), right.value(row)))


@st.composite
def lists_of_values(draw: st.DrawFn) -> Case:
    lefts, _ = draw(st.sampled_from(FAMILIES[:2]))
    left = draw(lefts)
    values = draw(
        st.lists(literals(TEXTS, quoted) if lefts is FAMILIES[1][0] else INTEGER_LITERALS, min_size=1, max_size=3)
    )
    inverse = draw(st.booleans())

    def holds(row: Row) -> Truth:
        hits = [compare("=", left.value(row), value.value(row)) for value in values]
        found = functools.reduce(either, hits)
        return negate(found) if inverse else found

    return Case(f"{left.text} {'NOT ' if inverse else ''}IN ({', '.join(value.text for value in values)})", holds)


@st.composite
def ranges(draw: st.DrawFn) -> Case:
    lefts, rights = draw(st.sampled_from(FAMILIES))
    left, low, high = draw(lefts), draw(rights), draw(rights)
    inverse = draw(st.booleans())

    def holds(row: Row) -> Truth:
        value = left.value(row)
        inside = both(compare(">=", value, low.value(row)), compare("<=", value, high.value(row)))
        return negate(inside) if inverse else inside

    return Case(f"{left.text} {'NOT ' if inverse else ''}BETWEEN {low.text} AND {high.text}", holds)


@st.composite
def missing(draw: st.DrawFn) -> Case:
    lefts, _ = draw(st.sampled_from(FAMILIES))
    left, inverse = draw(lefts), draw(st.booleans())
    return Case(f"{left.text} IS {'NOT ' if inverse else ''}NULL", lambda row: (left.value(row) is None) is not inverse)


@st.composite
def prefixes(draw: st.DrawFn) -> Case:
    left = draw(st.sampled_from([column("s"), column("st", "In", "y")]))
    prefix = draw(st.sampled_from(["", "a", "ab", "é", "it's", "B"]))
    open_end, inverse = draw(st.booleans()), draw(st.booleans())

    def holds(row: Row) -> Truth:
        value = left.value(row)
        if value is None:
            return None
        return (value.startswith(prefix) if open_end else value == prefix) is not inverse

    return Case(f"{left.text} {'NOT ' if inverse else ''}LIKE {quoted(prefix + '%' * open_end)}", holds)


PLAIN = st.sampled_from(
    [
        Case("b", lambda row: row["b"]),
        Case("true", lambda _: True),
        Case("FALSE", lambda _: False),
        Case("b = true", lambda row: row["b"]),
    ]
)
LEAVES = st.one_of(comparisons(), comparisons(), lists_of_values(), ranges(), missing(), prefixes(), PLAIN)


def _combined(inner: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    return st.one_of(
        st.builds(
            lambda a, b: Case(f"({a.text}) AND ({b.text})", lambda row: both(a.holds(row), b.holds(row))), inner, inner
        ),
        st.builds(
            lambda a, b: Case(f"({a.text}) OR ({b.text})", lambda row: either(a.holds(row), b.holds(row))), inner, inner
        ),
        inner.map(lambda a: Case(f"NOT ({a.text})", lambda row: negate(a.holds(row)))),
    )


PREDICATES = st.recursive(LEAVES, _combined, max_leaves=4)


@settings(max_examples=120, deadline=None)
@given(rows=ROWS, cases=st.lists(PREDICATES, min_size=1, max_size=3))
def test_a_row_is_kept_where_the_predicate_is_true(rows: list[Row], cases: list[Case]) -> None:
    table = new_table(memory_store(), SCHEMA)
    rows = [{"id": number, **row} for number, row in enumerate(rows)]
    table.insert(rows)
    for case in cases:
        found = table.scan(where=case.text, columns=["id"]).to_arrow()["id"].to_pylist()
        assert found == [row["id"] for row in rows if case.holds(row) is True], case.text


# --- what is not a predicate -----------------------------------------------------------------------------------------

TABLE = new_table(memory_store(), SCHEMA)
TABLE.insert([{"id": 1, "i": 5, "s": "x"}])


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("upper(s) = 'X'", "UPPER(s)"),
        ("s LIKE '%x'", "LIKE"),
        ("s LIKE 'a_c'", "LIKE"),
        ("s LIKE 'a%c'", "LIKE"),
        ("s RLIKE 'a'", "RLIKE"),
        ("i IN (SELECT 1)", "SELECT"),
        ("EXISTS (SELECT 1)", "SELECT"),
        ("i > (SELECT max(i) FROM t)", "SELECT"),
        ("CASE WHEN i = 1 THEN true END", "CASE"),
        ("i <=> 1", "DISTINCT"),
        ("i BETWEEN SYMMETRIC 9 AND 1", "BETWEEN"),
        ("s ILIKE 'X'", "ILIKE"),
        ("s LIKE 'x' ESCAPE '/'", "ESCAPE"),
        ("s NOT LIKE '%x'", "LIKE"),
        ("s LIKE ALL ('x')", "ALL"),
        ("i IS TRUE", "IS TRUE"),
        ("i IS DISTINCT FROM 1", "DISTINCT"),
        ("-i = -5", "-"),
        ("i % 2 = 0", "%"),
        ("i & 1 = 1", "&"),
        ("i = current_date()", "CURRENT_DATE"),
        ("CAST(i AS STRING) = '5'", "CAST"),
        ("s || 'x' = 'xx'", "||"),
        ("i = ?", "?"),
        ("i = :x", ":x"),
        ("i = 1 AS x", "x"),
        ("*", "*"),
        ("SELECT 1", "SELECT"),
        ("nowhere = 1", "nowhere"),
        ("st.nowhere = 1", "nowhere"),
        ("i.x = 1", "x"),
        ("i = ", ""),
        ("", ""),
        ("i = 1 AND", ""),
        ("(i = 1", ""),
        ("i = 1; DROP TABLE x", "DROP"),
        ("i > 100; true", ";"),
        ("d = 'noon'", "noon"),
        ("t > '2020-13-01'", "2020-13-01"),
        ("i = DATE '2020-01-01'", ""),
        ("i", ""),
        ("s", ""),
        ("1", ""),
        ("i = 'text'", ""),
        ("s > 5", ""),
        ("b > 'a'", ""),
        ("st = 1", ""),
        ("i LIKE 'a%'", ""),
        ("i + s = 1", ""),
    ],
)
def test_what_lies_beyond_is_an_error_naming_the_token(text: str, token: str) -> None:
    with pytest.raises(PredicateError) as raised:
        TABLE.scan(where=text)
    assert token.lower() in str(raised.value).lower()
    assert isinstance(raised.value.fields["token"], str)


@pytest.mark.parametrize("text", ["I = 5", "`i` = 5", "i=5 -- comment", "i\n=\t5", "S = 'x'", "NOT i != 5", "5 = i"])
def test_case_quotes_and_space_do_not_matter(text: str) -> None:
    assert TABLE.scan(where=text).count() == 1


def test_an_exact_name_goes_before_one_of_another_case() -> None:
    schema = pa.schema([("a", pa.struct([("X", pa.int64())]))])
    table = new_table(memory_store(), schema)
    table.insert([{"a": {"X": 1}}])
    assert table.scan(where="A.x = 1").count() == 1


@pytest.mark.parametrize("name", ["a b", "ä", "select", "a.b", "x`y", "1", ".x"])
def test_any_column_name_can_be_quoted(name: str) -> None:
    table = new_table(memory_store(), pa.schema([(name, pa.int64()), ("other", pa.int64())]))
    table.insert([{name: 1, "other": 2}, {name: 2, "other": 1}])
    quoted_name = "`" + name.replace("`", "``") + "`"
    assert table.scan(where=f"{quoted_name} = 1", columns=["other"]).to_arrow()["other"].to_pylist() == [2]


def test_long_lists_and_long_chains_are_no_problem() -> None:
    chain = " OR ".join(f"i = {number}" for number in range(300))
    assert TABLE.scan(where=chain).count() == 1
    assert TABLE.scan(where=f"i IN ({', '.join(map(str, range(2000)))})").count() == 1


def test_large_integers_compare_exactly() -> None:
    table = new_table(memory_store(), pa.schema([("n", pa.int64())]))
    big = 2**53
    table.insert([{"n": big}, {"n": big + 1}, {"n": 2**63 - 1}])
    assert table.scan(where=f"n = {big + 1}").to_arrow()["n"].to_pylist() == [big + 1]
    assert table.scan(where=f"n IN ({big + 1}, {2**63 - 1})").count() == 2


@pytest.mark.parametrize(("text", "expected"), [("i < 1{}", 1), ("i = 1{}", 0), ("m > -1{}", 1), ("i > -1{} + 1", 1)])
def test_a_number_beyond_64_bits_is_a_number(text: str, expected: int) -> None:
    table = new_table(memory_store(), SCHEMA)
    table.insert([{"i": 5, "m": Decimal(1)}])
    try:
        assert table.scan(where=text.format("0" * 25)).count() == expected
    except PredicateError:
        return


def test_decimals_compare_exactly() -> None:
    table = new_table(memory_store(), pa.schema([("m", pa.decimal128(38, 2))]))
    digits = Decimal("123456789012345678901234567890123456.78")
    table.insert([{"m": digits}, {"m": digits + Decimal("0.01")}])
    assert table.scan(where=f"m = {digits}").to_arrow()["m"].to_pylist() == [digits]
    assert table.scan(where=f"m > {digits}").count() == 1


def test_partition_columns_are_columns_like_others() -> None:
    schema = pa.schema([("n", pa.int64()), ("p", pa.string()), ("q", pa.date32())])
    table = new_table(memory_store(), schema, partition_by=["p", "q"])
    day = dt.date(2020, 1, 1)
    table.insert([{"n": 1, "p": "a", "q": day}, {"n": 2, "p": None, "q": day}, {"n": 3, "p": "b", "q": None}])
    cases = {
        "p = 'a'": [1],
        "p IS NULL": [2],
        "p != 'a'": [3],
        "q <= '2020-01-01'": [1, 2],
        "q IS NULL OR n = 1": [1, 3],
    }
    for where, expected in cases.items():
        assert sorted(table.scan(where=where, columns=["n"]).to_arrow()["n"].to_pylist()) == expected
