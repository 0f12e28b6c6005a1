"""A column has a dictionary if its values repeat, soon or late; integers are written as steps if these are small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelog.log import Table
from tidelog.log.data.layout import STEPS, sampled_encodings, sampled_uncompressed

ROWS = 2**19
_NUMBERS = np.arange(ROWS)
_RANDOM = np.random.default_rng(1)
_CODES = "RLE_DICTIONARY"
_PLAIN = "PLAIN"
_EXTREMES = np.where(_NUMBERS % 2, 2**63 - 1, -(2**63))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (_NUMBERS, STEPS),
        (_RANDOM.random(ROWS), _PLAIN),
        (_RANDOM.integers(0, 1000, ROWS), _CODES),
        (_RANDOM.integers(0, 100_000, ROWS), _CODES),
        (_RANDOM.integers(-(2**63), 2**63 - 1, ROWS), _PLAIN),
        (_NUMBERS // 16, STEPS),
        (_NUMBERS % 32_768, STEPS),
        ([7] * ROWS, _CODES),
        (_EXTREMES, _CODES),
        (pa.array(_NUMBERS * 1000).cast(pa.timestamp("us", "UTC")), STEPS),
        (pa.array((_NUMBERS // 40).astype(np.int32)).cast(pa.date32()), STEPS),
        (pa.array(_NUMBERS.astype(np.int32)), STEPS),
        (pa.array([None, 5] * (ROWS // 2)), _CODES),
        (pa.array(np.repeat(_NUMBERS, 2)[:ROWS], mask=_NUMBERS % 3 == 0), STEPS),
        ([None] * ROWS, _CODES),
        ([None] * (ROWS - 5) + [1, 2, 3, 4, 5], _CODES),
        ([f"user {number % 500}" for number in range(ROWS)], _CODES),
        ([f"user {number}" for number in range(ROWS)], _PLAIN),
    ],
    ids=[
        "sequence",
        "random",
        "few",
        "many",
        "all bits",
        "runs",
        "cycle",
        "constant",
        "extremes",
        "times",
        "dates",
        "small integers",
        "nulls and a constant",
        "nulls and a sequence",
        "null",
        "hardly any",
        "texts",
        "different texts",
    ],
)
def test_a_column_has_the_encoding_that_suits_its_values(values: Any, expected: str) -> None:
    dictionaries, encodings = sampled_encodings(pa.table({"x": values}))
    assert encodings.get("x", _CODES if dictionaries == ("x",) else _PLAIN) == expected


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (_RANDOM.random(ROWS), ("x",)),
        (pa.array(_RANDOM.random(ROWS), mask=_NUMBERS % 3 == 0), ("x",)),
        (_NUMBERS / 2, ()),
        (_RANDOM.integers(-(2**63), 2**63 - 1, ROWS), ()),
    ],
    ids=["measured", "with nulls", "growing", "integers"],
)
def test_measurements_are_not_compressed(values: Any, found: tuple[str, ...]) -> None:
    rows = pa.table({"x": values})
    assert sampled_uncompressed(rows, ()) == found
    assert sampled_uncompressed(rows, {"x"}) == ()


def test_few_rows_have_dictionaries_everywhere() -> None:
    assert sampled_encodings(pa.table({"x": range(1000), "y": ["a"] * 1000})) == (("x", "y"), {})


def test_nested_columns_are_named_by_their_leaves(tmp_path: Any) -> None:
    kind = pa.struct(
        [
            ("l", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))),
            ("m", pa.map_(pa.string(), pa.list_(pa.int32()))),
        ]
    )
    rows = pa.table({"s": pa.array([{"l": [{"a": 1, "b": "x"}], "m": [("k", [1])]}] * ROWS, kind), "n": range(ROWS)})
    named, encodings = sampled_encodings(rows)
    pq.write_table(rows, tmp_path / "x.parquet", use_dictionary=list(named), column_encoding=encodings)
    group = pq.ParquetFile(tmp_path / "x.parquet").metadata.row_group(0)
    found = {column.path_in_schema: column.has_dictionary_page for column in map(group.column, range(5))}
    assert found == {**dict.fromkeys(named, True), "n": False}


def test_an_insert_of_many_rows_is_written_so(tmp_path: Any) -> None:
    rows = pa.table({"id": _NUMBERS, "v": _RANDOM.random(ROWS), "k": _RANDOM.integers(0, 9, ROWS)})
    table = Table.create(tmp_path / "table", rows.schema)
    table.insert(rows)
    (path,) = table.at().files()["path"].to_pylist()
    group = pq.read_metadata(tmp_path / "table" / path).row_group(0)
    id_, value, few = (group.column(number) for number in range(3))
    assert STEPS in id_.encodings
    assert not value.has_dictionary_page
    assert few.has_dictionary_page
    assert [id_.compression, value.compression, few.compression] == ["SNAPPY", "UNCOMPRESSED", "SNAPPY"]
    assert table.scan().to_arrow().equals(rows)


def test_a_column_named_like_a_field_of_a_struct(tmp_path: Any) -> None:
    """Parquet's writer cannot tell `a.b` from the field `b` of `a`."""
    rows = pa.table({"a.b": _NUMBERS, "a": pa.array([{"b": "x"}] * ROWS), "c": _NUMBERS})
    assert sampled_encodings(rows) == (("a.b",), {"c": STEPS})
    table = Table.create(tmp_path / "table", rows.schema)
    table.insert(rows)
    assert table.scan().to_arrow().equals(rows)
