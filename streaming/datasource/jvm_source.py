"""`format("tidelog")` as a class of the JVM, and the planner in this process that answers it.

`DefaultSource.java` is compiled on the driver and put where Spark's threads look for classes (`jvm_classes.py`). Spark
then finds it by the format's name, and it asks this module for everything, through the callback server that
`foreachBatch` uses. A session of Spark Connect has no JVM here, and keeps the Python source (`source.py`).
"""

from __future__ import annotations

import json
import socket
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from threading import Timer
from types import FrameType
from typing import Any

from py4j.clientserver import ClientServer
from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidelog.log.errors import PredicateError, TidelogError
from tidelog.log.operations.overwrite import live_partitions
from tidelog.log.read.table_reader import TableReader
from tidelog.log.storage import open_store
from tidelog.log.system import REAL_SYSTEM, logger
from tidelog.streaming import spark_versions
from tidelog.streaming.datasource import (
    frames,
    procedures,
    rewritten,
    sql_alterations,
    sql_catalog,
    sql_columns,
    sql_namespaces,
    sql_tables,
    stream_sinks,
)
from tidelog.streaming.datasource.file_partitions import read_columns, table_to_read
from tidelog.streaming.datasource.jvm_classes import JvmClasses, classes_of
from tidelog.streaming.datasource.pushed_filters import exact_predicate, one_partition
from tidelog.streaming.datasource.read_options import begins_by_default, parse_read, split_names
from tidelog.streaming.executors.session import QUERY_ID, is_connect, require_apart
from tidelog.streaming.feed_planning.query_columns import LoadedColumns

_LOGGER = logger(__name__)

_CALLERS = "tidelog.Callers"
_CLASS = "tidelog.DefaultSource"
# By this file Spark finds a class by its short name, in any case.
_SERVICE = "org.apache.spark.sql.sources.DataSourceRegister"
_STREAMS = "tidelog.Streams"
_LATER_SESSIONS = "tidelog.LaterSessions"
_CATALOG = "tidelog.Catalog"
_CHANGES_CATALOG = "tidelog.ChangesCatalog"
_SESSION_CATALOG = "tidelog.SessionCatalog"
_SESSION_CHANGES = "tidelog.SessionChanges"
# The same for a Spark that has no such thing.
_NO_SESSION_CHANGES = """
    package tidelog;
    abstract class SessionChanges extends org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension {}
"""
_NAME_COLUMNS = "tidelog.NameColumns"
_ROW_OPERATION = "tidelog.RowOperation"
_REWRITTEN = "tidelog.Rewritten"
_NEWER_CATALOG = "tidelog.NewerCatalog"
_NAMESPACES = "tidelog.Namespaces"
_PARTITIONED = "tidelog.Partitions"
_PROCEDURES = "tidelog.Procedures"
_TABLE_CHANGES = "tidelog.TableChanges"
_ROW_CHANGES = "tidelog.RowChanges"
_NAMED_FUNCTIONS = "tidelog.NamedFunctions"
_OLDER_CATALOG = """
    package tidelog;
    import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
    public abstract class NewerCatalog extends Namespaces {
      public java.util.Set capabilities() {
        return java.util.Collections.singleton(TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE);
      }
    }
"""
_CATALOG_SETTING = "spark.sql.catalog.tidelog"
_ZONE = "spark.sql.session.timeZone"
_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
_REDACTED = "spark.sql.redaction.options.regex"
_REDACTED_SETTINGS = "spark.redaction.regex"
_SECRETS = "(?i)storageoption\\."
# How long the thread of a query that ends may still ask.
_LAST_ANSWER_S = 10.0
# The option of the stream behind a Feed.
ONLY_PLANS = "__onlyplans"
# Spark's option with what `partitionBy` said, as JSON.
_PARTITIONS = "__partition_columns"
# The folder of a checkpoint with what its sources keep.
_SOURCES = "/sources/"
_INITIAL = "initialSnapshot"


