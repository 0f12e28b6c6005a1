"""Which files a predicate keeps: each rule by itself, with literal expectations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.log.read.test_scan import mapped_table, put_parquet
from tests.log.support import (
    add,
    live_files,
    memory_store,
    metadata,
    new_table,
    numbers,
    put_foreign,
    put_vector,
    remove,
)
from tidelog.log import Table, predicate
from tidelog.log.data.reader import DataFile
from tidelog.log.errors import CorruptLogError
from tidelog.log.format.actions import AddFile
from tidelog.log.format.schema import TIMESTAMP, TIMESTAMP_NTZ
from tidelog.log.pruning.file_pruning import is_partition_only, may_match, prune, wholly_matching
from tidelog.log.read.change_files import ChangeFile
from tidelog.log.state import files
from tidelog.log.state.file_values import FileValues
from tidelog.log.state.loader import load

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("m", pa.int64()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("t", TIMESTAMP),
        ("st", pa.struct([("x", pa.int64())])),
        ("l", pa.list_(pa.int64())),
        ("p", pa.int64()),
    ]
)
PARTITIONED = metadata(SCHEMA, partition_columns=("p",))


def file(
    low: Any = None,
    high: Any = None,
    *,
    nulls: int | None = None,
    rows: int | None = 4,
    column: str = "n",
    p: str = "1",
) -> AddFile:
    """A file whose statistics have bounds and the null count of one column; None leaves a part out."""
    parts = {"minValues": low, "maxValues": high, "nullCount": nulls}
    tree = {key: {column: value} for key, value in parts.items() if value is not None}
    stats = json.dumps({**tree, **({} if rows is None else {"numRecords": rows})})
    return add(f"{low} {high}", partition_values={"p": p}, stats=stats)


def kept(where: str, *adds: AddFile, schema: pa.Schema = SCHEMA, **changes: Any) -> list[int]:
    """The positions of the files that `where` keeps."""
    numbered = [msgspec.structs.replace(each, path=str(position)) for position, each in enumerate(adds)]
    found = prune(
        files.add_table(numbered),
        predicate.parse(where, schema),
        schema,
        msgspec.structs.replace(PARTITIONED, **changes),
    )
    assert found.schema.equals(files.ADD)
    return [int(path) for path in found["path"].to_pylist()]


# --- comparisons -----------------------------------------------------------------------------------------------------

_RANGES = (file(0, 9, nulls=0), file(10, 19, nulls=1), file(20, 20, nulls=0), file(nulls=4), file(30, None), file())
# The last two are never dropped below: one has no maximum, one nothing at all.
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
        ("n + 1 = 0", [0, 1, 2, 3, *_ALWAYS]),
        ("n + 1 = 0 AND n = 20", [2, 5]),
        ("n = m", [0, 1, 2, *_ALWAYS]),
        ("1 = 2", []),
        ("true", [0, 1, 2, 3, *_ALWAYS]),
        ("1 = 2 OR n = 20", [2, 5]),
    ],
)
def test_bounds_and_null_counts(where: str, expected: list[int]) -> None:
    assert kept(where, *_RANGES) == expected


def test_a_long_list_is_asked_for_as_a_range() -> None:
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


def test_integers_are_compared_exactly_and_with_fractions_as_rows_are() -> None:
    big = file(2**53 + 1, 2**53 + 1)
    assert kept(f"n = {2**53}", big) == []
    # As a float of 64 bits the row is equal.
    assert kept(f"n = {2**53}.0", big) == [0]


def test_nan_is_in_no_bounds() -> None:
    """A row with NaN is unequal to everything, and `NOT x < 5` is true for it."""
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


def test_the_zeros_are_equal() -> None:
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


def test_the_opposite_of_a_prefix() -> None:
    texts = (("ab", "abzz"), ("aa", "b"), ("b", "bc"))
    assert kept("s NOT LIKE 'ab%'", *(file(low, high, column="s") for low, high in texts)) == [1, 2]
    assert kept("s NOT LIKE 'ab%'", file("ab", None, column="s"), file(None, "ab", column="s")) == [0, 1]


def test_texts_that_were_cut() -> None:
    cut, tie_breaker = "a" * 32, "\x7f"
    found = file(cut, cut + tie_breaker, nulls=0, column="s")
    assert kept(f"s = '{cut}b'", found, file(cut, None, column="s")) == [0, 1]
    assert kept(f"s = '{cut}\U0010ffff'", found, file(cut, None, column="s")) == [1]
    assert kept(f"s != '{cut}'", found) == [0]


def test_times_were_cut_down_to_the_millisecond() -> None:
    found = file("1969-12-31T23:59:59.998Z", "1969-12-31T23:59:59.998Z", nulls=0, column="t")
    assert kept("t = TIMESTAMP '1969-12-31 23:59:59.998999'", found) == [0]
    assert kept("t > TIMESTAMP '1969-12-31 23:59:59.9985'", found) == [0]
    assert kept("t > TIMESTAMP '1969-12-31 23:59:59.999'", found) == []
    assert kept("t < TIMESTAMP '1969-12-31 23:59:59.998'", found) == []


def test_nested_columns() -> None:
    found = file({"x": 1}, {"x": 2}, column="st")
    assert (kept("st.x = 3", found), kept("st.x = 1", found), kept("ST.X = 3", found)) == ([], [0], [])
    assert kept("st IS NULL", found) == [0]


def test_null_counts_of_a_list() -> None:
    assert kept("l IS NULL", file(nulls=0, column="l"), file(nulls=1, column="l")) == [1]


# --- what is not known -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stats", [None, "", "{", "[]", "{}", '{"numRecords":4}', '{"minValues":{"n":"x"}}', "\x00"])
@pytest.mark.parametrize("where", ["n = 1", "n IS NULL", "n IS NOT NULL", "NOT n = 1", "s LIKE 'a%'", "b"])
def test_a_file_without_readable_statistics_is_kept(stats: str | None, where: str) -> None:
    assert kept(where, add("0", partition_values={"p": "1"}, stats=stats), file(1, 1)) != [1]


def test_bounds_of_a_type_that_the_column_had_before() -> None:
    """A float's shortest text is not exact as a double; integers and dates are."""
    floats = file(0.1, 0.1, nulls=0, column="f")
    assert kept("f > 0.1", floats) == []
    changed = PARTITIONED.schema_string.replace('"metadata":{}', '"metadata":{"delta.typeChanges":[]}', 1)
    assert kept("f > 0.1", floats, schema_string=changed) == [0]
    assert kept("f IS NULL", floats, schema_string=changed) == []
    assert kept("n > 5", file(1, 5), schema_string=changed) == []


