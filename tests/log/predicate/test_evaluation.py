"""Predicates select the rows that a plain evaluation in Python selects, with SQL's three-valued logic."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.predicate.model import PREDICATES, ROWS, SCHEMA, Case, Row
from tests.log.support import memory_store, new_table
from tidelog.log import predicate
from tidelog.log.errors import PredicateError
from tidelog.log.predicate import Call, Column, Expression, Literal
from tidelog.log.predicate.evaluation import bind
from tidelog.log.predicate.rows import RowBlock

TABLE = new_table(memory_store(), SCHEMA)
TABLE.insert([{"id": 1, "i": 5, "s": "x"}])


@settings(max_examples=120, deadline=None)
@given(rows=ROWS, cases=st.lists(PREDICATES, min_size=1, max_size=3))
def test_a_row_is_kept_if_the_predicate_is_true(rows: list[Row], cases: list[Case]) -> None:
    table = new_table(memory_store(), SCHEMA)
    rows = [{"id": number, **row} for number, row in enumerate(rows)]
    table.insert(rows)
    for case in cases:
        found = table.scan(where=case.text, columns=["id"]).to_arrow()["id"].to_pylist()
        assert found == [row["id"] for row in rows if case.holds(row) is True], case.text


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["I = 5", "`i` = 5", "i=5 -- comment", "i\n=\t5", "S = 'x'", "NOT i != 5", "5 = i"])
def test_case_quotes_and_whitespace_do_not_matter(text: str) -> None:
    assert TABLE.scan(where=text).count() == 1


def test_an_exact_name_takes_precedence_over_one_in_another_case() -> None:
    schema = pa.schema([("a", pa.struct([("X", pa.int64())]))])
    table = new_table(memory_store(), schema)
    table.insert([{"a": {"X": 1}}])
    assert table.scan(where="A.x = 1").count() == 1
    # A table cannot have such names, but a schema can.
    both = pa.schema([("N", pa.int64()), ("n", pa.int64()), ("M", pa.int64())])
    found = [predicate.parse(name, both) for name in ("n", "N", "m")]
    assert found == [Column(("n",)), Column(("N",)), Column(("M",))]


@pytest.mark.parametrize("name", ["a b", "ä", "select", "a.b", "x`y", "1", ".x"])
def test_any_column_name_can_be_quoted(name: str) -> None:
    table = new_table(memory_store(), pa.schema([(name, pa.int64()), ("other", pa.int64())]))
    table.insert([{name: 1, "other": 2}, {name: 2, "other": 1}])
    quoted_name = "`" + name.replace("`", "``") + "`"
    assert table.scan(where=f"{quoted_name} = 1", columns=["other"]).to_arrow()["other"].to_pylist() == [2]


def test_partition_columns_can_be_used_like_any_column() -> None:
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


# --- sizes -----------------------------------------------------------------------------------------------------------


def test_long_lists_and_long_chains_are_evaluated() -> None:
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
def test_a_number_beyond_64_bits_is_compared_by_its_size(text: str, expected: int) -> None:
    table = new_table(memory_store(), SCHEMA)
    table.insert([{"i": 5, "m": Decimal(1)}])
    assert table.scan(where=text.format("0" * 25)).count() == expected


def test_decimals_compare_exactly() -> None:
    table = new_table(memory_store(), pa.schema([("m", pa.decimal128(38, 2))]))
    digits = Decimal("123456789012345678901234567890123456.78")
    table.insert([{"m": digits}, {"m": digits + Decimal("0.01")}])
    assert table.scan(where=f"m = {digits}").to_arrow()["m"].to_pylist() == [digits]
    assert table.scan(where=f"m > {digits}").count() == 1


KINDS = pa.schema(
    [
        ("i", pa.int32()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("f", pa.float64()),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("m", pa.decimal128(9, 2)),
    ]
)
KINDS_ROWS = pa.table(
    {
        "i": pa.array([3, -3, None, 0], pa.int32()),
        "s": ["ab", "", None, "é"],
        "d": pa.array([0, 20_000, None, 1], pa.date32()),
        "f": [1.5, float("nan"), None, -0.0],
        "b": [True, False, None, True],
        "t": pa.array([0, 1_600_000_000_000_000, None, 1], pa.timestamp("us", tz="UTC")),
        "m": pa.array([Decimal("1.50"), Decimal("-2.25"), None, Decimal(0)], pa.decimal128(9, 2)),
    },
    schema=KINDS,
)


@pytest.mark.parametrize("name", sorted(predicate.FUNCTIONS))
def test_every_function_is_computed_for_columns(name: str) -> None:
    """With arguments of each type that it takes. A row can fail, but only with an error of Arrow's."""
    choices: list[Expression] = [*(Column((column,)) for column in KINDS.names), Literal(2), Literal("DAY")]
    computed = 0
    for arguments in itertools.product(choices, repeat=max(predicate.FUNCTIONS[name].least, 1)):
        try:
            bound = bind(Call(name, arguments), KINDS)
        except PredicateError:
            continue
        computed += 1
        with contextlib.suppress(pa.ArrowException):
            assert len(bound.array(RowBlock.of(KINDS_ROWS))) == KINDS_ROWS.num_rows
    assert computed
