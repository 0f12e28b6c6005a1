"""What a footer says about a file that no table has written: its types and its statistics."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.log.operations.converting import ROWS, converted, parquet, refused, stats_of
from tidelog.log.errors import SchemaMismatchError

# --- statistics ------------------------------------------------------------------------------------------------------


def test_statistics_come_from_the_footer() -> None:
    rows = pa.table(
        {
            "n": [3, None, -1],
            "large": pa.array(["b", "a", None], pa.large_string()),
            "code": pa.array(["y", "x", "y"]).dictionary_encode(),
            "at": pa.array([1, 2_000_000, 3], pa.timestamp("us", "Europe/Berlin")),
            "price": pa.array([Decimal("1.50"), Decimal("-2.25"), None]),
            "st": pa.array([{"x": 1}, {"x": 2}, None], pa.struct([("x", pa.int32())])),
            "tags": [[1], [2, 3], None],
        }
    )
    found = stats_of(converted({"f.parquet": rows}))
    assert found["numRecords"] == 3
    assert found["minValues"] == {
        "n": -1,
        "large": "a",
        "code": "x",
        "at": "1970-01-01T00:00:00.000Z",
        "price": -2.25,
        "st": {"x": 1},
    }
    assert found["maxValues"]["at"] == "1970-01-01T00:00:02.000Z"
    assert found["nullCount"] == {"n": 1, "large": 1, "code": 0, "at": 0, "price": 1, "st": {"x": 1}}


def test_floats_have_bounds_only_from_a_writer_that_tells_of_nan() -> None:
    """Arrow leaves NaN out of a footer's bounds, and for other engines NaN is above all numbers."""
    table = converted({"f.parquet": pa.table({"x": [1.0, math.nan], "n": [1, 2]})})
    assert stats_of(table)["maxValues"] == {"n": 2}


def test_the_properties_choose_the_columns_with_statistics() -> None:
    rows = pa.table({"a": [1], "b": [2], "c": [3]})
    one = converted({"f.parquet": rows}, properties={"delta.dataSkippingNumIndexedCols": 1})
    assert stats_of(one)["maxValues"] == {"a": 1}
    named = converted({"f.parquet": rows}, properties={"delta.dataSkippingStatsColumns": "b,c"})
    assert stats_of(named)["maxValues"] == {"b": 2, "c": 3}


# --- types -----------------------------------------------------------------------------------------------------------


def test_an_int96_is_a_timestamp_in_utc() -> None:
    moments = [dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)]
    rows = pa.table({"t": pa.array(moments, pa.timestamp("us", "UTC")), "l": [[moments[1]], None]})
    table = converted({"f.parquet": parquet(rows, use_deprecated_int96_timestamps=True)})
    assert table.schema == pa.schema([("t", pa.timestamp("us", "UTC")), ("l", pa.list_(pa.timestamp("us", "UTC")))])
    assert table.scan().to_arrow()["t"].to_pylist() == moments
    assert "timestampNtz" not in (table.head.protocol.reader_features or ())


def test_old_lists_and_field_ids_are_taken() -> None:
    ids = pa.schema([pa.field("n", pa.int64(), metadata={b"PARQUET:field_id": b"7"}), ("tags", pa.list_(pa.string()))])
    rows = pa.table({"n": [1], "tags": [["a", None]]}, schema=ids)
    old = parquet(rows, use_compliant_nested_type=False)
    table = converted({"a.parquet": old, "b.parquet": parquet(rows)})
    assert table.scan().to_arrow().to_pylist() == [{"n": 1, "tags": ["a", None]}] * 2


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pa.array([1], pa.uint32()), "uint32"),
        (pa.array([1], pa.uint64()), "uint64"),
        (pa.array([1.5], pa.float16()), "halffloat"),
        (pa.array([1], pa.timestamp("ns")), "coerce_timestamps='us'"),
        (pa.array([1], pa.time64("us")), "time64"),
        (pa.array([1], pa.duration("us")), "duration"),
        (pa.array([b"xx"], pa.binary(2)), "fixed_size_binary"),
        (pa.nulls(1), "all its values are null"),
        (pa.array([Decimal(1)], pa.decimal256(50, 2)), "decimal256"),
        (pa.array([{"x": [1]}], pa.struct([("x", pa.list_(pa.uint8()))])), "'c.x.element'"),
    ],
    ids=str,
)
def test_types_that_not_all_engines_read_are_refused_by_name(values: pa.Array, words: str) -> None:
    text = refused(SchemaMismatchError, {"a.parquet": ROWS, "b.parquet": pa.table({"c": values})})
    assert words in text
    assert "b.parquet" in text
    assert "'c" in text


def test_a_variant_is_refused() -> None:
    field = {"name": "v", "type": "variant", "nullable": True, "metadata": {}}
    schema = pa.schema(
        [("v", pa.struct([("value", pa.binary()), ("metadata", pa.binary())]))],
        metadata={"org.apache.spark.sql.parquet.row.metadata": json.dumps({"type": "struct", "fields": [field]})},
    )
    rows = pa.table({"v": [{"value": b"", "metadata": b""}]}, schema=schema)
    assert "variant" in refused(SchemaMismatchError, {"f.parquet": parquet(rows, store_schema=True)})


def test_names_that_differ_in_case_only_are_refused() -> None:
    rows = pa.table([pa.array([1]), pa.array([2])], names=["a", "A"])
    assert "more than once" in refused(SchemaMismatchError, {"f.parquet": rows})
