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

from tidelog.log.errors import CheckpointResetError, ConfigurationError, FencedError
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

    Methods take the table's transactions: application id to version. `path` is the table, for errors.
    """

    name: str
    batch: MicroBatch
    adopt_txn: str | None = None
    path: str = ""

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

    def refusal(
        self, status: BatchStatus, transactions: Mapping[str, int] | None
    ) -> CheckpointResetError | ConfigurationError | FencedError | None:
        """Why a batch of this status must not be written; None if it may be, or is in the table already.

        `transactions` is None if there is no table. A CheckpointResetError is one that `on_reset="adopt"` overrides.
        """
        name, path, batch, adopt = self.name, self.path, self.batch, self.adopt_txn
        match status:
            case BatchStatus.COMMIT | BatchStatus.SKIP:
                return None
            case BatchStatus.REPLACED:
                return FencedError(
                    f"another query has taken over sink name {name!r} of {path}",
                    advice="stop this query; only one query can write under a name",
                )
            case BatchStatus.UNCLAIMED:
                return self._reset(
                    self._unclaimed(has_table=transactions is not None),
                    "check the path, the mount and the name, and put the table back if it is lost; or continue from "
                    "this batch with on_reset='adopt', without the rows of earlier ones",
                )
            case BatchStatus.NOTHING_TO_ADOPT if transactions is None:
                return ConfigurationError(
                    f"there is no table at {path}, so there is no stream {adopt!r} to continue",
                    advice="check the path, or leave adopt_txn out",
                )
            case BatchStatus.NOTHING_TO_ADOPT:
                known = ", ".join(sorted(key for key in transactions or () if not key.startswith("tidelog/"))) or "none"
                return ConfigurationError(
                    f"no stream with the application id {adopt!r} has written to {path}",
                    advice=f"leave adopt_txn out, or pass an id from the table's log: {known}",
                )
            case BatchStatus.BEHIND_ADOPTED:
                return self._reset(
                    f"stream {adopt!r} wrote batch {(transactions or {})[adopt or '']} to {path}, which is later than "
                    f"batch {batch.batch_id} of query {batch.query_id}: the query does not use that stream's "
                    "checkpoint, or it uses an older copy",
                    "use the checkpoint that the other stream left, or continue with on_reset='adopt' after checking "
                    "that no row comes twice",
                )
            case BatchStatus.OTHER_QUERY:
                return self._reset(
                    f"sink name {name!r} of {path} belongs to another query, not to {batch.query_id}: its checkpoint "
                    "was deleted, or a second stream needs its own name",
                    "restore the checkpoint, or give the second stream a Sink(name=...), or continue with "
                    "on_reset='adopt' after checking that no row comes twice",
                )
            case BatchStatus.OTHER_OFFSETS:
                return self._reset(
                    f"batch {batch.batch_id} of query {batch.query_id} was already committed to {path} with other "
                    "source offsets, or a later batch was: the checkpoint was restored from an older copy",
                    "put the newest checkpoint back, or continue with on_reset='adopt' after checking that no row "
                    "comes twice",
                )

    def _unclaimed(self, *, has_table: bool) -> str:
        query = f"query {self.batch.query_id} is at batch {self.batch.batch_id}"
        added = "the sink was added to a query that had already run"
        if not has_table:
            return (
                f"{query}, but there is no table at {self.path}: the table was dropped or moved, its disk is not "
                f"mounted, the path is wrong, or {added}"
            )
        return (
            f"{query}, but has never written to {self.path} under the sink name {self.name!r}: the table was dropped "
            f"and created again, the path or the name is another one than before, or {added}"
        )

    def _reset(self, message: str, advice: str) -> CheckpointResetError:
        return CheckpointResetError(message, advice=advice, path=self.path, sink=self.name)

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
