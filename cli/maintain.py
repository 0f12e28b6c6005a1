"""Commands that look after tables: daemon, compact, expire, vacuum."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tidelog.cli import options, output
from tidelog.cli.app import FAILED, NOTHING_TO_DO, app
from tidelog.compaction_daemon import CompactionReport, Daemon, DaemonConfig, StepReport, compact, expire, vacuum
from tidelog.log import ExpiryReport, VacuumReport
from tidelog.log.errors import ConflictError


@app.command()
def daemon(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="The tables to look after.")],
    interval: Annotated[float, typer.Option(help="Seconds to sleep after a step that found nothing to do.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Step until there is nothing left to do, then end.")] = False,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Compact tables beside their writers, until SIGTERM or Ctrl-C; the step in hand is finished first."""

    def show(report: StepReport) -> None:
        for step in report.tables:
            if step.error is not None:
                output.complain(f"{step.path}: {step.error}")
            elif step.did_anything:
                _print_step(step.path, step.version, step.compaction, checkpointed=step.checkpointed, as_json=as_json)

    tables = [options.open_table(path, storage_option) for path in paths]
    worker = Daemon(tables, config=DaemonConfig(interval_s=interval), on_step=show)
    if not once:
        if not as_json:
            output.say(f"looking after {', '.join(paths)}; Ctrl-C ends it")
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
    path: options.TablePath,
    level: options.Level = "minor",
    where: options.Partitions = None,
    cluster_by: options.ClusterBy = None,
    purge: options.Purge = False,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Compact a table once: pack its small files, or rewrite a scope. Exit code 4 where there is nothing to do."""
    table = options.open_table(path, storage_option)
    names = options.split_columns(cluster_by) or ()
    report = compact(table, level, where=where, cluster_by=names, purge=purge)
    if not report.did_anything:
        if not as_json:
            output.say(f"{table.path}: nothing to do")
        raise typer.Exit(NOTHING_TO_DO)
    _print_step(table.path, report.version, report, checkpointed=False, as_json=as_json)


@app.command("expire")
def expire_command(
    path: options.TablePath,
    older_than: options.OlderThan = None,
    dry_run: options.DryRun = False,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Delete log entries that are past their retention. Exit code 4 where there are none.

    Streams that lag behind further, and time travel to older versions, then fail with an error.
    """
    table = options.open_table(path, storage_option)
    report = expire(table, older_than=options.parse_older_than(older_than), dry_run=dry_run)
    what = f"{report.commits} commits, {report.checkpoints} checkpoints, {report.others} other files of the log"
    _print_cleanup(report, what, report.reason, as_json=as_json)


@app.command("vacuum")
def vacuum_command(
    path: options.TablePath,
    older_than: options.OlderThan = None,
    dry_run: options.DryRun = False,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Delete data files that no retained version needs. Exit code 4 where there are none, 1 where some remain.

    Streams that lag behind further, and time travel to older versions, then fail with an error.
    """
    table = options.open_table(path, storage_option)
    report = vacuum(table, older_than=options.parse_older_than(older_than), dry_run=dry_run)
    for file, error in report.failed:
        output.complain(f"{file}: {error}")
    what = (
        f"{report.data_files} data files, {report.deletion_vectors} deletion vectors, {report.change_files} change "
        f"files, {report.row_maps} row maps"
    )
    reason = "no file is old enough and needed by no version"
    _print_cleanup(report, what, reason, as_json=as_json)
    if report.failed:
        raise typer.Exit(FAILED)


def _print_cleanup(report: ExpiryReport | VacuumReport, what: str, reason: str, *, as_json: bool) -> None:
    """The report of a clean-up; the files themselves where nothing was deleted yet. Exits where there are none."""
    if as_json:
        output.write_json(report.to_dict())
    elif not report.files:
        output.say(f"{report.path}: nothing to do: {reason}")
    else:
        if report.dry_run:
            for file in report.files:
                output.say(output.printable(file))
        doing = "would delete" if report.dry_run else "deleted"
        output.say(
            f"{report.path}: {doing} {what} ({report.bytes_deleted:,} bytes); "
            f"version {report.earliest_version} and later ones stay readable"
        )
    if not report.files and not (isinstance(report, VacuumReport) and report.failed):
        raise typer.Exit(NOTHING_TO_DO)


def _print_step(path: str, version: int | None, report: CompactionReport, *, checkpointed: bool, as_json: bool) -> None:
    if as_json:
        output.write_json(
            {"path": path, "version": version, "checkpointed": checkpointed, **asdict(report)}, at_once=True
        )
        return
    parts = []
    if report.did_anything:
        parts.append(
            f"version {report.version}: {report.files_removed} files became {report.files_added} "
            f"({report.bytes_read:,} to {report.bytes_written:,} bytes)"
        )
    if report.groups_left:
        parts.append(f"{report.groups_left} groups are left for the next compaction")
    if checkpointed:
        parts.append(f"checkpoint at version {version}")
    output.say(f"{path}: {', '.join(parts)}")
