"""The command `doctor`: whether a store keeps the promises that a table rests on."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli import options, output
from tidelog.cli.app import FAILED, app
from tidelog.log.internals import examine


@app.command("doctor")
def doctor_command(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A table, or the place for one; it need not be there.")],
    writers: Annotated[int, typer.Option(metavar="N", help="So many write at once.")] = 8,
    rounds: Annotated[int, typer.Option(metavar="N", help="So many times.")] = 10,
    storage_option: options.StorageOptions = None,
    as_json: options.AsJson = False,
) -> None:
    """Try out whether a store creates a file only if it is absent, shows it at once, and lists what is there.

    Writes below PATH/_tidelog and removes that again; a table at PATH is not touched. Exit code 1 for a broken promise.
    """
    given = options.parse_storage_options(storage_option)
    diagnosis = examine(path, storage_options=given, writers=writers, rounds=rounds)
    if as_json:
        output.write_json(diagnosis.to_dict())
    else:
        rows = [("ok" if finding.ok else "BROKEN", finding.name) for finding in diagnosis.findings]
        width = max(len(name) for _, name in rows)
        for (verdict, name), finding in zip(rows, diagnosis.findings, strict=True):
            output.say(f"{verdict:<6}  {name:<{width}}  {finding.words}")
        verdict = "keeps every promise that was tried" if diagnosis.ok else "cannot hold a table safely"
        output.say(f"{diagnosis.path} {verdict}")
    if not diagnosis.ok:
        raise typer.Exit(FAILED)
