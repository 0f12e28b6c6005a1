"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, TypeAlias

import typer

from tidelog.log import Table
from tidelog.log.errors import ConfigurationError
from tidelog.log.internals import properties, to_timestamp_ms

TablePath: TypeAlias = Annotated[str, typer.Argument(metavar="PATH", help="The table.")]
StorageOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--storage-option", metavar="K=V", help="For the store, such as a key; may be given several times."),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON object a line, never cut.")]
Where: TypeAlias = Annotated[
    str | None, typer.Option(metavar="SQL", help="Only rows for which this is true, such as \"day = '2026-01-31'\".")
]
Columns: TypeAlias = Annotated[
    list[str] | None, typer.Option(metavar="NAMES", help="Only these columns, separated by commas.")
]
Limit: TypeAlias = Annotated[int | None, typer.Option(min=1, metavar="N", help="At most so many.")]
OlderThan: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="AGE", help="An age, such as '14 days', or a time with a zone; in place of the table's retention."
    ),
]
Level: TypeAlias = Annotated[str, typer.Option(metavar="LEVEL", help="minor packs small files, major rewrites.")]
Partitions: TypeAlias = Annotated[
    str | None, typer.Option("--where", metavar="SQL", help="Only these partitions, such as \"day < '2026-01-31'\".")
]
ClusterBy: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--cluster-by", metavar="NAMES", help="For major: sort rows by these columns, separated by commas."),
]
Purge: TypeAlias = Annotated[
    bool, typer.Option("--purge", help="For major: rewrite every file that holds a deleted row.")
]
DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")]


def open_table(path: str, storage_options: Sequence[str] | None) -> Table:
    """The table at `path`, with the options that were given as `K=V`."""
    return Table.open(path, storage_options=parse_storage_options(storage_options))


def parse_storage_options(texts: Sequence[str] | None) -> dict[str, str] | None:
    """The options by name. Raises ConfigurationError, which never repeats a value: it may be a secret."""
    if not texts:
        return None
    options = {}
    for number, text in enumerate(texts, start=1):
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigurationError(f"--storage-option number {number} has no '='", advice="write K=V")
        options[key] = value
    return options


def split_columns(texts: Sequence[str] | None) -> list[str] | None:
    """The names in comma-separated lists; None where none were given, for all."""
    if not texts:
        return None
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def parse_point(text: str | None) -> int | str | None:
    """A point in history: whole numbers are ID versions, other texts times, which are checked here."""
    if text is None:
        return None
    if text.removeprefix("-").isdigit():
        return int(text)
    to_timestamp_ms(text)
    return text


def parse_older_than(text: str | None) -> timedelta | datetime | None:
    """An age or a time. Raises ConfigurationError naming both forms."""
    if text is None:
        return None
    try:
        return timedelta(milliseconds=properties.parse_duration_ms(text))
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{text!r} is neither an age nor a time", advice="write '14 days', or 2026-01-31T00:00:00Z"
        ) from error
