"""The table that a sink writes to: open or create it, and check it against the sink's settings and the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

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
from tidelog.log.format import commit_info
from tidelog.log.format import properties as table_properties
from tidelog.log.read.changes import change_schema
from tidelog.log.system import logger
from tidelog.streaming.executors.plain_frame import arrow_schema
from tidelog.streaming.sink.ledger import BatchStatus, Ledger
from tidelog.streaming.sink.micro_batch import MicroBatch
from tidelog.streaming.sink.settings import OVERWRITE_PARTITIONS, SinkSettings

_LOGGER = logger(__name__)

# Where to look for the commit of a batch that this run of the query committed: it is seconds old.
_SEARCHED_COMMITS = 100


class Target:
    """The table of one sink. `table` is None until it is opened or created."""

    def __init__(self, settings: SinkSettings) -> None:
        self.table: Table | None = None
        self._settings = settings
        self._run_id: str | None = None
        self._adopted: MicroBatch | None = None

    def begin(self) -> Transaction | None:
        """A transaction on the table's newest version; None if there is no table yet.

        The ledger of that version decides whether the batch is committed already, and the commit is staged on it: a
        later commit that writes the same ledger entries is a conflict.
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
        """A transaction on the newest version, for a batch that was not committed on an earlier one."""
        transaction = self.begin()
        if transaction is None:
            raise AssertionError(batch)  # an opened table stays open, or its refresh raises
        self._require_not_committed(transaction, batch)
        return transaction

    def create(self, frame: DataFrame, batch: MicroBatch) -> Transaction:
        """Create the table with the frame's columns, all nullable, unless another writer does so first.

        Returns a transaction on it.
        """
        settings = self._settings
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
        """The batch's ledger entries."""
        return Ledger(self._settings.name, batch, self._settings.adopt_txn)

    def is_committed(self, transactions: Mapping[str, int], batch: MicroBatch) -> bool:
        """Whether the batch is in the table; raises if it is not but must not be written either.

        `transactions` are those of the table, none if there is no table yet. Raises CheckpointResetError, FencedError,
        ConfigurationError.
        """
        name, path, adopt = self._settings.name, self._settings.path, self._settings.adopt_txn
        ledger = self.ledger(batch)
        match ledger.judge(transactions):
            case BatchStatus.COMMIT:
                self._log_missing(ledger, transactions)
                return False
            case BatchStatus.SKIP:
                return True
            case BatchStatus.REPLACED:
                raise FencedError(
                    f"another query has taken over sink name {name!r} of {path}",
                    advice="stop this query; only one query can write under a name",
                )
            case BatchStatus.UNCLAIMED:
                return self._reset(
                    batch,
                    self._unclaimed(batch),
                    "check the path, the mount and the name, and put the table back if it is lost; or continue from "
                    "this batch with on_reset='adopt', without the rows of earlier ones",
                )
            case BatchStatus.NOTHING_TO_ADOPT if self.table is None:
                raise ConfigurationError(
                    f"there is no table at {path}, so there is no stream {adopt!r} to continue",
                    advice="check the path, or leave adopt_txn out",
                )
            case BatchStatus.NOTHING_TO_ADOPT:
                known = ", ".join(sorted(key for key in transactions if not key.startswith("tidelog/"))) or "none"
                raise ConfigurationError(
                    f"no stream with the application id {adopt!r} has written to {path}",
                    advice=f"leave adopt_txn out, or pass an id from the table's log: {known}",
                )
            case BatchStatus.BEHIND_ADOPTED:
                return self._reset(
                    batch,
                    f"stream {adopt!r} wrote batch {transactions[adopt or '']} to {path}, which is later than batch "
                    f"{batch.batch_id} of query {batch.query_id}: the query does not use that stream's checkpoint, or "
                    "it uses an older copy",
                    "use the checkpoint that the other stream left, or continue with on_reset='adopt' after checking "
                    "that no row comes twice",
                )
            case BatchStatus.OTHER_QUERY:
                return self._reset(
                    batch,
                    f"sink name {name!r} of {path} belongs to another query, not to {batch.query_id}: its checkpoint "
                    "was deleted, or a second stream needs its own name",
                    "restore the checkpoint, or give the second stream a Sink(name=...), or continue with "
                    "on_reset='adopt' after checking that no row comes twice",
                )
            case BatchStatus.OTHER_OFFSETS:
                return self._reset(
                    batch,
                    f"batch {batch.batch_id} of query {batch.query_id} was already committed to {path} with other "
                    "source offsets, or a later batch was: the checkpoint was restored from an older copy",
                    "put the newest checkpoint back, or continue with on_reset='adopt' after checking that no row "
                    "comes twice",
                )

    def require_replay(self, batch: MicroBatch) -> None:
        """Raise ConfigurationError if the batch, which is in the table, was committed by the run that it is called in.

        Spark replays a batch in a new run only, so this one is another query's. Spark Connect does not say which query
        calls, and the sink takes it for the one whose checkpoint it was given.
        """
        if not batch.run_id or self.table is None:
            return
        for commit, _ in islice(self.table.timeline.newest_first(), _SEARCHED_COMMITS):
            found = commit_info.tidelog(commit.info).get("batch")
            if not isinstance(found, dict) or found.get("queryId") != batch.query_id:
                continue
            if (found.get("sink"), found.get("runId")) == (self._settings.name, batch.run_id):
                raise ConfigurationError(
                    f"this run of query {batch.query_id} has committed batch {batch.batch_id} to "
                    f"{self._settings.path} as version {commit.version}, so two queries called a Sink whose checkpoint "
                    f"is {self._settings.checkpoint}",
                    advice="check which query's rows that version has, then give each query a location of its own, and "
                    "pass it twice: Sink(path, checkpoint=c) and .option('checkpointLocation', c)",
                )

    def _unclaimed(self, batch: MicroBatch) -> str:
        name, path = self._settings.name, self._settings.path
        query = f"query {batch.query_id} is at batch {batch.batch_id}"
        added = "the sink was added to a query that had already run"
        if self.table is None:
            return (
                f"{query}, but there is no table at {path}: the table was dropped or moved, its disk is not mounted, "
                f"the path is wrong, or {added}"
            )
        return (
            f"{query}, but has never written to {path} under the sink name {name!r}: the table was dropped and created "
            f"again, the path or the name is another one than before, or {added}"
        )

    def _reset(self, batch: MicroBatch, message: str, advice: str) -> bool:
        if self._settings.on_reset != "adopt":
            raise CheckpointResetError(message, advice=advice, path=self._settings.path, sink=self._settings.name)
        if batch != self._adopted:
            _LOGGER.warning("on_reset='adopt': committing the batch as new, although %s", message)
        self._adopted = batch
        return False

    def _log_missing(self, ledger: Ledger, transactions: Mapping[str, int]) -> None:
        """At the first batch of a run, log which batches before it left nothing in the table."""
        batch, missing = ledger.batch, ledger.missing_batches(transactions)
        if missing and batch.run_id != self._run_id:
            _LOGGER.info(
                "batches %d to %d of query %s left nothing in %s under the sink name %r: they changed no rows, or went "
                "to another table",
                missing[0],
                missing[-1],
                batch.query_id,
                self._settings.path,
                self._settings.name,
            )
        self._run_id = batch.run_id

    def _require_not_committed(self, transaction: Transaction, batch: MicroBatch) -> None:
        if self.is_committed(transaction.transactions, batch):
            raise ConcurrentTransactionException(
                f"another copy of query {batch.query_id} committed batch {batch.batch_id} to {self._settings.path}",
                advice="run only one copy",
                path=self._settings.path,
                app_id=self.ledger(batch).app_id,
            )

    def _require_fits(self, properties: Mapping[str, str], table: Table) -> None:
        """Raise ConfigurationError if the table's properties or partitioning do not allow the sink to write."""
        if table_properties.TRANSACTION_RETENTION in properties:
            raise ConfigurationError(
                f"{table.path} has {table_properties.TRANSACTION_RETENTION}, which lets the record of committed "
                "batches expire, so a batch could be written twice",
                advice="remove that property",
            )
        wanted = self._settings.partition_by
        if wanted and wanted != table.partition_by:
            raise ConfigurationError(
                f"{table.path} is partitioned by {list(table.partition_by)}, not by {list(wanted)}",
                advice="leave partition_by out, or pass the table's own",
            )
        if self._settings.mode == OVERWRITE_PARTITIONS and not table.partition_by:
            raise ConfigurationError(
                f"{table.path} is not partitioned, so mode={OVERWRITE_PARTITIONS!r} would replace all of it",
                advice="use a partitioned table, or another mode",
            )
