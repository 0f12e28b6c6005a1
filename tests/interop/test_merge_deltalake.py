"""Upserts by rules give the rows of deltalake's MERGE."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.interop.deltalake_merges import Rules, merge_of_deltalake, with_rules
from tidelog.log import Table

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("id", pa.string()), ("price", pa.int64()), ("sold", pa.int32()), ("day", pa.date32())])
ALL_NEW = {"id": "source.id", "price": "source.price", "sold": "source.sold", "day": "source.day"}

CASES: dict[str, Rules] = {
    "update and insert all": {"when_matched": [(None, "update")], "when_not_matched": [(None, "insert")]},
    "insert only": {"when_not_matched": [(None, "insert")]},
    "delete": {"when_matched": [(None, "delete")]},
    "delete by a condition": {"when_matched": [("source.sold = 0", "delete")]},
    "update some columns": {"when_matched": [(None, {"price": "source.price", "sold": "source.sold + target.sold"})]},
    "the first condition": {
        "when_matched": [
            ("target.price > source.price", {"price": "target.price"}),
            ("source.sold > 5", {"sold": "source.sold"}),
            (None, {"price": "0"}),
        ],
        "when_not_matched": [("source.price > 100", "insert"), (None, {"id": "source.id", "price": "-1"})],
    },
    "a null is not true": {"when_matched": [("target.sold > 1", {"price": "1"})]},
    "rows that the source lacks": {
        "when_matched": [(None, "update")],
        "when_not_matched_by_source": [("target.price > 10", {"sold": "target.sold + 1"}), (None, "delete")],
    },
    "only those": {"when_not_matched_by_source": [("target.id = 'b'", "delete")]},
    "all kinds": {
        "when_matched": [("source.sold IS NULL", "delete"), (None, ALL_NEW)],
        "when_not_matched": [("source.sold IS NOT NULL", ALL_NEW)],
        "when_not_matched_by_source": [("target.sold IS NULL", {"day": "DATE '2026-02-01'"})],
    },
}


def rows_of(path: Path) -> list[str]:
    return sorted(map(str, Table.open(str(path)).scan().to_arrow().to_pylist()))


@pytest.mark.parametrize("partition_by", [[], ["id"]], ids=["plain", "partitioned"])
@pytest.mark.parametrize("name", list(CASES))
def test_rules_give_the_rows_of_deltalake(tmp_path: Path, name: str, partition_by: list[str]) -> None:
    day = date(2026, 1, 1)
    before = pa.table(
        {
            "id": ["a", "b", "c", "d", None],
            "price": [10, 20, None, 40, 50],
            "sold": pa.array([1, None, 3, 4, 5], pa.int32()),
            "day": [day, None, day, day, day],
        },
        schema=SCHEMA,
    )
    source = pa.table(
        {
            "id": ["a", "c", "d", "x", "y", None],
            "price": [5, 300, 40, 101, None, 7],
            "sold": pa.array([9, 0, None, 2, None, 1], pa.int32()),
            "day": [None, day, day, day, day, None],
        },
        schema=SCHEMA,
    )
    results: dict[str, Any] = {}
    for engine in ("tidelog", "deltalake"):
        path = tmp_path / engine
        write_deltalake(str(path), before, partition_by=partition_by)
        if engine == "tidelog":
            Table.open(str(path)).upsert(source, keys=["id"], **CASES[name])  # type: ignore[arg-type]
        else:
            with_rules(merge_of_deltalake(str(path), source, "target.id = source.id"), CASES[name]).execute()
        results[engine] = rows_of(path)
    assert results["tidelog"] == results["deltalake"]
