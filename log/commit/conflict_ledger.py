"""The conflict ledger: which operation lost to which commit, why, and what work that cost.

One small file an entry below `_tidelog/conflicts/`, named by its time. The ledger helps people; no decision rests on
it, so an entry that cannot be written is a warning in the log of the program and no error.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import msgspec

from tidelog.log.errors import TidelogError
from tidelog.log.format.commit_info import MAX_TIMESTAMP_MS
from tidelog.log.storage import FileStatus, Store
from tidelog.log.system import System

_LOGGER = logging.getLogger(__name__)

LEDGER_FOLDER = "_tidelog/conflicts"
# Evidence names files and predicates, and a predicate may be a list of any length.
MAX_TEXT = 1000
_NAME = re.compile(r"(?P<when>\d{13})-[0-9a-f-]{36}\.json")


class Lost(StrEnum):
    """How an operation lost: wholly, as nothing was left to do, or some groups of a compaction."""

    CONFLICT = "conflict"
    SUPERSEDED = "superseded"
    DROPPED = "dropped"


class LostRace(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One loss. `earlier` and `later` are the operation classes of the winner and of the loser.

    `operation` is the loser's name as the log would have shown it, `loser` who it was: an application or a stream, or
    host and process. `policy` is None where no policy decided. What was wasted had been written, and went unused.
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
    """Note a loss; never raises."""
    try:
        # Padded, so that names are in the order of their times until the year 2286.
        name = f"{LEDGER_FOLDER}/{max(entry.when_ms, 0):013d}-{system.uuid()}.json"
        store.put_if_absent(name, msgspec.json.encode(_bounded(entry)), durable=False)
    except Exception as error:  # noqa: BLE001 - the caller is about to tell what matters more
        _LOGGER.warning("the conflict ledger of %s has no entry of a loss: %s", store.url, error)


def read_ledger(store: Store, limit: int | None = None) -> Iterator[LostRace]:
    """The entries, newest first, at most `limit`; what cannot be read is passed over."""
    names = sorted((name for name in store.names(LEDGER_FOLDER) if _NAME.fullmatch(name)), reverse=True)
    found = 0
    for name in names:
        if found == limit:
            return
        entry = _read_one(store, name)
        if entry is not None:
            found += 1
            yield entry


def entries_before(store: Store, when_ms: int) -> list[FileStatus]:
    """The files, below FOLDER, of the entries of before that time."""
    named = ((status, _NAME.fullmatch(status.name)) for status in store.list(LEDGER_FOLDER))
    return [status for status, match in named if match and int(match["when"]) < when_ms]


def _read_one(store: Store, name: str) -> LostRace | None:
    try:
        return _DECODER.decode(store.read(f"{LEDGER_FOLDER}/{name}"))
    except FileNotFoundError:  # pruned meanwhile
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, TidelogError) as error:
        _LOGGER.info("passing over the entry %s of the conflict ledger of %s: %s", name, store.url, error)
        return None


def _bounded(entry: LostRace) -> LostRace:
    texts = {name: value for name in entry.__struct_fields__ if isinstance(value := getattr(entry, name), str)}
    # Only plain texts can be long; an outcome is one of three.
    long = {name: f"{text[: MAX_TEXT - 1]}…" for name, text in texts.items() if len(text) > MAX_TEXT}
    return msgspec.structs.replace(entry, **long) if long else entry
