"""`lookup(spark, frame, path, on=...)`: the rows of a frame with those of a table that have the same keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from tidelog.log import Table
from tidelog.log.data import conform
from tidelog.log.data.grouping import group_numbers
from tidelog.log.errors import ConfigurationError
from tidelog.log.presentable import did_you_mean
from tidelog.log.read.keys import Keys, key_columns
from tidelog.log.read.scan import Selection
from tidelog.log.state.loader import load
from tidelog.log.storage import Store
from tidelog.streaming.executors.session import prepare_session
from tidelog.streaming.executors.tasks import require_frame, require_reachable, spark_schema

_JOINS = ("left", "inner")


def lookup(
    spark: SparkSession,
    frame: DataFrame,
    path: str,
    *,
    on: Sequence[str],
    columns: Sequence[str] | None = None,
    how: str = "left",
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Add the columns of a table's rows to the rows of a frame that have the same keys, such as a micro-batch.

    The frame is lazy and computed once. Each task loads the table's log, and looks up the keys of its rows, some
    thousands at a time, with the table's key index if there is one by these columns: so of the table's rows it reads
    what the batch needs. The version of the table is chosen by this call, so later commits do not show.

    Args:
        spark: A Spark session, classic or Spark Connect.
        frame: The rows.
        path: The table: a local path or a URL. This process and all executors must reach it.
        on: The key columns, which the frame and the table have. A null is no key.
        columns: The columns to add, in this order; by default all of the table's that are not in `on`.
        how: `left` keeps a row without a match, with nulls; `inner` drops it.
        storage_options: Credentials and endpoints of the store, as for `Table.open`. Plans and logs do not show them.

    Returns:
        A frame with the columns of `frame` and `columns`. A key that has several rows in the table gives as many.

    Raises:
        TableNotFoundError: There is no table at the path.
        ConfigurationError: A column does not exist, is in the frame already, or cannot be a key, or `how` is wrong.
        SchemaMismatchError: `frame` is not a Spark DataFrame. While the frame is computed, as Spark's error with this
            text: a key does not fit the table's column.
        PrerequisiteError: Java or Spark is missing or too old.

    Example:
        lookup(spark, batch, "/data/customers", on=["customer_id"], columns=["name", "country"])
    """
    prepare_session(spark)
    require_frame(frame)
    if how not in _JOINS:
        raise ConfigurationError(f"how={how!r} is not known", advice=f"use one of {', '.join(_JOINS)}")
    table = Table.open(path, storage_options=storage_options)
    require_reachable(table.store)
    snapshot = table.at()
    keys = key_columns(on, snapshot.schema, {})
    _require_in_frame(keys, frame.columns)
    chosen = _chosen(snapshot.schema, keys, columns, frame.columns)
    nullable = pa.schema([field.with_nullable(True) for field in chosen])  # noqa: FBT003 - pyarrow's signature
    fields = [*frame.schema.fields, *spark_schema(nullable).fields]
    # Renamed on the way, since columns of a frame can have one name, and PySpark reads dots and backticks as syntax.
    names = [f"c{place}" for place in range(len(fields))]
    plain = frame.toDF(*names[: len(frame.columns)])
    own = [names[frame.columns.index(name)] for name in keys]
    work = partial(
        _enriched, table.store, snapshot.version, dict(zip(keys, own, strict=True)), chosen.names, how == "left"
    )
    schema = StructType([StructField(name, field.dataType) for name, field in zip(names, fields, strict=True)])
    return plain.mapInArrow(work, schema).toDF(*(field.name for field in fields))


def _chosen(table: pa.Schema, keys: Sequence[str], columns: Sequence[str] | None, in_frame: Sequence[str]) -> pa.Schema:
    """The columns of the table to add."""
    if isinstance(columns, str):
        raise ConfigurationError("columns must be a list of names, not a string", advice=f"pass [{columns!r}]")
    added = [name for name in table.names if name not in keys] if columns is None else list(columns)
    chosen = Selection(table, None, added).schema
    if len(set(chosen.names)) < len(chosen.names):
        raise ConfigurationError(f"columns={added!r} has a name twice", advice="name each column once")
    taken = {name.lower() for name in in_frame}
    for name in chosen.names:
        if name.lower() in taken:
            raise ConfigurationError(
                f"the frame and the table both have a column {name!r}",
                advice="name the columns to add with columns=[...], or rename the one of the frame",
            )
    return chosen


def _require_in_frame(keys: Sequence[str], names: Sequence[str]) -> None:
    for name in keys:
        if names.count(name) > 1:
            raise ConfigurationError(f"the frame has several columns {name!r}", advice="rename all but one")
        if name not in names:
            raise ConfigurationError(
                f"the frame has no column {name!r}", advice=f"{did_you_mean(name, names)}it has {', '.join(names)}"
            )


def _enriched(
    store: Store,
    version: int,
    keys: Mapping[str, str],
    added: Sequence[str],
    keeps_all: bool,  # noqa: FBT001 - partial passes it by position
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, each with the columns `added` of the rows that have its key, under names of no meaning.

    `keys` has the key columns, and what they are called in the batches.
    """
    snapshot = Table(store, load(store)).at(version=version)
    own = pa.schema([snapshot.schema.field(name).with_nullable(True) for name in keys])  # noqa: FBT003 - as above
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        asked = conform.conform(rows.select(list(keys.values())).rename_columns(list(keys)), own)
        wanted = Keys(_distinct(asked), list(keys), store.url)
        found = snapshot.get(wanted.table, [*keys, *added]) if wanted.table.num_rows else None
        left, right = _pairs(wanted.places(asked), None if found is None else wanted.places(found), keeps_all=keeps_all)
        enriched = rows.take(pa.array(left))
        for name in added:
            field = snapshot.schema.field(name)
            values = pa.nulls(len(left), field.type) if found is None else found[name].take(right)
            enriched = enriched.append_column(f"c{enriched.num_columns}", values)
        yield from enriched.to_batches()


def _distinct(keys: pa.Table) -> pa.Table:
    """Each key without a null once."""
    for name in keys.column_names:
        keys = keys.filter(pc.is_valid(keys[name]))
    if not keys.num_rows:
        return keys
    numbers = np.asarray(group_numbers(keys, keys.column_names))
    return keys.take(pa.array(np.unique(numbers, return_index=True)[1]))


def _pairs(wanted: np.ndarray, found: np.ndarray | None, *, keeps_all: bool) -> tuple[np.ndarray, pa.Array]:
    """Which rows of the frame go with which rows of the table (null: with none), by the numbers of their keys."""
    found = np.zeros(0, dtype=np.int64) if found is None else found
    by_key = np.argsort(found, kind="stable")
    starts = np.searchsorted(found[by_key], wanted, "left")
    counts = np.searchsorted(found[by_key], wanted, "right") - starts
    times = np.maximum(counts, 1) if keeps_all else counts
    left = np.repeat(np.arange(len(wanted)), times)
    offsets = np.arange(len(left)) - np.repeat(np.cumsum(times) - times, times)
    has_match = np.repeat(counts > 0, times)
    places = np.where(has_match, np.repeat(starts, times) + offsets, 0)
    right = by_key[places] if len(by_key) else places
    return left, pa.array(right, mask=~has_match)
