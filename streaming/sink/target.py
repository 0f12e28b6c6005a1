"""The table that a sink writes to: opened or created, and checked against the sink's settings and its ledger."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame

from tidelog.log import Table, Transaction
from tidelog.log.errors import (
    CheckpointResetError,
    ConcurrentTransactionException,
    ConfigurationError,
    FencedError,
    TableNotFoundError,
)
from tidelog.log.internals import change_schema
from tidelog.log.internals import properties as table_properties
from tidelog.streaming.executors.plain_frame import arrow_schema
from tidelog.streaming.sink.ledger import BatchStatus, Ledger
from tidelog.streaming.sink.micro_batch import MicroBatch
from tidelog.streaming.sink.settings import OVERWRITE_PARTITIONS, SinkSettings

_LOGGER = logging.getLogger(__name__)


class Target:
    """The table of one sink. `table` is None until it was opened or created."""

    def __init__(self, settings: SinkSettings) -> None:
        self.table: Table | None = None
        self._settings = settings

    def begin(self) -> Transaction | None:
        """A transaction on the table's newest version; None if there is no table yet.

        That one version decides whether the batch is committed already, and the commit is staged against it: a commit
        that wrote the same ledger after it is a conflict.
        """
        if self.table is None:
            try:
                self.table = Table.open(self._settings.path, storage_options=self._settings.storage_options)
            except TableNotFoundError:
                return None
        transaction = self.table.begin()
        self._require_fits(transaction.properties, self.table)
        return transaction

    def begin_again(self, batch: MicroBatch) -> Transaction:
        """A transaction on the newest version, for a batch that was not committed when it was first looked at."""
        transaction = self.begin()
        if transaction is None:
            raise AssertionError(batch)  # a table that was opened stays, or its refresh raises
        self._require_not_committed(transaction, batch)
        return transaction

    def create(self, frame: DataFrame, batch: MicroBatch) -> Transaction:
        """A transaction on a new table with the frame's columns, all nullable; another sink may create it first."""
        settings = self._settings
        if settings.adopt_txn is not None:
            raise ConfigurationError(
                f"there is no table at {settings.path}, so no stream {settings.adopt_txn!r} to continue",
                advice="check the path, or leave adopt_txn out",
            )
        nullable = pa.schema([field.with_nullable(True) for field in arrow_schema(frame)])  # noqa: FBT003 - pyarrow's signature
        change_schema(nullable, "cdc")
        properties = dict(settings.properties)
        key = table_properties.spell_names(settings.keys)
        if key is not None:
            properties.setdefault(table_properties.PRIMARY_KEY, key)
        self.table = Table.create(
            settings.path,
            nullable,
            partition_by=settings.partition_by,
            properties=properties,
            storage_options=settings.storage_options,
            exist_ok=True,
        )
        return self.begin_again(batch)

    def ledger(self, batch: MicroBatch) -> Ledger:
        """The batch's entries in the table."""
        return Ledger(self._settings.name, batch, self._settings.adopt_txn)

    def is_committed(self, transactions: Mapping[str, int], batch: MicroBatch) -> bool:
        """Whether the batch is in the table. Raises if it must not be written either."""
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

    def _require_not_committed(self, transaction: Transaction, batch: MicroBatch) -> None:
        if self.is_committed(transaction.transactions, batch):
            raise ConcurrentTransactionException(
                f"another copy of query {batch.query_id} committed batch {batch.batch_id} to {self._settings.path}",
                advice="let only one copy run",
                path=self._settings.path,
                app_id=self.ledger(batch).app_id,
            )

    def _require_fits(self, properties: Mapping[str, str], table: Table) -> None:
        """Raise ConfigurationError if the sink may not write to `table`; its properties may change at any time."""
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
