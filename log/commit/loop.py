"""The commit loop: put the next version if it is absent, or rebase over the winners and try again.

A commit needs only the head (protocol, metadata, transaction ids, newest version), not the list of files. So its cost
does not grow with the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import Any
from weakref import WeakKeyDictionary

from tidelog.log.commit.conflict_ledger import LostWork
from tidelog.log.commit.content import Prepared, commit_info_of, metrics_of, prepare
from tidelog.log.commit.discard import delete_unnamed, discard
from tidelog.log.commit.race import STOP, Race, error_of
from tidelog.log.commit.result import Committed, Result, Superseded
from tidelog.log.commit.version_put import VersionPut
from tidelog.log.conflict.fences import epoch_text, fence_error, horizon_of, is_passed
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.outcome import Conflict, NothingLeft, Question, Rebased
from tidelog.log.conflict.staged import MoveGroup, Staged
from tidelog.log.errors import (
    CommitContentionError,
    ConfigurationError,
    ConflictError,
    DataFileMissingError,
    HistoryExpiredError,
    StoreUnavailableError,
    TidelogError,
    TransactionExpiredError,
)
from tidelog.log.format import commit_info, properties, tombstone_list
from tidelog.log.format.actions import Commit, decode_commit, encode_commit
from tidelog.log.format.protocol import require_writable
from tidelog.log.pruning.partition_scope import Scope
from tidelog.log.state import files
from tidelog.log.state.commits import commits_after, read_commits
from tidelog.log.state.head import Head, Totals
from tidelog.log.state.loader import LogState, load
from tidelog.log.state.segment import list_segment, range_error
from tidelog.log.state.table_identity import (
    TABLE_ID,
    BaseLook,
    foreign_table,
    has_checkpoint,
    has_commit,
    is_checkpoint_only,
    require_current,
    require_same_table,
)
from tidelog.log.state.version_checksum import write_checksum
from tidelog.log.storage import Store
from tidelog.log.system import System, logger, to_datetime

_LOGGER = logger(__name__)

# Each lost attempt means that another writer made progress. This many in a row is starvation, not bad luck.
MAX_ATTEMPTS = 100
# The first retry is immediate: the winner's commit is known by then. Later ones wait, to spread out the contenders.
# Long waits would starve: meanwhile the others add commits to read. A writer that asks for a turn does not wait at all.
BACKOFF_BASE_S = 0.005
BACKOFF_LIMIT_S = 0.1
_OPEN_AGAIN = "open it again; nothing was committed"


def commit(
    store: Store,
    base: LogState,
    staged: Staged,
    system: System,
    *,
    metadata_retry: bool | None = None,
    began_s: float | None = None,
    base_look: BaseLook | None = None,
) -> Result:
    """Commit `staged`, which was staged on `base`. On return it is durable or superseded.

    Deletes the files of `staged` that are proven to be in no commit, even after an error, and records a loss in the
    conflict ledger.

    Args:
        store: The table's store.
        base: The base version, of a table that the caller knows to exist and to be writable.
        staged: What to commit.
        system: The clock and randomness.
        metadata_retry: Whether to rebase over winners that the table's conflict policy refuses, if the result is right;
            None uses the table's property.
        began_s: When the work on it began, by the monotonic clock; for the conflict ledger.
        base_look: The look at the base version, if it has begun already.

    Raises:
        ConflictError: A rebase over a winner could give a wrong result, or the policy refuses it.
        CommitContentionError: Other writers won MAX_ATTEMPTS attempts.
        CommitStateUnknownError: The answer to a put was lost, and the store could not be asked for the result; or the
            version before was cleaned up in the meantime.
        ConfigurationError, StoreUnavailableError: The store refused the commit. Nothing was committed.
        TableReplacedError, TableNotFoundError: The path now holds a different table, or the table was dropped.
        HistoryExpiredError: The base version was cleaned up, or a RESTORE needs files from before the horizon.
        CorruptLogError: The commit of the base version or of a winner is damaged. Nothing was committed.
        FencedError: A higher epoch than that of the fence has begun. Nothing was committed.
        CompactionVerificationError: A row map is not stored as it was written. Nothing was committed.
    """
    configuration = base.head.metadata.configuration
    if metadata_retry is None:
        metadata_retry = properties.metadata_retry(configuration)
    policy = properties.conflict_policy(configuration)
    attempt = _Attempt(store, staged, base, system, metadata_retry=metadata_retry, base_look=base_look)
    began_s = system.monotonic_s() if began_s is None else began_s
    loser = LostWork(store, system, staged, base.head.version, policy, began_s)
    try:
        with missing_files_explained(store, base.head, staged.operation_class):
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


@contextmanager
def missing_files_explained(store: Store, base: Head, operation_class: OperationClass) -> Iterator[None]:
    """Work on the base version. If a file is missing because a vacuum has passed that version, the error says so.

    Raises TransactionExpiredError, or the DataFileMissingError if no vacuum has passed it.
    """
    try:
        yield
    except DataFileMissingError as error:
        newest = load(store).head
        horizon = horizon_of(newest.transactions)
        if newest.metadata.id != base.metadata.id or horizon <= base.version:
            raise
        raise TransactionExpiredError(
            f"a vacuum of {store.url} has deleted files from before version {horizon}, and the transaction is based on "
            f"version {base.version}: {error.message}",
            advice="run the operation again",
            path=store.url,
            base_version=base.version,
            winning_version=newest.version,
            policy=properties.conflict_policy(base.metadata.configuration),
            scope=None,
            earlier=str(OperationClass.NONE),
            later=str(operation_class),
            evidence=error.message,
        ) from error


def _until_decided(attempt: _Attempt, store: Store, system: System) -> Result:
    attempt.require_epoch()
    turn = turn_after_others(store, system, attempt.state.head.timestamp_ms)
    try:
        for number in range(MAX_ATTEMPTS):
            result = attempt.put()
            if result:
                return result
            if number and not turn.ask_if_due():
                # Wait before reading the winners' commits, not after, so that the next put follows the newest one.
                system.sleep_s(system.uniform(0, min(BACKOFF_LIMIT_S, BACKOFF_BASE_S * 2 ** min(number, 10))))
            result = attempt.rebase(turn)
            if result:
                return result
    finally:
        turn.end()
    raise CommitContentionError(
        f"other writers committed to {store.url} first, {MAX_ATTEMPTS} times in a row",
        advice="run the operation again, or let fewer writers commit at once",
        path=store.url,
        attempts=MAX_ATTEMPTS,
        head_version=attempt.state.head.version,
    )


def put_first_version(store: Store, staged: Staged, system: System, dropped: LogState | None = None) -> Result | None:
    """Put the version that creates a table: 0, or the one after a table that was dropped. Return None if it exists.

    An empty commit cannot take its place, so if the put cannot be settled, the state is unknown.
    """
    if staged.protocol is None or staged.metadata is None:
        raise AssertionError(staged)
    empty = Head(-1, 0, None, staged.protocol, staged.metadata, {}, {}, Totals(0, 0))
    base = dropped or LogState(store, empty, files.EMPTY, ())
    return _Attempt(store, staged, base, system, can_settle=False).put()


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
        *,
        metadata_retry: bool = True,
        can_settle: bool = True,
        base_look: BaseLook | None = None,
    ) -> None:
        self.state = base
        self.is_in_doubt = False
        self._base = base
        self._store = store
        self._original = staged
        self._staged = staged
        self._system = system
        self._txn_id = system.uuid()
        self._rebased_over: list[int] = []
        self._dropped: tuple[MoveGroup, ...] = ()
        self._metadata_retry = metadata_retry
        self._can_settle = can_settle
        self._rules: frozenset[int] = frozenset()
        self._metrics: Mapping[str, int] = staged.metrics
        self._began_s = system.monotonic_s()
        self._base_look = base_look or BaseLook(store, base.head, system)
        # The base version, if the log has a checkpoint of it and not its commit.
        self._checkpoint_only: int | None = None
        # The state after the commit; None if it could not be read.
        self._after: LogState | None = None

    @cached_property
    def race(self) -> Race:
        """Judges the transaction against its winners; created when the first one appears."""
        return Race(self._store, self._base, self._original, metadata_retry=self._metadata_retry)

    def require_epoch(self) -> None:
        """Check that no higher epoch had begun at the base version. Those of winners are found by the rebase."""
        head, fence = self._base.head, self._original.fence
        known = None if fence is None else head.transactions.get(fence.app_id)
        if fence is None or known is None or not is_passed(fence, known):
            return
        raise fence_error(fence)(
            f"version {head.version} of {self._store.url} has {epoch_text(known)}, so a commit with epoch "
            f"{fence.version} is refused",
            advice=STOP,
            path=self._store.url,
            epoch=fence.version,
        )

    def put(self) -> Result | None:
        """Try to create the next version. Return None if another writer has it."""
        head = self.state.head
        self._require_base()
        version = head.version + 1
        prepared = self._prepared()
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
        if self._put(written, content):
            return self._committed(written)
        # Another writer has this version, so no commit names the files of this attempt.
        delete_unnamed(self._store, prepared.written)
        return None

    def _prepared(self) -> Prepared:
        try:
            return prepare(self._staged, self.state, self._store, self._system, self._system.now_ms())
        except (DataFileMissingError, HistoryExpiredError):
            # A drop deletes the table's files.
            newest = load(self._store).head
            require_current(self._store.url, self._base.head.metadata.id, newest, advice=_OPEN_AGAIN)
            raise

    def _put(self, written: Commit, content: bytes) -> bool:
        """Put one version, which `content` encodes. Return False if another commit has it."""
        putting = VersionPut(self._store, self._system, written.version, self._txn_id, self._look_at_previous())
        self.is_in_doubt = True
        try:
            stored = putting.put(
                content, self._settlement if self._can_settle else None, lambda: self._move_to(written)
            )
        except (ConfigurationError, StoreUnavailableError):
            self.is_in_doubt = False
            raise
        self.is_in_doubt = stored
        return stored

    def _look_at_previous(self) -> Callable[[], bool]:
        """Tells whether the log still has the version before the one that is put. It raises CorruptLogError."""
        head = self.state.head
        if head.version == self._checkpoint_only:
            return partial(has_checkpoint, self._store, head.version)
        return partial(has_commit, self._store, head.version, head.commit_id)

    def _settlement(self) -> bytes:
        """A commit without actions, which takes a version so that a lost put of this transaction can never have it."""
        nothing = Staged(operation="SETTLE", operation_class=OperationClass.NONE)
        head = self.state.head
        record = {"class": str(OperationClass.NONE), TABLE_ID: head.metadata.id, "settles": self._txn_id}
        return encode_commit(commit_info_of(nothing, head, self._system.uuid(), self._system.now_ms(), record, {}), ())

    def rebase(self, turn: Turn) -> Result | None:
        """Rebase over the new winners. Return a result only if nothing is left to commit."""
        head = self.state.head
        before = head.version
        new = []
        for winner in commits_after(self._store, before):
            new.append(winner)
            turn.ask_if_due()  # a slow reader would never catch up with fast writers
        if before >= 0 and not self._look_at_previous()():
            # Clean-up deletes oldest first. It may have deleted these versions as well, and others put some again.
            raise self._cleaned_up(before)
        self._rebased_over += [winner.version for winner in new]
        self.state = self.state.advance(new)
        table_id = self._base.head.metadata.id
        other = foreign_table(new, table_id)
        require_same_table(self._store.url, table_id, other or table_id, advice=_OPEN_AGAIN)
        head = self.state.head
        require_current(self._store.url, table_id, head, advice=_OPEN_AGAIN)
        outcome = self.race.judge(new)
        match outcome:
            case Rebased(staged, dropped, rules):
                require_writable(head.protocol, head.metadata, self._store.url)
                self._staged, self._dropped, self._rules = staged, dropped, rules
                return None
            case NothingLeft(by):
                return Result(Superseded(by), self.state, self._original.moves)
            case Conflict():
                raise error_of(outcome, self.race.policy.name, self._store.url, self._base.head.version)
            case Question():
                raise AssertionError(outcome)  # the race has answered it

    def _move_to(self, written: Commit) -> None:
        """Find the state after a successful put, and write the checksum file."""
        try:
            # Without in-commit timestamps this asks the store for the commit time, which can fail.
            self._after = self.state.advance([written])
            write_checksum(self._store, self._after.head, written.info, self._txn_id)
        except (TidelogError, OSError) as error:
            _LOGGER.warning(
                "version %d of %s is committed, but its state could not be read: %s",
                written.version,
                self._store.url,
                error,
            )

    def _committed(self, written: Commit) -> Result:
        """The result of a successful put."""
        if self._after is not None:
            stamp = self._after.head.timestamp_ms
        else:
            stamp = commit_info.written_timestamp_ms(written.info) or 0
        return Result(self._outcome(written.version, stamp, self._metrics), self._after, self._dropped, written)

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
        metadata = self._staged.metadata or self.state.head.metadata
        record: dict[str, Any] = {
            "class": str(self._staged.operation_class),
            TABLE_ID: metadata.id,
            **self._staged.record,
        }
        if self._staged.replaces == Scope():
            record["scope"] = "table"
        if prepared.lineage is not None:
            record["lineage"] = prepared.lineage.to_builtins()
        if prepared.tombstones is not None:
            record[tombstone_list.KEY] = prepared.tombstones.to_builtins()
        if self._rebased_over:
            record["rebase"] = {
                "over": [self._rebased_over[0], self._rebased_over[-1]],
                "rules": sorted(self._rules),
                "ms": round((self._system.monotonic_s() - self._began_s) * 1000),
            }
        return record

    def _require_base(self) -> None:
        """Check before the first put that the base version's commit still exists and is the same one.

        If the log was cleaned up beyond the base, the next version may be free, but no reader would look for a commit
        there: HistoryExpiredError. If the folder was deleted and a table created there since, the commit would go to
        the new table: TableReplacedError. Both can also happen after this look; what can then go wrong is found
        after the put.

        The base version needs no commit if it was loaded from its checkpoint without one, as in a copied log.
        """
        base = self._base.head
        if base.version < 0 or self._rebased_over:
            return
        if self._base_look.is_same():
            return
        newest = load(self._store).head
        if newest.metadata.id == base.metadata.id and is_checkpoint_only(self._store, base.version):
            found = newest if newest.version == base.version else load(self._store, base.version).head
            if found.commit_id == base.commit_id:
                self._checkpoint_only = base.version
                return
        list(read_commits(self._store, [newest.version]))  # raises if it cannot be read
        require_current(self._store.url, base.metadata.id, newest, advice=_OPEN_AGAIN)
        head = self.state.head
        if newest.version != head.version and not has_commit(self._store, head.version, head.commit_id):
            raise self._cleaned_up(head.version)

    def _cleaned_up(self, version: int) -> HistoryExpiredError:
        """The error for a transaction that slept while the log was cleaned up."""
        segment = list_segment(self._store)
        what = f"version {version}, which the transaction is based on, has been cleaned up in the meantime"
        return range_error(
            self._store,
            what,
            segment.earliest_version,
            segment.version,
            "; nothing was committed, so begin again on the newest version",
        )


# --- turns ------------------------------------------------------------------------------------------------------------
# A writer that keeps losing asks the others to let it go first.
#
# Without turns, a writer whose rebase and put take longer than the time between two commits of other writers loses
# every race. So after ASK_AFTER_S it puts a request: an empty file in `_tidelog/turns`. Writers of a busy table look
# there once for each transaction, before the first put, and wait while requests stand that they found. So each of them
# commits at most once more before the one that asked, if that one needs less than TURN_S.
#
# A request is only a hint. No request is needed for a commit to be right, and whatever fails around it is ignored. One
# that outlived its writer costs the others a single wait of TURN_S, after which they withdraw it.

TURN_FOLDER = "_tidelog/turns"
# Among writers that are equally fast, few lose for this long.
ASK_AFTER_S = 1.0
# Longer than a rebase and a put take on a slow store. It is also what a writer that died while asking costs the others.
TURN_S = 3.0
_LOOKS = 60
# Where a look costs money, a writer that commits more often than this does not look each time. It adds to the wait of
# one that asked.
LOOK_EVERY_S = 1.0
# A table without a commit for so long has no contention: its writers do not look.
BUSY_MS = 1000
_IGNORED = (TidelogError, OSError)
# When this process last looked through a store, by the monotonic clock.
_LOOKED_S: MutableMapping[Store, float] = WeakKeyDictionary()


def turn_after_others(store: Store, system: System, head_timestamp_ms: int) -> Turn:
    """The turn of a transaction. On a busy table, returns once the writers went that ask for theirs."""
    turn = Turn(store, system)
    if system.now_ms() - head_timestamp_ms < BUSY_MS:
        turn.let_others_go()
    return turn


class Turn:
    """The turn of one transaction."""

    def __init__(self, store: Store, system: System) -> None:
        self._store = store
        self._system = system
        self._name = system.uuid()
        self._ask_at_s = system.monotonic_s() + ASK_AFTER_S
        self._asked = False

    def let_others_go(self) -> None:
        """Wait until the requests that stand now are withdrawn, for TURN_S at most."""
        if not self._looks_now():
            return
        standing = self._requests()
        for _ in range(_LOOKS):
            if not standing:
                return
            self._system.sleep_s(TURN_S / _LOOKS)
            standing &= self._requests()
        for name in standing:
            self._withdraw(name)

    def ask_if_due(self) -> bool:
        """Ask for a turn if the transaction has tried for so long, and again when the others withdraw the request.

        Returns whether it has asked.
        """
        now_s = self._system.monotonic_s()
        if now_s >= self._ask_at_s:
            self._asked, self._ask_at_s = True, now_s + TURN_S
            with suppress(*_IGNORED):
                self._store.put_if_absent(f"{TURN_FOLDER}/{self._name}", b"", durable=False)
        return self._asked

    def end(self) -> None:
        """Withdraw the request, if there is one."""
        if self._asked:
            self._withdraw(self._name)

    def _looks_now(self) -> bool:
        """Whether it is time to look. Where a look costs money, a writer looks once in LOOK_EVERY_S."""
        if not self._store.trusted_s:
            return True
        now_s = self._system.monotonic_s()
        if now_s - _LOOKED_S.get(self._store, -LOOK_EVERY_S) < LOOK_EVERY_S:
            return False
        _LOOKED_S[self._store] = now_s
        return True

    def _requests(self) -> set[str]:
        try:
            return set(self._store.names(TURN_FOLDER))
        except _IGNORED:
            return set()

    def _withdraw(self, name: str) -> None:
        with suppress(*_IGNORED):
            self._store.delete(f"{TURN_FOLDER}/{name}")
