"""`tidelog daemon`."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli import options, output
from tidelog.cli.app import FAILED
from tidelog.cli.progress import Progress
from tidelog.cli.reports import print_compaction
from tidelog.cli.wrong_use import seconds
from tidelog.compaction_daemon import Daemon, DaemonConfig, StepReport, TableStep
from tidelog.log import Table
from tidelog.log.errors import ConflictError


def daemon_command(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help="The tables: local paths or URLs.")],
    interval: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            parser=seconds("--interval"),
            help="How long to sleep after a step that found nothing to do.",
        ),
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Exit as soon as there is nothing left to do.")] = False,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Compact tables continuously, alongside their writers.

    It also writes checkpoints, and runs until SIGTERM or Ctrl-C; the current step is finished first. It does not
    expire or vacuum yet.

    Example:
      tidelog daemon /data/events /data/users
      tidelog daemon /data/events --once
    """
    with Progress(f"opening {output.counted(len(paths), 'table')}"):
        tables = [options.open_table(path, storage_option) for path in paths]
    config = DaemonConfig(interval_s=interval)
    if once:
        _run_once(Daemon(tables, config=config), tables, as_json=as_json)
        return
    if not as_json:
        output.say(f"compacting {', '.join(paths)}; press Ctrl-C to stop")
    Daemon(tables, config=config, on_step=lambda report: _print_step(report, as_json=as_json)).run()


def _run_once(worker: Daemon, tables: list[Table], *, as_json: bool) -> None:
    """Step until no table has anything left to do. Exits with FAILED if a table failed."""
    idle = {table.path: table for table in tables}
    failed = False
    while True:
        with Progress(f"compacting {output.counted(len(tables), 'table')}"):
            report = worker.step()
        _print_step(report, as_json=as_json)
        # A table that failed is skipped for a while, so later steps do not report it again. A conflict with a user's
        # commit is not a failure: the next step plans again.
        failed = failed or any(step.error and not isinstance(step.error, ConflictError) for step in report.tables)
        for step in report.tables:
            if step.did_anything or step.error:
                idle.pop(step.path, None)
            elif step.path in idle and not report.did_anything:
                _print_table(step, as_json=as_json)
        if not report.did_anything:
            break
    if failed:
        raise typer.Exit(FAILED)


def _print_step(report: StepReport, *, as_json: bool) -> None:
    for step in report.tables:
        if step.error is not None:
            output.complain(f"{step.path}: {step.error}")
        elif step.did_anything:
            _print_table(step, as_json=as_json)


def _print_table(step: TableStep, *, as_json: bool) -> None:
    print_compaction(step.path, step.version, step.compaction, checkpointed=step.checkpointed, as_json=as_json)
