"""Ranks of a column that has no values, or none in the sample."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidelog.compaction_daemon import compact
from tidelog.compaction_daemon.rewriting.orders import Ranks
from tidelog.log import Table

VALUES: list[tuple[pa.DataType, Any]] = [
    (pa.int64(), 1),
    (pa.float64(), 0.5),
    (pa.timestamp("us", tz="UTC"), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
    (pa.date32(), dt.date(2026, 1, 1)),
    (pa.decimal128(38, 10), Decimal(1)),
    (pa.bool_(), True),
    (pa.string(), "a"),
    (pa.binary(), b"a"),
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_a_sample_without_values_ranks_values_before_nulls(kind: pa.DataType, value: Any) -> None:
    ranks = Ranks(pa.nulls(3, kind), 8)
    first, second = ranks.of(pa.array([value, None], kind)).tolist()
    assert first < second < 256


@pytest.mark.parametrize("kind", [kind for kind, _ in VALUES])
def test_rows_are_clustered_by_a_column_without_values(kind: pa.DataType) -> None:
    schema = pa.schema([("new", kind), ("n", pa.int64())])
    table = Table.create(f"memory://ranks-{kind}", schema)
    for start in (0, 5):
        table.insert(pa.table({"new": pa.nulls(5, kind), "n": range(start, start + 5)}, schema=schema))
    assert compact(table, "major", cluster_by=["new", "n"]).groups == 1
    assert sorted(table.refresh().scan().to_arrow()["n"].to_pylist()) == list(range(10))
