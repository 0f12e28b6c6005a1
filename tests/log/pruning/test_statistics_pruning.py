"""Which files statistics keep: each rule on its own, with literal expectations."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.log.pruning.support import PARTITIONED, file, kept
from tests.log.support import add
from tidelog.log.format.actions import AddFile
from tidelog.log.format.schema import to_schema_string

_RANGES = (file(0, 9, nulls=0), file(10, 19, nulls=1), file(20, 20, nulls=0), file(nulls=4), file(30, None), file())
# The last two files are hard to drop: one has no maximum, the other has no bounds at all.
_ALWAYS = [4, 5]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("n = 10", [1, 5]),
        ("10 = n", [1, 5]),
        ("n = 9.5", [5]),
        ("n = 30", _ALWAYS),
        ("n < 10", [0, 5]),
        ("n <= 10", [0, 1, 5]),
        ("10 > n", [0, 5]),
        ("n > 19", [2, *_ALWAYS]),
        ("n >= 19", [1, 2, *_ALWAYS]),
        ("n != 20", [0, 1, *_ALWAYS]),
        ("NOT n = 20", [0, 1, *_ALWAYS]),
        ("NOT n != 20", [2, 5]),
        ("NOT n < 10", [1, 2, *_ALWAYS]),
        ("NOT n <= 19", [2, *_ALWAYS]),
        ("NOT n > 9", [0, 5]),
        ("NOT n >= 20", [0, 1, 5]),
        ("NOT NOT n = 20", [2, 5]),
        ("n BETWEEN 9 AND 10", [0, 1, 5]),
        ("n NOT BETWEEN 0 AND 19", [2, *_ALWAYS]),
        ("n IN (5, 20, 99)", [0, 2, *_ALWAYS]),
        ("n IN (5, NULL)", [0, 5]),
        ("n NOT IN (20, 21)", [0, 1, *_ALWAYS]),
        ("n NOT IN (1, NULL)", []),
        ("n = NULL", []),
        ("n IS NULL", [1, 3, 4, 5]),
        ("n IS NOT NULL", [0, 1, 2, 4, 5]),
        ("NOT n IS NULL", [0, 1, 2, 4, 5]),
        ("n < 5 OR n = 20", [0, 2, 5]),
        ("n > 5 AND n < 15", [0, 1, 5]),
        ("NOT (n > 5 AND n < 25)", [0, 4, 5]),
        ("NOT (n < 5 OR n < 15)", [1, 2, *_ALWAYS]),
        ("n * n = -1", [0, 1, 2, 3, *_ALWAYS]),
        ("n * n = -1 AND n = 20", [2, 5]),
        ("n + 1 = 0", [5]),
        ("n = m", [0, 1, 2, *_ALWAYS]),
        ("1 = 2", []),
        ("true", [0, 1, 2, 3, *_ALWAYS]),
        ("1 = 2 OR n = 20", [2, 5]),
    ],
)
def test_bounds_and_null_counts(where: str, expected: list[int]) -> None:
    assert kept(where, *_RANGES) == expected


def test_a_long_list_is_tested_as_a_range() -> None:
    values = ", ".join(map(str, range(100, 1000)))
    assert kept(f"n IN ({values})", file(0, 99), file(1000, 2000), file(5, 100), file(990, 1001)) == [2, 3]
    assert kept(f"n NOT IN ({values})", file(100, 100)) == [0]
    texts = ", ".join(f"'k{number:03}'" for number in range(100))
    assert kept(f"s IN ({texts})", file("a", "k", column="s"), file("k050", "x", column="s")) == [1]


def test_columns_are_compared_with_each_other() -> None:
    stats = '{"numRecords":1,"minValues":{"n":1,"m":5},"maxValues":{"n":4,"m":9}}'
    apart = add("0", partition_values={"p": "7"}, stats=stats)
    assert kept("n = m", apart) == kept("n > m", apart) == kept("n >= p", apart) == []
    assert kept("n < m", apart) == kept("m > p", apart) == kept("NOT n > m", apart) == [0]


def test_integers_compare_exactly_with_integers_and_decimals_and_as_floats_with_floats() -> None:
    big = file(2**53 + 1, 2**53 + 1)
    assert kept(f"n = {2**53}", big) == []
    assert kept(f"n = {2**53}.0", big) == []
    # As a 64-bit float the row is equal.
    assert kept(f"n = {2**53}D", big) == [0]


def test_bounds_ignore_nan() -> None:
    """A row with NaN is unequal to every value, and `NOT x < 5` is true for it."""
    found = file(1.0, 2.0, nulls=0, column="f")
    assert kept("f > 2", found) == kept("f = 0.5", found) == kept("NOT f != 0.5", found) == []
    for where in (
        "f != 1",
        "NOT f < 5",
        "NOT f <= 5",
        "NOT f > 0",
        "NOT f = 1",
        "f NOT IN (1, 2)",
        "f NOT BETWEEN 1 AND 2",
    ):
        assert kept(where, found) == [0], where
    assert kept("f != 1", file(nulls=4, column="f")) == []
    only_one = file(1.0, 1.0, nulls=0, column="f")
    assert kept("f != 1.0", only_one) == [0]


def test_negative_zero_equals_zero() -> None:
    assert kept("f = 0", file(-0.0, -0.0, column="f")) == kept("f = -0.0", file(0, 0, column="f")) == [0]


def test_booleans() -> None:
    false, true, both = file(False, False, column="b"), file(True, True, column="b"), file(False, True, column="b")
    assert kept("b", false, true, both, file()) == kept("b = true", false, true, both, file()) == [1, 2, 3]
    assert kept("NOT b", false, true, both, file()) == [0, 2, 3]


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("ab", [0, 1, 3]),
        ("a", [0, 1, 3]),
        ("", [0, 1, 2, 3]),
        ("b", [1, 2]),
        ("abz", [0, 1]),
        ("abzz", [0, 1]),
        ("c", []),
    ],
)
def test_prefixes(prefix: str, expected: list[int]) -> None:
    texts = (("ab", "abzz"), ("aa", "b"), ("b", "bc"), ("abc", "abc"))
    assert kept(f"s LIKE '{prefix}%'", *(file(low, high, nulls=0, column="s") for low, high in texts)) == expected


def test_negated_prefixes() -> None:
    texts = (("ab", "abzz"), ("aa", "b"), ("b", "bc"))
    assert kept("s NOT LIKE 'ab%'", *(file(low, high, column="s") for low, high in texts)) == [1, 2]
    assert kept("s NOT LIKE 'ab%'", file("ab", None, column="s"), file(None, "ab", column="s")) == [0, 1]


def test_truncated_text_bounds() -> None:
    cut, tie_breaker = "a" * 32, "\x7f"
    found = file(cut, cut + tie_breaker, nulls=0, column="s")
    assert kept(f"s = '{cut}b'", found, file(cut, None, column="s")) == [0, 1]
    assert kept(f"s = '{cut}\U0010ffff'", found, file(cut, None, column="s")) == [1]
    assert kept(f"s != '{cut}'", found) == [0]


def test_timestamp_bounds_truncated_to_the_millisecond() -> None:
    found = file("1969-12-31T23:59:59.998Z", "1969-12-31T23:59:59.998Z", nulls=0, column="t")
    assert kept("t = TIMESTAMP '1969-12-31 23:59:59.998999'", found) == [0]
    assert kept("t > TIMESTAMP '1969-12-31 23:59:59.9985'", found) == [0]
    assert kept("t > TIMESTAMP '1969-12-31 23:59:59.999'", found) == []
    assert kept("t < TIMESTAMP '1969-12-31 23:59:59.998'", found) == []


def test_nested_columns() -> None:
    found = file({"x": 1}, {"x": 2}, column="st")
    assert (kept("st.x = 3", found), kept("st.x = 1", found), kept("ST.X = 3", found)) == ([], [0], [])
    assert kept("st IS NULL", found) == [0]


def test_null_counts_of_a_list_decide_nothing() -> None:
    """In deltalake up to 1.6.0, the count is of the nulls among its elements."""
    counts = [file(nulls=count, column="l") for count in (0, 1, 4, 9)]
    assert kept("l IS NULL", *counts) == kept("l IS NOT NULL", *counts) == [0, 1, 2, 3]


@pytest.mark.parametrize("nulls", [4, 5, -1])
def test_a_count_of_nulls_that_bounds_contradict_decides_nothing(nulls: int) -> None:
    lie, honest = file(1, 3, nulls=nulls), file(nulls=4)
    for where in ("n = 2", "n IS NOT NULL", "n > 0", "n IS NULL", "n IN (1, 2)", "NOT n = 2"):
        assert 0 in kept(where, lie, honest)
    assert kept("n IS NOT NULL", honest, file(None, 3, nulls=4), file(1, None, nulls=4)) == [1, 2]


@pytest.mark.parametrize("name", ["item", "element", "key", "value"])
def test_a_column_named_like_a_part_of_a_list_has_no_count_of_nulls(name: str) -> None:
    """In deltalake up to 1.6.0, such a name has the nulls inside of a list or map."""
    plain = pa.schema([(name, pa.int64()), ("p", pa.int64())])
    with_map = pa.schema([*plain, ("m", pa.map_(pa.string(), pa.int64()))])
    files = [file(nulls=0, column=name), file(nulls=4, column=name)]
    string = to_schema_string(with_map)
    for where, believed in ((f"{name} IS NULL", [1]), (f"{name} IS NOT NULL", [0])):
        assert kept(where, *files, schema=with_map, schema_string=string) == [0, 1]
        assert kept(where, *files, schema=plain, schema_string=to_schema_string(plain)) == believed


@pytest.mark.parametrize("name", ["item", "element", "key", "value"])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_so_it_is_with_a_field_of_a_struct_and_a_list_at_any_depth(name: str, depth: int) -> None:
    def within(*fields: pa.Field) -> pa.Schema:
        for _ in range(depth):
            fields = (pa.field("s", pa.struct(fields)),)
        return pa.schema(fields)

    def counted(nulls: int) -> AddFile:
        count: Any = {name: nulls}
        for _ in range(depth):
            count = {"s": count}
        ((top, inner),) = count.items()
        return file(nulls=inner, column=top)

    own, path = pa.field(name, pa.int64()), ".".join([*["s"] * depth, name])
    files, plain = [counted(0), counted(4)], within(own, pa.field("n", pa.int64()))
    beside = within(own, pa.field("t", pa.struct([("l", pa.list_(pa.int64()))])))
    for where, believed in ((f"{path} IS NULL", [1]), (f"{path} IS NOT NULL", [0])):
        assert kept(where, *files, schema=beside, schema_string=to_schema_string(beside)) == [0, 1]
        assert kept(where, *files, schema=plain, schema_string=to_schema_string(plain)) == believed


# --- missing and unreadable statistics --------------------------------------------------------------------------------


@pytest.mark.parametrize("stats", [None, "", "{", "[]", "{}", '{"numRecords":4}', '{"minValues":{"n":"x"}}', "\x00"])
@pytest.mark.parametrize("where", ["n = 1", "n IS NULL", "n IS NOT NULL", "NOT n = 1", "s LIKE 'a%'", "b"])
def test_a_file_without_readable_statistics_is_kept(stats: str | None, where: str) -> None:
    assert 0 in kept(where, add("0", partition_values={"p": "1"}, stats=stats), file(1, 1))


def test_bounds_from_before_a_type_change() -> None:
    """The shortest text of a float is not exact as a double. Integers and dates are exact."""
    floats = file(0.1, 0.1, nulls=0, column="f")
    assert kept("f > 0.1", floats) == []
    changed = PARTITIONED.schema_string.replace('"metadata":{}', '"metadata":{"delta.typeChanges":[]}', 1)
    assert kept("f > 0.1", floats, schema_string=changed) == [0]
    assert kept("f IS NULL", floats, schema_string=changed) == []
    assert kept("n > 5", file(1, 5), schema_string=changed) == []
