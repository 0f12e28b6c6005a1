"""The commit loop: put the next version if it is absent, or rebase over the winners and try again.

A commit needs only the head (protocol, metadata, transaction ids, newest version), not the list of files. So its cost
does not grow with the table.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from tidelog.log.commit.actions import Prepared, prepare
from tidelog.log.commit.discard import delete_unnamed, discard
from tidelog.log.commit.info import commit_info_of, metrics_of
from tidelog.log.commit.lost_work import LostWork
from tidelog.log.commit.race import Race, error_of
from tidelog.log.commit.result import Committed, Result, Superseded
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
from tidelog.log.state import checksum, files
from tidelog.log.state.commits import commits_after, read_commit
from tidelog.log.state.head import Head, Totals
from tidelog.log.state.loader import LogState, load
from tidelog.log.state.segment import is_there, list_segment, range_error
from tidelog.log.storage import Store
from tidelog.log.system import System, to_datetime

_LOGGER = logging.getLogger(__name__)

# Each lost attempt means that another writer made progress. This many in a row is starvation, not bad luck.
MAX_ATTEMPTS = 100
# How often the same content is put if the store did not store it.
MAX_PUTS = 4
# The first retry is immediate: the winner's commit is known by then. Later ones wait, to spread out the contenders.
BACKOFF_BASE_S = 0.005
BACKOFF_LIMIT_S = 1.0


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
    """Commit `staged`, which was staged on `base`. On return it is durable or superseded.

    Deletes the files of `staged` that are proven to be in no commit, even after an error, and records a loss in the
    conflict ledger.

    Args:
        store: The table's store.
        base: The base version.
        staged: What to commit.
        system: The clock and randomness.
        base_written_ms: When the base version's commit was written. If that has changed, the path may hold another
            table.
        metadata_retry: Whether to rebase over winners that the table's conflict policy refuses, if the result is right;
            None uses the table's property.
        began_s: When the work on it began, by the monotonic clock; for the conflict ledger.

    Raises:
        ConflictError: A rebase over a winner could give a wrong result, or the policy refuses it.
        CommitContentionError: Other writers won MAX_ATTEMPTS attempts.
        CommitStateUnknownError: The answer to a put was lost, and the store could not be asked for the result.
        StoreUnavailableError: The store did not store the commit, after MAX_PUTS tries.
        TableReplacedError: The path now holds a different table.
        HistoryExpiredError: The base version was cleaned up.
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
        winner = attempt.race.newest_overlap
        loser.dropped(result.dropped, winner, attempt.race.class_of(winner))
    discard(store, staged, result.commit)
    return result


def _until_decided(attempt: _Attempt, store: Store, system: System) -> Result:
    for number in range(MAX_ATTEMPTS):
        require_writable(attempt.state.head.protocol, attempt.state.head.metadata, store.url)
        result = attempt.put()
        if result:
            return result
        if number:
            # Wait before reading the winners' commits, not after, so that the next put follows the newest one.
            system.sleep_s(system.uniform(0, min(BACKOFF_LIMIT_S, BACKOFF_BASE_S * 2 ** min(number, 10))))
        result = attempt.rebase()
        if result:
            return result
    raise CommitContentionError(
        f"other writers committed to {store.url} first, {MAX_ATTEMPTS} times in a row",
        advice="run the operation again, or let fewer writers commit at once",
        path=store.url,
        attempts=MAX_ATTEMPTS,
        head_version=attempt.state.head.version,
    )


def put_first_version(store: Store, staged: Staged, system: System) -> bool:
    """Put version 0, with protocol and metadata. Return False if there is one already."""
    if staged.protocol is None or staged.metadata is None:
        raise AssertionError(staged)
    empty = Head(-1, 0, None, staged.protocol, staged.metadata, {}, {}, Totals(0, 0))
    attempt = _Attempt(store, staged, LogState(store, empty, files.EMPTY, ()), system)
    return attempt.put() is not None


