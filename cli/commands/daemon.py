"""`tidelog daemon`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from tidelog.cli import output, parameters
from tidelog.cli.app import FAILED
from tidelog.cli.daemon_process import DaemonOptions, logging_as, run_daemon
from tidelog.cli.reports import print_compaction
from tidelog.cli.spinner import Progress
from tidelog.cli.wrong_use import chosen, in_options, seconds
from tidelog.compaction_daemon import Daemon, StepReport, TableState, TableStep
from tidelog.compaction_daemon.settings.config import ListenAddress
from tidelog.compaction_daemon.settings.config_file import DaemonFile
from tidelog.compaction_daemon.settings.sources import source_at
from tidelog.log.errors import ConfigurationError, ConflictError
from tidelog.log.log_records import LOG_FORMATS, LOG_LEVELS
from tidelog.log.system import REAL_SYSTEM, logger


def daemon_command(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="Tables: local paths, URLs, or globs in quotes.", show_default=False),
    ] = None,
    config: Annotated[str | None, typer.Option(metavar="FILE", help="Tables and settings, as TOML.")] = None,
    check_config: Annotated[
        bool, typer.Option("--check-config", help="Only check the file and the options, and print what holds.")
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            parser=seconds("--interval"),
            help="How long to wait before the next look at a table that had nothing to do. Default: 1.",
        ),
    ] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Show a page, /metrics and /healthz here.")
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(metavar="|".join(LOG_FORMATS), parser=chosen("--log-format", LOG_FORMATS), help="Default: text."),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(LOG_LEVELS),
            parser=chosen("--log-level", LOG_LEVELS),
            help="Default: info; with --once and --json, warning.",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Exit as soon as there is nothing left to do.")] = False,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Compact tables continuously, alongside their writers.

    It also writes checkpoints, expires history and deletes files that no version needs. The tables are those of PATH
    and of the file; one that does not exist yet is waited for. Options take precedence over the file. The log goes to
    standard error.

    SIGTERM or Ctrl-C ends it after the current step, a second one at once. SIGHUP makes it read the file again.

    Example:
      tidelog daemon /data/events '/data/lake/**' --listen 127.0.0.1:8080
      tidelog daemon --config /etc/tidelog.toml --check-config
      tidelog daemon /data/events --once
    """
    given = parameters.parse_storage_options(storage_option)
    wanted = DaemonOptions(
        sources=tuple(source_at(path, given) for path in paths or ()),
        config=config,
        interval_s=interval,
        listen=None if listen is None else ListenAddress.parse(listen),
        log_format=log_format,
        log_level=log_level,
        default_level="warning" if once or as_json else "info",
    )
    if not paths and config is None:
        raise ConfigurationError("missing argument 'PATH' or option '--config'", advice="see tidelog daemon --help")
    if check_config:
        _print_settings(config, wanted.settings(), as_json=as_json)
    elif once:
        _run_once(wanted.settings(), as_json=as_json)
    else:
        # Without --json the log says it all.
        run_daemon(wanted, _print_step if as_json else None)


def _print_settings(config: str | None, settings: DaemonFile, *, as_json: bool) -> None:
    """Print what holds, without storage options."""
    fields = {
        "tables": [source.path for source in settings.sources],
        **asdict(settings.config),
        "listen": None if settings.listen is None else str(settings.listen),
        "log_format": settings.log_format,
        "log_level": settings.log_level,
    }
    if as_json:
        output.write_json({"config": config, "valid": True, **fields})
        return
    output.write_fields({name: "none" if value is None else value for name, value in fields.items()})
    output.say(f"{config or 'the options'}: valid")


def _run_once(settings: DaemonFile, *, as_json: bool) -> None:
    """Step until no table has anything left to do. Exits with FAILED if a table, its upkeep or a search failed."""
    done: set[str] = set()
    failed = False
    with _without_log_of_tables(), logging_as(settings):
        worker = Daemon(settings.sources, config=settings.config)
        # An owner that is alive renews its lease meanwhile.
        give_up_s = REAL_SYSTEM.monotonic_s() + 2 * settings.config.lease_ttl_s
        while True:
            with Progress("compacting " + ", ".join(source.path for source in settings.sources)):
                report = worker.step()
            _print_steps(report, as_json=as_json)
            # A table that failed is skipped for a while, so later steps do not report it again. A conflict with a
            # user's commit is not a failure: the next step plans again.
            failed |= any(step.error and not isinstance(step.error, ConflictError) for step in report.tables)
            done |= {step.path for step in report.tables if step.did_anything or step.error}
            if not report.did_anything and not _waited_for_a_lease(worker, give_up_s):
                break
    status = worker.status()
    owners = {table.path: table.held_by for table in status.tables if table.state is TableState.ELSEWHERE}
    for step in report.tables:
        if step.path in owners:
            _print_owner(step, owners[step.path], as_json=as_json)
        elif step.path not in done:
            _print_table(step, as_json=as_json)
    troubles = [
        f"{table.path}: {error.chore} failed: {error.error}" for table in status.tables for error in table.upkeep_errors
    ]
    troubles += [f"{search.source}: the search for tables failed: {search.error}" for search in status.search_errors]
    for trouble in troubles:
        output.complain(trouble)
    if not status.tables:
        output.complain("no table was found")
    if failed or troubles:
        raise typer.Exit(FAILED)


@contextlib.contextmanager
def _without_log_of_tables() -> Iterator[None]:
    """What is logged about tables and searches is in reports and the status as well, and is printed from there."""
    names = ("process.watched_tables", "upkeep.table_upkeep.troubles")
    loggers = [logger(f"tidelog.compaction_daemon.{name}") for name in names]
    for each in loggers:
        each.disabled = True
    try:
        yield
    finally:
        for each in loggers:
            each.disabled = False


def _waited_for_a_lease(worker: Daemon, give_up_s: float) -> bool:
    """Wait until a lease can have run out that another daemon has; False if there is none, or it lasts too long.

    A daemon that was killed keeps its leases until somebody has seen it silent for as long as they last.
    """
    status, now_s = worker.status(), REAL_SYSTEM.monotonic_s()
    looks = [table.next_look for table in status.tables if table.state is TableState.ELSEWHERE and table.next_look]
    if not looks or now_s >= give_up_s:
        return False
    wait_s = (min(looks) - status.at).total_seconds()
    REAL_SYSTEM.sleep_s(max(0.01, min(wait_s, give_up_s - now_s)))
    return True


def _print_owner(step: TableStep, owner: str | None, *, as_json: bool) -> None:
    """Print that the table is another daemon's."""
    if as_json:
        output.write_json({"path": step.path, "version": step.version, "held_by": owner})
    else:
        output.say(f"{step.path}: another daemon keeps it: {owner}")


def _print_steps(report: StepReport, *, as_json: bool) -> None:
    """Print what a step did, and what failed."""
    for step in report.tables:
        if step.error is not None:
            output.complain(f"{step.path}: {in_options(step.error, 'tidelog daemon')}")
        elif step.did_anything:
            _print_table(step, as_json=as_json)


def _print_step(report: StepReport) -> None:
    """Print what a step did as JSON; what failed is in the log."""
    for step in report.tables:
        if step.error is None and step.did_anything:
            _print_table(step, as_json=True)


def _print_table(step: TableStep, *, as_json: bool) -> None:
    print_compaction(step.path, step.version, step.compaction, checkpointed=step.checkpointed, as_json=as_json)
