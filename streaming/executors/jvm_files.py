"""Data files by Spark's own parquet writer, for batches that are large: the rows never come to Python.

The files of one write lie in a folder of their own, `data/<uuid>/`, so that whatever failed in between is found there.
Nothing in the folder counts before it is committed: the files that are there when the job has ended are made durable,
taken up by their footers, and their rows must be as many as Spark counted on the way into the writer, in the same job.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from tidelog.log.errors import SchemaMismatchError, TidelogError
from tidelog.log.internals import AddFile, DataWriter, FileStatus, LocalStore, Store, delete_unnamed, take_up
from tidelog.streaming.executors import hadoop
from tidelog.streaming.executors.plain_frame import quoted
from tidelog.streaming.executors.session import FITTED_SHUFFLES, session_settings
from tidelog.streaming.executors.tasks import run

_LOGGER = logging.getLogger(__name__)

# Spark's own session settings that decide how values are spelled in parquet. What Delta's readers expect: timestamps
# in microseconds (an int96 has no statistics), the calendar that everybody has, and decimals as others write them.
_SPELLING = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.fieldId.write.enabled": "false",
    "spark.sql.parquet.compression.codec": "snappy",
    **FITTED_SHUFFLES,
}
_OPTIONS = {
    # Each task moves its files when it commits; the names are the same however often a task is run.
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
_LOCAL_OPTIONS = {
    # Hadoop's local file system would leave a checksum file beside each file.
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
_FOLDER_KEY = "p"
_MAX_KEY = 120
# Footers of so many files are read here; of more by the executors.
_FEW_FILES = 64
_FOOTERS_PER_TASK = 32
_READERS = 8


def write_by_jvm(
    rows: DataFrame, writer: DataWriter, *, max_tasks: int | None, rows_per_file: int | None
) -> tuple[list[AddFile], int]:
    """Write `rows`, which have exactly the table's columns (see `plain_frame`), durable on return; the files, and how
    many rows Spark counted.

    A partitioned table's rows are brought together by partition first, so that a task has one file open. Else at most
    `max_tasks` tasks write, and no file has more than `rows_per_file`. Raises SchemaMismatchError for a null in a
    column that cannot be null; what was written is gone then, as after any error.
    """
    folder = f"data/{writer.system.uuid()}"
    frame = _prepared(rows, writer)
    if writer.metadata.partition_columns:
        frame = frame.hint("rebalance", *(F.col(quoted(name)) for name in writer.metadata.partition_columns))
    elif max_tasks is not None:
        frame = frame.coalesce(max_tasks)
    observation = Observation()
    required = [field.name for field in writer.schema if not field.nullable]
    counts = [F.count_if(F.col(quoted(name)).isNull()).alias(f"n{place}") for place, name in enumerate(required)]
    frame = frame.observe(observation, F.count(F.lit(1)).alias("rows"), *counts)
    try:
        _save(frame, writer, folder, rows_per_file)
        counted = observation.get
        _require_no_nulls(required, counted)
        return _taken_up(rows.sparkSession, writer, folder), int(counted["rows"])
    except BaseException:
        _clear(writer.store, folder)
        raise


def _clear(store: Store, folder: str) -> None:
    """Delete what is in the folder, as far as the store lets us; never raises in the place of what went wrong."""
    try:
        delete_unnamed(store, [path for path, _ in store.walk(folder)])
    except (TidelogError, OSError) as error:
        _LOGGER.warning("%s of %s is left for a vacuum: %s", folder, store.url, error)


def _save(frame: DataFrame, writer: DataWriter, folder: str, rows_per_file: int | None) -> None:
    keyed = writer.metadata.partition_columns
    name = _free_name(writer.schema.names)
    if keyed:
        frame = frame.withColumn(name, _folder_key([writer.schema.field(column) for column in keyed]))
    with session_settings(frame.sparkSession, _SPELLING):
        output = frame.write.format("parquet").mode("append").options(**_options(writer.store))
        if rows_per_file is not None:
            output = output.option("maxRecordsPerFile", rows_per_file)
        (output.partitionBy(name) if keyed else output).save(f"{_url(writer.store)}/{folder}")


def _url(store: Store) -> str:
    return hadoop.hadoop_url(store.url, store.storage_options)


def _options(store: Store) -> dict[str, str]:
    if isinstance(store, LocalStore):
        return _OPTIONS | _LOCAL_OPTIONS
    return _OPTIONS | hadoop.write_options(store.storage_options, store.url)


def _prepared(rows: DataFrame, writer: DataWriter) -> DataFrame:
    """Partition values as a reader of the table will see them, by the same rules as `DataWriter.prepared`.

    An empty string becomes null, and -0.0 becomes 0.0.
    """
    for name in writer.metadata.partition_columns:
        kind, column = writer.schema.field(name).type, F.col(quoted(name))
        if pt.is_string(kind) or pt.is_binary(kind):
            rows = rows.withColumn(name, F.when(F.octet_length(column) > 0, column))
        elif pt.is_floating(kind):
            rows = rows.withColumn(name, column + F.lit(0).cast(rows.schema[name].dataType))
    return rows


def _folder_key(fields: Sequence[pa.Field]) -> Column:
    """A text that tells partitions apart, for a folder's name: short, and safe on a disk that ignores case."""
    key = F.concat_ws("_", *(F.coalesce(_key_of(field), F.lit("n")) for field in fields))
    return F.when(F.length(key) <= _MAX_KEY, key).otherwise(F.concat(F.lit("h"), F.sha2(key, 256)))


