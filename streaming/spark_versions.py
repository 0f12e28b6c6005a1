"""What differs between the versions of Spark. Nothing else asks for a version, or tries what a version has.

| since | what it has |
|---|---|
| 4.0 | Python data sources; the oldest that works |
| 4.1 | `ArrowConverters.fromIPCStream` needs no task |
| 4.1 | there is a type TIME |
| 4.1 | a catalog is asked for constraints |
| 4.2 | Python sources are told the limits of a micro-batch, and take part in `Trigger.AvailableNow` |
| 4.2 | a writer gives out its plan, whose metrics say how many rows the tasks wrote |
| 4.2 | a task of a data source has an `inputPartition`; before, it had a list of them |
| 4.2 | `to_arrow_schema` takes a time zone; it was always UTC before |
| 4.2 | a catalog can be asked for the changes of a table: SELECT ... CHANGES, `read.changes`, `readStream.changes` |
| 4.2 | `from_arrow_schema` makes a timestamp without a zone TIMESTAMP_NTZ unless told otherwise |
| 4.3 | `LogicalRDD.fromDataset` has one more parameter |
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from tidelog.log.errors import PrerequisiteError, SchemaMismatchError, installing

_INSTALL = (
    f"{installing('spark')}, which brings PySpark 4.0 or later; on a platform with a Spark of its own, take a release "
    "with Spark 4.0 or later, and its Python"
)

try:
    import pyspark
except ModuleNotFoundError as _error:
    raise PrerequisiteError(f"tidelog.streaming needs PySpark: {_error}", advice=_INSTALL) from _error

OLDEST = (4, 0)


def version_of(text: str) -> tuple[int, ...]:
    """Major and minor version: (4, 2) for `4.2.0`, and for a vendor's `4.2.0-amzn-1`."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


INSTALLED = version_of(pyspark.__version__)

if INSTALLED < OLDEST:
    raise PrerequisiteError(f"PySpark {pyspark.__version__} is too old for tidelog.streaming", advice=_INSTALL)

# Only now: the error of an old PySpark, or of the package pyspark-client, would not say what is wrong.
try:
    from py4j.protocol import Py4JError
    from pyspark import SparkContext  # noqa: F401 - what pyspark-client lacks
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrameWriter, SparkSession
    from pyspark.sql import types as spark_types
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
    from pyspark.sql.types import (
        ArrayType,
        CalendarIntervalType,
        DataType,
        DayTimeIntervalType,
        MapType,
        NullType,
        StructField,
        StructType,
        YearMonthIntervalType,
    )
except ImportError as _error:
    raise PrerequisiteError(
        f"tidelog.streaming needs the whole of PySpark: {_error}",
        advice=f"{installing('connect')}, also for a client; the package pyspark-client is not enough",
    ) from _error

SOURCES_TAKE_LIMITS = INSTALLED >= (4, 2)
"""Whether Spark tells a Python source where a micro-batch begins, how large it may be, and that a run ends.

If not, the source bounds each micro-batch itself, and `Trigger.AvailableNow` and `Trigger.Once` run one of them.
"""

CATALOGS_HAVE_CHANGES = INSTALLED >= (4, 2)
"""Whether Spark has `TableCatalog.loadChangelog`, so that ChangesCatalog.java can be compiled."""

CATALOGS_HAVE_CONSTRAINTS = INSTALLED >= (4, 1)
"""Whether Spark asks a catalog for constraints."""

WRITERS_COUNT = INSTALLED >= (4, 2)
"""Whether `saved_rows` can be called: writers give out their plan."""


# Delta has none of them, though Arrow has some.
_NOT_IN_TABLES = (
    CalendarIntervalType,
    DayTimeIntervalType,
    YearMonthIntervalType,
    *([spark_types.TimeType] if INSTALLED >= (4, 1) else []),
)


def columns_to_arrow(schema: StructType) -> pa.Schema:
    """Spark's columns as Arrow's. Timestamps with a zone are in UTC. What is void can be null, as Arrow wants it.

    Raises SchemaMismatchError for an interval, a TIME, and other types that no table can hold.
    """
    loose = _for_arrow(schema, "")
    try:
        return to_arrow_schema(loose, timezone="UTC") if INSTALLED >= (4, 2) else to_arrow_schema(loose)
    except PySparkException as error:
        raise SchemaMismatchError(
            f"a table cannot have these columns: {error}", advice="use other types", column=""
        ) from error


