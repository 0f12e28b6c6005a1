"""The options of `format("tidelog")`, read and checked once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.log.errors import ConfigurationError
from tidelog.log.internals import BEFORE_FIRST, Point

EARLIEST = "earliest"
LATEST = "latest"

_SECRET_PREFIX = "storageoption."  # noqa: S105 - the name of an option, not a secret
_KNOWN = {
    "path": "path",
    "versionasof": "versionAsOf",
    "timestampasof": "timestampAsOf",
    "startingversion": "startingVersion",
    "startingtimestamp": "startingTimestamp",
    "endingversion": "endingVersion",
    "endingtimestamp": "endingTimestamp",
    "changes": "changes",
    "maxfilespertrigger": "maxFilesPerTrigger",
    "columns": "columns",
    "where": "where",
}
_STREAM_ONLY = {"maxfilespertrigger"}
_BATCH_ONLY = {"versionasof", "timestampasof", "endingversion", "endingtimestamp"}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a reader was asked for; names as in the reference, values parsed."""

    path: str
    snapshot: Point | None
    start: Point | None
    end: Point | None
    latest: bool
    changes: str | None
    max_files: int | None
    columns: tuple[str, ...] | None
    where: str | None
    storage_options: Mapping[str, str]

    @property
    def is_interval(self) -> bool:
        """Whether the changes of an interval are asked for, not a snapshot."""
        return self.start is not None or self.end is not None or self.changes is not None or self.latest


def parse_read(raw: Mapping[str, str], *, streaming: bool | None = None) -> ReadOptions:
    """The options of a read; `streaming` is None while that is not known.

    Raises ConfigurationError naming an option that is unknown, misplaced or malformed.
    """
    options, secrets = split_names(raw)
    _refuse_misplaced(options, streaming=streaming)
    if not options.get("path"):
        raise ConfigurationError("no table path was given", advice='use .load("/path/of/the/table")')
    start, latest = _start(options)
    return ReadOptions(
        path=options["path"],
        snapshot=_one_of(options, "versionasof", "timestampasof"),
        start=start,
        end=_one_of(options, "endingversion", "endingtimestamp"),
        latest=latest,
        changes=options.get("changes"),
        max_files=_count(options, "maxfilespertrigger"),
        columns=tuple(name.strip() for name in options["columns"].split(",")) if "columns" in options else None,
        where=options.get("where"),
        storage_options=secrets,
    )


def split_names(raw: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The options by their names in lower case, and apart from them those of the store, without their prefix."""
    options = {key.lower(): value for key, value in raw.items() if not key.lower().startswith(_SECRET_PREFIX)}
    secrets = {
        key[len(_SECRET_PREFIX) :]: value for key, value in raw.items() if key.lower().startswith(_SECRET_PREFIX)
    }
    return options, secrets


def require_known(options: Iterable[str], known: Mapping[str, str]) -> None:
    """Raise ConfigurationError for an option that `known`, names in lower case to names, does not have."""
    for key in options:
        if key not in known:
            raise ConfigurationError(f"unknown option {key!r}", advice=f"use one of {', '.join(known.values())}")


def _refuse_misplaced(options: Mapping[str, str], *, streaming: bool | None) -> None:
    require_known(options, _KNOWN)
    misplaced = {True: _BATCH_ONLY, False: _STREAM_ONLY, None: set[str]()}[streaming]
    for key in options:
        if key in misplaced:
            where = "batch reads" if streaming else "streams"
            raise ConfigurationError(f"the option {_KNOWN[key]!r} is for {where} only", advice="leave it out")


def _start(options: Mapping[str, str]) -> tuple[Point | None, bool]:
    """The exclusive lower end of the interval, and whether it is the table's newest version."""
    word = options.get("startingversion", "").lower()
    if word in {EARLIEST, LATEST}:
        if "startingtimestamp" in options:
            raise _both("startingversion", "startingtimestamp")
        return (BEFORE_FIRST, False) if word == EARLIEST else (None, True)
    return _one_of(options, "startingversion", "startingtimestamp"), False


def _one_of(options: Mapping[str, str], version: str, timestamp: str) -> Point | None:
    if version in options and timestamp in options:
        raise _both(version, timestamp)
    if version in options:
        try:
            return int(options[version])
        except ValueError as error:
            name = _KNOWN[version]
            words = ", 'earliest' or 'latest'" if version == "startingversion" else ""
            raise ConfigurationError(
                f"the option {name!r} cannot be {options[version]!r}", advice=f"give a whole number{words}"
            ) from error
    return options.get(timestamp)


def _both(version: str, timestamp: str) -> ConfigurationError:
    return ConfigurationError(
        f"the options {_KNOWN[version]!r} and {_KNOWN[timestamp]!r} exclude each other", advice="leave one out"
    )


def _count(options: Mapping[str, str], key: str) -> int | None:
    if key not in options:
        return None
    text = options[key]
    if not text.strip().isdigit() or int(text) == 0:
        raise ConfigurationError(
            f"the option {_KNOWN[key]!r} cannot be {text!r}", advice="give a whole number above zero"
        )
    return int(text)
