"""`tidelog doctor`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from tidelog.cli import output, parameters
from tidelog.cli.app import FAILED
from tidelog.cli.spinner import Progress
from tidelog.cli.wrong_use import whole_number
from tidelog.log.storage.doctor import examine


def doctor_command(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A table, or a place for one; it need not exist.")],
    writers: Annotated[
        int, typer.Option(metavar="N", parser=whole_number("--writers"), help="How many writers race for one file.")
    ] = 8,
    rounds: Annotated[
        int, typer.Option(metavar="N", parser=whole_number("--rounds"), help="How many races to run.")
    ] = 10,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Check that a store is safe to keep tables in.

    A table needs a store that creates a file only if it is absent, and that shows a new file at once, also in listings.
    The check writes below PATH/_tidelog and cleans up after itself; a table at PATH is not touched. Exit code 1 if the
    store breaks a promise.

    Example:
      tidelog doctor s3://bucket/events --storage-option endpoint_url=https://minio.example:9000
    """
    given = parameters.parse_storage_options(storage_option)
    with Progress(f"checking the store at {path}"):
        diagnosis = examine(path, storage_options=given, writers=writers, rounds=rounds)
    if as_json:
        output.write_json(diagnosis.to_dict())
    else:
        verdicts = {True: output.coloured("ok", "green"), False: output.coloured("BROKEN", "bold red")}
        output.write_aligned(
            [
                (verdicts[finding.ok], Text(output.one_line(finding.name)), Text(output.one_line(finding.words)))
                for finding in diagnosis.findings
            ]
        )
        verdict = "keeps every promise that was checked" if diagnosis.ok else "cannot hold a table safely"
        output.say(f"{diagnosis.path} {verdict}")
    if not diagnosis.ok:
        raise typer.Exit(FAILED)
