"""Write data files with Spark's own parquet writer, for large batches: the rows never reach Python.

Each write has a separate folder, `data/<uuid>/`, so that the remains of a failed one are easy to find. Its files do not
belong to the table until they are committed. Once the job has ended, its files are described from their footers and
made durable. Their rows must add up to the number that Spark's writer reports, or that an Observation has counted in
the same job.

If a table has partition folders, the files are then moved there. An object store cannot move a file, and Spark's own
names of such folders do not distinguish all values, so there Python writes in the tasks (see `fits_layout`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
import pyarrow.types as pt
from msgspec.structs import replace
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log.commit.discard import delete_unnamed
from tidelog.log.data.external_files import take_up
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import NullValueError, StoreUnavailableError, TidelogError
from tidelog.log.format import paths
from tidelog.log.format.actions import AddFile
from tidelog.log.storage import FileStatus, Store, while_synced
from tidelog.log.storage.local import LocalStore
from tidelog.log.system import logger
from tidelog.streaming import spark_versions
from tidelog.streaming.executors import hadoop
from tidelog.streaming.executors.plain_frame import prepared, quoted
from tidelog.streaming.executors.session import FITTED_SHUFFLES, session_settings
from tidelog.streaming.executors.tasks import run

_LOGGER = logger(__name__)

# Spark's settings for how values are encoded in parquet, set to what Delta's readers expect: timestamps in microseconds
# (an int96 has no statistics), the proleptic Gregorian calendar, and decimals in the standard format.
_ENCODING = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.fieldId.write.enabled": "false",
    "spark.sql.parquet.compression.codec": "snappy",
    **FITTED_SHUFFLES,
}
_OPTIONS = {
    # Each task moves its files when it commits. The names are the same each time a task runs.
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
_LOCAL_OPTIONS = {
    # Hadoop's default local file system would leave a checksum file next to each file.
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
_FULL = re.compile(r"IOException: (No space left on device|Disk quota exceeded)")
_FOLDER_KEY = "p"
_MAX_KEY = 120
# Up to this number of files, the driver reads the footers; beyond it, the executors do.
_FEW_FILES = 64
_FOOTERS_PER_TASK = 32
_READERS = 8
# Whether Spark's writer says how many rows it wrote. A plug-in's may not, which the first write shows.
_writer = {"counts": spark_versions.WRITERS_COUNT}


def fits_layout(writer: DataWriter) -> bool:
    """Whether files of Spark's own writer can be where the table has its files."""
    return not writer.in_folders or isinstance(writer.store, LocalStore)


def write_by_jvm(
    rows: DataFrame,
    writer: DataWriter,
    *,
    max_tasks: int | None,
    rows_per_file: int | None,
    plain: Collection[str] = (),
) -> tuple[list[AddFile], int]:
    """Write `rows` to durable files, and return the files and the number of rows that Spark's tasks counted.

    `rows` must have exactly the table's columns (see `plain_frame`). The rows of a partitioned table are shuffled by
    partition first, so that a task has one file open at a time. Otherwise at most `max_tasks` tasks write, and no file
    has more than `rows_per_file` rows. The columns `plain` get no dictionary, which saves the time that one takes where
    values do not repeat. Raises NullValueError for a null in a column that cannot be null. After any
    error the files are deleted.
    """
    folder = f"data/{writer.system.uuid()}"
    frame = prepared(rows, writer)
    if writer.metadata.partition_columns:
        frame = frame.hint("rebalance", *(F.col(quoted(name)) for name in writer.metadata.partition_columns))
    elif max_tasks is not None:
        frame = frame.coalesce(max_tasks)
    required = [field.name for field in writer.schema if not field.nullable]
    counts = [F.count_if(F.col(quoted(name)).isNull()).alias(f"n{place}") for place, name in enumerate(required)]
    # An Observation keeps Spark from compiling the query in one piece, which takes a tenth of a large batch's time.
    observation = Observation() if required or not _writer["counts"] else None
    if observation is not None:
        frame = frame.observe(observation, F.count(F.lit(1)).alias("rows"), *counts)
    try:
        written = _save(frame, writer, folder, rows_per_file, plain)
        if observation is not None:
            counted = observation.get
            _require_no_nulls(required, counted)
            written = int(counted["rows"])
        elif written is None:
            _writer["counts"] = False
            _clear(writer.store, folder)
            return write_by_jvm(rows, writer, max_tasks=max_tasks, rows_per_file=rows_per_file, plain=plain)
        return _taken_up(rows.sparkSession, writer, folder), written
    except BaseException:
        _clear(writer.store, folder)
        raise


def _clear(store: Store, folder: str) -> None:
    """Delete the folder's files. A failure is only logged, so that it does not hide the error that came first."""
    try:
        delete_unnamed(store, [path for path, _ in store.walk(folder)])
    except (TidelogError, OSError) as error:
        _LOGGER.warning("could not delete %s of %s, so it is left to vacuum: %s", folder, store.url, error)


