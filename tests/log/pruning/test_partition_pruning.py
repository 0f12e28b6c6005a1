"""Which files partition values keep: each rule on its own, with literal expectations."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pytest

from tests.log.pruning.support import PARTITIONED, SCHEMA, file, kept
from tests.log.support import add, remove
from tidelog.log import predicate
from tidelog.log.data.reader import DataFile
from tidelog.log.format.schema import TIMESTAMP, TIMESTAMP_NTZ
from tidelog.log.pruning.file_pruning import is_partition_only, may_match, wholly_matching
from tidelog.log.read.change_files import ChangeFile
from tidelog.log.state import files
from tidelog.log.state.files import FileValues


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
    """A file with an unreadable value is kept, so that the reader can report it. Null and the empty string are null."""
    schema = pa.schema([("n", pa.int64()), ("p", kind)])
    adds = [add(str(position), partition_values={"p": text}) for position, text in enumerate(texts)]
    assert kept(f"p = {literal}", *adds, schema=schema) == expected
    nulls = [position for position, text in enumerate(texts) if not text]
    unreadable = kept("p IS NULL AND p IS NOT NULL", *adds, schema=schema)
    assert kept("p IS NULL", *adds, schema=schema) == sorted([*nulls, *unreadable])


def test_a_file_without_a_partition_value_is_kept_because_it_holds_the_column_itself() -> None:
    assert kept("p = 1", add("0", partition_values={}), add("1", partition_values={"p": "2"})) == [0]
    assert kept("p IS NOT NULL AND p IS NULL", add("0", partition_values={"q": "1"})) == [0]


def test_arithmetic_over_partition_columns_is_evaluated() -> None:
    assert kept("p + 1 = 3 OR p / 2 = 2", *(file(p=str(number)) for number in range(6))) == [2, 4]
    # It overflows, which the reader reports.
    assert kept("p * 4000000000 = 1", file(p="4000000000"), file(p="1")) == [0, 1]


def test_partition_and_data_columns_together() -> None:
    adds = [file(0, 9, p="1"), file(10, 19, p="1"), file(0, 9, p="2"), file(10, 19, p="2")]
    assert kept("p = 1 AND n = 5", *adds) == [0]
    assert kept("p = 1 OR n = 5", *adds) == [0, 1, 2]
    assert kept("NOT (p = 1 OR n = 5)", *adds) == [2, 3]


def test_files_whose_every_row_matches() -> None:
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
