"""The conflict ledger: which operation lost to which commit, why, and what it cost.

Each entry is one small file below `_tidelog/conflicts/`, named after its time. The ledger is for people and no decision
depends on it, so failing to write an entry only logs a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Annotated

import msgspec

from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import MoveGroup, Staged
from tidelog.log.errors import CommitContentionError, ConflictError, TidelogError
from tidelog.log.format import statistics
from tidelog.log.format.actions import AddFile
from tidelog.log.format.commit_info import MAX_TIMESTAMP_MS
from tidelog.log.format.text import MALFORMED_JSON
from tidelog.log.storage import FileStatus, Store, UnreadableFileError
from tidelog.log.system import System, logger, process_name

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


# --- who records a loss -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LostWork:
    """Writes the ledger entry if a transaction loses. `began_s` is when it began, by the system's monotonic clock."""

    store: Store
    system: System
    staged: Staged
    base_version: int
    policy: str
    began_s: float

    def lost(self, error: ConflictError | CommitContentionError) -> None:
        """Record a conflict or a loss of every attempt, which wastes all that was written."""
        fields = error.fields
        self._append(
            Lost.CONFLICT,
            int(fields.get("winning_version", fields.get("head_version", self.base_version))),
            str(fields.get("earlier", OperationClass.NONE)),
            _written(self.staged),
            error=type(error).__name__,
            evidence=str(fields.get("evidence", error.message)),
        )

    def superseded(self, by: int, earlier: OperationClass) -> None:
        """Record that another compaction or an overwrite left nothing to do."""
        self._append(Lost.SUPERSEDED, by, str(earlier), _written(self.staged))

    def dropped(self, groups: Sequence[MoveGroup], by: int, earlier: OperationClass) -> None:
        """Record that a compaction lost some of its groups."""
        self._append(Lost.DROPPED, by, str(earlier), [add for group in groups for add in group.outputs])

    def _append(
        self,
        outcome: Lost,
        winner: int,
        earlier: str,
        wasted: Iterable[AddFile],
        *,
        error: str | None = None,
        evidence: str = "",
    ) -> None:
        files = list(wasted)
        applications = [transaction.app_id for transaction in self.staged.transactions]
        entry = LostRace(
            when_ms=self.system.now_ms(),
            base_version=self.base_version,
            winning_version=winner,
            policy=self.policy,
            earlier=earlier,
            later=str(self.staged.operation_class),
            operation=self.staged.operation,
            outcome=outcome,
            error=error,
            evidence=evidence,
            wasted_rows=sum(statistics.num_records(add.stats) or 0 for add in files),
            wasted_bytes=sum(add.size for add in files),
            wasted_seconds=round(self.system.monotonic_s() - self.began_s, 3),
            loser=applications[0] if applications else process_name(),
        )
        append(self.store, self.system, entry)


def _written(staged: Staged) -> list[AddFile]:
    outputs = [add for group in staged.moves for add in group.outputs]
    survivors = [add for delete in staged.deletes for add in delete.survivors or ()]
    return [*staged.adds, *outputs, *survivors]