def install(spark: SparkSession) -> bool:
    """Make the class known to Spark, in all its sessions. False if this Spark, or this session, cannot have it."""
    if is_connect(spark) or not _are_threads_pinned(spark):
        return False
    classes = classes_of(spark)
    try:
        classes.load(_CALLERS)
        source = classes.load(_CLASS)
        classes.offer(_SERVICE, _CLASS)
        start: Any = ensure_callback_server_started
        start(spark.sparkContext._gateway)  # noqa: SLF001 - as for foreachBatch
        source.getField("PLANNER").get(None).set(_Planner())
    except (Py4JError, TypeError, AttributeError, OSError) as error:
        _LOGGER.warning(
            "format('tidelog') cannot be a class of this Spark; its rows pass through Python: %s", _first_line(error)
        )
        return False
    try:
        _install_catalog(spark, classes)
    except (Py4JError, TypeError) as error:
        _LOGGER.warning("this Spark cannot have the SQL catalog of tidelog: %s", _first_line(error))
    classes.keep()
    _hide_secrets(spark)
    _hide_secrets_of_others(spark)
    return True


def _install_catalog(spark: SparkSession, classes: JvmClasses) -> None:
    """Give the session the catalog `tidelog`, and the statements that change its tables."""
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only way to the JVM
    java: Any = spark._jsparkSession  # noqa: SLF001 - as above
    classes.load(_NAMESPACES)
    classes.load(_NEWER_CATALOG, None if spark_versions.CATALOGS_HAVE_CONSTRAINTS else _OLDER_CATALOG)
    for name in (_PARTITIONED, _PROCEDURES, _TABLE_CHANGES, _ROW_OPERATION, _STREAMS, _CATALOG):
        classes.load(name)
    catalog = _CHANGES_CATALOG if _install_changes(spark, classes) else _CATALOG
    classes.load(_SESSION_CATALOG)
    if spark.conf.get(_CATALOG_SETTING, None) is None:
        spark.conf.set(_CATALOG_SETTING, catalog)
    for name in (_NAME_COLUMNS, _REWRITTEN, _ROW_CHANGES, _LATER_SESSIONS):
        classes.load(name)
    jvm.tidelog.RowChanges.install(java)
    # Sessions that are made from now on, as those of Spark Connect, have both as well.
    jvm.tidelog.LaterSessions.install(java)
    java.sharedState().conf().setIfMissing(_CATALOG_SETTING, catalog)


def _install_changes(spark: SparkSession, classes: JvmClasses) -> bool:
    """Whether this Spark can ask a catalog for changes. If so, make the catalog that has them known."""
    if spark_versions.CATALOGS_HAVE_CHANGES:
        try:
            classes.load(_CHANGES_CATALOG)
            classes.load(_SESSION_CHANGES)
            jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only way to the JVM
            jvm.tidelog.ChangesCatalog.install(spark._jsparkSession)  # noqa: SLF001 - as above
        except (Py4JError, TypeError) as error:
            _LOGGER.warning("this Spark cannot have CHANGES of tables of tidelog: %s", _first_line(error))
        else:
            return True
    classes.load(_SESSION_CHANGES, _NO_SESSION_CHANGES)
    return False


def name_functions(spark: SparkSession, functions: Iterable[str]) -> None:
    """Let table functions of the session take the name of a table, and add Delta's `table_changes`."""
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only way to the JVM
    try:
        classes = classes_of(spark)
        classes.load(_NAMED_FUNCTIONS)
        classes.keep()
        for name in functions:
            jvm.tidelog.NamedFunctions.install(spark._jsparkSession, name)  # noqa: SLF001 - as above
        jvm.tidelog.NamedFunctions.addTableChanges(spark._jsparkSession)  # noqa: SLF001 - as above
    except (Py4JError, TypeError) as error:
        _LOGGER.warning("the table functions of this Spark take paths only: %s", _first_line(error))


def _hide_secrets(spark: SparkSession) -> None:
    """Let the session's plans and descriptions leave out storage options."""
    hidden = spark.conf.get(_REDACTED) or ""
    if _SECRETS not in hidden:
        spark.conf.set(_REDACTED, f"{hidden}|{_SECRETS}" if hidden else _SECRETS)


