"""The data source behind `Feed`: a stream of references to changed files, with Spark's own exactly-once offsets.

It plans micro-batches like `format("tidelog")`, with the same options. But its rows are small: each names files to
read. The batch function of a `Feed` turns them into a DataFrame that Spark's own parquet reader reads.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from tidelog.log.reading import Change
from tidelog.streaming.datasource.errors_first import error_first
from tidelog.streaming.datasource.feed_reader import FeedReader
from tidelog.streaming.feed_planning.offsets import Offset

NAME = "tidelog_references"
SCHEMA_VERSION = "schemaVersion"
_COLUMN = "reference"
# A row with this number of references takes a few hundred kilobytes.
_CHANGES_PER_ROW = 1000


@dataclass
class ReferencedChanges(InputPartition):
    """What one micro-batch reads, and the offset at its end."""

    changes: Sequence[Change]
    end: Offset


class ReferenceSource(DataSource):
    """The source of a `Feed`, with the options of a stream of `format("tidelog")`; `Feed` registers it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._raw = {name: value for name, value in options.items() if name.lower() != SCHEMA_VERSION.lower()}
        self._schema_version = int({name.lower(): text for name, text in options.items()}[SCHEMA_VERSION.lower()])

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> StructType:
        """One column with the references."""
        return StructType([StructField(_COLUMN, BinaryType())])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The reader for `spark.readStream`."""
        return ReferenceReader(self._raw, schema, schema_version=self._schema_version)


class ReferenceReader(FeedReader):
    """A change feed that gives references instead of rows."""

    @error_first
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One partition: the changes between two offsets."""
        return [ReferencedChanges(list(self.changes_between(start, end)), Offset.from_json(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes, some at a time; none is still one row, which holds the end."""
        if not isinstance(partition, ReferencedChanges):
            return
        for first in range(0, max(1, len(partition.changes)), _CHANGES_PER_ROW):
            part = ReferencedChanges(partition.changes[first : first + _CHANGES_PER_ROW], partition.end)
            yield pa.RecordBatch.from_pydict({_COLUMN: pa.array([pickle.dumps(part)], pa.binary())})


def referenced(batch: DataFrame) -> tuple[list[Change], Offset | None]:
    """The changes of a micro-batch, and the offset at its end; None if the batch has no rows at all."""
    rows: Iterable[bytes] = batch.toArrow()[_COLUMN].to_pylist()
    parts: list[ReferencedChanges] = [pickle.loads(row) for row in rows]  # noqa: S301 - rows of our own reader
    # Tasks can return in any order, but there is one, and its rows are in order.
    return [change for part in parts for change in part.changes], parts[-1].end if parts else None
