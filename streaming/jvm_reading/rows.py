"""The rows of change files as a DataFrame.

Spark's own parquet reader reads them where its result is proven to be the same, tidelog's reader on the executors all
others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidelog.log.errors import DataFileMissingError
from tidelog.log.format import paths
from tidelog.log.format.schema import physical_name
from tidelog.log.read.change_files import ChangeFile
from tidelog.log.read.changes import expired_changes
from tidelog.log.read.scan import Selection
from tidelog.log.storage import Store
from tidelog.streaming.executors import hadoop
from tidelog.streaming.executors.plain_frame import quoted
from tidelog.streaming.executors.session import is_connect
from tidelog.streaming.executors.tasks import require_reachable
from tidelog.streaming.jvm_reading import dead_rows, file_scan
from tidelog.streaming.jvm_reading.conditions import condition
from tidelog.streaming.jvm_reading.constants import constant_columns, constant_names
from tidelog.streaming.jvm_reading.readable import are_columns_readable, is_file_readable, is_store_readable
from tidelog.streaming.jvm_reading.tidelog_reader import tidelog_rows


def jvm_rows(
    spark: SparkSession,
    store: Store,
    changes: Sequence[Any],
    table_schema: pa.Schema,
    out_columns: Sequence[str],
    where: str | None,
    *,
    of_snapshot: bool = False,
) -> DataFrame:
    """The rows of `changes`, in no particular order, as a lazy frame that later commits do not affect.

    Args:
        spark: A Spark session; on Spark Connect tidelog's reader reads all files.
        store: The table's store.
        changes: Units of the change feed, or with `of_snapshot` the files of a snapshot.
        table_schema: All columns that a row has: the table's and, of changes, the change columns.
        out_columns: The columns of the frame, in this order.
        where: SQL text; only rows for which it is true are in the frame. It does not leave files out.
        of_snapshot: Whether the rows are a snapshot's, which have no change columns.

    Raises:
        PredicateError, ConfigurationError: `where` or `out_columns` do not fit, or the store is in this process.
        HistoryExpiredError: A deletion vector was deleted; of a snapshot, DataFileMissingError.
    """
    require_reachable(store)
    reading = _Reading(spark, store, Selection(table_schema, where, out_columns), of_snapshot=of_snapshot)
    return reading.rows(changes)


class _Reading:
    """One frame. Files that need the same scan share one: those with the same constants, with or without positions."""

    def __init__(self, spark: SparkSession, store: Store, selection: Selection, *, of_snapshot: bool) -> None:
        self._spark = spark
        self._store = store
        self._selection = selection
        self._of_snapshot = of_snapshot
        tree = selection.tree
        self._condition = None if tree is None else condition(tree, selection.row_schema)

    def rows(self, changes: Sequence[Any]) -> DataFrame:
        groups, rest = self._grouped(changes)
        frames = []
        for (names, has_positions), group in groups.items():
            frame = self._scanned(group, names, has_positions=has_positions)
            if frame is None:
                rest += group
            else:
                frames.append(frame)
        if rest:
            frames.append(tidelog_rows(self._spark, self._store, rest, self._selection, of_snapshot=self._of_snapshot))
        return reduce(DataFrame.unionAll, frames) if frames else self._empty()

    def _grouped(
        self, changes: Sequence[Any]
    ) -> tuple[dict[tuple[tuple[str, ...], bool], list[ChangeFile]], list[Any]]:
        """The files that Spark's reader reads, by what their scan needs, and the units that it cannot read."""
        groups: dict[tuple[tuple[str, ...], bool], list[ChangeFile]] = defaultdict(list)
        if not changes or not self._uses_spark():
            return groups, list(changes)
        rest: list[Any] = []
        blocks = 0
        for change in changes:
            if not is_file_readable(change):
                rest.append(change)
                continue
            has_positions = dead_rows.has_positions(change)
            blocks += dead_rows.max_blocks(change)
            if has_positions and blocks > dead_rows.MAX_BLOCKS:
                blocks -= dead_rows.max_blocks(change)
                rest.append(change)
                continue
            names = constant_names(change, self._selection.read_schema, of_snapshot=self._of_snapshot)
            groups[names, has_positions].append(change)
        return groups, rest

    def _uses_spark(self) -> bool:
        """Whether Spark's reader can read the table's files at all."""
        selection = self._selection
        return (
            not is_connect(self._spark)
            and (selection.where is None or self._condition is not None)
            and bool(selection.schema.names)
            and are_columns_readable(selection.read_schema)
            and is_store_readable(self._store)
            and hadoop.can_read(self._spark, self._store)
            and file_scan.is_available(self._spark)
        )

    def _scanned(self, group: list[ChangeFile], names: Sequence[str], *, has_positions: bool) -> DataFrame | None:
        schema = self._selection.read_schema
        data = pa.schema(
            [pa.field(physical_name(field), field.type, field.nullable) for field in schema if field.name not in names]
        )
        values = constant_columns(group, names, schema, of_snapshot=self._of_snapshot)
        if values is None or {name.lower() for name in data.names}.intersection(name.lower() for name in names):
            return None
        number, listed, position = _free_names(schema, data)
        fields = [schema.field(name).with_metadata(None) for name in names]
        fields += [pa.field(number, pa.int32()), pa.field(listed, pa.int8())]
        values += [
            pa.array(range(len(group)), pa.int32()),
            pa.array([int(change.difference is not None) for change in group], pa.int8()),
        ]
        url = hadoop.hadoop_url(self._store.url, self._store.storage_options)
        files = pa.table(
            {
                "path": [f"{url}/{paths.to_storage_path(change.file.path)}" for change in group],
                "size": pa.array([change.size_bytes for change in group], pa.int64()),
                "constants": pa.StructArray.from_arrays(values, fields=fields),
            }
        )
        frame = file_scan.scan(self._spark, url, files, data, hadoop.write_options(self._store.storage_options, url))
        if has_positions:
            # A column of its own, as a join in Spark 4.0 takes no metadata column.
            frame = frame.withColumn(position, frame.metadataColumn("_metadata")["row_index"])
            frame = dead_rows.counting(frame, self._bitmaps(group), frame[number], frame[listed], frame[position])
        # As texts: each Column object would take a dozen calls into the JVM.
        named = {
            field.name: f"{quoted(field.name if field.name in names else physical_name(field))} AS {quoted(field.name)}"
            for field in schema
        }
        chosen = self._selection.schema.names
        if self._condition is None:
            return frame.selectExpr(*(named[name] for name in chosen))
        return frame.selectExpr(*named.values()).where(self._condition).selectExpr(*map(quoted, chosen))

    def _bitmaps(self, group: Sequence[ChangeFile]) -> DataFrame:
        try:
            return dead_rows.bitmaps(self._spark, self._store, list(enumerate(group)))
        except DataFileMissingError as error:
            if self._of_snapshot:
                raise
            raise expired_changes(self._store, group[0].version, group[-1].version) from error

    def _empty(self) -> DataFrame:
        return file_scan.empty_frame(self._spark, self._selection.schema)


def _free_names(*schemas: pa.Schema) -> list[str]:
    """Names for the columns that decide which rows count, which no other column has."""
    taken = {name.lower() for schema in schemas for name in schema.names}
    names = [dead_rows.FILE_NUMBER, dead_rows.COUNTS_LISTED, dead_rows.ROW_POSITION]
    while taken.intersection(names):
        names = [f"{name}_" for name in names]
    return names
