"""`tidelog add-columns`."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli import parameters
from tidelog.cli.reports import print_commit
from tidelog.cli.schema_text import parse_schema
from tidelog.cli.spinner import Progress


def add_columns_command(
    path: parameters.TablePath,
    columns: Annotated[
        str, typer.Argument(metavar="COLUMNS", help='The new columns, such as "c bigint, d array<string>".')
    ],
    allow_protocol_upgrade: Annotated[
        bool,
        typer.Option(
            "--allow-protocol-upgrade",
            help="Allow types that need a newer protocol; clients without it then refuse the table.",
        ),
    ] = False,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Add columns to a table.

    They follow the columns that exist, and are null in the rows that exist. No data file is rewritten. `tidelog create
    --help` lists the types.

    Example:
      tidelog add-columns /data/events "country string, price decimal(10, 2)"
    """
    new = parse_schema(columns)
    with Progress(f"adding columns to {path}"):
        table = parameters.open_table(path, storage_option)
        committed = table.add_columns(new, allow_protocol_upgrade=allow_protocol_upgrade)
    print_commit(table.path, committed, f"added {', '.join(new.names)}", changed=True, as_json=as_json)
