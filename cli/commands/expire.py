"""`tidelog expire`."""

from __future__ import annotations

from tidelog.cli import parameters
from tidelog.cli.reports import log_cleanup, print_cleanup
from tidelog.cli.spinner import Progress
from tidelog.compaction_daemon import expire, retentions


def expire_command(
    path: parameters.TablePath,
    older_than: parameters.OlderThan = None,
    dry_run: parameters.DryRun = False,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Delete log entries that are past their retention.

    Without --older-than the table's own retention applies, which --dry-run shows, and nothing is deleted if both
    tidelog.cleanUp and delta.enableExpiredLogCleanup are off. Time travel to expired versions, and streams that lag
    behind them, then fail with an error. Exit code 4 if there is nothing to do.

    Example:
      tidelog expire /data/events --dry-run
      tidelog expire /data/events --older-than 30d
    """
    cutoff = parameters.parse_older_than(older_than)
    with Progress(f"cleaning up the log of {path}"):
        table = parameters.open_table(path, storage_option)
        report = expire(table, older_than=cutoff, dry_run=dry_run)
    counts = {"commit": report.commits, "checkpoint": report.checkpoints, "other log file": report.others}
    reason, advice = report.reason, None
    if cutoff is None and not (cleanup := log_cleanup(table))["enabled"]:
        reason, advice = "log clean-up is off for this table", cleanup["advice"]
    shown = retentions(table.properties) if dry_run and cutoff is None else ()
    print_cleanup(report, counts, reason, as_json=as_json, advice=advice, retentions=shown)
