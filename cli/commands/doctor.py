"""`tidelog doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import typer
from rich.text import Text

from tidelog.cli import output, parameters
from tidelog.cli.app import FAILED
from tidelog.cli.spinner import Progress
from tidelog.cli.wrong_use import whole_number
from tidelog.log.errors import TidelogError
from tidelog.log.state.loader import load
from tidelog.log.state.tombstones import lost_tombstones
from tidelog.log.storage import Store, open_store
from tidelog.log.storage.doctor import Finding, examine
from tidelog.log.system import REAL_SYSTEM

_TOMBSTONES = "tombstones"


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
    The check writes below PATH/_tidelog and cleans up after itself; a table at PATH is not touched. If there is one, it
    also looks whether the deletions are there that upserts with an order compare with. Exit code 1 if the store breaks
    a promise, or some are missing.

    Example:
      tidelog doctor s3://bucket/events --storage-option endpoint_url=https://minio.example:9000
    """
    given = parameters.parse_storage_options(storage_option)
    with Progress(f"checking the store at {path}"):
        diagnosis = examine(path, storage_options=given, writers=writers, rounds=rounds)
        diagnosis = replace(diagnosis, findings=(*diagnosis.findings, *_of_table(open_store(path, given))))
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
        is_safe = all(finding.ok for finding in diagnosis.findings if finding.name != _TOMBSTONES)
        verdict = "keeps every promise that was checked" if is_safe else "cannot hold a table safely"
        output.say(f"{diagnosis.path} {verdict}")
    if not diagnosis.ok:
        raise typer.Exit(FAILED)


def _of_table(store: Store) -> Iterator[Finding]:
    """Whether a table has the tombstones that its log names; nothing if there is no table that can be read."""
    try:
        lost = lost_tombstones(store, load(store).head, REAL_SYSTEM.now_ms())
    except (TidelogError, OSError):
        return
    if lost:
        words = f"{', '.join(lost)} gone: another program has deleted it, and late records can bring deleted rows back"
        yield Finding(_TOMBSTONES, ok=False, words=words)
