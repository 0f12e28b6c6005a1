"""The part `memory` of `benchmarks.compaction`: the peak memory of a process that rewrites one large group.

A plan makes smaller groups than this one (512 MiB and 20,000,000 rows), so its rewrite is called without a plan. Alone:
`python -m benchmarks.compaction_memory [--quick]`. A run of one case in this process, which prints its figures as JSON:
`python -m benchmarks.compaction_memory PATH minor|hilbert|sort`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks import tables
from benchmarks.harness import REPOSITORY, TIDELOG, Goal, Report, run_alone

# 2 GB on disk.
FILES, ROWS = 500, 41_000
CASES = ("minor", "hilbert", "sort")
# What a group's files are to become: files of the usual size.
_OUTPUT_BYTES = 128 * 2**20
_GOAL_MB = Goal(1000.0, of=TIDELOG)
_TIMEOUT_S = 900


def measure(report: Report, *, quick: bool = False) -> None:
    """The peak memory and the seconds of each case, once: memory hardly varies, and each takes a minute."""
    path = tables.large_group(20, 500) if quick else tables.large_group(FILES, ROWS)
    for case in CASES:
        figures = in_a_process(path, case)
        name = f"memory: {case} of {figures['bytes_read'] / 1e9:.2g} GB, {figures['rows']:,.0f} rows"
        report.figure(name, "MB", {TIDELOG: figures["peak_mb"]}, _GOAL_MB, seconds=figures["seconds"])


def in_a_process(path: Path, case: str) -> dict[str, float]:
    """The figures of one case, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.compaction_memory", str(path), case]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def rewritten(path: str, case: str) -> dict[str, float]:
    """Rewrite all files of a table as one group, in this process: in order, or clustered by the first two columns.

    The written files are deleted.
    """
    from benchmarks.timing import peak_mb, timed
    from tidelog.compaction_daemon.planning.plan import PlannedGroup
    from tidelog.compaction_daemon.rewriting.rewrite import rewrite
    from tidelog.log import Table
    from tidelog.log.data.writer import DataWriter
    from tidelog.log.format import paths
    from tidelog.log.state.files import to_adds

    table = Table.open(path)
    adds = to_adds(table.at().files())
    size = sum(add.size for add in adds)
    writer = DataWriter(table.store, table.head.metadata, table.timeline.system)
    columns = () if case == "minor" else tuple(table.schema.names[:2])
    group = PlannedGroup({}, tuple(adds), max(1, size // _OUTPUT_BYTES), columns, case)
    with timed() as spent:
        moves = rewrite(writer, table.schema, group, table.timeline.system.now_ms())
    for add in moves.outputs:
        table.store.delete(paths.to_storage_path(add.path))
    rows = sum(entry.rows for entry in moves.lineage.outputs)
    return {**spent, "peak_mb": peak_mb(os.getpid()), "bytes_read": size, "rows": rows, "files": len(moves.outputs)}


def main() -> None:
    """Measure, and print a table; or do one case."""
    if len(sys.argv) == 3:  # noqa: PLR2004 - the program, a path and a case
        print(json.dumps(rewritten(*sys.argv[1:])))
        return
    run_alone("compaction-memory", measure)


if __name__ == "__main__":
    main()
