"""`tidelog compact`."""

from __future__ import annotations

import typer

from tidelog.cli import options
from tidelog.cli.app import NOTHING_TO_DO
from tidelog.cli.progress import Progress
from tidelog.cli.reports import print_compaction
from tidelog.compaction_daemon import compact


def compact_command(
    path: options.TablePath,
    level: options.Level = "minor",
    where: options.Partitions = None,
    cluster_by: options.ClusterBy = None,
    purge: options.Purge = False,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Compact a table once.

    Writers and readers are not disturbed. One call rewrites a bounded number of bytes and prints how much is left.
    `tidelog plan` prints what would be done. Exit code 4 if there is nothing to do.

    Example:
      tidelog compact /data/events
      tidelog compact /data/events --level major --where "day < '2026-01-31'" --cluster-by id
    """
    with Progress(f"compacting {path}"):
        table = options.open_table(path, storage_option)
        names = options.split_columns(cluster_by) or ()
        report = compact(table, level, where=where, cluster_by=names, purge=purge)
    print_compaction(table.path, report.version, report, checkpointed=False, as_json=as_json)
    if not report.did_anything:
        raise typer.Exit(NOTHING_TO_DO)
