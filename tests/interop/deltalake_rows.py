"""Rows of every type, and comparing what tidelog and the library deltalake read."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.log.strategies import PRIMITIVES
from tidelog.log import Table
from tidelog.log.format.schema import TIMESTAMP, TIMESTAMP_NTZ

UTC = dt.UTC
# deltalake can write to such a table. It refuses in-commit timestamps.
PLAIN = {"delta.enableDeletionVectors": False, "delta.enableInCommitTimestamps": False}

Row = dict[str, Any]


def sql(table: Table, query: str = "SELECT * FROM t", *, version: int | None = None) -> list[Row]:
    """Query with deltalake's SQL engine; its `to_pyarrow_table` refuses tables with deletion vectors."""
    found = QueryBuilder().register("t", DeltaTable(table.path, version=version)).execute(query)
    return pa.table(found.read_all()).to_pylist()  # type: ignore[no-any-return]


def key(row: Row) -> str:
    return repr(sorted(row.items()))


def ours(table: Table) -> list[Row]:
    return table.scan().to_arrow().to_pylist()  # type: ignore[no-any-return]


def check_same(table: Table, expected: Sequence[Row] | None = None) -> None:
    """Check that both libraries read the same rows, which are `expected`."""
    theirs = sorted(map(key, sql(table)))
    assert theirs == sorted(map(key, ours(table)))
    if expected is not None:
        assert theirs == sorted(map(key, expected))


FULL = pa.schema([(f"c{number}", kind) for number, kind in enumerate(PRIMITIVES)])
EXTREMES: dict[Any, list[Any]] = {
    pa.string(): ["", "é\U0001f600\n'\"", "x" * 100],
    pa.binary(): [b"", b"\x00\xff", b"abc"],
    pa.bool_(): [True, False, True],
    pa.date32(): [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1969, 12, 31)],
    pa.int8(): [-128, 127, 0],
    pa.int16(): [-(2**15), 2**15 - 1, 0],
    pa.int32(): [-(2**31), 2**31 - 1, 0],
    pa.int64(): [-(2**63), 2**63 - 1, 0],
    pa.float32(): [math.nan, -math.inf, -0.0],
    pa.float64(): [math.nan, math.inf, 1e-300],
    pa.decimal128(9, 2): [Decimal("-9999999.99"), Decimal("9999999.99"), Decimal("0.00")],
    pa.decimal128(18, 0): [Decimal(-(10**18) + 1), Decimal(10**18 - 1), Decimal(0)],
    TIMESTAMP: [
        dt.datetime(1, 1, 1, tzinfo=UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    ],
    TIMESTAMP_NTZ: [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), dt.datetime(2020, 1, 1)],  # noqa: DTZ001
}


def full_rows() -> list[Row]:
    rows = [{field.name: EXTREMES[field.type][number] for field in FULL} for number in range(3)]
    return [*rows, dict.fromkeys(FULL.names)]


PARTITION_VALUES: dict[Any, list[Any]] = {
    pa.string(): ["a/b", "a=b", "%2F", "50%", " lead", "é\U0001f600", "a:b", "..", "a\nb", "'", '"', "null"],
    pa.bool_(): [True, False],
    pa.date32(): [dt.date(1, 1, 1), dt.date(2020, 2, 29), dt.date(9999, 12, 31)],
    pa.int8(): [-128, 127],
    pa.int64(): [-(2**63), 2**63 - 1],
    pa.float64(): [0.1, -1e300, 5e-324],
    pa.float32(): [0.5, -1.5],
    pa.decimal128(9, 2): [Decimal("-0.01"), Decimal("9999999.99"), Decimal("1.50")],
    TIMESTAMP: [dt.datetime(2020, 1, 1, 12, 30, 0, 123_456, UTC), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)],
    TIMESTAMP_NTZ: [dt.datetime(2020, 1, 1, 12, 30, 0, 123_456), dt.datetime(1969, 12, 31)],  # noqa: DTZ001
}
