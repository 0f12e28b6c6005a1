"""`tidelog scan`."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli import parameters, row_formats
from tidelog.cli.spinner import Progress
from tidelog.cli.wrong_use import whole_number


def scan_command(
    path: parameters.TablePath,
    where: parameters.Where = None,
    columns: parameters.Columns = None,
    limit: parameters.Limit = None,
    version: Annotated[
        int | None, typer.Option(metavar="N", parser=whole_number("--version"), help="Read this version.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="TIME", help="Read the table as it was then, such as 2026-01-31T12:00:00Z.")
    ] = None,
    output_format: row_formats.FormatOption = None,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Print the rows of a table.

    As a table the first 100 rows are printed; --limit, --format and --json print more.

    Example:
      tidelog scan /data/events --where "day >= '2026-01-31'" --columns id,day --limit 20
      tidelog scan /data/events --version 41 --format csv > events.csv
    """
    chosen = row_formats.require_format(output_format, as_json=as_json)
    with Progress(f"reading {path}") as progress:
        snapshot = parameters.open_table(path, storage_option).at(version=version, timestamp=timestamp)
        row_formats.write_rows(snapshot.scan(where, parameters.split_columns(columns)), chosen, limit, progress)