class _Attempt:
    """One transaction on its way into the log: what is staged now, on which state, and the winners it was rebased over.

    `is_in_doubt` is true from the moment a version is put until it is proven to be another writer's: meanwhile a commit
    may name the transaction's files.
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
        """Judges the transaction against its winners; created when the first one appears."""
        return Race(self._store, self._base, self._original, metadata_retry=self._metadata_retry)

    def put(self) -> Result | None:
        """Try to create the next version. Return None if another writer has it."""
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
        # Decode it before the put: content that cannot be read must never become a version.
        written = decode_commit(version, content)
        if self._put(version, content):
            return self._committed(written)
        # Another writer has this version, so no commit names the files of this attempt.
        delete_unnamed(self._store, prepared.written)
        return None

    def _put(self, version: int, content: bytes) -> bool:
        """Put one version. Return False if another writer has it."""
        self.is_in_doubt = True
        for left in reversed(range(MAX_PUTS)):
            try:
                self._store.put_if_absent(filenames.commit_path(version), content)
            except (FileExistsError, StoreUnavailableError) as error:
                # If it exists it may be ours: HTTP clients repeat a request on their own when a connection breaks.
                is_mine = self._is_stored_and_mine(version, error)
                if is_mine is None and left:
                    self._system.sleep_s(self._system.uniform(0, BACKOFF_BASE_S * 2 ** (MAX_PUTS - left)))
                    continue
                if is_mine is None and isinstance(error, FileExistsError):
                    raise self._unknown(version, "it exists but cannot be read") from error
                if is_mine is None:
                    raise
                if not is_mine:
                    self.is_in_doubt = False
                    return False
            break
        return True

    def rebase(self) -> Result | None:
        """Rebase over the new winners. Return a result only if nothing is left to commit."""
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
                raise AssertionError(outcome)  # the race has answered it

    def _committed(self, written: Commit) -> Result:
        """The result of a successful put. Also writes the checksum file."""
        state: LogState | None = None
        stamp = commit_info.written_timestamp_ms(written.info) or 0
        try:
            # Without in-commit timestamps this asks the store for the commit time, which can fail.
            state = self.state.advance([written])
            stamp = state.head.timestamp_ms
            checksum.write(self._store, state.head, written.info, self._txn_id)
        except (TidelogError, OSError) as error:
            _LOGGER.warning(
                "version %d of %s is committed, but its state could not be read: %s",
                written.version,
                self._store.url,
                error,
            )
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
        """The commitInfo's object under the key `tidelog`."""
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
        """Check that the base version's commit still exists and is the same one.

        If the log was cleaned up beyond the base, the next version may be free, but no reader would look for a commit
        there: HistoryExpiredError. If the table was dropped and created again, the commit would go to the new table:
        TableReplacedError. Normally the modification time of one file rules out both.
        """
        base = self._base.head
        if base.version < 0:
            return
        found = written_ms(self._store, base.version)
        if found is not None and self._base_written_ms in {None, found}:
            self.state.require_newest_commit()
            return
        newest_state = load(self._store)
        newest_state.require_newest_commit()
        newest = newest_state.head
        advice = "open it again; nothing was committed"
        require_same_table(self._store.url, base.metadata.id, newest.metadata.id, advice=advice)
        head_version = self.state.head.version
        if newest.version != head_version and not is_there(self._store, head_version):
            segment = list_segment(self._store)
            what = f"version {head_version}, which the transaction is based on, has been cleaned up in the meantime"
            raise range_error(self._store, what, segment.earliest_version, segment.version)

    def _is_stored_and_mine(self, version: int, error: Exception) -> bool | None:
        """After a failed put, whether the stored version is this transaction; None if there is no such version."""
        try:
            return commit_info.txn_id(read_commit(self._store, version).info) == self._txn_id
        except FileNotFoundError:
            return None
        except CorruptLogError:
            raise  # it is damaged and so not ours: a put stores all of the content or nothing
        except (OSError, TidelogError) as failure:
            raise self._unknown(version, str(failure)) from error

    def _unknown(self, version: int, why: str) -> CommitStateUnknownError:
        return CommitStateUnknownError(
            f"version {version} of {self._store.url} may or may not have been committed: {why}",
            advice="once the store answers, look for the transaction id (txnId) in that version's commitInfo",
            path=self._store.url,
            version=version,
            txn_id=self._txn_id,
        )
