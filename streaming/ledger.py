"""The sink's ledger: which batches of which query are in the table. Pure.

The ledger lies in the table's own `txn` actions, written by the same commit as the batch, so it cannot disagree with
the data. Three application ids for a sink:

    tidelog/<query id>/<sink name>           the newest batch number
    tidelog/<query id>/<sink name>/offsets   the fingerprint of that batch's source offsets
    tidelog/sink/<sink name>                 whom the name belongs to: 63 bits of the query id
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from tidelog.log.format.actions import SetTransaction
from tidelog.streaming.micro_batch import MicroBatch, digest_63


class Verdict(Enum):
    """What to do with a batch."""

    COMMIT = auto()
    SKIP = auto()
    OTHER_QUERY = auto()
    OTHER_OFFSETS = auto()
    REPLACED = auto()


@dataclass(frozen=True, slots=True)
class Ledger:
    """The entries of one sink name for one query, against a table's transactions (application id to version)."""

    name: str
    batch: MicroBatch

    @property
    def app_id(self) -> str:
        """The application id that a batch's commit carries."""
        return f"tidelog/{self.batch.query_id}/{self.name}"

    @property
    def offsets_id(self) -> str:
        """The application id of the fingerprint."""
        return f"{self.app_id}/offsets"

    @property
    def owner_id(self) -> str:
        """The application id that binds the name to one query."""
        return f"tidelog/sink/{self.name}"

    def judge(self, transactions: Mapping[str, int]) -> Verdict:
        """What to do with the batch, given what the table holds.

        SKIP: this very batch is in it. OTHER_QUERY: the name belongs to a query that this one is not, so the
        checkpoint was deleted or a second stream lacks a name. REPLACED: this query owned the name and another has
        taken it over since. OTHER_OFFSETS: the number was committed with other offsets, or a later one was (Spark
        replays only its last batch), so the checkpoint was restored.
        """
        owner = transactions.get(self.owner_id)
        newest = transactions.get(self.app_id)
        if owner is not None and owner != digest_63(self.batch.query_id):
            return Verdict.OTHER_QUERY if newest is None else Verdict.REPLACED
        if newest is None or self.batch.batch_id > newest:
            return Verdict.COMMIT
        same = transactions.get(self.offsets_id) == self.batch.fingerprint
        return Verdict.SKIP if same and self.batch.batch_id == newest else Verdict.OTHER_OFFSETS

    def entries(self, transactions: Mapping[str, int], now_ms: int) -> list[SetTransaction]:
        """What the batch's commit writes; the owner only when it changes, so that two new owners conflict."""
        values = {self.app_id: self.batch.batch_id, self.offsets_id: self.batch.fingerprint}
        owner = digest_63(self.batch.query_id)
        if transactions.get(self.owner_id) != owner:
            values[self.owner_id] = owner
        return [SetTransaction(app_id=key, version=value, last_updated=now_ms) for key, value in values.items()]
