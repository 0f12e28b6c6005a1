"""`tidelog scan`."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli import options, rows
from tidelog.cli.progress import Progress
from tidelog.cli.wrong_use import whole_number


def scan_command(
    path: options.TablePath,
    where: options.Where = None,
    columns: options.Columns = None,
    limit: options.Limit = None,
    version: Annotated[
        int | None, typer.Option(metavar="N", parser=whole_number("--version"), help="Read this version.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="TIME", help="Read the table as it was then, such as 2026-01-31T12:00:00Z.")
    ] = None,
    output_format: rows.FormatOption = None,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the rows of a table.

    As a table the first 100 rows are printed; --limit, --format and --json print more.

    Example:
      tidelog scan /data/events --where "day >= '2026-01-31'" --columns id,day --limit 20
      tidelog scan /data/events --version 41 --format csv > events.csv
    """
    chosen = rows.require_format(output_format, as_json=as_json)
    with Progress(f"reading {path}") as progress:
        snapshot = options.open_table(path, storage_option).at(version=version, timestamp=timestamp)
        rows.write_rows(snapshot.scan(where, options.split_columns(columns)), chosen, limit, progress)
