"""The sink's ledger: which batches of which query are in the table. Pure.

The ledger consists of `txn` actions in the table's own log. The commit that adds a batch also writes its entries, so
the ledger cannot disagree with the data. The application ids of a sink:

    tidelog/<query id>/<sink name>           the newest batch number
    tidelog/<query id>/<sink name>/offsets   the fingerprint of that batch's source offsets
    tidelog/sink/<sink name>                 the query that owns the name: 63 bits of its id
    <adopt_txn>                              another engine's stream that this sink continues, if any: the newest batch
                                             number as well, so that the stream can also move back

The first call of a sink writes the owner, even if its batch is empty: it claims the name. So a query that is past batch
0 and has no claim has never written to this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from tidelog.log.format.actions import SetTransaction
from tidelog.streaming.sink.micro_batch import MicroBatch, digest_63


class BatchStatus(Enum):
    """What the ledger says about a batch; see `Ledger.judge`."""

    COMMIT = auto()
    SKIP = auto()
    OTHER_QUERY = auto()
    OTHER_OFFSETS = auto()
    REPLACED = auto()
    UNCLAIMED = auto()
    NOTHING_TO_ADOPT = auto()
    BEHIND_ADOPTED = auto()


@dataclass(frozen=True, slots=True)
class Ledger:
    """The ledger entries of one batch of one sink.

    Methods take the table's transactions: application id to version.
    """

    name: str
    batch: MicroBatch
    adopt_txn: str | None = None

    @property
    def app_id(self) -> str:
        """The application id of the batch number."""
        return f"tidelog/{self.batch.query_id}/{self.name}"

    @property
    def offsets_id(self) -> str:
        """The application id of the fingerprint."""
        return f"{self.app_id}/offsets"

    @property
    def owner_id(self) -> str:
        """The application id that binds the name to one query."""
        return f"tidelog/sink/{self.name}"

    def judge(self, transactions: Mapping[str, int]) -> BatchStatus:
        """What to do with the batch, given the table's ledger.

        - COMMIT: the batch is new.
        - SKIP: exactly this batch is in the table.
        - OTHER_QUERY: another query owns the name, so the checkpoint was deleted or a second stream lacks its own name.
        - REPLACED: this query owned the name, and another one has taken it over.
        - OTHER_OFFSETS: this number was committed with other offsets, or a later number was committed. Spark replays
          only its last batch, so the checkpoint was restored.
        - UNCLAIMED: the query has run before, but not with this name and this table.
        - NOTHING_TO_ADOPT, BEHIND_ADOPTED: the stream to adopt never wrote to this table, or wrote a later batch.
        """
        owner = transactions.get(self.owner_id)
        newest = transactions.get(self.app_id)
        if owner is not None and owner != self._owner:
            return BatchStatus.OTHER_QUERY if newest is None else BatchStatus.REPLACED
        if self.adopt_txn is not None:
            status = self._judge_adopted(transactions.get(self.adopt_txn), newest)
            if status is not None:
                return status
        if newest is None:
            return BatchStatus.UNCLAIMED if owner is None and self.batch.batch_id > 0 else BatchStatus.COMMIT
        if self.batch.batch_id > newest:
            return BatchStatus.COMMIT
        same = transactions.get(self.offsets_id) == self.batch.fingerprint
        return BatchStatus.SKIP if same and self.batch.batch_id == newest else BatchStatus.OTHER_OFFSETS

    def _judge_adopted(self, theirs: int | None, ours: int | None) -> BatchStatus | None:
        """The status if the adopted stream wrote the newest batch; None if this sink did.

        `theirs` and `ours` are the newest batch numbers of the two.
        """
        if theirs is None:
            return BatchStatus.NOTHING_TO_ADOPT if ours is None else None
        if ours is not None and ours >= theirs:
            return None
        if self.batch.batch_id == theirs:
            return BatchStatus.SKIP
        return BatchStatus.BEHIND_ADOPTED if self.batch.batch_id < theirs else BatchStatus.COMMIT

    def is_claimed(self, transactions: Mapping[str, int]) -> bool:
        """Whether the name belongs to the batch's query."""
        return transactions.get(self.owner_id) == self._owner

    def claim(self, transactions: Mapping[str, int], now_ms: int) -> list[SetTransaction]:
        """The entry that gives the name to the batch's query, in a list; it is empty if the query has the name already.

        So two new owners conflict, and two batches of one owner do not.
        """
        values = {} if self.is_claimed(transactions) else {self.owner_id: self._owner}
        return _actions(values, now_ms)

    def entries(self, transactions: Mapping[str, int], now_ms: int) -> list[SetTransaction]:
        """The entries that the batch's commit writes, with the claim of the name if it is due."""
        values = {self.app_id: self.batch.batch_id, self.offsets_id: self.batch.fingerprint}
        if self.adopt_txn is not None:
            values[self.adopt_txn] = self.batch.batch_id
        return [*_actions(values, now_ms), *self.claim(transactions, now_ms)]

    def missing_batches(self, transactions: Mapping[str, int]) -> range:
        """The batches between the newest one in the table and this one, which left nothing there."""
        streams = [self.app_id, *([] if self.adopt_txn is None else [self.adopt_txn])]
        known = [transactions[stream] for stream in streams if stream in transactions]
        return range(max(known, default=-1) + 1, self.batch.batch_id)

    @property
    def _owner(self) -> int:
        return digest_63(self.batch.query_id)


def _actions(values: Mapping[str, int], now_ms: int) -> list[SetTransaction]:
    return [SetTransaction(app_id=key, version=value, last_updated=now_ms) for key, value in values.items()]
