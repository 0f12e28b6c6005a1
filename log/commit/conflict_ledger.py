"""The conflict ledger: which operation lost to which commit, why, and what it cost.

Each entry is one small file below `_tidelog/conflicts/`, named after its time. The ledger is for people and no decision
depends on it, so failing to write an entry only logs a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import Annotated

import msgspec

from tidelog.log.errors import TidelogError
from tidelog.log.format.commit_info import MAX_TIMESTAMP_MS
from tidelog.log.format.text import MALFORMED_JSON
from tidelog.log.storage import FileStatus, Store, UnreadableFileError
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)

LEDGER_FOLDER = "_tidelog/conflicts"
# Evidence can quote a predicate, which can be a list of any length. In characters.
MAX_TEXT = 1000
_NAME = re.compile(r"(?P<when>\d{13})-[0-9a-f-]{36}\.json")


class Lost(StrEnum):
    """How an operation lost: with a conflict, because nothing was left to do, or some groups of a compaction."""

    CONFLICT = "conflict"
    SUPERSEDED = "superseded"
    DROPPED = "dropped"


class LostRace(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One loss.

    Attributes:
        when_ms: When the operation lost, in milliseconds since the epoch.
        base_version: The version that it was staged on.
        winning_version: The version of the winner.
        policy: The table's conflict policy, if known.
        earlier: The operation class of the winner.
        later: The operation class of the loser.
        operation: The loser's operation, as the log would have shown it.
        outcome: How it lost.
        error: The class of the error, if one was raised.
        evidence: Why it lost; cut to 1,000 characters.
        wasted_rows: Rows that were written and not used.
        wasted_bytes: Bytes that were written and not used.
        wasted_seconds: Time from the start of the transaction to the loss.
        loser: The application or stream that lost, else host and process.
    """

    when_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_TIMESTAMP_MS)]
    base_version: int
    winning_version: int
    policy: str | None
    earlier: str
    later: str
    operation: str
    outcome: Lost
    error: str | None = None
    evidence: str = ""
    wasted_rows: int = 0
    wasted_bytes: int = 0
    wasted_seconds: float = 0.0
    loser: str = ""


_DECODER = msgspec.json.Decoder(LostRace)


def append(store: Store, system: System, entry: LostRace) -> None:
    """Write an entry. Never raises."""
    try:
        # Padded, so that names sort by time until the year 2286.
        name = f"{LEDGER_FOLDER}/{max(entry.when_ms, 0):013d}-{system.uuid()}.json"
        store.put_if_absent(name, msgspec.json.encode(_bounded(entry)), durable=False)
    except Exception as error:  # noqa: BLE001 - the caller is about to report something more important
        _LOGGER.warning("could not write an entry of the conflict ledger of %s: %s", store.url, error)


def read_ledger(store: Store, limit: int | None = None) -> Iterator[LostRace]:
    """The entries, newest first, at most `limit`. Skips entries that cannot be read."""
    return islice(read_entries(store, entry_names(store)), limit)


def entry_names(store: Store) -> list[str]:
    """The names of the entries, newest first. An entry keeps its name and never changes."""
    return sorted((name for name in store.names(LEDGER_FOLDER) if _NAME.fullmatch(name)), reverse=True)


def read_entries(store: Store, names: Iterable[str]) -> Iterator[LostRace]:
    """The entries of these names. Skips entries that cannot be read."""
    for name in names:
        entry = _read_one(store, name)
        if entry is not None:
            yield entry


def entries_before(store: Store, when_ms: int) -> list[FileStatus]:
    """The files, relative to LEDGER_FOLDER, of the entries from before that time."""
    named = ((status, _NAME.fullmatch(status.name)) for status in store.list(LEDGER_FOLDER))
    return [status for status, match in named if match and int(match["when"]) < when_ms]


def _read_one(store: Store, name: str) -> LostRace | None:
    try:
        return _DECODER.decode(store.read(f"{LEDGER_FOLDER}/{name}"))
    except FileNotFoundError:  # expired in the meantime
        return None
    except (TidelogError, UnreadableFileError, *MALFORMED_JSON) as error:
        _LOGGER.info("skipping the unreadable entry %s of the conflict ledger of %s: %s", name, store.url, error)
        return None


def _bounded(entry: LostRace) -> LostRace:
    texts = {name: value for name in entry.__struct_fields__ if isinstance(value := getattr(entry, name), str)}
    long = {name: f"{text[: MAX_TEXT - 1]}…" for name, text in texts.items() if len(text) > MAX_TEXT}
    return msgspec.structs.replace(entry, **long) if long else entry
