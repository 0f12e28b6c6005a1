"""A decimal next to a floating number is the nearest floating number, as Spark converts it."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from tests.log.support import memory_store, new_table

NUMBERS = [f"{number / 1000:.3f}" for number in range(-2000, 6000, 7)]


def test_each_literal_equals_its_own_double() -> None:
    schema = pa.schema([("x", pa.float64()), ("d", pa.decimal128(10, 3))])
    table = new_table(memory_store(), schema)
    table.insert(pa.table({"x": list(map(float, NUMBERS)), "d": list(map(Decimal, NUMBERS))}, schema=schema))
    for text in NUMBERS[::40]:
        for where in (f"x = {text}", f"x IN ({text}, 77.7)", f"x <=> {text}", f"x BETWEEN {text} AND {text}"):
            assert table.scan(where).count() == 1, where
    assert table.scan("x = d").count() == len(NUMBERS)
    assert table.scan("CAST(d AS DOUBLE) <> x").count() == 0


@pytest.mark.parametrize("text", ["0.3", "3.3", "-1.7"])
def test_rows_are_deleted_and_updated_by_it(text: str) -> None:
    table = new_table(memory_store(), pa.schema([("x", pa.float64()), ("n", pa.int64())]))
    table.insert([{"x": float(text), "n": 1}, {"x": 9.5, "n": 2}])
    table.update("n = 2", {"x": text})
    assert table.scan().to_arrow()["x"].to_pylist() == [float(text)] * 2
    assert table.delete(f"x = {text}").metrics["numDeletedRows"] == 2