def _hide_secrets_of_others(spark: SparkSession) -> None:
    """The same for sessions that are made from now on, and for what Spark shows of its settings.

    A session publishes the plan of its first write before tidelog knows of it.
    """
    java: Any = spark._jsparkSession  # noqa: SLF001 - PySpark's only way to the JVM
    for conf, name, default in (
        (java.sharedState().conf(), _REDACTED, "(?i)url"),
        (java.sparkContext().conf(), _REDACTED_SETTINGS, "(?i)secret|password|token|access[.]?key"),
    ):
        hidden = conf.get(name, default)
        if _SECRETS not in hidden:
            conf.set(name, f"{hidden}|{_SECRETS}" if hidden else _SECRETS)


def planned_stream(spark: SparkSession, options: Mapping[str, str]) -> DataFrame | None:
    """The stream behind a Feed: its batches are empty, and `frames.planned` has what they read.

    None if the session has no such streams.
    """
    if not install(spark):
        return None
    return spark.readStream.format("tidelog").options(**options).option(ONLY_PLANS, "true").load()


def _first_line(error: Exception) -> str:
    """The text of an error without the frames of the JVM."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("\tat ")]
    return " ".join(lines[:2])


def _are_threads_pinned(spark: SparkSession) -> bool:
    """Whether a call from the JVM, and the calls that answer it, run in one thread there, as is PySpark's default."""
    return isinstance(spark.sparkContext._gateway, ClientServer)  # noqa: SLF001 - PySpark has no public way


class _Planner:
    """Answers the class. Py4j calls it in the thread that asks."""

    def apply(self, request: str, place: Any) -> None:
        """Put the answer into the first place, and into the second one the text of an error."""
        try:
            answer = _answered(json.loads(request), place[0])
        except TidelogError as error:
            _LOGGER.debug('format("tidelog") failed', exc_info=error)
            place[1] = str(error)
        except (PySparkException, Py4JError) as error:
            place[1] = str(error)
        except Exception:  # noqa: BLE001 - Spark shows it; py4j would lose its text
            place[1] = traceback.format_exc()
        else:
            place[0] = answer
            place[1] = None

    class Java:
        """The interface of the JVM."""

        implements = ("java.util.function.BiFunction",)


def _answered(request: Mapping[str, Any], given: Any) -> Any:
    return _ANSWERS[request["kind"]](request, given)


def _session(java: Any) -> SparkSession:
    context: Any = SparkContext._active_spark_context  # noqa: SLF001 - as PySpark's own batch functions find it
    to_frame = vars(RDD).get("toDF")
    session = SparkSession(context, java)
    if to_frame is not None:
        # The constructor makes RDDs frames of its session, and users have another one.
        RDD.toDF = to_frame  # type: ignore[method-assign]
    return session


def _zone(spark: SparkSession) -> str:
    return spark.conf.get(_ZONE) or "UTC"


def _asked(request: Mapping[str, Any]) -> StructType | None:
    return sql_columns.without_lengths(request["schema"]) if request.get("schema") else None


def _load(request: Mapping[str, Any], java: Any) -> str:
    """The columns of a stream, and on the last line what the query needs to know of the load.

    A line between them says that the stream of a pipeline begins with the table as it is. Its source may be a table of
    the pipeline, too, which a full refresh empties: a stream that began with the first version would end there.
    """
    spark = _session(java)
    _hide_secrets(spark)
    options = parse_read(_shown(request), session_zone=_zone(spark))
    table = table_to_read(options)
    found = read_columns(table.schema, options.query_columns)
    loaded = LoadedColumns(table.version, table.schema)
    jvm: Any = spark._jvm  # noqa: SLF001 - as above
    begins = [_INITIAL] if begins_by_default(request["options"]) and jvm.tidelog.Streams.isOfPipeline() else []
    return "\n".join([spark_versions.columns_from_arrow(found).json(), *begins, loaded.to_text()])


