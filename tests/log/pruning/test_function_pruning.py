"""Which files are kept for predicates with functions: those that grow with a column prune by its bounds."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.log.predicate.expressions import EXPRESSIONS
from tests.log.predicate.values import SCHEMA as WIDE
from tests.log.predicate.values import rows
from tests.log.pruning.support import file, kept
from tests.log.support import memory_store, new_table
from tidelog.log import Table, predicate
from tidelog.log.errors import PredicateError

_RANGES = (file(0, 9, nulls=0), file(10, 19, nulls=1), file(20, 20, nulls=0), file())


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("n % 5 = 0 AND n = 20", [2, 3]),
        ("n % 5 = 0", [0, 1, 2, 3]),
        ("n + 1 > 20", [2, 3]),
        ("1 + n BETWEEN 11 AND 12", [1, 3]),
        ("n - 10 = 0", [1, 3]),
        ("10 - n = 0", [0, 1, 2, 3]),
        ("n < 2 * 5", [0, 3]),
        ("n = CAST('20' AS INT)", [2, 3]),
        ("CAST(n AS DOUBLE) > 19", [2, 3]),
        ("CAST(n AS STRING) > '19'", [0, 1, 2, 3]),
        ("CAST(n AS DECIMAL(12, 2)) < 9.99", [0, 3]),
        ("-n = 0", [0, 1, 2, 3]),
        ("floor(n) IN (11, 12)", [1, 3]),
        ("n IN (CAST('11' AS INT), 5 + 6)", [1, 3]),
        ("round(n) <=> 20", [2, 3]),
        ("(n > 19) IS TRUE", [2, 3]),
        ("(n > 19) IS FALSE", [0, 1, 3]),
        ("coalesce(n, 5) = 20", [0, 1, 2, 3]),
        ("CASE WHEN n = 20 THEN true ELSE false END", [0, 1, 2, 3]),
        ("isnull(n)", [1, 3]),
        ("n <=> NULL", [1, 3]),
        ("n + 9223372036854775807 > 5", [0, 1, 2, 3]),
        ("1 / 0 = 1", [0, 1, 2, 3]),
        ("n = 20 AND 1 / 0 = 1", [2, 3]),
        ("n = '20'", [2, 3]),
        ("'11' = n", [1, 3]),
        ("n IN ('11', '12')", [1, 3]),
        ("n IN ('11', 12)", [0, 1, 2, 3]),  # all are read as one type, which a pair of them need not have
        ("n = 'abc'", [0, 1, 2, 3]),  # the reader raises the error
        ("n BETWEEN '5' AND 9", [0, 3]),
        ("n <> CAST('NaN' AS DOUBLE)", [0, 1, 2, 3]),
        ("NOT n < CAST('NaN' AS DOUBLE)", [0, 1, 2, 3]),
        ("n <> 20 AND n > 19", [3]),
    ],
)
def test_numbers(where: str, expected: list[int]) -> None:
    assert kept(where, *_RANGES) == expected


def test_texts_read_as_numbers_have_another_order() -> None:
    """As texts, 9 is above 10, so the bounds of texts say nothing about numbers."""
    texts = (file("10", "9", nulls=0, column="s"), file("a", "b", nulls=0, column="s"))
    for where in ("s > 50", "s = 20", "s < 5", "s <> 10", "NOT s > 5", "s IN (20, 30)", "s BETWEEN 20 AND 30"):
        assert kept(where, *texts) == [0, 1]
    assert kept("s > '50' AND s < 'a'", *texts) == [0]


def test_floor_makes_a_number_of_nan_which_bounds_ignore() -> None:
    high = (file(5.0, 9.0, nulls=0, column="f"), file(0.0, 0.5, nulls=0, column="f"))
    for where in ("floor(f) = 0", "ceil(f) < 1", "NOT floor(f) > 1"):
        assert kept(where, *high) == [0, 1]
    assert kept("round(f) > 4", *high) == [0]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("s LIKE 'abc%x'", [0, 2]),
        ("s LIKE 'abc_'", [0, 2]),
        ("s LIKE 'abc!%%' ESCAPE '!'", [0, 2]),
        ("s NOT LIKE 'abc%x'", [0, 1, 2]),
        ("s NOT LIKE 'abc%'", [1, 2]),
        ("s LIKE '%x'", [0, 1, 2]),
        ("startswith(s, 'abd')", [2]),
        ("upper(s) = 'B'", [0, 1, 2]),
        ("s = concat('ab', 'c')", [0, 2]),
        ("s > lower('B')", [1]),
        ("to_date(s) = '2020-01-01'", [0, 1, 2]),
    ],
)
def test_texts(where: str, expected: list[int]) -> None:
    texts = (("abc", "abcz"), ("b", "bc"), ("abc", "abz"))
    assert kept(where, *(file(low, high, nulls=0, column="s") for low, high in texts)) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("year(t) = 2021", [1]),
        ("CAST(t AS DATE) <= DATE '2020-01-31'", [0]),
        ("date_trunc('MONTH', t) = TIMESTAMP '2021-06-01'", [1]),
        ("t + INTERVAL 1 DAY > '2021-12-31'", [1]),
        ("t - INTERVAL 1 MONTH > '2022-01-01'", [0, 1]),
        ("t > TIMESTAMP '2020-01-01' + INTERVAL 1 YEAR", [1]),
        ("month(t) = 5", [0, 1]),
        ("last_day(t) = '2020-01-31'", [0]),
        ("datediff(t, '2020-01-01') = 5", [0, 1]),
    ],
)
def test_times(where: str, expected: list[int]) -> None:
    found = file("2020-01-01T00:00:00.000Z", "2020-06-01T00:00:00.000Z", nulls=0, column="t")
    later = file("2021-01-01T00:00:00.000Z", "2021-12-31T00:00:00.000Z", nulls=0, column="t")
    assert kept(where, found, later) == expected


def test_partitions_and_fields_of_structs() -> None:
    adds = [file(0, 9, p="1"), file(10, 19, p="2")]
    assert kept("n % 5 = 0 AND p = 2", *adds) == [1]
    assert kept("p % 2 = 0", *adds) == [1]
    assert kept("CASE WHEN p = 1 THEN 'a' ELSE 'b' END = 'a'", *adds) == [0]
    assert kept("n > p * 9", *adds) == [1]
    nested = file({"x": 1}, {"x": 2}, column="st")
    assert (kept("st.x + 1 = 5", nested), kept("st.x + 1 = 3", nested)) == ([], [0])


def test_bounds_of_floats_ignore_nan() -> None:
    found = file(1.0, 2.0, nulls=0, column="f")
    assert kept("round(f) != 1", found) == kept("NOT CAST(f AS FLOAT) < 5", found) == [0]
    assert kept("f + 1 > 5", found) == [0]  # infinity could become NaN
    assert kept("round(f) > 2", found) == []


def _grown() -> Table:
    """A table with files of few rows, whose values lie close together."""
    table = new_table(memory_store(), WIDE, partition_by=["c"])
    data = rows(40, seed=3)
    data = data.sort_by([("i", "ascending"), ("t", "ascending"), ("s", "ascending")])
    for start in range(0, data.num_rows, 4):
        table.insert(data.slice(start, 4))
    return table


TABLE = _grown()
ALL = TABLE.scan().to_arrow()
_WHERES = st.one_of(
    EXPRESSIONS["boolean"],
    st.tuples(EXPRESSIONS["boolean"], st.sampled_from(["i > 5", "t < now()", "s LIKE 'a%'", "c"])).map(" AND ".join),
    *(
        st.tuples(EXPRESSIONS[name], st.sampled_from(["=", "<", ">="]), EXPRESSIONS[name]).map(
            "({0[0]}) {0[1]} ({0[2]})".format
        )
        for name in ("int", "long", "decimal", "date", "time")
    ),
)


def _agrees(where: str) -> None:
    fixed = predicate.at_time(where, lambda: 1_600_000_000_000)
    condition = predicate.Condition(predicate.parse(fixed, WIDE), WIDE)
    try:
        expected = ALL.filter(condition.mask(ALL))
    except PredicateError:  # it fails for a row, which can be in a file that is not opened
        return
    found = TABLE.scan(fixed)
    assert repr(found.to_arrow().to_pylist()) == repr(expected.to_pylist())
    assert found.count() == expected.num_rows


_QUICK = settings(phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)


@settings(_QUICK, max_examples=60)
@given(_WHERES)
def test_no_file_with_a_matching_row_is_dropped(where: str) -> None:
    _agrees(where)


@pytest.mark.nightly
@settings(_QUICK, max_examples=5_000)
@given(_WHERES)
def test_no_file_with_a_matching_row_is_dropped_at_night(where: str) -> None:
    _agrees(where)
