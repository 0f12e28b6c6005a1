"""`tidelog report`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli import output, parameters
from tidelog.cli.spinner import Progress
from tidelog.compaction_daemon import report_of, report_page
from tidelog.log.errors import ConfigurationError


def report_command(
    path: parameters.TablePath,
    file: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="The HTML file to write; it is replaced.")
    ] = None,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Write what the log says about a table as an HTML file.

    Debt and its trend, the newest 500 versions with compactions, rebases and conflicts, consumers and their lag, the
    plan and why, refused rewrites, retentions. The file is the daemon's page with the table's data in it. It needs no
    server, and it asks none for anything.

    Example:
      tidelog report /data/events -o report.html
      tidelog report /data/events --json | jq .debt
    """
    if file is None and not as_json:
        raise ConfigurationError("there is no file to write to", advice="write -o FILE, or --json")
    with Progress(f"reading the log of {path}"):
        found = report_of(parameters.open_table(path, storage_option)).to_dict()
        if file is not None:
            _write(file, report_page(found))
    if as_json:
        output.write_json(found)
    elif file is not None:
        output.say(f"{path}: wrote {file}")


def _write(file: Path, content: bytes) -> None:
    """Write the file whole or not at all."""
    unfinished = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(file)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {str(file)!r}: {error.strerror}", advice="name a file in a folder where you may write"
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)
