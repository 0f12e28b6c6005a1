"""`tidelog drop`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tidelog.cli import output, parameters
from tidelog.cli.app import NOTHING_TO_DO
from tidelog.cli.spinner import Progress
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, CorruptLogError
from tidelog.log.storage import open_store


def drop_command(
    path: parameters.TablePath,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Drop without asking; needed in scripts.")] = False,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Drop a table and delete its data files.

    The table cannot be recovered. Its log stays, and so do files in its folder that are not the table's. A drop that
    was interrupted is finished by running it again with --yes.

    Example:
      tidelog drop /data/events
      tidelog drop /data/events --yes
    """
    given = parameters.parse_storage_options(storage_option)
    url = open_store(path, given).url
    dropped = yes or _confirm(path, given)
    if dropped:
        with Progress(f"dropping {url}"):
            Table.drop(path, storage_options=given)
    if as_json:
        output.write_json({"path": url, "dropped": dropped})
    else:
        output.say(f"{url}: {'dropped' if dropped else 'not dropped'}")
    if not dropped:
        raise typer.Exit(NOTHING_TO_DO)


def _confirm(path: str, storage_options: dict[str, str] | None) -> bool:
    """Ask on the terminal. Raises ConfigurationError if there is none, and TableNotFoundError."""
    if not sys.stdin.isatty():
        raise ConfigurationError("dropping a table needs a confirmation", advice="pass --yes", path=path)
    with Progress(f"reading the log of {path}"):
        table = Table.open(path, storage_options=storage_options)
        try:
            rows = f"{table.at().num_rows:,} rows"
        except CorruptLogError:  # another writer left a file without a row count
            rows = f"{table.at().num_files:,} files"
    question = output.one_line(f"Drop {table.path} (version {table.version}, {rows}) and delete its files?")
    return typer.confirm(question, err=True)
