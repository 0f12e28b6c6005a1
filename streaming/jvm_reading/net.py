"""The net effect of changes: Spark brings the changes of a key together, and tidelog reduces them in its tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log.read.net_changes import net_changes
from tidelog.log.read.scan import Selection
from tidelog.streaming.executors.plain_frame import quoted
from tidelog.streaming.jvm_reading.tidelog_tasks import from_arrow


def net_rows(changes: DataFrame, selection: Selection, keys: Sequence[str], path: str) -> DataFrame:
    """The selected rows of the net effect of `changes`, which have all columns of the change mode `cdc`.

    A task holds the changes of its share of the keys in memory. While the frame is computed it raises
    DuplicateKeyError, as Spark's error with the text of ours.
    """
    # Spark, too, puts null with null, NaN with NaN and -0.0 with 0.0.
    shared_out = changes.repartition(*(F.col(quoted(name)) for name in keys))
    work = partial(_net, selection.row_schema, selection.where, selection.schema.names, tuple(keys), path)
    plain = shared_out.toDF(*(f"c{place}" for place in range(len(changes.columns))))
    return from_arrow(plain, work, selection.schema)


def _net(
    schema: pa.Schema,
    where: str | None,
    columns: Sequence[str],
    keys: Sequence[str],
    path: str,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    selection = Selection(schema, where, columns)
    everything = pa.Table.from_batches((_typed(batch, schema) for batch in batches), schema=schema)
    for batch in net_changes(everything, keys, path).to_batches():
        yield from selection.apply(batch.select(selection.read_schema.names))


def _typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch as Spark hands it out, with the table's types: Spark names the session's time zone in them."""
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)], schema=schema
    )
