"""`tidelog plan`."""

from __future__ import annotations

from tidelog.cli import parameters, plans
from tidelog.cli.spinner import Progress
from tidelog.compaction_daemon import plan


def plan_command(
    path: parameters.TablePath,
    level: parameters.Level = "minor",
    where: parameters.Partitions = None,
    cluster_by: parameters.ClusterBy = None,
    purge: parameters.Purge = False,
    cluster_order: parameters.ClusterOrder = None,
    max_bytes: plans.MaxBytes = None,
    max_seconds: plans.MaxSeconds = None,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
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
        table = parameters.open_table(path, storage_option)
        request = plans.request_of(level, where, cluster_by, cluster_order, purge=purge)
        found = plan(table, budget=plans.budget_of(max_bytes, max_seconds), **request)
    plans.print_plan(table.path, found, as_json=as_json)
