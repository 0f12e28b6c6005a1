"""`tidelog plan`."""

from __future__ import annotations

from tidelog.cli import options, plans
from tidelog.cli.progress import Progress
from tidelog.compaction_daemon import plan


def plan_command(
    path: options.TablePath,
    level: options.Level = "minor",
    where: options.Partitions = None,
    cluster_by: options.ClusterBy = None,
    purge: options.Purge = False,
    cluster_order: options.ClusterOrder = None,
    max_bytes: plans.MaxBytes = None,
    max_seconds: plans.MaxSeconds = None,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Print what a compaction would do and cost, and why, file by file.

    Nothing is rewritten. The options are those of `tidelog compact`, which applies a plan that was kept with --json.
    Exit code 4 if there is nothing to do.

    Example:
      tidelog plan /data/events
      tidelog plan /data/events --level major --purge
      tidelog plan /data/events --json > plan.json && tidelog compact /data/events --plan plan.json
    """
    with Progress(f"planning a compaction of {path}"):
        table = options.open_table(path, storage_option)
        request = plans.request_of(level, where, cluster_by, cluster_order, purge=purge)
        found = plan(table, budget=plans.budget_of(max_bytes, max_seconds), **request)
    plans.print_plan(table.path, found, as_json=as_json)
