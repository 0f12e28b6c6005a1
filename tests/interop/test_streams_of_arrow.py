"""DuckDB and Polars read scans and changes as streams of Arrow batches."""

from __future__ import annotations

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
