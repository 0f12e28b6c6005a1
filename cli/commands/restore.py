"""`tidelog restore`."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli import parameters
from tidelog.cli.reports import print_commit
from tidelog.cli.spinner import Progress
from tidelog.cli.wrong_use import whole_number
from tidelog.log import Committed
from tidelog.log.errors import ConfigurationError


def restore_command(
    path: parameters.TablePath,
    version: Annotated[
        int | None, typer.Option(metavar="N", parser=whole_number("--version"), help="The version to restore.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="TIME", help="Restore the table as it was then, such as 2026-01-31T12:00:00Z.")
    ] = None,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Restore a table to an earlier version.

    Rows, schema and properties become those of that version, in a new commit; nothing is deleted from the history, so
    a restore can be undone by another one.

    Example:
      tidelog restore /data/events --version 41
      tidelog restore /data/events --timestamp 2026-01-31T12:00:00Z
    """
    if (version is None) == (timestamp is None):
        raise ConfigurationError("a restore needs a version or a time", advice="give either --version or --timestamp")
    target = f"version {version}" if timestamp is None else timestamp
    with Progress(f"restoring {path} to {target}"):
        table = parameters.open_table(path, storage_option)
        transaction = table.begin().restore(version=version, timestamp=timestamp)
        outcome = transaction.commit()
    if not isinstance(outcome, Committed):
        raise TypeError(outcome)  # only a compaction is superseded
    changed = outcome.version > transaction.base_version
    print_commit(table.path, outcome, f"restored to {target}", changed=changed, as_json=as_json)
