"""The commit loop: put the next version if it is absent, or rebase over who took it and try again.

A commit needs the head only (protocol, metadata, stream progress, newest version), never the list of files, so what
it costs does not grow with the table.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tidelog.log.commit.actions import Prepared, prepare
from tidelog.log.commit.commit_record import commit_info_of, metrics_of, write_checksum
from tidelog.log.commit.discard import delete_unnamed, discard
from tidelog.log.commit.lost_work import LostWork
from tidelog.log.commit.race import Race, error_of
from tidelog.log.commit.result import Committed, Superseded
from tidelog.log.commit.table_identity import require_same_table, written_ms
from tidelog.log.conflict.outcome import Conflict, NothingLeft, Question, Rebased
from tidelog.log.conflict.staged import MoveGroup, Staged
from tidelog.log.errors import (
    CommitContentionError,
    CommitStateUnknownError,
    ConflictError,
    CorruptLogError,
    StoreUnavailableError,
    TidelogError,
)
from tidelog.log.format import commit_info, filenames, properties
from tidelog.log.format.actions import Commit, decode_commit, encode_commit
from tidelog.log.format.protocol import require_writable
from tidelog.log.pruning.partition_scope import Scope
from tidelog.log.state import files
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


@dataclass(frozen=True, slots=True)
class Result:
    """How a commit ended, and the state it left; None where that could not be told though the commit is durable.

    `dropped` are the groups of a compaction that were lost on the way, `commit` is what was committed, if anything.
    """

    outcome: Committed | Superseded
    state: LogState | None
    dropped: tuple[MoveGroup, ...] = ()
    commit: Commit | None = None


def commit(
    store: Store,
    base: LogState,
    staged: Staged,
    system: System,
    *,
    base_written_ms: int | None = None,
    metadata_retry: bool | None = None,
    began_s: float | None = None,
) -> Result:
    """Commit `staged`, which was made on `base`; on return it is durable, or superseded, or an error was raised.

    `metadata_retry`: whether a lost race that the table's policy refuses is retried by a rebase where that is right;
    None asks the table's property.
    Files of `staged` that no commit names in the end are deleted, where that is proven.
    `base_written_ms` is when the base's commit was written: where another one stands in its place, the table may be
    another.
    `began_s` is when the work on it began, for the conflict ledger, which notes what is lost.

    Raises ConflictError and its kinds where a winner makes a rebase wrong, CommitContentionError after the bounded
    attempts, CommitStateUnknownError where the store neither answered nor could be asked.
    """
    if metadata_retry is None:
        metadata_retry = properties.metadata_retry(base.head.metadata.configuration)
    attempt = _Attempt(store, staged, base, system, base_written_ms, metadata_retry=metadata_retry)
    began_s = system.monotonic_s() if began_s is None else began_s
    policy = properties.conflict_policy(base.head.metadata.configuration)
    loser = LostWork(store, system, staged, base.head.version, policy, began_s)
    try:
        result = _until_decided(attempt, store, system)
    except BaseException as error:
        if isinstance(error, (ConflictError, CommitContentionError)):
            loser.lost(error)
        if not attempt.is_in_doubt:
            discard(store, staged)
        raise
    if isinstance(result.outcome, Superseded):
        loser.superseded(result.outcome.by, attempt.race.class_of(result.outcome.by))
    elif result.dropped:
        taker = attempt.race.newest_taker
        loser.dropped(result.dropped, taker, attempt.race.class_of(taker))
    discard(store, staged, result.commit)
    return result


def _until_decided(attempt: _Attempt, store: Store, system: System) -> Result:
    for number in range(MAX_ATTEMPTS):
        require_writable(attempt.state.head.protocol, attempt.state.head.metadata, store.url)
        result = attempt.put()
        if result:
            return result
        if number:
            # Before the others' commits are read, not after: what is put then follows the newest of them.
            system.sleep_s(system.uniform(0, min(BACKOFF_LIMIT_S, BACKOFF_BASE_S * 2 ** min(number, 10))))
        result = attempt.rebase()
        if result:
            return result
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
    return attempt.put() is not None


class _Attempt:
    """One transaction on its way into the log: what is staged now, on which state, over whom it was rebased.

    `is_in_doubt` from the moment a version is put until it is proven to be another's: a commit may name its files.
    """

    def __init__(
        self,
        store: Store,
        staged: Staged,
        base: LogState,
        system: System,
        base_written_ms: int | None = None,
        *,
        metadata_retry: bool = True,
    ) -> None:
        self.state = base
        self.is_in_doubt = False
        self._base = base
        self._base_written_ms = base_written_ms
        self._store = store
        self._original = staged
        self._staged = staged
        self._system = system
        self._txn_id = system.uuid()
        self._rebased_over: list[int] = []
        self._dropped: tuple[MoveGroup, ...] = ()
        self._metadata_retry = metadata_retry
        self._rules: frozenset[int] = frozenset()
        self._metrics: Mapping[str, int] = staged.metrics
        self._began_s = system.monotonic_s()

    @cached_property
    def race(self) -> Race:
        """What becomes of it after those who committed first; made where there are any."""
        return Race(self._store, self._base, self._original, metadata_retry=self._metadata_retry)

    def put(self) -> Result | None:
        """Try to create the next version; None where another writer has it."""
        head = self.state.head
        self._require_base()
        version = head.version + 1
        prepared = prepare(self._staged, self.state, self._store, self._system)
        if not prepared.actions:
            nothing = dict.fromkeys(self._staged.metrics, 0)
            return Result(self._outcome(head.version, head.timestamp_ms, nothing), self.state, self._dropped)
        self._metrics = metrics_of(self._staged, prepared.actions)
        info = commit_info_of(
            self._staged, head, self._txn_id, self._system.now_ms(), self._record(prepared), self._metrics
        )
        content = encode_commit(info, prepared.actions)
        # Read back before it is put: what cannot be read must never become a version.
        written = decode_commit(version, content)
        if self._put(version, content):
            return self._committed(written)
        # Another writer has that version, so no commit names what was written for this attempt.
        delete_unnamed(self._store, prepared.written)
        return None

    def _put(self, version: int, content: bytes) -> bool:
        """Put one version; False where it is another's."""
        self.is_in_doubt = True
        for left in reversed(range(MAX_PUTS)):
            try:
                self._store.put_if_absent(filenames.commit_path(version), content)
            except (FileExistsError, StoreUnavailableError) as error:
                # One that exists may be ours: HTTP clients send a request again by themselves when a connection breaks.
                arrived = self._arrived(version, error)
                if arrived is None and left:
                    self._system.sleep_s(self._system.uniform(0, BACKOFF_BASE_S * 2 ** (MAX_PUTS - left)))
                    continue
                if arrived is None and isinstance(error, FileExistsError):
                    raise self._unknown(version, "it is there, and cannot be read") from error
                if arrived is None:
                    raise
                if not arrived:
                    self.is_in_doubt = False
                    return False
            break
        return True

    def rebase(self) -> Result | None:
        """Catch up with the winners and judge again; a result only where nothing is left to commit."""
        new = list(commits_after(self._store, self.state.head.version))
        self._rebased_over += [winner.version for winner in new]
        self.state = self.state.advance(new)
        outcome = self.race.judge(new)
        match outcome:
            case Rebased(staged, dropped, rules):
                self._staged, self._dropped, self._rules = staged, dropped, rules
                return None
            case NothingLeft(by):
                return Result(Superseded(by), self.state, self._original.moves)
            case Conflict():
                raise error_of(outcome, self.race.policy.name, self._store.url, self._base.head.version)
            case Question():
                raise AssertionError(outcome)  # it was answered

    def _committed(self, written: Commit) -> Result:
        """The result of the put that succeeded; leaves the version checksum behind."""
        state: LogState | None = None
        stamp = commit_info.written_timestamp_ms(written.info) or 0
        try:
            # Without in-commit timestamps the store is asked for the time, and may not answer.
            state = self.state.advance([written])
            stamp = state.head.timestamp_ms
            write_checksum(self._store, state.head, written.info, self._txn_id)
        except (TidelogError, OSError) as error:
            _LOGGER.warning("version %d of %s is committed: %s", written.version, self._store.url, error)
        return Result(self._outcome(written.version, stamp, self._metrics), state, self._dropped, written)

    def _outcome(self, version: int, timestamp_ms: int, metrics: Mapping[str, int]) -> Committed:
        return Committed(
            version=version,
            timestamp=to_datetime(timestamp_ms),
            rebased_over=tuple(self._rebased_over),
            retried=bool(self._rebased_over),
            metrics=dict(metrics),
        )

    def _record(self, prepared: Prepared) -> dict[str, Any]:
        """What the commit says under the key `tidelog`."""
        record: dict[str, Any] = {"class": str(self._staged.operation_class), **self._staged.record}
        if self._staged.replaces == Scope():
            record["scope"] = "table"
        if prepared.lineage is not None:
            record["lineage"] = prepared.lineage.to_builtins()
        if self._rebased_over:
            record["rebase"] = {
                "over": [self._rebased_over[0], self._rebased_over[-1]],
                "rules": sorted(self._rules),
                "ms": round((self._system.monotonic_s() - self._began_s) * 1000),
            }
        return record

    def _require_base(self) -> None:
        """See that the commit that the transaction was made on is still there, and the same one.

        Where the log below it was cleaned up and has gone on, the next version may be free, but a commit put there is
        one that no reader looks for: HistoryExpiredError. Where the table was dropped and another one made in its
        place, the commit would be that one's: TableReplacedError. A look at one file tells that neither happened.
        """
        base = self._base.head
        if base.version < 0:
            return
        found = written_ms(self._store, base.version)
        if found is not None and self._base_written_ms in {None, found}:
            return
        newest = load(self._store).head
        advice = "open it anew; nothing was committed"
        require_same_table(self._store.url, base.metadata.id, newest.metadata.id, advice=advice)
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
            raise self._unknown(version, str(failure)) from error

    def _unknown(self, version: int, why: str) -> CommitStateUnknownError:
        return CommitStateUnknownError(
            f"whether version {version} of {self._store.url} was committed is not known: {why}",
            advice="once the store answers, look for the transaction id in that version's commitInfo",
            path=self._store.url,
            version=version,
            txn_id=self._txn_id,
        )
