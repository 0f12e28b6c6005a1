"""A scan of listed files by Spark's own parquet reader, with constants for each file.

Spark's public reader takes paths only: it looks each one up in the store, and knows no constants. So a small Java class
(`ListedFiles.java`) gives Spark's file scan the list as it is in the log. Janino, which Spark uses for generated code,
compiles it once per JVM, on the driver; executors do not need it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidelog.log.system import logger
from tidelog.streaming.executors.session import is_connect
from tidelog.streaming.executors.tasks import spark_schema

_LOGGER = logger(__name__)

_CLASS = "tidelog.jvm_reading.ListedFiles"
# Options of the scan; they override the session's settings, which could leave rows out or change them.
_OPTIONS = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    # Dates and times are those of the proleptic Gregorian calendar, as in tidelog's own reader.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    # Spark and tidelog write a checksum for each page.
    "parquet.page.verify-checksum.enabled": "true",
}
# Settings that have no option. They are set in a copy of the session that only this scan uses.
_SETTINGS = {
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing": "false",
}

# A longer list of files, in bytes, goes through a file instead of py4j, which would copy it several times.
_SMALL_LIST = 2**20
_BATCH = 2**16


def is_available(spark: SparkSession) -> bool:
    """Whether this Spark takes the class. Spark's internals can change with its version, or in a vendor's build."""
    return _file_index(spark) is not None


@dataclass(frozen=True, slots=True)
class FileList:
    """Files for a scan, in any order, also one of them several times.

    `constants` has a row for each partition: a set of files with the same constants. `paths` are below the root, and
    not encoded; `sizes` are in bytes, above 0; `partitions` are rows of `constants`.
    """

    paths: pa.Array | pa.ChunkedArray
    sizes: pa.Array | pa.ChunkedArray
    constants: pa.Table
    partitions: pa.Array

    @classmethod
    def of(cls, paths: pa.Array | pa.ChunkedArray, sizes: pa.Array | pa.ChunkedArray, constants: pa.Table) -> FileList:
        """A list of files with a row of constants for each."""
        distinct, partitions = _distinct(constants, len(paths))
        return cls(paths, sizes, distinct, partitions)


Step = str | Sequence[str]
"""What to do with the rows of a scan: a condition, or the columns to select, as SQL."""


def scan(
    spark: SparkSession,
    root: str,
    files: FileList,
    data: pa.Schema,
    hadoop_options: Mapping[str, str],
    steps: Sequence[Step] = (),
    *,
    of_stream: bool = False,
) -> DataFrame:
    """The rows of files, with the columns `data` and then the constants of each file, after the `steps`.

    `root` is Hadoop's URL of the table. `of_stream` says whether the frame is a micro-batch of a streaming source.
    """
    request = {
        "root": root,
        "constants": spark_schema(files.constants.schema).json(),
        "partitions": max(1, files.constants.num_rows),
        "data": spark_schema(data).json(),
        "options": {**_OPTIONS, **hadoop_options},
        "settings": _SETTINGS,
        "steps": steps,
        "stream": of_stream,
    }
    session = spark._jsparkSession  # noqa: SLF001 - PySpark's only way to the JVM
    listed = pa.table({"path": files.paths, "size": files.sizes, "partition": files.partitions})
    compiled, text, constants = _file_index(spark), json.dumps(request), _stream(files.constants)
    # One call: each takes a quarter of a millisecond, and the scan's own objects are dozens.
    if listed.nbytes <= _SMALL_LIST:
        return DataFrame(compiled(session, text, constants, _stream(listed)), spark)
    with tempfile.NamedTemporaryFile(prefix="tidelog-", suffix=".arrow") as file:
        with pa.ipc.new_stream(file, listed.schema) as writer:
            writer.write_table(listed, max_chunksize=_BATCH)
        file.flush()
        return DataFrame(compiled(session, text, constants, file.name), spark)


def _distinct(constants: pa.Table, count: int) -> tuple[pa.Table, pa.Array]:
    """The distinct rows, and for each row the number of its own among them."""
    numbers: np.ndarray[Any, Any] = np.zeros(count, dtype=np.int32)
    groups = min(1, count)
    for column in constants.columns:
        encoded = column.dictionary_encode(null_encoding="encode").unify_dictionaries().combine_chunks()
        codes = encoded.indices.to_numpy() if count else numbers
        if groups == 1:
            numbers, groups = codes, len(encoded.dictionary) if count else 0
        else:
            # Renumber after each column, so that the numbers fit into 64 bits.
            found, numbers = np.unique(numbers.astype(np.int64) * len(encoded.dictionary) + codes, return_inverse=True)
            groups = len(found)
    examples = np.zeros(groups, dtype=np.int64)
    examples[numbers] = np.arange(count)
    return constants.take(pa.array(examples)), pa.array(numbers, pa.int32())


def as_stream(frame: DataFrame) -> DataFrame:
    """The rows of a frame as a micro-batch of a streaming source. Its query is planned now, and runs later.

    Filters and columns that are chosen later do not reach its files.
    """
    java: Any = frame._jdf  # noqa: SLF001 - as above
    return _of_rows(frame.sparkSession, java.queryExecution().toRdd(), java.schema(), of_stream=True)


def empty_stream(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    """A micro-batch of a streaming source without rows, which runs no task."""
    jvm: Any = spark._jvm  # noqa: SLF001 - as above
    none = spark.sparkContext._jsc.emptyRDD().rdd()  # noqa: SLF001 - as above
    return _of_rows(spark, none, _java_schema(jvm, spark_schema(schema)), of_stream=True)


def _of_rows(spark: SparkSession, rows: Any, schema: Any, *, of_stream: bool) -> DataFrame:
    """A frame of an RDD of Spark's internal rows."""
    java: Any = spark._jsparkSession  # noqa: SLF001 - as above
    return DataFrame(java.internalCreateDataFrame(rows, schema, of_stream), spark)


def empty_frame(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    """A frame without rows, which runs no task."""
    if is_connect(spark):
        return spark.createDataFrame([], spark_schema(schema))
    jvm: Any = spark._jvm  # noqa: SLF001 - as above
    java = spark._jsparkSession  # noqa: SLF001 - as above
    return DataFrame(
        java.createDataFrame(jvm.java.util.ArrayList(), _java_schema(jvm, spark_schema(schema))),
        spark,
    )


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _file_index(spark: SparkSession) -> Any:
    """The method of the compiled class that makes a scan, or None if it does not fit this Spark."""
    jvm: Any = spark._jvm  # noqa: SLF001 - as above
    if jvm not in _compiled:
        try:
            _compiled[jvm] = _method(spark, jvm)
        except (Py4JError, TypeError) as error:
            _LOGGER.warning("Spark's own reader cannot be used with this Spark; reading is slower: %s", error)
            _compiled[jvm] = None
    return _compiled[jvm]


def _method(spark: SparkSession, jvm: Any) -> Callable[..., Any]:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(spark._jsparkSession.getClass().getClassLoader())  # noqa: SLF001 - as above
    compiler.cook(_source())
    method: Callable[..., Any] = compiler.getClassLoader().loadClass(f"{_CLASS}$Scans").newInstance().scan
    return method


_compiled: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


@cache
def _source() -> str:
    return resources.files(__package__).joinpath("ListedFiles.java").read_text(encoding="utf-8")


def _java_schema(jvm: Any, schema: StructType) -> Any:
    return jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