def _start(request: Mapping[str, Any], java: Any) -> str:
    spark, asked, shown = _session(java), _asked(request), _shown(request)
    options = parse_read(shown, streaming=True, session_zone=_zone(spark))
    # Spark gives each source a place of its own below the checkpoint.
    checkpoint, _, _ = request["place"].rpartition(_SOURCES)
    require_apart(open_store(options.path, options.storage_options).url, checkpoint)
    # A stream of a table's changes has the last line only.
    *before, loaded = request["loaded"].split("\n")
    if before[1:]:
        shown = {**shown, _INITIAL: "true"}
    key = REAL_SYSTEM.uuid()
    _feeds[key] = frames.FrameFeed(
        spark,
        shown,
        key=key,
        zone=_zone(spark),
        loaded=None if asked else LoadedColumns.from_text(loaded),
        asked=asked,
        only_plans=ONLY_PLANS in {name.lower() for name in request["options"]},
    )
    return key


def _shown(request: Mapping[str, Any]) -> dict[str, str]:
    """The options that a user gave."""
    return {name: value for name, value in request["options"].items() if name.lower() != ONLY_PLANS}


def _limit(_: Mapping[str, Any], java: Any) -> Any:
    """A limit: any but "everything", since the feed applies its own."""
    jvm: Any = _session(java)._jvm  # noqa: SLF001 - as above
    return jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.maxFiles(1)


def _columns(request: Mapping[str, Any], java: Any) -> str:
    spark = _session(java)
    _hide_secrets(spark)
    options = parse_read(request["options"], streaming=False, session_zone=_zone(spark))
    return frames.batch_columns(options, _asked(request)).json()


def _scan(request: Mapping[str, Any], given: Any) -> Any:
    java, filters = given
    spark = _session(java)
    options = parse_read(request["options"], streaming=False, session_zone=_zone(spark))
    frame: Any = rewritten.rows_of_statement(spark, request["columns"], list(filters))
    if frame is None:
        frame = frames.batch_rows(spark, options, _asked(request), request["columns"], list(filters))
    frames.require_types(frame, sql_columns.without_lengths(request["expected"]), options.path)
    return frame._jdf.queryExecution().toRdd()  # noqa: SLF001 - as above


def _write(request: Mapping[str, Any], java: Any) -> None:
    spark = _session(java.sparkSession())
    _hide_secrets(spark)
    options = dict(request["options"])
    names = options.pop(_PARTITIONS, None)
    partition_by = request.get("partitions") if names is None else json.loads(names)
    data = DataFrame(java, spark)
    if "properties" in request:
        sql_columns.require_plain(data.schema)
    if request.get("inserts") and request["mode"] == "Overwrite" and _replaces_partitions(spark, options):
        options["partitionOverwriteMode"] = "dynamic"
    frames.write(
        options,
        request["mode"],
        data,
        partition_by=partition_by,
        properties=sql_columns.with_clusters(request.get("properties") or {}),
        reads_table=partial(_reads, data),
        partitions=request.get("replaced"),
    )


def _reads(data: DataFrame, path: str) -> bool:
    """Whether a frame reads the table at a path by SQL or by the format."""
    jvm: Any = data.sparkSession.sparkContext._jvm  # noqa: SLF001 - as above
    return bool(jvm.tidelog.RowChanges.readsPath(data._jdf.queryExecution().analyzed(), path))  # noqa: SLF001 - as above


def _replaces_partitions(spark: SparkSession, options: Mapping[str, str]) -> bool:
    """Whether INSERT OVERWRITE of a name replaces partitions only, as Spark says by itself of tables of the catalog."""
    mode = spark.conf.get(_OVERWRITE_MODE) or "static"
    if mode.lower() != "dynamic" or any(name.lower() == "where" for name in options):
        return False
    return bool(table_to_read(parse_read(options, streaming=False, session_zone="UTC")).at().partition_by)


def _overwrite(request: Mapping[str, Any], given: Any) -> None:
    """Replace the rows that pass Spark's filters."""
    java, filters = given
    options = request["options"]
    given, storage_options = split_names(options)
    table = TableReader.open(given["path"], storage_options=storage_options)
    where = exact_predicate(list(filters), table.schema)
    if where is None:
        partition = one_partition(list(filters), table.schema, table.at().partition_by)
        if partition is not None:
            _write({"options": options, "mode": "Overwrite", "replaced": partition}, java)
            return
        raise PredicateError(
            f"the rows to replace, {' AND '.join(map(str, filters))}, are described by more than comparisons",
            advice='use df.write.format("tidelog").mode("overwrite").option("where", ...).save(path), whose predicates '
            "are tidelog's own",
        )
    _write({"options": {**options, "where": where}, "mode": "Overwrite"}, java)