# --- partition columns -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "literal", "texts", "expected"),
    [
        (pa.int8(), "3", ["3", "03", "4", None, "", "300", "x"], [0, 1, 5, 6]),
        (pa.int64(), "9007199254740993", ["9007199254740993", "9007199254740992"], [0]),
        (pa.float64(), "0.5", ["0.5", "5E-1", "NaN", "-Infinity", "x"], [0, 1, 4]),
        (pa.decimal128(9, 2), "1.5", ["1.50", "1.5", "1.51", "1.555"], [0, 1, 3]),
        (pa.bool_(), "true", ["true", "TRUE", "false", "1"], [0, 1, 3]),
        (pa.string(), "'a'", ["a", "A", "a ", None, ""], [0]),
        (pa.date32(), "DATE '2024-01-02'", ["2024-01-02", "2024-01-03", "+12024-01-02"], [0, 2]),
        (
            TIMESTAMP,
            "TIMESTAMP '2024-01-02 03:04:05.5'",
            ["2024-01-02 03:04:05.5", "2024-01-02T03:04:05.500000Z", "2024-01-02T03:04:05Z", "soon"],
            [0, 1, 3],
        ),
        (TIMESTAMP_NTZ, "TIMESTAMP_NTZ '2024-01-02 03:04:05'", ["2024-01-02 03:04:05", "2024-01-02 03:04:06"], [0]),
    ],
)
def test_partition_values_of_every_type(
    kind: pa.DataType, literal: str, texts: Sequence[str | None], expected: list[int]
) -> None:
    """What cannot be read is kept, so that the reader can say so; null and the empty text are null."""
    schema = pa.schema([("n", pa.int64()), ("p", kind)])
    adds = [add(str(position), partition_values={"p": text}) for position, text in enumerate(texts)]
    assert kept(f"p = {literal}", *adds, schema=schema) == expected
    nulls = [position for position, text in enumerate(texts) if not text]
    unreadable = kept("p IS NULL AND p IS NOT NULL", *adds, schema=schema)
    assert kept("p IS NULL", *adds, schema=schema) == sorted([*nulls, *unreadable])


