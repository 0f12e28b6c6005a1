"""What clustering is for: how many files scans open afterwards, with a predicate on one of the two columns."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
import pytest

from tidelog.compaction_daemon import compact
from tidelog.log import Table

ROWS = 64_000
LARGEST = 1_000_000
# A sixteenth of all values of a column, in four places.
RANGES = [(start, start + LARGEST // 16) for start in range(100_000, LARGEST, 250_000)]


def clustered(order: str) -> Table:
    """Two independent columns with random values, in about 64 files."""
    chance = np.random.default_rng(11)
    properties = {"tidelog.targetFileSize": "13 KiB"}
    table = Table.create(
        f"memory://{uuid.uuid4()}", pa.schema([("x", pa.int64()), ("y", pa.int64())]), properties=properties
    )
    for _ in range(4):
        table.insert(pa.table({name: chance.integers(0, LARGEST, ROWS // 4) for name in ("x", "y")}))
    report = compact(table, "major", cluster_by=["x", "y"], cluster_order=order)
    assert report.groups == 1
    return table.refresh()


def opened(table: Table, column: str) -> float:
    """The files that a scan opens for a sixteenth of the values of a column, on average."""
    counts = []
    for first, last in RANGES:
        scan = table.scan(f"{column} BETWEEN {first} AND {last}")
        assert scan.count() == pytest.approx(ROWS / 16, rel=0.1)
        counts.append(scan.files.num_rows)
    return float(np.mean(counts))


def test_scans_by_either_column_open_few_files_after_hilbert_clustering() -> None:
    """The second column of a plain sort is spread over all files; along the curve neither is."""
    hilbert, plain = clustered("hilbert"), clustered("sort")
    files = hilbert.at().num_files
    assert 60 <= files == plain.at().num_files
    assert opened(hilbert, "x") <= files * 0.3  # 16 of 63 when this was written
    assert opened(hilbert, "y") <= files * 0.3  # 16 of 63
    assert opened(plain, "x") <= files * 0.1  # 5 of 63
    assert opened(plain, "y") == files
