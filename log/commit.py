"""The commit loop: put the next version if it is absent, or rebase over who took it and try again.

A commit needs the head only (protocol, metadata, stream progress, newest version), never the list of files, so what
it costs does not grow with the table.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from typing import Any

from tidelog.log.commit_actions import actions_of
from tidelog.log.conflict.rebase import Conflict, NothingLeft, Rebased, rebase
from tidelog.log.conflict.staged import MoveGroup, Staged
from tidelog.log.errors import (
    CommitContentionError,
    CommitStateUnknownError,
    CorruptLogError,
    StoreUnavailableError,
    TableReplacedError,
    TidelogError,
)
from tidelog.log.format import commit_info, filenames
from tidelog.log.format.actions import Commit, CommitInfo, decode_commit, encode_commit
from tidelog.log.format.lineage import Lineage
from tidelog.log.format.protocol import has_in_commit_timestamps, require_writable
from tidelog.log.outcome import Committed, Superseded
from tidelog.log.state import checksum, files
from tidelog.log.state.commits import commits_after, read_commit
from tidelog.log.state.head import Head, Totals
from tidelog.log.state.loader import LogState, load
from tidelog.log.state.segment import is_there, list_segment, range_error
from tidelog.log.storage import Store
from tidelog.log.system import System, to_datetime

_LOGGER = logging.getLogger(__name__)

# Each lost attempt means that another writer made progress; this many in a row is starvation, not bad luck.
MAX_ATTEMPTS = 100
# A put that failed without a trace is tried again with the same content, so often.
MAX_PUTS = 4
# The first retry is immediate: what the winner wrote is known by then. Later ones spread the contenders out.
BACKOFF_BASE_S = 0.005
BACKOFF_LIMIT_S = 1.0

try:
    ENGINE = f"tidelog/{package_version('tidelog')}"
except PackageNotFoundError:  # run from a source tree that was never installed
    ENGINE = "tidelog/0"


@dataclass(frozen=True, slots=True)
class Result:
    """How a commit ended, the state it left, and the groups of a compaction that were dropped on the way."""

    outcome: Committed | Superseded
    state: LogState
    dropped: tuple[MoveGroup, ...] = ()


def commit(store: Store, base: LogState, staged: Staged, system: System, *, identity: int | None = None) -> Result:
    """Commit `staged`, which was made on `base`; on return it is durable, or superseded, or an error was raised.

    `identity` is when the base's commit was written: where another one stands in its place, the table may be another.

    Raises ConflictError and its kinds where a winner makes a rebase wrong, CommitContentionError after the bounded
    attempts, CommitStateUnknownError where the store neither answered nor could be asked.
    """
    attempt = _Attempt(store, staged, base, system, identity)
    for number in range(MAX_ATTEMPTS):
        require_writable(attempt.state.head.protocol, attempt.state.head.metadata, store.url)
        if attempt.put():
            return attempt.committed()
        superseded = attempt.rebase()
        if superseded:
            return superseded
        if number:
            system.sleep_s(system.uniform(0, min(BACKOFF_LIMIT_S, BACKOFF_BASE_S * 2 ** min(number, 10))))
    raise CommitContentionError(
        f"other writers committed to {store.url} first, {MAX_ATTEMPTS} times in a row",
        advice="run it again, or let fewer writers commit at once",
        path=store.url,
        attempts=MAX_ATTEMPTS,
        head_version=attempt.state.head.version,
    )


def put_first_version(store: Store, staged: Staged, system: System) -> bool:
    """Put version 0, which holds protocol and metadata; False where there is one."""
    if staged.protocol is None or staged.metadata is None:
        raise AssertionError(staged)
    empty = Head(-1, 0, None, staged.protocol, staged.metadata, {}, {}, Totals(0, 0))
    attempt = _Attempt(store, staged, LogState(store, empty, files.EMPTY, ()), system)
    if not attempt.put():
        return False
    attempt.committed()
    return True


class _Attempt:
    """One transaction on its way into the log: what is staged now, on which state, over whom it was rebased."""

    def __init__(
        self, store: Store, staged: Staged, base: LogState, system: System, identity: int | None = None
    ) -> None:
        self.state = base
        self._base = base
        self._identity = identity
        self._store = store
        self._staged = staged
        self._system = system
        self._txn_id = system.uuid()
        self._rebased_over: list[int] = []
        self._dropped: list[MoveGroup] = []
        self._written: Commit | None = None

    def put(self) -> bool:
        """Try to create the next version; False where another writer has it."""
        head = self.state.head
        self._require_base()
        version = head.version + 1
        actions = actions_of(self._staged, self.state, self._store, self._system)
        info = _commit_info(self._staged, head, self._txn_id, self._system.now_ms())
        content = encode_commit(info, actions)
        # Read back before it is put: what cannot be read must never become a version.
        self._written = decode_commit(version, content)
        for left in reversed(range(MAX_PUTS)):
            try:
                self._store.put_if_absent(filenames.commit_path(version), content)
            except FileExistsError as error:
                # It may be ours: HTTP clients send a request again by themselves when its connection breaks.
                if not self._arrived(version, error):
                    return False
            except StoreUnavailableError as error:
                arrived = self._arrived(version, error)
                if arrived is None and left:
                    self._system.sleep_s(self._system.uniform(0, BACKOFF_BASE_S * 2 ** (MAX_PUTS - left)))
                    continue
                if arrived is None:
                    raise
                if not arrived:
                    return False
            break
        return True

    def rebase(self) -> Result | None:
        """Catch up with the winners and judge again; a result only where nothing is left to commit."""
        new = list(commits_after(self._store, self.state.head.version))
        self._rebased_over += [winner.version for winner in new]
        self.state = self.state.advance(new)
        base = self._base.head
        outcome = rebase(self._staged, base.protocol, base.metadata, new)
        match outcome:
            case Rebased(staged, dropped):
                self._staged = staged
                self._dropped += dropped
                return None
            case NothingLeft(by):
                return Result(Superseded(by), self.state, tuple(self._dropped) + self._staged.moves)
            case Conflict():
                raise _error(outcome, self._store.url, base.version)

    def committed(self) -> Result:
        """The result of the put that succeeded; leaves the version checksum behind."""
        if self._written is None:
            raise AssertionError(self._txn_id)
        state = self.state.advance([self._written])
        _write_checksum(self._store, state.head, self._written.info, self._txn_id)
        committed = Committed(
            version=state.head.version,
            timestamp=to_datetime(state.head.timestamp_ms),
            rebased_over=tuple(self._rebased_over),
            retried=bool(self._rebased_over),
            metrics=dict(self._staged.metrics),
        )
        return Result(committed, state, tuple(self._dropped))

    def _require_base(self) -> None:
        """See that the commit that the transaction was made on is still there, and the same one.

        Where the log below it was cleaned up and has gone on, the next version may be free, but a commit put there is
        one that no reader looks for: HistoryExpiredError. Where the table was dropped and another one made in its
        place, the commit would be that one's: TableReplacedError. A look at one file tells that neither happened.
        """
        base = self._base.head
        if base.version < 0:
            return
        try:
            found = self._store.modified_ms(filenames.commit_path(base.version))
        except FileNotFoundError:
            found = None
        if found is not None and self._identity in {None, found}:
            return
        newest = load(self._store).head
        if newest.metadata.id != base.metadata.id:
            raise TableReplacedError(
                f"another table lies at {self._store.url} now",
                advice="open it anew; nothing was committed",
                path=self._store.url,
                expected_id=base.metadata.id,
                found_id=newest.metadata.id,
            )
        head_version = self.state.head.version
        if newest.version != head_version and not is_there(self._store, head_version):
            segment = list_segment(self._store)
            what = f"version {head_version}, on which the transaction was made, was cleaned up meanwhile"
            raise range_error(self._store, what, segment.earliest_version, segment.version)

    def _is_mine(self, version: int) -> bool:
        """Whether the version that is there is this very transaction, whose answer got lost."""
        return commit_info.txn_id(read_commit(self._store, version).info) == self._txn_id

    def _arrived(self, version: int, error: Exception) -> bool | None:
        """After a failed put: whether it arrived all the same; None where nobody has written that version."""
        try:
            return self._is_mine(version)
        except FileNotFoundError:
            return None
        except CorruptLogError:
            raise  # what lies there is damaged, and so not ours: a put shows whole or not at all
        except (OSError, TidelogError) as failure:
            raise CommitStateUnknownError(
                f"whether version {version} of {self._store.url} was committed is not known: {failure}",
                advice="once the store answers, look for the transaction id in that version's commitInfo",
                path=self._store.url,
                version=version,
                txn_id=self._txn_id,
            ) from error


def _commit_info(staged: Staged, head: Head, txn_id: str, now_ms: int) -> CommitInfo:
    record: dict[str, Any] = {"class": str(staged.operation_class), **staged.record}
    if staged.moves:
        record["lineage"] = Lineage(tuple(group.lineage for group in staged.moves)).to_builtins()
    protocol = staged.protocol or head.protocol
    metadata = staged.metadata or head.metadata
    stamp = max(now_ms, head.timestamp_ms + 1) if staged.timestamp_ms is None else staged.timestamp_ms
    info: CommitInfo = {"timestamp": stamp}
    if has_in_commit_timestamps(protocol, metadata):
        info = {"inCommitTimestamp": stamp, **info}
    return info | {
        "operation": staged.operation,
        "operationParameters": dict(staged.parameters),
        **({"readVersion": head.version} if head.version >= 0 else {}),
        "isolationLevel": "SnapshotIsolation" if staged.moves else "WriteSerializable",
        "isBlindAppend": staged.is_blind_append,
        "operationMetrics": {name: str(value) for name, value in staged.metrics.items()},
        "engineInfo": ENGINE,
        "txnId": txn_id,
        "tidelog": record,
    }


def _error(conflict: Conflict, path: str, base_version: int) -> TidelogError:
    return conflict.error(
        f"a transaction on version {base_version} of {path} lost to version {conflict.winning_version}: "
        f"{conflict.evidence}",
        advice="run the operation again on the table as it is now",
        path=path,
        base_version=base_version,
        winning_version=conflict.winning_version,
        earlier=str(conflict.earlier),
        later=str(conflict.later),
        evidence=conflict.evidence,
    )


def _write_checksum(store: Store, head: Head, info: CommitInfo, txn_id: str) -> None:
    stamp = commit_info.in_commit_timestamp_ms(info)
    content = checksum.to_bytes(head, txn_id=txn_id, in_commit_timestamp_ms=stamp)
    if content is None:
        return
    try:
        store.put_if_absent(filenames.checksum_path(head.version), content, durable=False)
    except FileExistsError:
        return
    except (TidelogError, OSError) as error:
        # The commit is durable already, and the checksum only saves readers work.
        _LOGGER.warning("version %d of %s has no checksum: %s", head.version, store.url, error)
