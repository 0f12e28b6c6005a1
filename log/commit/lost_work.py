"""Record in the conflict ledger what a lost race cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelog.log.commit import conflict_ledger
from tidelog.log.commit.conflict_ledger import Lost, LostRace
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import MoveGroup, Staged
from tidelog.log.errors import CommitContentionError, ConflictError
from tidelog.log.format import statistics
from tidelog.log.format.actions import AddFile
from tidelog.log.storage import Store
from tidelog.log.system import System, process_name


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
        conflict_ledger.append(self.store, self.system, entry)


def _written(staged: Staged) -> list[AddFile]:
    outputs = [add for group in staged.moves for add in group.outputs]
    survivors = [add for delete in staged.deletes for add in delete.survivors or ()]
    return [*staged.adds, *outputs, *survivors]