def test_a_file_that_names_no_partition_value_holds_the_column_itself() -> None:
    assert kept("p = 1", add("0", partition_values={}), add("1", partition_values={"p": "2"})) == [0]
    assert kept("p IS NOT NULL AND p IS NULL", add("0", partition_values={"q": "1"})) == [0]


def test_arithmetic_over_partition_columns_is_evaluated() -> None:
    assert kept("p + 1 = 3 OR p / 2 = 2", *(file(p=str(number)) for number in range(6))) == [2, 4]
    # It overflows: the reader says so.
    assert kept("p * 4000000000 = 1", file(p="4000000000"), file(p="1")) == [0, 1]


def test_partition_and_data_columns_together() -> None:
    adds = [file(0, 9, p="1"), file(10, 19, p="1"), file(0, 9, p="2"), file(10, 19, p="2")]
    assert kept("p = 1 AND n = 5", *adds) == [0]
    assert kept("p = 1 OR n = 5", *adds) == [0, 1, 2]
    assert kept("NOT (p = 1 OR n = 5)", *adds) == [2, 3]


def test_which_files_match_wholly() -> None:
    adds = [file(p="1"), file(p="2"), file(p="x"), file(p=""), add("4", partition_values={})]
    whole = predicate.parse("p < 2 OR p IS NULL", SCHEMA)
    assert wholly_matching(FileValues(files.add_table(adds)), whole, SCHEMA, PARTITIONED).to_pylist() == [
        True,
        False,
        False,
        True,
        False,
    ]
    mixed = predicate.parse("p = 1 OR n = 1", SCHEMA)
    assert wholly_matching(FileValues(files.add_table(adds)), mixed, SCHEMA, PARTITIONED).to_pylist() == [False] * 5
    assert (is_partition_only(whole, PARTITIONED), is_partition_only(mixed, PARTITIONED)) == (True, False)


def test_removes_and_cdc_files() -> None:
    where = predicate.parse("p = 1 AND n = 5", SCHEMA)
    cdc = [ChangeFile(DataFile("c", {"p": text}, None), 1, 1, 1, None, change_type=None) for text in ("1", "2")]
    one = file(6, 7)
    removes = [remove(one), remove(file(p="2")), msgspec.structs.replace(remove(one), partition_values=None)]
    assert may_match([*cdc, one, *removes], where, SCHEMA, PARTITIONED) == [True, False, False, True, False, True]
    assert may_match([], where, SCHEMA, PARTITIONED) == []


def test_an_empty_table() -> None:
    assert kept("p = 1 AND n = 1") == []


# --- in the table ----------------------------------------------------------------------------------------------------


