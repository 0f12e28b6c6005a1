"""The table that a sink writes to: open or create it, and check it against the sink's settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import DataFrame

from tidelog.log import Table, Transaction
from tidelog.log.errors import ConfigurationError, SchemaMismatchError, TableNotFoundError
from tidelog.log.format import commit_info
from tidelog.log.format import properties as table_properties
from tidelog.log.format.schema import require_typed
from tidelog.log.read.changes import OWN_COLUMNS
from tidelog.streaming.executors.plain_frame import arrow_schema
from tidelog.streaming.sink.micro_batch import MicroBatch
from tidelog.streaming.sink.settings import OVERWRITE_PARTITIONS, SinkSettings

# Where to look for the commit of a batch that this run of the query committed: it is seconds old.
_SEARCHED_COMMITS = 100


class Target:
    """The table of one sink. `table` is None until it is opened or created."""

    def __init__(self, settings: SinkSettings) -> None:
        self.table: Table | None = None
        self._settings = settings

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

    def create(self, frame: DataFrame) -> None:
        """Create the table with the frame's columns, all nullable, unless another writer does so first.

        A column that only the order or `delete_where` reads, and that has no type yet, is left out.
        """
        settings = self._settings
        needed = {name.lower() for name in (*settings.keys, *settings.partition_by)}
        nullable = pa.schema(
            [
                field.with_nullable(True)  # noqa: FBT003 - pyarrow's signature
                for field in arrow_schema(frame)
                if field.name.lower() in needed or not pt.is_null(field.type)
            ]
        )
        for field in nullable:
            require_typed(field, field.name)
        require_not_of_feed(nullable, ())
        self.table = Table.create(
            settings.path,
            nullable,
            partition_by=settings.partition_by,
            properties=settings.properties_of_new_table,
            storage_options=settings.storage_options,
            exist_ok=True,
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
                advice="leave partition_by out, or pass the table's own; to change it, write to a new table",
            )
        if self._settings.mode == OVERWRITE_PARTITIONS and not table.partition_by:
            raise ConfigurationError(
                f"{table.path} is not partitioned, so mode={OVERWRITE_PARTITIONS!r} would replace all of it",
                advice="use a partitioned table, or another mode",
            )


def require_not_of_feed(data: pa.Schema, known: Collection[str]) -> None:
    """Raise SchemaMismatchError for a column of a change feed; `known` are names, in lower case, that are none here."""
    for name in data.names:
        if name.lower() in OWN_COLUMNS and name.lower() not in known:
            minus = f"-{name.lower()}"
            raise SchemaMismatchError(
                f"the data has the column {name!r}, which a change feed adds to a row, and no new column can be",
                advice=f"leave it out: by {minus!r} among the columns of the feed, as in columns=['id', {minus!r}], or "
                f"by frame.drop({name!r}); if order_by or delete_where reads it, create the table first, without it",
                column=name,
            )
