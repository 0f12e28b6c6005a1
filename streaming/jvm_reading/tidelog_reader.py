"""Rows that tidelog's own reader reads, on the executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidelog.log.data.reader import read_batches
from tidelog.log.errors import DataFileMissingError
from tidelog.log.read.changes import expired_changes
from tidelog.log.read.commit_changes import read_change_batches
from tidelog.log.read.scan import Selection
from tidelog.log.storage import Store
from tidelog.streaming.jvm_reading.tidelog_tasks import in_tasks

# A task's Python worker costs some tens of milliseconds, so small files share one task. A core reads this number of
# bytes in about a second.
_TASK_BYTES = 32 * 2**20
_TASK_FILES = 32


def tidelog_rows(
    spark: SparkSession, store: Store, changes: Sequence[Any], selection: Selection, *, of_snapshot: bool
) -> DataFrame:
    """The selected rows of the units, with the columns of the selection.

    While it is computed it raises, as Spark's error with the text of ours: HistoryExpiredError (of a snapshot:
    DataFileMissingError) if a file is missing, CorruptLogError if one is damaged, and PredicateError.
    """
    work = partial(_read, store, selection.row_schema, selection.where, selection.schema.names, of_snapshot)
    return in_tasks(spark, _parts(changes), work, selection.schema)


def _parts(changes: Sequence[Any]) -> list[list[Any]]:
    parts: list[list[Any]] = []
    size = 0
    for change in changes:
        if not parts or size + change.size_bytes > _TASK_BYTES or len(parts[-1]) == _TASK_FILES:
            parts.append([])
            size = 0
        parts[-1].append(change)
        size += change.size_bytes
    return parts


def _read(
    store: Store,
    schema: pa.Schema,
    where: str | None,
    columns: Sequence[str],
    of_snapshot: bool,  # noqa: FBT001 - partial passes it by position
    changes: Sequence[Any],
) -> Iterator[pa.RecordBatch]:
    selection = Selection(schema, where, columns)
    for change in changes:
        if of_snapshot:
            batches = read_batches(store, change.file, selection.read_schema)
        else:
            batches = _of_history(store, change, selection.read_schema)
        for batch in batches:
            yield from selection.apply(batch)


def _of_history(store: Store, change: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        yield from read_change_batches(store, change, schema)
    except DataFileMissingError as error:
        raise expired_changes(store, change.version, change.version) from error