def grown(partition_by: Sequence[str] = ()) -> Table:
    """Ten files of ten numbers each, of the partitions 0 and 1 in turn."""
    table = new_table(memory_store(), pa.schema([("n", pa.int64()), ("p", pa.int64())]), partition_by=partition_by)
    for start in range(0, 100, 10):
        table.insert([{"n": number, "p": start // 10 % 2} for number in range(start, start + 10)])
    return table


def lose_files_but(table: Table, *keep: int) -> None:
    """Take away the data files that were not the n-th inserted, so that reading one fails."""
    for position, each in enumerate(live_files(table)):
        if position not in keep:
            table.store.delete(each.path)


def test_only_the_files_that_may_match_are_opened() -> None:
    table = grown()
    lose_files_but(table, 2)
    assert table.scan("n BETWEEN 20 AND 22").to_arrow()["n"].to_pylist() == [20, 21, 22]
    assert table.changes(where="n = 20").to_arrow()["n"].to_pylist() == [20]
    assert table.scan("n > 100").to_arrow().num_rows == 0
    with pytest.raises(CorruptLogError):
        table.scan("n >= 20").to_arrow()


def test_the_feeds_own_columns_rule_no_file_out() -> None:
    table = grown()
    assert table.changes(where="_commit_version = 3 AND n < 100").to_arrow()["n"].to_pylist() == list(range(20, 30))
    lose_files_but(table, 2)
    assert table.changes(where="_commit_version = 3 AND n = 25").to_arrow()["n"].to_pylist() == [25]


def test_explain_tells_which_rule_left_files_out() -> None:
    text = grown(["p"]).scan("p = 1 AND n < 40", ["n"]).explain()
    assert text.splitlines() == [
        "files: 2 of 10",
        "dropped by partition values: 5",
        "dropped by statistics: 3",
        "columns read: n, p",
        "predicate: p = 1 AND n < 40",
    ]


def test_counting_opens_no_file_that_statistics_tell_of() -> None:
    table = grown(["p"])
    lose_files_but(table)
    assert table.scan().count() == table.at().num_rows == 100
    assert table.scan("p = 1").count() == 50
    assert table.scan("p = 1 OR p IS NULL", ["n"]).count() == 50
    with pytest.raises(CorruptLogError):
        table.scan("p = 1 AND n < 95").count()


def test_counting_leaves_deleted_rows_out_and_reads_what_has_no_statistics() -> None:
    table = grown()
    first, second, *_ = live_files(table)
    vector = put_vector(table.store, [0, 1, 2], "dv.bin")
    silent = msgspec.structs.replace(second, stats=None)
    put_foreign(table, remove(first), msgspec.structs.replace(first, deletion_vector=vector), silent)
    table.refresh()
    assert table.scan().count() == 97
    # What is impossible is not believed.
    liar = msgspec.structs.replace(second, stats='{"numRecords":-1}')
    put_foreign(table, liar)
    assert table.refresh().scan().count() == 97


def test_counting_reads_a_file_that_holds_the_partition_column_itself() -> None:
    table = grown(["p"])
    rows = pa.table({"n": [1, 2, 3], "p": [1, 2, 1]})
    put_parquet(table, "own", rows, partition_values={}, stats='{"numRecords":3}')
    assert table.scan("p = 1").count() == 52
    assert table.scan().count() == 103


def test_null_counts_after_deletions() -> None:
    """Under wide bounds a count of some nulls tells nothing; none and all still do."""
    table = new_table(memory_store(), pa.schema([("n", pa.int64())]))
    for values in ([1, None], [None, None], [1, 2]):
        table.insert([{"n": value} for value in values])
    for position, each in enumerate(live_files(table)):
        stats = (each.stats or "").replace('"tightBounds":true', '"tightBounds":false')
        vector = put_vector(table.store, [position % 2], f"{position}.bin")
        put_foreign(table, remove(each), msgspec.structs.replace(each, deletion_vector=vector, stats=stats))
    table.refresh()
    assert [table.scan(f"n IS {word}").explain().splitlines()[0] for word in ("NULL", "NOT NULL")] == [
        "files: 2 of 3"
    ] * 2
    assert table.scan("n IS NULL").to_arrow()["n"].to_pylist() == [None, None]
    assert table.scan("n IS NOT NULL").to_arrow()["n"].to_pylist() == [2]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_go_by_their_physical_names(mode: str) -> None:
    table = mapped_table(mode)
    stats = {"numRecords": 1, "minValues": {"col-1": 5, "n": 1, "col-2": {"col-4": "k"}}, "maxValues": {"col-1": 6}}
    put_foreign(table, add("f", partition_values={"col-3": "a", "p": "b"}, stats=json.dumps(stats)))
    table.refresh()

    def files_of(where: str) -> str:
        return table.scan(where).explain().splitlines()[0]

    dropped = ["n = 7", "n < 5", "p = 'b'", "st.x < 'k'"]
    assert {where: files_of(where) for where in dropped} == dict.fromkeys(dropped, "files: 0 of 1")
    possible = ["n = 5", "p = 'a'", "st.x > 'k'"]
    assert {where: files_of(where) for where in possible} == dict.fromkeys(possible, "files: 1 of 1")


def test_a_refreshed_table_prunes_its_new_files() -> None:
    table = grown()
    assert table.scan("n = 100").count() == 0
    table.insert(numbers(range(100, 110)).append_column("p", pa.array([0] * 10)))
    assert table.scan("n = 100").count() == 1
    assert load(table.store).files().values.rows().to_pylist() == [10] * 11
