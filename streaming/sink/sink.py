"""The sink: a `foreachBatch` function that commits each micro-batch exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from tidelog.streaming.executors.prerequisites import require_spark
from tidelog.streaming.monitoring.batch_log import failures_logged, publish
from tidelog.streaming.monitoring.report import BatchReport
from tidelog.streaming.sink.batch import Batch, SinkParts
from tidelog.streaming.sink.settings import APPEND, AUTO, sink_settings
from tidelog.streaming.sink.throttle import Throttle


class Sink:
    """Commit each micro-batch of a stream to a table, once, whatever crashes.

        query = df.writeStream.foreachBatch(Sink(path)).option("checkpointLocation", c).start()

    A batch is known by the streaming checkpoint's query id, its number and its source offsets; the commit that adds
    the rows also records it, so a batch that Spark replays is skipped. `name` tells several sinks of one query, or
    several streams into one table, apart; it belongs to the first query that uses it. A checkpoint that was deleted
    (a new query under a known name) or restored (a batch number with other offsets) is a CheckpointResetError and
    nothing is written; `on_reset="adopt"` takes the batch as new after you looked. `adopt_txn` goes on with a stream
    that another engine wrote under that application id, with its checkpoint.

    `mode`: `append`; `upsert`, by `keys` (default: the table's `tidelog.primaryKey`), where of several rows of a key
    in one batch the one with the greatest `order_by` counts, and a row for which the SQL text `delete_where` is true
    deletes its key; `overwrite-partitions`, where the batch takes the place of the partitions that it has rows in.

    The table is created at the first batch that has rows, with `partition_by` and `properties`. `schema_evolution` adds
    the batch's new columns to it by the same commit. `writer`: `driver` collects the batch and writes it in the driver
    (it must fit `spark.driver.maxResultSize`), `spark` writes by the executors, `auto` chooses by the batches before.
    `throttle` slows the stream down while the table has many small files. An empty batch commits nothing. Files are
    fsynced before the commit, and the commit is.
    """

    def __init__(  # noqa: PLR0913 - the public signature
        self,
        path: str,
        *,
        name: str = "default",
        mode: str = APPEND,
        keys: Sequence[str] = (),
        order_by: str | Sequence[str] | None = None,
        delete_where: str | None = None,
        adopt_txn: str | None = None,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, object] | None = None,
        storage_options: Mapping[str, str] | None = None,
        schema_evolution: bool = False,
        writer: str = AUTO,
        on_reset: str = "error",
        throttle: Throttle | None = None,
    ) -> None:
        require_spark()
        self._settings = sink_settings(
            path,
            name=name,
            mode=mode,
            keys=keys,
            order_by=order_by,
            delete_where=delete_where,
            adopt_txn=adopt_txn,
            partition_by=partition_by,
            properties=properties,
            storage_options=storage_options,
            schema_evolution=schema_evolution,
            writer=writer,
            on_reset=on_reset,
            throttle=throttle,
        )
        self.last: BatchReport | None = None
        self._parts = SinkParts(self._settings)

    def __call__(self, batch_df: DataFrame, batch_id: int) -> None:
        """Commit one micro-batch; Spark calls this. Raises CheckpointResetError, FencedError, NotInStreamError,
        SchemaMismatchError, DuplicateKeyError, and what a commit raises.
        """
        with failures_logged(sink=self._settings.name, path=self._settings.path, batch_id=batch_id):
            self.last = Batch(self._parts, batch_df, batch_id).run()
            publish(self.last)
