"""Whether a sink may write a batch to its table: the table fits, and the ledger says that the batch is the next one."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tidelog.log import Table, Transaction
from tidelog.log.errors import (
    CheckpointResetError,
    ConcurrentTransactionException,
    ConfigurationError,
    FencedError,
)
from tidelog.log.format import properties as table_properties
from tidelog.streaming.sink.ledger import BatchStatus, Ledger
from tidelog.streaming.sink.micro_batch import MicroBatch
from tidelog.streaming.sink.settings import OVERWRITE_PARTITIONS, SinkSettings

_LOGGER = logging.getLogger(__name__)


class Admission:
    """The rules of one sink."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def ledger(self, batch: MicroBatch) -> Ledger:
        """The batch's entries in the table."""
        return Ledger(self._settings.name, batch, self._settings.adopt_txn)

    def require_table(self, properties: Mapping[str, str], table: Table) -> None:
        """Raise ConfigurationError where the sink may not write to `table`; its properties may change at any time."""
        if table_properties.TRANSACTION_RETENTION in properties:
            raise ConfigurationError(
                f"{table.path} has {table_properties.TRANSACTION_RETENTION}, which would let the record of committed "
                "batches expire and batches be written twice",
                advice="remove that property",
            )
        wanted = self._settings.partition_by
        if wanted and wanted != table.partition_by:
            raise ConfigurationError(
                f"{table.path} is partitioned by {list(table.partition_by)}, not by {list(wanted)}",
                advice="leave partition_by out, or give the table's own",
            )
        if self._settings.mode == OVERWRITE_PARTITIONS and not table.partition_by:
            raise ConfigurationError(
                f"{table.path} is not partitioned, so the mode {OVERWRITE_PARTITIONS!r} would replace all of it",
                advice="use a partitioned table, or another mode",
            )

    def require_not_committed(self, transaction: Transaction, batch: MicroBatch) -> None:
        """Raise ConcurrentTransactionException where the batch came into the table while this sink worked on it."""
        if self.is_committed(transaction.transactions, batch):
            raise ConcurrentTransactionException(
                f"another copy of query {batch.query_id} committed batch {batch.batch_id} to {self._settings.path}",
                advice="let only one copy run",
                path=self._settings.path,
                app_id=self.ledger(batch).app_id,
            )

    def is_committed(self, transactions: Mapping[str, int], batch: MicroBatch) -> bool:
        """Whether the batch is in the table. Raises where it must not be written either."""
        name, path, adopt = self._settings.name, self._settings.path, self._settings.adopt_txn
        match self.ledger(batch).judge(transactions):
            case BatchStatus.COMMIT:
                return False
            case BatchStatus.SKIP:
                return True
            case BatchStatus.REPLACED:
                raise FencedError(
                    f"another query has taken over the sink name {name!r} of {path}",
                    advice="stop this query; only one may write under a name",
                )
            case BatchStatus.NOTHING_TO_ADOPT:
                known = ", ".join(sorted(key for key in transactions if not key.startswith("tidelog/"))) or "none"
                raise ConfigurationError(
                    f"no stream with the application id {adopt!r} ever wrote to {path}",
                    advice=f"leave adopt_txn out, or give an id that the table knows: {known}",
                )
            case BatchStatus.BEHIND_ADOPTED:
                return self._reset(
                    f"the stream {adopt!r} wrote batch {transactions[adopt or '']} to {path}, and batch "
                    f"{batch.batch_id} of query {batch.query_id} comes before that: it does not have that stream's "
                    "checkpoint, or an older copy of it",
                    "use the checkpoint that the other stream left, or go on with on_reset='adopt' after making sure "
                    "that no row comes twice",
                )
            case BatchStatus.OTHER_QUERY:
                return self._reset(
                    f"the sink name {name!r} of {path} belongs to another query than {batch.query_id}: "
                    "its checkpoint was deleted, or a second stream needs a name of its own",
                    "restore the checkpoint, or give the second stream a Sink(name=...), or go on with "
                    "on_reset='adopt' after making sure that no row comes twice",
                )
            case BatchStatus.OTHER_OFFSETS:
                return self._reset(
                    f"batch {batch.batch_id} of query {batch.query_id} was committed to {path} with other "
                    "source offsets, or a later one was: the checkpoint was restored from an older copy",
                    "put the newest checkpoint back, or go on with on_reset='adopt' after making sure that no row "
                    "comes twice",
                )

    def _reset(self, what: str, advice: str) -> bool:
        if self._settings.on_reset == "adopt":
            _LOGGER.warning("adopting: %s", what)
            return False
        raise CheckpointResetError(what, advice=advice, path=self._settings.path, sink=self._settings.name)
