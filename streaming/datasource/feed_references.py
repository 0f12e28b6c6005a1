"""The data source behind `Feed` on Spark Connect: a stream of references to changed files, with Spark's own offsets.

It plans micro-batches like `format("tidelog")`, with the same options. But its only partition has references to the
files to read. The batch function of a `Feed` turns them into a DataFrame that Spark's own parquet reader reads.
"""

from __future__ import annotations

import pickle
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from tidelog.log.read.mixed_commits import Change
from tidelog.streaming import spark_versions
from tidelog.streaming.datasource.feed_reader import FeedReader
from tidelog.streaming.datasource.source import stream_reader
from tidelog.streaming.executors.session import is_connect, link_for_stream_readers
from tidelog.streaming.feed_planning.offsets import Offset
from tidelog.streaming.feed_planning.query_columns import LoadedColumns

_NAME = "tidelog_references"
_LOADED = "loadedColumns"
_COLUMN = "reference"


@dataclass(frozen=True, slots=True)
class ReferencedChanges:
    """What one micro-batch reads, and the offset at its end."""

    changes: Sequence[Change]
    end: Offset

    def packed(self) -> bytes:
        """As few bytes as possible: Spark keeps them on the driver."""
        return zlib.compress(pickle.dumps(self))

    @staticmethod
    def unpacked(content: bytes) -> ReferencedChanges:
        """The inverse of `packed`."""
        changes: ReferencedChanges = pickle.loads(zlib.decompress(content))  # noqa: S301 - written by `packed`
        return changes


@dataclass
class ReferencePartition(InputPartition):
    """The one partition of a micro-batch, with what `ReferencedChanges.packed` returns."""

    packed: bytes


class ReferenceSource(DataSource):
    """The source of a `Feed`, with the options of a stream of `format("tidelog")`; `open_stream` registers it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        # Spark changes names of options to lower case.
        self._raw = {name: value for name, value in options.items() if name.lower() != _LOADED.lower()}
        (loaded,) = (value for name, value in options.items() if name not in self._raw)
        self._loaded: LoadedColumns = pickle.loads(b64decode(loaded))  # noqa: S301 - written by `open_stream`

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return _NAME

    def schema(self) -> StructType:
        """One column with the references."""
        return StructType([StructField(_COLUMN, BinaryType())])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The reader for `spark.readStream`."""
        return stream_reader(ReferenceReader(self._raw, schema, loaded=self._loaded))


class ReferenceReader(FeedReader):
    """A change feed that gives references instead of rows."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One partition: the changes between two offsets."""
        referenced = ReferencedChanges(list(self.changes_between(start, end)), Offset.from_json(end))
        return [ReferencePartition(referenced.packed())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The partition as one row."""
        if isinstance(partition, ReferencePartition):
            yield pa.RecordBatch.from_pydict({_COLUMN: pa.array([partition.packed], pa.binary())})


def open_stream(spark: SparkSession, options: Mapping[str, str], loaded: LoadedColumns) -> DataFrame:
    """The stream with the options of a `Feed`."""
    link_for_stream_readers(spark)
    spark.dataSource.register(ReferenceSource)
    reader = spark.readStream.format(_NAME).options(**options)
    return reader.option(_LOADED, b64encode(pickle.dumps(loaded)).decode()).load()


def referenced(batch: DataFrame) -> ReferencedChanges:
    """What a micro-batch reads."""
    packed = _planned(batch)
    if packed is None:
        packed = batch.toArrow()[_COLUMN][0].as_py()
    return ReferencedChanges.unpacked(packed)


def _planned(batch: DataFrame) -> bytes | None:
    """What the partition has, as the driver planned it: it takes no job. None if this Spark does not show it."""
    if is_connect(batch.sparkSession):
        return None
    try:
        plan: Any = batch._jdf.queryExecution()  # noqa: SLF001 - PySpark's only way to the plan
        [task] = plan.toRdd().partitions()
        partition: ReferencePartition = pickle.loads(spark_versions.input_partition(task).pickedPartition())  # noqa: S301 - ours
    except (Py4JError, ValueError):
        return None
    return partition.packed
