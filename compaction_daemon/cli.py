"""The command `tidelog`.

Exit codes: 0 done, 1 failed, 2 wrong use, 3 conflict, 4 nothing to do.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console

from tidelog.compaction_daemon.compaction import CompactionReport, compact
from tidelog.compaction_daemon.loop import Daemon, DaemonConfig, StepReport
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, ConflictError, PredicateError, TidelogError

DONE, FAILED, WRONG_USE, CONFLICT, NOTHING_TO_DO = range(5)

app = typer.Typer(
    name="tidelog",
    help="A streaming table for PySpark: look after its tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_out = Console()
_err = Console(stderr=True)


@app.callback()
def _commands() -> None:
    """Look after tidelog's tables."""


@app.command()
def daemon(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="The tables to look after.")],
    interval: Annotated[float, typer.Option(help="Seconds to sleep after a step that found nothing to do.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Step until there is nothing left to do, then end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each step that did something.")] = False,
) -> None:
    """Compact tables beside their writers, until SIGTERM or Ctrl-C; the step in hand is finished first."""

    def show(report: StepReport) -> None:
        for step in report.tables:
            if step.error is not None:
                _err.print(f"{step.path}: {step.error}", markup=False, soft_wrap=True)
            elif step.did_anything:
                _print_step(step.path, step.version, step.compaction, checkpointed=step.checkpointed, as_json=as_json)

    worker = Daemon(paths, config=DaemonConfig(interval_s=interval), on_step=show)
    if not once:
        if not as_json:
            _out.print(f"looking after {', '.join(paths)}; Ctrl-C ends it", markup=False, soft_wrap=True)
        worker.run()
        return
    failed = False
    report = worker.step()
    while True:
        # A table that failed is left alone for a while, so that later steps do not show it again.
        # Losing to a user's commit is no failure: the next step plans anew.
        failed = failed or any(step.error and not isinstance(step.error, ConflictError) for step in report.tables)
        if not report.did_anything:
            break
        report = worker.step()
    if failed:
        raise typer.Exit(FAILED)


@app.command("compact")
def compact_command(
    path: Annotated[str, typer.Argument(metavar="PATH", help="The table to compact.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Pack the small files of a table once. Exit code 4 where there is nothing to do."""
    table = Table.open(path)
    report = compact(table)
    if not report.did_anything:
        if not as_json:
            _out.print(f"{table.path}: nothing to do", markup=False, soft_wrap=True)
        raise typer.Exit(NOTHING_TO_DO)
    _print_step(table.path, report.version, report, checkpointed=False, as_json=as_json)


def main() -> None:
    """Run the command line; known errors become one line and an exit code."""
    logging.basicConfig(level=logging.ERROR, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        app()
    except TidelogError as error:
        _err.print(str(error), markup=False, soft_wrap=True)
        sys.exit(exit_code(error))


def exit_code(error: TidelogError) -> int:
    """The process's exit code for an error."""
    if isinstance(error, (ConfigurationError, PredicateError)):
        return WRONG_USE
    return CONFLICT if isinstance(error, ConflictError) else FAILED


def _print_step(path: str, version: int | None, report: CompactionReport, *, checkpointed: bool, as_json: bool) -> None:
    if as_json:
        content: dict[str, Any] = {"path": path, "version": version, "checkpointed": checkpointed, **asdict(report)}
        sys.stdout.write(json.dumps(content) + "\n")
        sys.stdout.flush()
        return
    parts = []
    if report.did_anything:
        parts.append(
            f"version {report.version}: {report.files_removed} files became {report.files_added} "
            f"({report.bytes_read:,} to {report.bytes_written:,} bytes)"
        )
    if checkpointed:
        parts.append(f"checkpoint at version {version}")
    _out.print(f"{path}: {', '.join(parts)}", markup=False, soft_wrap=True, highlight=False)
