"""`tidelog plan`."""

from __future__ import annotations

import typer

from tidelog.cli import options, output
from tidelog.cli.app import NOTHING_TO_DO
from tidelog.cli.progress import Progress
from tidelog.compaction_daemon import Plan, PlannedGroup, plan


def plan_command(
    path: options.TablePath,
    level: options.Level = "minor",
    where: options.Partitions = None,
    cluster_by: options.ClusterBy = None,
    purge: options.Purge = False,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Print what a compaction would do, and why, file by file.

    Nothing is rewritten. The options are those of `tidelog compact`. Exit code 4 if there is nothing to do.

    Example:
      tidelog plan /data/events
      tidelog plan /data/events --level major --purge
    """
    with Progress(f"planning a compaction of {path}"):
        table = options.open_table(path, storage_option)
        names = options.split_columns(cluster_by) or ()
        found = plan(table, level, where=where, cluster_by=names, purge=purge)
    if as_json:
        output.write_json(found.to_builtins())
    else:
        _print_plan(table.path, found)
    if not found.groups:
        raise typer.Exit(NOTHING_TO_DO)


def _print_plan(path: str, found: Plan) -> None:
    for group in found.groups:
        output.say(f"{path}: {_group_text(group)}")
    if not found.groups:
        output.say(f"{path}: nothing to do")
    chosen = {True: output.coloured("yes", "green"), False: output.coloured("no", "")}
    # As a Text a reason is never cut to the usual length of a cell.
    rows = [(reason.path, chosen[reason.chosen], output.coloured(reason.reason, "")) for reason in found.reasons]
    output.write_grid(["file", "chosen", "why"], rows)


def _group_text(group: PlannedGroup) -> str:
    partition = ", ".join(f"{name}={value}" for name, value in group.partition_values.items())
    what = f"{output.counted(len(group.inputs), 'file')} ({group.size_bytes:,} bytes)"
    if partition:
        what += f" of {partition}"
    if not group.outputs:
        return f"drop {what}: all their rows are dead"
    clustered = f", clustered by {', '.join(group.cluster_by)}" if group.cluster_by else ""
    return f"rewrite {what} into about {group.outputs:,}{clustered}"
