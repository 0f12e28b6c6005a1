"""Options that several commands share, and how their texts are parsed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, TypeAlias

import typer

from tidelog.cli.wrong_use import whole_number
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError
from tidelog.log.format import properties
from tidelog.log.read.timeline import to_timestamp_ms

TablePath: TypeAlias = Annotated[str, typer.Argument(metavar="PATH", help="The table: a local path or a URL.")]
StorageOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option", metavar="K=V", help="An option for the store, such as an endpoint_url. Repeatable."
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
Where: TypeAlias = Annotated[
    str | None, typer.Option(metavar="SQL", help="Only rows that match, such as \"day = '2026-01-31'\".")
]
Columns: TypeAlias = Annotated[
    list[str] | None, typer.Option(metavar="NAMES", help="Only these columns, separated by commas.")
]
Limit: TypeAlias = Annotated[
    int | None, typer.Option(metavar="N", parser=whole_number("--limit", least=1), help="Print at most N.")
]
OlderThan: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="AGE", help="An age, such as 30d, or a time with a time zone. By default the table's retention."
    ),
]
Level: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="minor|major|auto",
        help="minor packs small files; major also drops dead rows and clusters; auto is what the daemon does.",
        autocompletion=lambda: ["minor", "major", "auto"],
    ),
]
LevelOrPlan: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--level",
        metavar="minor|major|auto",
        help="minor, the default, packs small files; major also drops dead rows and clusters; auto is what the daemon "
        "does.",
        autocompletion=lambda: ["minor", "major", "auto"],
    ),
]
Partitions: TypeAlias = Annotated[
    str | None, typer.Option("--where", metavar="SQL", help="Only these partitions, such as \"day < '2026-01-31'\".")
]
ClusterBy: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--cluster-by", metavar="NAMES", help="For major: cluster rows by these columns, separated by commas."
    ),
]
ClusterOrder: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="hilbert|sort",
        help="For major: the order of clustered rows. By default the table's.",
        autocompletion=lambda: ["hilbert", "sort"],
    ),
]
Purge: TypeAlias = Annotated[
    bool, typer.Option("--purge", help="For major: rewrite every file that has a deleted row.")
]
NoListing: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--no-listing",
        help="Do not list the table's folder: find files in the log alone, which is fast for a large table.",
    ),
]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="List the files that would be deleted, and delete nothing.")
]

_SHORT_AGE = re.compile(r"\s*(\d+)\s*(w|d|h|min|s)\s*")
# A time before year 1 cannot be shown.
_LONGEST_AGE_MS = 365_000 * 86_400_000
_UNITS = {"w": "weeks", "d": "days", "h": "hours", "min": "minutes", "s": "seconds"}


def open_table(path: str, storage_options: Sequence[str] | None) -> Table:
    """Open the table at `path` with the options that were given as `K=V`."""
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


def parse_properties(texts: Sequence[str] | None) -> dict[str, str]:
    """Table properties by key. Raises ConfigurationError for a text without `=` and for a key given twice."""
    found: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key:
            raise ConfigurationError(f"{text!r} is not a table property", advice="write KEY=VALUE")
        if key in found:
            raise ConfigurationError(f"the table property {key!r} is given twice", advice="leave one out")
        found[key] = value
    return found


def split_columns(texts: Sequence[str] | None) -> list[str] | None:
    """The names in comma-separated lists; None if there are no lists, which means all columns."""
    if not texts:
        return None
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def parse_point(text: str | None) -> int | str | None:
    """A point in history: a whole number is an ID version, any other text a time, which is checked here."""
    if text is None:
        return None
    if text.removeprefix("-").isdecimal():
        return int(text)
    to_timestamp_ms(text)
    return text


def parse_older_than(text: str | None) -> timedelta | datetime | None:
    """An age, such as `30d` or `12 hours`, or a time. Raises ConfigurationError naming both forms."""
    if text is None:
        return None
    short = _SHORT_AGE.fullmatch(text)
    try:
        age_ms = properties.parse_duration_ms(f"{short[1]} {_UNITS[short[2]]}" if short else text)
    except ValueError:
        return _parse_time(text)
    if age_ms > _LONGEST_AGE_MS:
        raise ConfigurationError(f"the age {text!r} is longer than 1,000 years", advice="write an age such as 30d")
    return timedelta(milliseconds=age_ms)


def _parse_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{text!r} is neither an age nor a time", advice="write an age such as 30d, or a time: 2026-01-31T00:00:00Z"
        ) from error


def age_text(age_ms: int) -> str:
    """An age as `--older-than` takes it: `30d`, or a smaller unit if it is not whole days."""
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if age_ms % unit_ms == 0:
            return f"{age_ms // unit_ms}{unit}"
    return f"{-(-age_ms // 1000)}s"
