"""`tidelog compact`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tidelog.cli import parameters, plans
from tidelog.cli.app import NOTHING_TO_DO
from tidelog.cli.reports import print_compaction
from tidelog.cli.spinner import Progress
from tidelog.compaction_daemon import Budget, DroppedGroup, Plan, check_plan, compact, default_budget, plan
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError

# A plan has a line for each file that it rewrites, of which there are at most 50,000, and a reason for every file.
_MAX_PLAN_BYTES = 2**29


def compact_command(
    path: parameters.TablePath,
    level: parameters.LevelOrPlan = None,
    where: parameters.Partitions = None,
    cluster_by: parameters.ClusterBy = None,
    purge: parameters.Purge = False,
    cluster_order: parameters.ClusterOrder = None,
    max_bytes: plans.MaxBytes = None,
    max_seconds: plans.MaxSeconds = None,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="Apply what `tidelog plan --json` printed.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, and change nothing.")] = False,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Compact a table once.

    Writers and readers are not disturbed. One call rewrites a bounded number of bytes and prints how much is left.
    `tidelog plan` prints what would be done. A plan that was kept is checked against the table again: groups whose
    files have changed since are left alone and named. Exit code 4 if there is nothing to do.

    Example:
      tidelog compact /data/events
      tidelog compact /data/events --level major --where "day < '2026-01-31'" --cluster-by id
      tidelog compact /data/events --plan plan.json
    """
    if plan_file is None:
        kept = None
        request = plans.request_of(level or "minor", where, cluster_by, cluster_order, purge=purge)
    elif level or where or cluster_by or purge or cluster_order or max_bytes or max_seconds:
        raise ConfigurationError(
            "--plan already says what to do",
            advice="leave out --level, --where, --cluster-by, --cluster-order, --purge, --max-bytes and --max-seconds",
        )
    else:
        kept, request = _read_plan(plan_file), {}
    budget = plans.budget_of(max_bytes, max_seconds)
    with Progress(f"{'planning a compaction of' if dry_run else 'compacting'} {path}"):
        table = parameters.open_table(path, storage_option)
        if dry_run:
            found, dropped = _dry_run(table, kept, request, budget)
        else:
            report = compact(table, plan=kept, budget=budget, **request)
    if dry_run:
        plans.print_plan(table.path, found, dropped=dropped, as_json=as_json)
        return
    print_compaction(table.path, report.version, report, checkpointed=False, as_json=as_json)
    if not as_json:
        plans.print_dropped(table.path, report.dropped)
    if not report.did_anything:
        raise typer.Exit(NOTHING_TO_DO)


def _read_plan(file: Path) -> Plan:
    advice = "write it with tidelog plan --json > FILE"
    try:
        with file.open("rb") as opened:  # a FIFO is welcome: --plan <(tidelog plan ... --json)
            content = opened.read(_MAX_PLAN_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"cannot read the plan {str(file)!r}: {error.strerror}", advice=advice) from error
    if len(content) > _MAX_PLAN_BYTES:
        message = f"{str(file)!r} is not a plan: it has more than {_MAX_PLAN_BYTES:,} bytes"
        raise ConfigurationError(message, advice=advice)
    try:
        return Plan.from_json(content)
    except ConfigurationError as error:
        raise ConfigurationError(f"{str(file)!r} is not a plan: {error.__cause__}", advice=advice) from error


def _dry_run(
    table: Table, kept: Plan | None, request: Mapping[str, Any], budget: Budget | None
) -> tuple[Plan, Sequence[DroppedGroup]]:
    """What would be done, and the groups of a given plan that would not."""
    if kept is not None:
        return check_plan(table, kept)
    return plan(table, budget=budget or default_budget(request["level"]), **request), ()
