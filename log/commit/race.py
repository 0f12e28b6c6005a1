"""A lost race: what the table's conflict policy and the rebase decide about the winners."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.log.commit.rebase_reads import StoreBlobs, answer
from tidelog.log.conflict.files_by_partition import FilesByPartition
from tidelog.log.conflict.operation_class import OperationClass, classify, is_own
from tidelog.log.conflict.outcome import Answer, Conflict, Question, RebaseOutcome
from tidelog.log.conflict.policies import POLICIES, WRITE_SERIALIZABLE
from tidelog.log.conflict.policy_check import check_policy
from tidelog.log.conflict.rebase import Rebase
from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    FencedError,
    TidelogError,
)
from tidelog.log.format import properties
from tidelog.log.format.actions import Commit, FileKey
from tidelog.log.format.paths import canonical
from tidelog.log.state.loader import LogState
from tidelog.log.storage import Store


class Race:
    """A transaction staged on `base`, and its winners so far.

    Without `metadata_retry` the matrix of the policy comes first, and a winner that it refuses is a conflict.
    """

    def __init__(self, store: Store, base: LogState, staged: Staged, *, metadata_retry: bool) -> None:
        self.policy = POLICIES[properties.conflict_policy(base.head.metadata.configuration)]
        self._store = store
        self._base = base
        self._staged = staged
        self._metadata_retry = metadata_retry
        self._earlier: list[Commit] = []
        # Paths that winners added, which the transaction cannot have read.
        self._fresh: set[str] = set()
        self._before: FilesByPartition | None = None
        self._answers: dict[FileKey, Answer] = {}
        self._rebase = Rebase(
            staged,
            base.head.version,
            base.head.protocol,
            base.head.metadata,
            StoreBlobs(store),
            blind_appends_follow=self.policy is WRITE_SERIALIZABLE,
        )

    def judge(self, new: Sequence[Commit]) -> RebaseOutcome:
        """Decide about the transaction after these further winners. Can read rows that they added."""
        for winner in new:
            operation_class = self._classify(winner)
            refused = self._refused(winner, operation_class)
            if refused:
                return refused
            self._rebase.fold(winner, operation_class)
        outcome = self._rebase.judge()
        if isinstance(outcome, Question):
            answers = answer(outcome, self._store, self._base.head.metadata, self._answers)
            outcome = self._rebase.judge(answers)
        return outcome

    @property
    def newest_overlap(self) -> int:
        """The version of the newest winner that touched files of the transaction."""
        return self._rebase.newest_change

    def class_of(self, version: int) -> OperationClass:
        """The operation class of a winner."""
        return self._rebase.class_of(version)

    def _classify(self, winner: Commit) -> OperationClass:
        """The winner's class. The matrix needs the exact one, which depends on the files before the winner's commit."""
        if self._metadata_retry:
            return classify(winner)
        if self._before is None and not is_own(winner):
            self._before = FilesByPartition(self._base.files(), self._base.head.metadata)
            for earlier in self._earlier:
                self._before.apply(earlier)
        found = classify(winner, self._before)
        if self._before is not None:
            self._before.apply(winner)
        self._earlier.append(winner)
        return found

    def _refused(self, winner: Commit, operation_class: OperationClass) -> Conflict | None:
        """The conflict if there is no metadata retry and the policy's matrix does not allow following this winner."""
        if self._metadata_retry:
            return None
        metadata = self._base.head.metadata
        found = check_policy(self.policy, self._staged, winner, operation_class, metadata, fresh=self._fresh)
        self._fresh.update(canonical(add.path) for add in winner.adds)
        return found


# The advice of a FencedError.
STOP = "stop this process: another one has taken over"
# The other conflicts are about the metadata, the protocol or an application id.
_ABOUT_ROWS = (ConcurrentAppendException, ConcurrentDeleteReadException, ConcurrentDeleteDeleteException)


def error_of(conflict: Conflict, policy: str, path: str, base_version: int) -> TidelogError:
    """The exception for a conflict."""
    return conflict.error(
        f"a transaction on version {base_version} of {path} lost to version {conflict.winning_version}: "
        f"{conflict.evidence}",
        advice=_advice(conflict),
        path=path,
        base_version=base_version,
        winning_version=conflict.winning_version,
        policy=policy,
        scope=conflict.scope or ("the rows that both touch" if issubclass(conflict.error, _ABOUT_ROWS) else None),
        earlier=str(conflict.earlier),
        later=str(conflict.later),
        evidence=conflict.evidence,
    )


def _advice(conflict: Conflict) -> str:
    if issubclass(conflict.error, FencedError):
        return STOP
    advice = "run the operation again on the newest version"
    # With the retry on, the matrix alone is never the reason.
    return f"{advice}, or set {properties.METADATA_RETRY}=true" if conflict.policy else advice
