"""Predicates that compare numbers of different types and sizes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.log.support import memory_store, new_table


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("i > 1.5", [20_000_001, 2**60]),
        ("i >= 100.0", [20_000_001, 2**60]),
        ("i IN (1.5, 1)", [1]),
        ("i + 0.5 > 2", [20_000_001, 2**60]),
        ("small + 100 > 150", [20_000_001]),
        ("small * 2 = 200", [20_000_001]),
        ("at > DATE '2020-01-01'", [20_000_001]),
    ],
)
def test_integers_of_every_size_compare_with_fractions(where: str, expected: list[int]) -> None:
    schema = pa.schema([("i", pa.int64()), ("small", pa.int8()), ("at", pa.timestamp("us", tz="UTC"))])
    table = new_table(memory_store(), schema)
    data: Any = {"i": [1, 20_000_001, 2**60], "small": [1, 100, -100], "at": [0, 1_600_000_000_000_000, None]}
    table.insert(pa.table({name: pa.array(values, schema.field(name).type) for name, values in data.items()}))
    assert table.scan(where).to_arrow()["i"].to_pylist() == expected
