"""Compactions of a table, by tidelog and by its peers. Each runs in a process of its own.

`columns` are those to cluster by; without any the rows keep their order, or whatever order the peer gives them. Each
engine compacts a tiny table first, so that importing modules and starting threads is not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.timing import peak_mb, timed


def tidelog(path: str, warm_up: str, columns: Sequence[str]) -> dict[str, float]:
    """MINOR, or MAJOR in the order of a Hilbert curve; both verified before they are committed."""
    from tidelog.compaction_daemon import compact
    from tidelog.log import Table

    level = "major" if columns else "minor"
    compact(warm_up, level, cluster_by=columns)
    table = Table.open(path)
    with timed() as spent:
        report = compact(table, level, cluster_by=columns)
    return {**spent, "files": report.files_added, "bytes": report.bytes_written}


def deltalake(path: str, warm_up: str, columns: Sequence[str]) -> dict[str, float]:
    """`optimize.compact`, or `optimize.z_order`."""
    from deltalake import DeltaTable

    def optimize(table: DeltaTable) -> dict[str, Any]:
        return table.optimize.z_order(list(columns)) if columns else table.optimize.compact()

    optimize(DeltaTable(warm_up))
    table = DeltaTable(path)
    with timed() as spent:
        found = optimize(table)
    added = DeltaTable(path).get_add_actions()
    return {**spent, "files": found["numFilesAdded"], "bytes": sum(added["size_bytes"].to_pylist())}


def delta_spark(path: str, warm_up: str, columns: Sequence[str]) -> dict[str, float]:
    """OPTIMIZE, or OPTIMIZE ZORDER BY."""
    from benchmarks.peers import java_pid, spark_session

    session = spark_session()
    order = f" ZORDER BY ({', '.join(columns)})" if columns else ""
    session.sql(f"OPTIMIZE delta.`{warm_up}`{order}").collect()
    with timed() as spent:
        metrics = session.sql(f"OPTIMIZE delta.`{path}`{order}").collect()[0]["metrics"]
    return {
        **spent,
        "peak_mb": peak_mb(java_pid(session)),
        "files": metrics["numFilesAdded"],
        "bytes": metrics["filesAdded"]["totalSize"],
    }
