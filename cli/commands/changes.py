"""`tidelog changes`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidelog.cli import options, rows
from tidelog.cli.progress import Progress


def changes_command(
    path: options.TablePath,
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
    where: options.Where = None,
    columns: options.Columns = None,
    keys: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="For net: the key columns, separated by commas.")
    ] = None,
    limit: options.Limit = None,
    output_format: rows.FormatOption = None,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the rows that changed between two versions or times.

    A POINT is a version number or a time such as 2026-01-31T12:00:00Z. Compactions change no rows, so they do not
    appear.

    Example:
      tidelog changes /data/events --after 41
      tidelog changes /data/events --after 2026-01-31T00:00:00Z --mode net --keys id --json
    """
    chosen = rows.require_format(output_format, as_json=as_json)
    # What was not given is left to the table's own defaults.
    given: dict[str, Any] = {"mode": mode, "keys": options.split_columns(keys)}
    with Progress(f"reading the changes of {path}") as progress:
        reader = options.open_table(path, storage_option).changes(
            after=options.parse_point(after),
            until=options.parse_point(until),
            where=where,
            columns=options.split_columns(columns),
            **{name: value for name, value in given.items() if value is not None},
        )
        rows.write_rows(reader, chosen, limit, progress)
