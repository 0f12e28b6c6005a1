"""A column has a dictionary if its values repeat, soon or late."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelog.log.data.writer import with_dictionary

ROWS = 2**19
_NUMBERS = np.arange(ROWS)
_RANDOM = np.random.default_rng(1)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (_NUMBERS, False),
        (_RANDOM.random(ROWS), False),
        (_RANDOM.integers(0, 1000, ROWS), True),
        (_RANDOM.integers(0, 100_000, ROWS), True),
        (_NUMBERS // 16, True),
        (_NUMBERS % 32_768, True),
        ([None] * ROWS, True),
        ([None] * (ROWS - 5) + [1, 2, 3, 4, 5], True),
        ([f"user {number % 500}" for number in range(ROWS)], True),
        ([f"user {number}" for number in range(ROWS)], False),
    ],
    ids=["sequence", "random", "few", "many", "runs", "cycle", "null", "hardly any", "texts", "different texts"],
)
def test_a_column_has_a_dictionary_if_its_values_repeat(values: Any, expected: bool) -> None:
    assert (with_dictionary(pa.table({"x": values})) == ["x"]) == expected


def test_few_rows_have_dictionaries_everywhere() -> None:
    assert with_dictionary(pa.table({"x": range(1000), "y": ["a"] * 1000})) == ["x", "y"]


def test_nested_columns_are_named_by_their_leaves(tmp_path: Any) -> None:
    kind = pa.struct(
        [
            ("l", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))),
            ("m", pa.map_(pa.string(), pa.list_(pa.int32()))),
        ]
    )
    rows = pa.table({"s": pa.array([{"l": [{"a": 1, "b": "x"}], "m": [("k", [1])]}] * ROWS, kind), "n": range(ROWS)})
    named = with_dictionary(rows)
    pq.write_table(rows, tmp_path / "x.parquet", use_dictionary=named)
    group = pq.ParquetFile(tmp_path / "x.parquet").metadata.row_group(0)
    found = {column.path_in_schema: column.has_dictionary_page for column in map(group.column, range(5))}
    assert found == {**dict.fromkeys(named, True), "n": False}