def _partitions(request: Mapping[str, Any], java: Any) -> Any:
    """The partitions of a table that have rows."""
    table = table_to_read(parse_read(request["options"], streaming=False, session_zone="UTC"))
    found = live_partitions(table.at().state, table.path)
    frame: Any = _session(java).createDataFrame(found, spark_versions.columns_from_arrow(found.schema))
    return frame._jdf  # noqa: SLF001 - as above


def _statements(_: Mapping[str, Any], __: Any) -> str | None:
    """The texts of the statements that this process runs now, with a zero between them: Spark's plan of a new name
    does not have its own.

    An empty text stands for a frame that is written. None if there is nothing: Spark alone runs the statement.
    """
    texts: list[str] = []
    for frame in sys._current_frames().values():  # noqa: SLF001 - the thread that waits for Spark is another one
        above: FrameType | None = frame
        while above is not None:
            module, function = above.f_globals.get("__name__", ""), above.f_code.co_name
            if module == "pyspark.sql.session" and function == "sql":
                texts.append(str(above.f_locals.get("sqlQuery")))
            elif module == "pyspark.sql.readwriter":
                texts.append("")
            above = above.f_back
    return "\0".join(texts) if texts else None


def _batch(request: Mapping[str, Any], _: Any) -> Any:
    frame: Any = _feeds[request["feed"]].batch(request["start"], request["end"])
    return frame._jdf  # noqa: SLF001 - as above


def _rows(request: Mapping[str, Any], _: Any) -> Any:
    frame: Any = _feeds[request["feed"]].rows(request["start"], request["end"], request["columns"])
    return frame._jdf  # noqa: SLF001 - as above


def _sink(request: Mapping[str, Any], java: Any) -> Any:
    spark = _session(java)
    _hide_secrets(spark)
    return stream_sinks.start(spark, request)


def _stop(request: Mapping[str, Any], _: Any) -> None:
    feed = _feeds.pop(request["feed"], None)
    if feed is None:
        return
    feed.close()
    context: Any = feed.spark.sparkContext
    if context.getLocalProperty(QUERY_ID) is None:
        return  # not the thread of a query
    # It ends now. Py4j would keep its connection, and a thread here, until the process ends.
    connection = context._gateway._gateway_client.get_thread_connection()  # noqa: SLF001 - as above
    if connection is not None:
        timer = Timer(_LAST_ANSWER_S, _end, [connection])
        timer.daemon = True
        timer.start()


def _end(connection: Any) -> None:
    """Let the thread that reads from a connection of py4j see its end."""
    with suppress(OSError, AttributeError):  # py4j has closed it, and has put None in the place of the socket
        connection.socket.shutdown(socket.SHUT_RDWR)


_feeds: dict[str, frames.FrameFeed] = {}
_ANSWERS: dict[str, Callable[[Mapping[str, Any], Any], Any]] = {
    "load": _load,
    "start": _start,
    "latest": lambda request, _: _feeds[request["feed"]].latest(request["start"], reads_all=request["all"]),
    "batch": _batch,
    "first": lambda request, _: _feeds[request["feed"]].first(),
    "feedRows": _rows,
    "now": lambda request, _: _feeds[request["feed"]].end_at_newest(),
    "newest": lambda request, _: _feeds[request["feed"]].newest(),
    "limit": _limit,
    "stop": _stop,
    "sink": _sink,
    "sinkBatch": lambda request, java: stream_sinks.write_batch(_session(java.sparkSession()), request, java),
    "columns": _columns,
    "scan": _scan,
    "write": _write,
    "overwrite": _overwrite,
    "statements": _statements,
    "change": lambda request, given: rewritten.run_change(_session(given[0]), request, given[1]),
    "alterTable": lambda request, given: sql_alterations.alter(_session(given), request),
    "partitions": _partitions,
    "call": lambda request, given: procedures.call(_session(given), request),
    **procedures.OF_PROCEDURES,
    **sql_catalog.ANSWERS,
    **sql_namespaces.OF_NAMESPACES,
    **sql_tables.OF_TABLES,
}
