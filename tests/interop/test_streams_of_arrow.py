"""DuckDB and Polars read scans and changes as streams of Arrow batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidelog.log import Table

ROWS, FILES = 200_000, 20


def duckdb_sum(rows: Any) -> int:
    import duckdb  # noqa: PLC0415 - a test of this engine

    reader = pa.RecordBatchReader.from_stream(rows)
    with duckdb.connect() as connection:
        (found,) = connection.execute("SELECT sum(n) FROM reader").fetchone() or (0,)
    del reader
    return int(found)


def polars_sum(rows: Any) -> int:
    import polars as pl  # noqa: PLC0415 - a test of this engine

    return int(pl.DataFrame(rows)["n"].sum())


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    made = Table.create(str(tmp_path_factory.mktemp("streams") / "table"), pa.schema([("n", pa.int64())]))
    for first in range(0, ROWS * FILES, ROWS):
        made.insert(pa.table({"n": np.arange(first, first + ROWS)}))
    return made


@pytest.mark.interop
@pytest.mark.parametrize("engine", [duckdb_sum, polars_sum], ids=["duckdb", "polars"])
@pytest.mark.parametrize("what", ["scan", "changes"])
def test_an_engine_reads_every_row(table: Table, engine: Callable[[Any], int], what: str) -> None:
    rows = table.scan() if what == "scan" else table.changes(mode="append")
    assert engine(rows) == sum(range(ROWS * FILES))


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Of 100 rows some are changed or deleted."""
    made = Table.create(
        str(tmp_path_factory.mktemp("streams") / "changed"), pa.schema([("n", pa.int64()), ("v", pa.string())])
    )
    made.insert([{"n": n, "v": "old"} for n in range(100)])
    made.delete("n < 10")
    made.update("n < 30", {"v": "'new'"})
    made.insert([{"n": 200, "v": None}])
    return made


def duckdb_rows(rows: Any) -> list[tuple[Any, ...]]:
    import duckdb  # noqa: PLC0415 - a test of this engine

    reader = pa.RecordBatchReader.from_stream(rows)
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT * REPLACE (epoch_us(_commit_timestamp) AS _commit_timestamp) FROM reader"
        ).fetchall()
    del reader
    return found


def polars_rows(rows: Any) -> list[tuple[Any, ...]]:
    import polars as pl  # noqa: PLC0415 - a test of this engine

    return pl.DataFrame(rows).with_columns(pl.col("_commit_timestamp").to_physical()).rows()


@pytest.mark.interop
@pytest.mark.parametrize("engine", [duckdb_rows, polars_rows], ids=["duckdb", "polars"])
@pytest.mark.parametrize(
    ("mode", "kinds"),
    [
        ("cdc", {"insert": 101, "delete": 10, "update_preimage": 20, "update_postimage": 20}),
        ("net", {"insert": 91}),
    ],
    ids=["cdc", "net"],
)
def test_an_engine_reads_every_change(
    changed: Table, engine: Callable[[Any], list[tuple[Any, ...]]], mode: Any, kinds: dict[str, int]
) -> None:
    changes = changed.changes(mode=mode, keys=["n"])
    expected = changes.to_arrow()
    assert Counter(expected["_change_type"].to_pylist()) == kinds
    times = expected["_commit_timestamp"].cast(pa.int64())
    columns = [times if name == "_commit_timestamp" else expected[name] for name in expected.column_names]
    assert Counter(engine(changes)) == Counter(zip(*(column.to_pylist() for column in columns), strict=True))
