"""A scan of listed files by Spark's own parquet reader, with constants for each file.

Spark's public reader takes paths only: it looks each one up in the store, and knows no constants. So a small Java class
(`ListedFiles.java`) gives Spark's file scan the list as it is in the log. Janino, which Spark uses for generated code,
compiles it once per JVM, on the driver; executors do not need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidelog.log.system import logger
from tidelog.streaming import spark_versions
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


def is_available(spark: SparkSession) -> bool:
    """Whether this Spark takes the class. Spark's internals can change with its version, or in a vendor's build."""
    return _file_index(spark) is not None


def scan(
    spark: SparkSession, root: str, files: pa.Table, data: pa.Schema, hadoop_options: Mapping[str, str]
) -> DataFrame:
    """The rows of files, with the columns `data` and then the constants of each file.

    `files` has the columns `path` (for Hadoop, with its scheme, not encoded), `size` (bytes, above 0) and `constants`
    (a struct). A file can be listed several times. `root` is where the table is, for Spark's messages.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only way to the JVM
    constants = spark_schema(pa.schema(files.schema.field("constants").type))
    converters = _scala(jvm.org.apache.spark.sql.execution.arrow, "ArrowConverters")
    rows = spark_versions.rows_of_stream(converters, _stream(files))
    session = _reading_session(spark)
    constructor = _file_index(spark).getConstructors()[0]
    index = constructor.newInstance(_array(spark, [session, root, _java_schema(jvm, constants), rows]))
    options = jvm.PythonUtils.toScalaMap({**_OPTIONS, **hadoop_options})
    relation = jvm.org.apache.spark.sql.execution.datasources.HadoopFsRelation(
        index,
        _java_schema(jvm, constants),
        _java_schema(jvm, spark_schema(data)),
        jvm.scala.Option.empty(),
        jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat(),
        options,
        session,
    )
    return DataFrame(spark._jsparkSession.baseRelationToDataFrame(relation), spark)  # noqa: SLF001 - as above


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


def _reading_session(spark: SparkSession) -> Any:
    """A copy of the session with the settings of the scan. It takes milliseconds, and shares the Spark context."""
    session = spark._jsparkSession.cloneSession()  # noqa: SLF001 - as above
    for name, value in _SETTINGS.items():
        session.conf().set(name, value)
    return session


def _file_index(spark: SparkSession) -> Any:
    """The compiled class, or None if it does not fit this Spark."""
    jvm: Any = spark._jvm  # noqa: SLF001 - as above
    if jvm not in _compiled:
        loader = spark._jsparkSession.getClass().getClassLoader()  # noqa: SLF001 - as above
        try:
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(loader)
            compiler.cook(_source())
            _compiled[jvm] = compiler.getClassLoader().loadClass(_CLASS)
        except (Py4JError, TypeError) as error:
            _LOGGER.warning("Spark's own reader cannot be used with this Spark; reading is slower: %s", error)
            _compiled[jvm] = None
    return _compiled[jvm]


_compiled: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


@cache
def _source() -> str:
    return resources.files(__package__).joinpath("ListedFiles.java").read_text(encoding="utf-8")


def _scala(package: Any, name: str) -> Any:
    """A Scala object."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _java_schema(jvm: Any, schema: StructType) -> Any:
    return jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())


def _array(spark: SparkSession, values: list[Any]) -> Any:
    context: Any = spark.sparkContext
    array = context._gateway.new_array(context._jvm.java.lang.Object, len(values))  # noqa: SLF001 - as above
    for place, value in enumerate(values):
        array[place] = value
    return array
