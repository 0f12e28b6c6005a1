"""The part `beside` of `benchmarks.upsert`: upserts with an order, one a second, beside a daemon.

Nine of ten keys are in the table, a twentieth of the rows delete theirs. What matters is that nothing grows: neither
the time of an upsert, nor the number of the index's runs, of files with tombstones and of data files. A scan before and
after says what the deletion vectors cost, and whether the daemon has paid it back.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.engine_process import daemon
from benchmarks.harness import TIDELOG, Goal, Report
from benchmarks.timing import timed
from tidelog.log import Table
from tidelog.log.data.key_runs import run_paths
from tidelog.log.state.loader import load
from tidelog.log.state.tombstones import tombstones_of

_DELETED = 0.05
# Without an upsert before it, the last tenth of the time is compared with the second: the first loads what is cached.
_TENTHS = 10
_SCANS = 3
# What a file system, a checkpoint or a compaction beside it may add to the median of an upsert.
_FLAT = 1.3


def measure(
    report: Report, path: Path, batch: Callable[[], pa.Table], *, peer: str, seconds: float, period_s: float
) -> None:
    """Upsert batches of the columns `id`, `v` (0 to 1) and `k` into the table, whose primary key is `id`.

    `peer` is the name under which the figures of the beginning stand.
    """
    table = Table.open(str(path))
    before_ms = _scan_ms(table)
    spans: list[float] = []
    counts: list[tuple[int, int, int]] = []
    with daemon(path, path.with_suffix(".log")):
        began = time.monotonic()
        while (number := len(spans)) < seconds / period_s:
            time.sleep(max(0.0, began + number * period_s - time.monotonic()))
            rows = batch()
            rows = rows.set_column(2, "k", pa.array(np.full(rows.num_rows, 1000 + number), pa.int64()))
            with timed() as spent:
                table.upsert(rows, order_by="k", delete_where=f"v < {_DELETED}")
            spans.append(spent["seconds"] * 1000)
            counts.append(_counts(table))
        after_ms = _scan_ms(table.refresh())
    tenth = max(1, len(spans) // _TENTHS)
    early, late = spans[tenth : 2 * tenth] or spans, spans[-tenth:]
    name = f"{len(spans):,} upserts beside the daemon"
    medians = {TIDELOG: statistics.median(late), peer: statistics.median(early)}
    report.figure(f"{name}: the last tenth, beside the second", "ms", medians, Goal(_FLAT), peer=peer)
    ordered = sorted(spans)
    report.figure(f"{name}: 99th percentile", "ms", {TIDELOG: ordered[int(len(ordered) * 0.99)]})
    for place, what in enumerate(("runs of the index", "files with tombstones", "data files")):
        most = {
            TIDELOG: float(max(count[place] for count in counts[-tenth:])),
            peer: float(max(count[place] for count in counts[tenth : 2 * tenth] or counts)),
        }
        report.figure(f"{name}: {what}, most in the last tenth, beside the second", "files", most, peer=peer)
    report.figure(f"{name}: a scan, beside one before", "ms", {TIDELOG: after_ms, peer: before_ms}, peer=peer)


def _counts(table: Table) -> tuple[int, int, int]:
    """The runs of the index, the files with tombstones, and the data files."""
    head = load(table.store).head
    files = 0 if head.totals is None else head.totals.num_files
    return len(run_paths(table.store)), len(tombstones_of(table.store, head, head.timestamp_ms)), files


def _scan_ms(table: Table) -> float:
    spans = []
    for _ in range(_SCANS):
        with timed() as spent:
            table.scan().to_arrow()
        spans.append(spent["seconds"] * 1000)
    return statistics.median(spans)