def _key_of(field: pa.Field) -> Column:
    column = F.col(quoted(field.name))
    if pt.is_string(field.type) or pt.is_binary(field.type):
        return F.concat(F.lit("s"), F.hex(column))
    if pt.is_timestamp(field.type) and field.type.tz is not None:
        # Not its text, which two moments share when a clock is put back.
        return F.unix_micros(column).cast("string")
    if pt.is_timestamp(field.type):
        # Not its moment, which two wall times share when a clock is put forward.
        return F.hex(column.cast("string"))
    return column.cast("string")


def _free_name(names: Sequence[str]) -> str:
    lowered = {name.lower() for name in names}
    name = _FOLDER_KEY
    while name in lowered:
        name += _FOLDER_KEY
    return name


def _require_no_nulls(required: Sequence[str], counted: dict[str, int]) -> None:
    for place, name in enumerate(required):
        if counted[f"n{place}"]:
            raise SchemaMismatchError(
                f"column {name!r} cannot be null, but {counted[f'n{place}']} rows of the data have no value",
                advice="fill or drop those rows",
                column=name,
            )


def _taken_up(session: SparkSession, writer: DataWriter, folder: str) -> list[AddFile]:
    """The files of the folder that have rows, durable; others are deleted."""
    found = sorted((path, status) for path, status in writer.store.walk(folder) if _is_in_its_place(path, folder))
    if isinstance(writer.store, LocalStore) and writer.metadata.partition_columns:
        # Polars takes a folder `name=value` for a partition column of that name and refuses one that it does not know.
        paths = writer.store.gather([path for path, _ in found], folder)
        found = list(zip(paths, (status for _, status in found), strict=True))
    writer.store.sync([path for path, _ in found])
    if len(found) <= _FEW_FILES:
        with ThreadPoolExecutor(_READERS) as pool:
            adds = list(pool.map(lambda entry: take_up(writer, *entry), found))
    else:
        shares = [found[start : start + _FOOTERS_PER_TASK] for start in range(0, len(found), _FOOTERS_PER_TASK)]
        adds = [add for share in run(session.sparkContext, partial(_take_up_all, writer), shares) for add in share]
    delete_unnamed(writer.store, [path for (path, _), add in zip(found, adds, strict=True) if add is None])
    return [add for add in adds if add is not None]


def _is_in_its_place(path: str, folder: str) -> bool:
    """Whether a task's commit moved the file here; a run that lost may go on below `_temporary` for a moment."""
    names = path.removeprefix(folder).split("/")
    return path.endswith(".parquet") and not any(name.startswith((".", "_")) for name in names)


def _take_up_all(writer: DataWriter, share: Sequence[tuple[str, FileStatus]]) -> list[AddFile | None]:
    return [take_up(writer, *entry) for entry in share]