def _save(
    frame: DataFrame, writer: DataWriter, folder: str, rows_per_file: int | None, plain: Collection[str]
) -> int | None:
    """Write the frame's files; returns how many rows Spark's writer says it wrote, None if it does not say."""
    keyed = writer.metadata.partition_columns
    name = _free_name(writer.schema.names)
    if keyed:
        frame = frame.withColumn(name, _folder_key([writer.schema.field(column) for column in keyed]))
    with session_settings(frame.sparkSession, _ENCODING):
        output = frame.write.format("parquet").mode("append").options(**_options(writer.store))
        output = output.options(**{f"parquet.enable.dictionary#{column}": "false" for column in plain})
        if rows_per_file is not None:
            output = output.option("maxRecordsPerFile", rows_per_file)
        with _full_disk_named(writer.store, folder):
            output = output.partitionBy(name) if keyed else output
            location = f"{_url(writer.store)}/{folder}"
            if _writer["counts"]:
                return spark_versions.saved_rows(output, location)
            output.save(location)
            return None


@contextmanager
def _full_disk_named(store: Store, folder: str) -> Iterator[None]:
    """Raise for a full disk what tidelog's own writer raises: StoreUnavailableError. Spark has no error of its own."""
    try:
        yield
    except (Py4JError, PySparkException) as error:
        full = _FULL.search(str(error))
        if full is None:
            raise
        raise StoreUnavailableError(
            f"Spark failed to write files to {folder} of {store.url}: {full[1]}",
            advice="free up space there and in Spark's local folder (spark.local.dir), then retry; nothing was "
            "committed",
            path=store.url,
        ) from error


def _url(store: Store) -> str:
    return hadoop.hadoop_url(store.url, store.storage_options)


def _options(store: Store) -> dict[str, str]:
    if isinstance(store, LocalStore):
        return _OPTIONS | _LOCAL_OPTIONS
    return _OPTIONS | hadoop.write_options(store.storage_options, store.url)


def _folder_key(fields: Sequence[pa.Field]) -> Column:
    """A folder name for each partition: unique, short, and safe on a disk that ignores case."""
    key = F.concat_ws("_", *(F.coalesce(_key_of(field), F.lit("n")) for field in fields))
    return F.when(F.length(key) <= _MAX_KEY, key).otherwise(F.concat(F.lit("h"), F.sha2(key, 256)))


def _key_of(field: pa.Field) -> Column:
    column = F.col(quoted(field.name))
    if pt.is_string(field.type) or pt.is_binary(field.type):
        return F.concat(F.lit("s"), F.hex(column))
    if pt.is_timestamp(field.type) and field.type.tz is not None:
        # Not as text, which two moments share when clocks are set back.
        return F.unix_micros(column).cast("string")
    if pt.is_timestamp(field.type):
        # Not as a moment, which two wall times share when clocks are set forward.
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
            raise NullValueError(
                f"column {name!r} cannot be null, but {counted[f'n{place}']} rows of the data have no value",
                advice="fill or drop those rows",
                column=name,
            )


def _taken_up(session: SparkSession, writer: DataWriter, folder: str) -> list[AddFile]:
    """Describe the folder's files and make them durable; those without rows are deleted."""
    found = sorted((path, status) for path, status in writer.store.walk(folder) if _is_committed(path, folder))
    if isinstance(writer.store, LocalStore) and writer.metadata.partition_columns:
        adds = _with_rows(writer.store, found, _described(session, writer, found))
        return _moved(writer, writer.store, folder, adds)
    described = while_synced(writer.store, [path for path, _ in found], partial(_described, session, writer, found))
    return _with_rows(writer.store, found, described)


def _moved(writer: DataWriter, store: LocalStore, folder: str, adds: Sequence[AddFile]) -> list[AddFile]:
    """Move files out of the folders of their keys, to where the table has its files, and make them durable.

    Polars reads any folder `name=value` as a partition column, and fails on unknown ones.
    """
    moved: list[str] = []
    try:
        for number, add in enumerate(adds):
            old = paths.to_storage_path(add.path)
            new = writer.new_path(add.partition_values) if writer.in_folders else f"{folder}/{number}-{_name(old)}"
            moved.append(new)
            store.move(old, new)
        store.sync(moved)
    except BaseException:
        delete_unnamed(store, moved)
        raise
    return [replace(add, path=paths.to_uri(path)) for add, path in zip(adds, moved, strict=True)]


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _described(
    session: SparkSession, writer: DataWriter, found: Sequence[tuple[str, FileStatus]]
) -> list[AddFile | None]:
    """The `add` action of each file; None for one without rows."""
    if len(found) <= _FEW_FILES:
        with ThreadPoolExecutor(_READERS) as pool:
            return list(pool.map(lambda entry: take_up(writer, *entry), found))
    parts = [found[start : start + _FOOTERS_PER_TASK] for start in range(0, len(found), _FOOTERS_PER_TASK)]
    return [add for part in run(session, partial(_take_up_all, writer), parts) for add in part]


def _with_rows(store: Store, found: Sequence[tuple[str, FileStatus]], adds: Sequence[AddFile | None]) -> list[AddFile]:
    """The actions of the files that have rows; the others are deleted."""
    delete_unnamed(store, [path for (path, _), add in zip(found, adds, strict=True) if add is None])
    return [add for add in adds if add is not None]


def _is_committed(path: str, folder: str) -> bool:
    """Whether a task's commit moved the file here. A duplicate run can still be writing below `_temporary`."""
    names = path.removeprefix(folder).split("/")
    return path.endswith(".parquet") and not any(name.startswith((".", "_")) for name in names)


def _take_up_all(writer: DataWriter, part: Sequence[tuple[str, FileStatus]]) -> list[AddFile | None]:
    return [take_up(writer, *entry) for entry in part]
