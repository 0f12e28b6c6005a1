"""The command that says what a compaction would do, and does nothing: plan."""

from __future__ import annotations

import typer

from tidelog.cli import options, output
from tidelog.cli.app import NOTHING_TO_DO, app
from tidelog.compaction_daemon import Plan, PlannedGroup, plan


@app.command("plan")
def plan_command(
    path: options.TablePath,
    level: options.Level = "minor",
    where: options.Partitions = None,
    cluster_by: options.ClusterBy = None,
    purge: options.Purge = False,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Say what a compaction would do, and why, file by file. Exit code 4 where it would do nothing."""
    table = options.open_table(path, storage_option)
    names = options.split_columns(cluster_by) or ()
    found = plan(table, level, where=where, cluster_by=names, purge=purge)
    if as_json:
        output.write_json(found.to_builtins())
    else:
        _print(table.path, found)
    if not found.groups:
        raise typer.Exit(NOTHING_TO_DO)


def _print(path: str, found: Plan) -> None:
    for group in found.groups:
        output.say(f"{path}: {output.printable(_group_text(group))}")
    if not found.groups:
        output.say(f"{path}: nothing to do")
    rows = [(reason.path, "yes" if reason.chosen else "no", reason.reason) for reason in found.reasons]
    output.write_grid(["file", "chosen", "why"], rows)


def _group_text(group: PlannedGroup) -> str:
    partition = ", ".join(f"{name}={value}" for name, value in group.partition_values.items())
    what = f"{len(group.inputs)} files ({group.size_bytes:,} bytes){f' of {partition}' if partition else ''}"
    if not group.outputs:
        return f"{what} are dropped: no row of them is live"
    clustered = f", clustered by {', '.join(group.cluster_by)}" if group.cluster_by else ""
    return f"{what} become about {group.outputs}{clustered}"
