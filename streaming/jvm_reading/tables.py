"""`read(spark, path)` and `changes(spark, path)`: a table's rows and changes as DataFrames, for batch jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log import Changes, Table
from tidelog.log.read.changes import change_schema
from tidelog.log.read.net_changes import net_changes
from tidelog.log.read.scan import Selection
from tidelog.log.read.timeline import Point
from tidelog.streaming.executors.plain_frame import quoted
from tidelog.streaming.executors.session import prepare_session
from tidelog.streaming.executors.tasks import from_arrow
from tidelog.streaming.jvm_reading.jvm_rows import jvm_rows, snapshot_rows


def read(
    spark: SparkSession,
    path: str,
    *,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read a version of a table, with Spark's own parquet reader wherever it gives the rows of `Table.scan`.

    The frame is lazy. Its files are chosen by this call, so later commits do not show. Rows come in no particular
    order. Spark reads only the columns that a query needs, and leaves out partitions and row groups by the query's
    filters; `where` also leaves out files by their statistics.

    Args:
        spark: A Spark session, classic or Spark Connect. On Spark Connect tidelog's own reader reads, in Python tasks.
        path: A local path or a URL. This process and all executors must reach it.
        version: An ID version.
        timestamp: An aware datetime or ISO-8601 text with a zone; by default the newest version is read.
        columns: The columns to read, in this order. None reads all columns.
        where: SQL text; only rows for which it is true are read.
        storage_options: Credentials and endpoints of the store, as for `Table.open`. Plans and logs do not show them.

    Returns:
        A DataFrame with the columns, types and nullability of `Table.scan`.

    Raises:
        TableNotFoundError: There is no table at the path.
        HistoryExpiredError: The version or time is outside the retained history.
        PredicateError, ConfigurationError: `where` or another argument is wrong.
        PrerequisiteError: Java or Spark is missing or too old.

    Example:
        read(spark, "/data/events", columns=["id", "price"]).filter("price > 100").count()
    """
    table = _opened(spark, path, storage_options)
    return snapshot_rows(spark, table.store, table.at(version=version, timestamp=timestamp), columns, where)


def changes(  # noqa: PLR0913 - the arguments of `Table.changes`
    spark: SparkSession,
    path: str,
    *,
    after: Point | None = None,
    until: Point | None = None,
    mode: str = "cdc",
    columns: Sequence[str] | None = None,
    where: str | None = None,
    keys: Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read the changes in (after, until], with Spark's own parquet reader wherever it gives those of `Table.changes`.

    The frame is lazy. Its files are chosen by this call, so later commits do not show. Rows come in no particular
    order; `_commit_version` has the order of the commits. In the mode `net` a task holds the changes of its share of
    the keys in memory.

    Args:
        spark: A Spark session, classic or Spark Connect. On Spark Connect tidelog's own reader reads, in Python tasks.
        path: A local path or a URL. This process and all executors must reach it.
        after: The starting point, an ID version or a time. It is exclusive, unlike Delta's. None begins with the first
            commit.
        until: The end, inclusive. None ends with the newest commit.
        mode: `cdc`, `append` or `net`, as for `Table.changes`.
        columns: The columns of the result, in this order. None for all columns. Those of the change come along, as in
            `Table.changes`.
        where: SQL text over the columns of the result; only changes for which it is true are returned.
        keys: The key columns for `net`; by default those of `tidelog.primaryKey`.
        storage_options: Credentials and endpoints of the store, as for `Table.open`. Plans and logs do not show them.

    Returns:
        A DataFrame with the columns, types and nullability of `Table.changes`.

    Raises:
        TableNotFoundError: There is no table at the path.
        HistoryExpiredError: Commits of the interval are no longer retained, or do not exist yet.
        NotAppendOnlyError: In mode `append` a commit removed or changed rows.
        PredicateError, ConfigurationError: `where` or another argument is wrong.
        PrerequisiteError: Java or Spark is missing or too old.

    Example:
        changes(spark, "/data/events", after=12).groupBy("_change_type").count().show()
    """
    table = _opened(spark, path, storage_options)
    found = table.changes(after=after, until=until, mode=mode, where=where, columns=columns, keys=keys)
    return rows_of_changes(spark, table, found, where)


def rows_of_changes(
    spark: SparkSession, table: Table, found: Changes, where: str | None, *, pre_images: bool = False
) -> DataFrame:
    """Changes of the table for which `where` is true, as `changes` gives them.

    In the mode `net`, an updated key can also have its old row, as an `update_preimage`.
    """
    schema = change_schema(table.schema, found.mode)
    if found.mode != "net":
        return jvm_rows(spark, table.store, found.units, schema, found.schema.names, where)
    rows = jvm_rows(spark, table.store, found.units, schema, schema.names, None)
    work = partial(_net, pre_images=pre_images)
    return _net_rows(rows, Selection(schema, where, found.schema.names), found.keys, table.path, work)


def _opened(spark: SparkSession, path: str, storage_options: Mapping[str, str] | None) -> Table:
    prepare_session(spark)
    return Table.open(path, storage_options=storage_options)


def _net_rows(
    changes: DataFrame,
    selection: Selection,
    keys: Sequence[str],
    path: str,
    net: Callable[..., Iterator[pa.RecordBatch]],
) -> DataFrame:
    """The selected rows of the net effect of `changes`, which have all columns of the change mode `cdc`.

    A task holds the changes of its share of the keys in memory. While the frame is computed it raises
    DuplicateKeyError, as Spark's error with the text of ours.
    """
    # Spark, too, puts null with null, NaN with NaN and -0.0 with 0.0.
    shared_out = changes.repartition(*(F.col(quoted(name)) for name in keys))
    work = partial(net, selection.row_schema, selection.where, selection.schema.names, tuple(keys), path)
    plain = shared_out.toDF(*(f"c{place}" for place in range(len(changes.columns))))
    return from_arrow(plain, work, selection.schema)


def _net(
    schema: pa.Schema,
    where: str | None,
    columns: Sequence[str],
    keys: Sequence[str],
    path: str,
    batches: Iterator[pa.RecordBatch],
    *,
    pre_images: bool,
) -> Iterator[pa.RecordBatch]:
    selection = Selection(schema, where, columns)
    everything = pa.Table.from_batches((_typed(batch, schema) for batch in batches), schema=schema)
    for batch in net_changes(everything, keys, path, pre_images=pre_images).to_batches():
        yield from selection.apply(batch.select(selection.read_schema.names))


def _typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch as Spark hands it out, with the table's types: Spark names the session's time zone in them."""
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)], schema=schema
    )