def _for_arrow(kind: DataType, where: str) -> Any:
    """The type itself, or one that differs from it in what can be null."""
    if isinstance(kind, StructType):
        names = [f"{where}.{field.name}" if where else field.name for field in kind]
        inner = [_for_arrow(field.dataType, name) for field, name in zip(kind, names, strict=True)]
        if all(map(_is_same, inner, kind)):
            return kind
        return StructType(
            [
                StructField(field.name, found, field.nullable or isinstance(found, NullType), field.metadata)
                for field, found in zip(kind, inner, strict=True)
            ]
        )
    if isinstance(kind, ArrayType):
        element = _for_arrow(kind.elementType, f"{where}.element")
        return ArrayType(element, kind.containsNull or isinstance(element, NullType))
    if isinstance(kind, MapType):
        if isinstance(kind.keyType, NullType):
            raise SchemaMismatchError(
                f"column {where!r} is a map without a type for its keys",
                advice="cast it, as in CAST(map() AS MAP<STRING, STRING>), or drop it",
                column=where,
            )
        key, value = _for_arrow(kind.keyType, f"{where}.key"), _for_arrow(kind.valueType, f"{where}.value")
        return MapType(key, value, kind.valueContainsNull or isinstance(value, NullType))
    if isinstance(kind, _NOT_IN_TABLES):
        raise SchemaMismatchError(
            f"column {where!r} has Spark's type {kind.simpleString()}, which a Delta table cannot hold",
            advice="cast it to STRING" if isinstance(kind, CalendarIntervalType) else "cast it to STRING or BIGINT",
            column=where,
        )
    return kind


def _is_same(found: DataType, field: StructField) -> bool:
    return found is field.dataType and (field.nullable or not isinstance(found, NullType))


def columns_from_arrow(schema: pa.Schema) -> StructType:
    """Arrow's columns as Spark's. A timestamp without a zone is a TIMESTAMP_NTZ."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def rows_of_stream(arrow_converters: Any, content: bytes) -> Any:
    """The JVM's iterator over the rows of an Arrow stream, by Spark's object `ArrowConverters`."""
    if INSTALLED >= (4, 1):
        return arrow_converters.fromIPCStream(content).productElement(0)
    # None stands for the task that would end the iterator early; on the driver there is none.
    return arrow_converters.fromIPCStream(content, None).productElement(0)


def frame_of_batch(session: SparkSession, data: Any) -> Any:
    """The JVM's frame over the rows of a sink's micro-batch, as Spark makes it for batch functions.

    A sink must not plan that frame again: Spark has planned it, with the state of its operators.
    """
    jvm: Any = session._jvm  # noqa: SLF001 - PySpark's only way to the JVM
    made = getattr(getattr(jvm.org.apache.spark.sql.execution, "LogicalRDD$"), "MODULE$")
    is_stream, more = False, [False] if INSTALLED >= (4, 3) else []
    rows = made.fromDataset(data.queryExecution().toRdd(), data, is_stream, *more)
    return jvm.org.apache.spark.sql.classic.Dataset.ofRows(data.sparkSession(), rows)


def input_partition(task: Any) -> Any:
    """The JVM's input partition of a task that reads a data source with one partition."""
    return task.inputPartition().get() if INSTALLED >= (4, 2) else task.inputPartitions().apply(0)


def saved_rows(writer: DataFrameWriter, location: str) -> int | None:
    """Do what `writer.save(location)` does with a format of files, and return how many rows the tasks wrote.

    Spark's writer counts them anyway, without those of tasks that failed or came twice. None if this Spark has no such
    plan, or if the writer of a plug-in took its place.
    """
    session: Any = writer._spark  # noqa: SLF001 - the plan of a write has no Python API; a test pins all of this
    dataset = session._jvm.org.apache.spark.sql.classic.Dataset  # noqa: SLF001
    try:
        command = writer._jwrite.saveCommand(session._jvm.scala.Option.apply(location))  # noqa: SLF001
    except Py4JError:
        writer.save(location)
        return None
    done = dataset.ofRows(session._jsparkSession, command)  # noqa: SLF001
    try:
        plan = done.queryExecution().commandExecuted().commandPhysicalPlan()
        if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
            plan = plan.executedPlan().plan()
        return int(plan.metrics().apply("numOutputRows").value())
    except Py4JError:
        return None
