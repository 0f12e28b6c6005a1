"""`tidelog changes`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidelog.cli import parameters, row_formats
from tidelog.cli.follow import Follow, follow
from tidelog.cli.spinner import Progress
from tidelog.log.errors import ConfigurationError


def changes_command(
    path: parameters.TablePath,
    after: Annotated[
        str | None, typer.Option(metavar="POINT", help="Start after this version or time; by default at the beginning.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="POINT", help="End with this version or time; by default with the newest.")
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="append|cdc|net",
            help="append: inserted rows. cdc: every change (the default). net: one row per key.",
            autocompletion=lambda: ["append", "cdc", "net"],
        ),
    ] = None,
    where: parameters.Where = None,
    columns: parameters.Columns = None,
    keys: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="For net: the key columns, separated by commas.")
    ] = None,
    is_followed: Annotated[
        bool, typer.Option("--follow", help="Go on with new commits, until SIGTERM or Ctrl-C.")
    ] = False,
    consumer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With --follow: register, and continue there after a restart."),
    ] = None,
    initial_snapshot: Annotated[
        bool, typer.Option("--initial-snapshot", help="With --follow: first the table as it is.")
    ] = False,
    limit: parameters.Limit = None,
    output_format: row_formats.FormatOption = None,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Print the rows that changed between two versions or times.

    A POINT is a version number or a time such as 2026-01-31T12:00:00Z. Compactions change no rows, so they do not
    appear.

    With --follow new commits are printed as they come. --consumer keeps the position in the table: it advances after
    all rows of a commit were written, so a crash can repeat a commit, and clean-ups wait for it.

    Example:
      tidelog changes /data/events --after 41
      tidelog changes /data/events --follow --consumer billing --json
      tidelog changes /data/events --after 2026-01-31T00:00:00Z --mode net --keys id --json
    """
    chosen = row_formats.require_format(output_format, as_json=as_json)
    if is_followed:
        _require_endless(until=until, keys=keys, limit=limit, net=mode == "net" or None)
        wanted = Follow(mode or "cdc", parameters.parse_point(after), where, parameters.split_columns(columns))
        table = parameters.open_table(path, storage_option)
        follow(table, wanted, chosen, consumer=consumer, initial_snapshot=initial_snapshot)
        return
    _require_follow(consumer=consumer, initial_snapshot=initial_snapshot)
    # What was not given is left to the table's own defaults.
    given: dict[str, Any] = {"mode": mode, "keys": parameters.split_columns(keys)}
    with Progress(f"reading the changes of {path}") as progress:
        reader = parameters.open_table(path, storage_option).changes(
            after=parameters.parse_point(after),
            until=parameters.parse_point(until),
            where=where,
            columns=parameters.split_columns(columns),
            **{name: value for name, value in given.items() if value is not None},
        )
        row_formats.write_rows(reader, chosen, limit, progress)


def _require_endless(**given: object) -> None:
    """Raise ConfigurationError for an option that does not go with `--follow`."""
    for name, value in given.items():
        if value is not None:
            option = "--mode net" if name == "net" else f"--{name}"
            raise ConfigurationError(f"--follow and {option} exclude each other", advice="leave one out")


def _require_follow(*, consumer: str | None, initial_snapshot: bool) -> None:
    """Raise ConfigurationError for an option that needs `--follow`."""
    if consumer is not None or initial_snapshot:
        option = "--initial-snapshot" if consumer is None else "--consumer"
        raise ConfigurationError(f"{option} needs --follow", advice="add it, or leave the option out")
