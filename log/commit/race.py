"""A race that was lost: what the table's policy and the rebase say of those who committed first."""

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
from tidelog.log.errors import TidelogError
from tidelog.log.format import properties
from tidelog.log.format.actions import Commit, FileKey
from tidelog.log.format.paths import canonical
from tidelog.log.state.loader import LogState
from tidelog.log.storage import Store


class Race:
    """A transaction staged on `base`, and its winners so far.

    Without `metadata_retry` the policy's matrix is asked first, and what it refuses is a conflict.
    """

    def __init__(self, store: Store, base: LogState, staged: Staged, *, metadata_retry: bool) -> None:
        self.policy = POLICIES[properties.conflict_policy(base.head.metadata.configuration)]
        self._store = store
        self._base = base
        self._staged = staged
        self._metadata_retry = metadata_retry
        self._earlier: list[Commit] = []
        # Paths that winners added: the transaction cannot have read them.
        self._fresh: set[str] = set()
        self._before: FilesByPartition | None = None
        self._answers: dict[FileKey, Answer] = {}
        self._rebase = Rebase(
            staged,
            base.head.protocol,
            base.head.metadata,
            StoreBlobs(store),
            blind_appends_follow=self.policy is WRITE_SERIALIZABLE,
        )

    def judge(self, new: Sequence[Commit]) -> RebaseOutcome:
        """What becomes of the transaction after these winners, too. May read rows that they added."""
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
    def newest_taker(self) -> int:
        """The newest winner that touched what the transaction does."""
        return self._rebase.newest_change

    def class_of(self, version: int) -> OperationClass:
        """The class of a winner."""
        return self._rebase.class_of(version)

    def _classify(self, winner: Commit) -> OperationClass:
        """The winner's class. The matrix needs it exactly, which takes the state before another engine's commit."""
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
        """The conflict if the policy's matrix refuses to follow this winner and no retry is wanted."""
        if self._metadata_retry:
            return None
        metadata = self._base.head.metadata
        found = check_policy(self.policy, self._staged, winner, operation_class, metadata, fresh=self._fresh)
        self._fresh.update(canonical(add.path) for add in winner.adds)
        return found


def error_of(conflict: Conflict, policy: str, path: str, base_version: int) -> TidelogError:
    """The error that tells of a conflict."""
    return conflict.error(
        f"a transaction on version {base_version} of {path} lost to version {conflict.winning_version}: "
        f"{conflict.evidence}",
        advice="run the operation again on the table as it is now",
        path=path,
        base_version=base_version,
        winning_version=conflict.winning_version,
        policy=policy,
        scope=conflict.scope or "the rows that both touch",
        earlier=str(conflict.earlier),
        later=str(conflict.later),
        evidence=conflict.evidence,
    )
