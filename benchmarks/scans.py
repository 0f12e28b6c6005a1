"""Full reads into Arrow tables, by tidelog and by its peers. Each runs in a process of its own."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

# The first read of a process imports modules, starts threads and takes its memory from the system.
_WARM_UP = 2


def tidelog(path: str, what: str, reads: int, options: Mapping[str, str] | None = None) -> dict[str, float]:
    """`what` is `scan` or `changes`, of which the rows of the first versions count."""
    from tidelog.log import Table

    def read() -> int:
        table = Table.open(path, storage_options=options)
        rows = table.changes(mode="append") if what == "changes" else table.scan()
        return int(rows.to_arrow().num_rows)

    return _timed(read, reads)


def deltalake(path: str, what: str, reads: int, options: Mapping[str, str] | None = None) -> dict[str, float]:
    """A scan in SQL, also beside changes: without a change data feed deltalake cannot read these."""
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    del what

    def read() -> int:
        table = DeltaTable(path, storage_options=None if options is None else dict(options))
        found: Any = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
        return int(pa.table(found).num_rows)

    return _timed(read, reads)


def polars(path: str, what: str, reads: int, options: Mapping[str, str] | None = None) -> dict[str, float]:
    """A scan of the same files, without the log: deletion vectors are ignored."""
    import polars as pl

    from tidelog.log import Table

    del what, options
    files = [f"{path}/{name}" for name in Table.open(path).at().files()["path"].to_pylist()]
    return _timed(lambda: pl.scan_parquet(files).collect().height, reads)


def _timed(read: Callable[[], int], reads: int) -> dict[str, float]:
    seconds, cpu_seconds = [], []
    for _ in range(_WARM_UP + reads):
        start, cpu_start = time.perf_counter(), time.process_time()
        rows = read()
        cpu_seconds.append(time.process_time() - cpu_start)
        seconds.append(time.perf_counter() - start)
    # The best one: what other work on the machine adds is never negative.
    return {"seconds": min(seconds[_WARM_UP:]), "cpu_seconds": statistics.median(cpu_seconds[_WARM_UP:]), "rows": rows}
