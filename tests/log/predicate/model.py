"""Random predicates, each with a plain evaluation in Python, and the rows to evaluate them on."""

from __future__ import annotations

import datetime as dt
import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

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
    """A predicate as SQL text, and its value for a row: true, false or None for null."""

    text: str
    holds: Callable[[Row], Truth]

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Operand:
    """An expression as SQL text, and its value for a row."""

    text: str
    value: Callable[[Row], Any]


# --- values: only a few, so that comparisons often match -------------------------------------------------------------

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


# Integer arithmetic, so that Python and Arrow agree exactly.
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
