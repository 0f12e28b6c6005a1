"""The Spark session that runs the work, classic or Spark Connect: its queries, its Python workers, what it ships."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext, SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log.errors import ConfigurationError, PrerequisiteError
from tidelog.log.storage.location import is_within
from tidelog.streaming.executors.prerequisites import require_jvm, require_spark

# The local properties of a batch function's thread that have its query's id and its batch's number.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
_MOST_TASKS = 2**16
# Lets Spark fit the number of a shuffle's tasks to its rows; the session of a stream has it off.
FITTED_SHUFFLES = {"spark.sql.adaptive.enabled": "true"}
# Below the folder of shipped files, where the process of a Python stream reader looks for them.
_STREAM_READERS = "streaming_job"
_MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
# What a task of tidelog imports.
NEEDED = frozenset({"fsspec", "msgspec", "numpy", "pyarrow", "pyroaring", "sqlglot", "tidelog", "xxhash"})


@contextmanager
def session_settings(session: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session within the block, and restore them afterwards.

    Blocks of several threads can overlap, such as those of two sinks in one batch function, if they set a key to the
    same value. The session's own settings return when the last block ends.

    A session of Spark Connect is left as it is: other processes use it, and would see the change.
    """
    if is_connect(session):
        yield
        return
    shared: Any = session._jsparkSession  # noqa: SLF001 - several PySpark objects can wrap one session of the JVM
    with _lock:
        held = _held.setdefault(shared, {})
        for key, value in values.items():
            users, own = held.get(key) or (0, session.conf.get(key, None))
            session.conf.set(key, value)
            held[key] = users + 1, own
    try:
        yield
    finally:
        with _lock:
            for key in values:
                users, own = held.pop(key)
                if users > 1:
                    held[key] = users - 1, own
                elif own is None:
                    session.conf.unset(key)
                else:
                    session.conf.set(key, own)
            if not held:
                _held.pop(shared, None)


# For each session and setting, the number of blocks that use it and the session's own value.
_held: dict[Any, dict[str, tuple[int, str | None]]] = {}
_lock = Lock()


def prepare_session(spark: SparkSession) -> None:
    """Check a session, classic or Spark Connect; the workers of a classic local one will run this interpreter.

    Raises PrerequisiteError if Java is missing or too old, or if Spark is too old, and ConfigurationError if `spark` is
    not a session. Spark Connect needs no Java in this process.
    """
    require_session(spark)
    if not is_connect(spark):
        use_this_interpreter(spark.sparkContext)


def require_session(spark: SparkSession) -> None:
    """Check a session as `prepare_session` does, without a change."""
    if not is_connect(spark):
        require_jvm()
    if isinstance(spark, type) or not hasattr(spark, "version"):
        found = spark.__name__ if isinstance(spark, type) else type(spark).__name__
        raise ConfigurationError(
            f"a Spark session is needed, not {found}", advice="pass SparkSession.builder.getOrCreate()"
        )
    require_spark(spark.version)


def is_connect(spark: SparkSession) -> bool:
    """Whether it is a session of Spark Connect, which has no Spark context."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def is_local(spark: SparkSession) -> bool:
    """Whether the session's tasks run in Spark's own process."""
    master = spark.conf.get("spark.master", "") if is_connect(spark) else spark.sparkContext.master
    return (master or "").startswith("local")


def parallelism(spark: SparkSession) -> int:
    """How many tasks Spark runs at once, as far as it knows. Runs a short job on Spark Connect, which cannot be asked.

    A range is split by that number there.
    """
    if not is_connect(spark):
        return spark.sparkContext.defaultParallelism
    tasks = spark.range(_MOST_TASKS).select(F.spark_partition_id().alias("task"))
    [(last,)] = tasks.agg(F.max("task")).collect()
    return int(last) + 1


def use_this_interpreter(context: SparkContext) -> None:
    """With a local master, make Spark's Python workers run this interpreter.

    By default Spark takes the first `python3` on PATH, which may not have tidelog installed. On a cluster the user sets
    `PYSPARK_PYTHON`.
    """
    if (context.master or "").startswith("local") and context.pythonExec != sys.executable:
        context.pythonExec = sys.executable


def is_running(session: SparkSession, query_id: str) -> bool:
    """Whether the query with this id has not been stopped; True if this Spark has no way to know.

    `query.stop()` waits until the batch function returns, forever unless `spark.sql.streaming.stopTimeout` is set. It
    interrupts the JVM's thread, which does not wake a sleep in Python. But it marks the query as ended first, and that
    can be seen here. Takes about a millisecond, on Spark Connect two calls to the server.
    """
    if is_connect(session):
        try:
            # A stopped query is listed until its batch function returns. From Spark 4.3 on none is.
            return all(query.isActive for query in session.streams.active if query.id == query_id)
        except PySparkException:
            return True
    try:
        query = java_query(session, query_id)
        return query is not None and bool(query.isActive())
    except (Py4JError, PySparkException, AttributeError, TypeError):
        return True


def java_query(session: SparkSession, query_id: str) -> Any:
    """The JVM's object for the streaming query with this id. Raises errors of py4j and PySpark if there is none.

    A batch function's session is a clone that has no queries, so this asks the state that all sessions share, through
    an internal call of Spark's.
    """
    java_session: Any = session._jsparkSession  # noqa: SLF001 - see above; a test pins it
    jvm: Any = session._jvm  # noqa: SLF001
    return java_session.sharedState().activeStreamingQueries().get(jvm.java.util.UUID.fromString(query_id))


def require_apart(path: str, checkpoint: str) -> None:
    """Raise ConfigurationError if a query's checkpoint is in the folder of a table, or the table in the checkpoint."""
    if is_within(checkpoint, path):
        raise ConfigurationError(
            f"the query's checkpoint {checkpoint} is in the folder of the table {path}, whose clean-up deletes old "
            "files that belong to no version of the table",
            advice="stop the query, move the checkpoint to a folder outside of the table, and start the query with "
            "that as checkpointLocation; it goes on where it was",
        )
    if is_within(path, checkpoint):
        raise ConfigurationError(
            f"the table {path} is in the query's checkpoint {checkpoint}, and goes when somebody deletes that",
            advice="start the query with a checkpointLocation of its own, beside the table",
        )


def is_active(query: Any) -> bool:
    """Whether the JVM's query is still active; False if its session was stopped."""
    try:
        return bool(query.isActive())
    except (Py4JError, PySparkException):
        return False


class QueryStoppedError(Exception):
    """The query of a batch function was stopped, which interrupted a call of the function into the JVM.

    Its text is one that Spark knows as an interruption.
    """

    def __init__(self) -> None:
        # Spark looks for the beginning and the end of this.
        known = "py4j.protocol.Py4JJavaError: An error occurred while calling the JVM: java.lang.InterruptedException"
        super().__init__(f"the query was stopped; the batch runs again when it is restarted ({known})")


@contextmanager
def stopped_quietly(session: SparkSession) -> Iterator[None]:
    """Within a batch function: raise QueryStoppedError for an error of Spark's that comes from the query's stop.

    Spark searches the text of an interrupted function's error with a regular expression, which overflows the JVM's
    stack on a text as long as that of a real Py4JJavaError, and prints the overflow.
    """
    try:
        yield
    except (Py4JError, PySparkException):
        query_id = None if is_connect(session) else session.sparkContext.getLocalProperty(QUERY_ID)
        if query_id is None or is_running(session, query_id):
            raise
        raise QueryStoppedError from None


def link_for_stream_readers(spark: SparkSession) -> None:
    """Let the process of a stream reader, which runs beside the driver, import the shipped packages.

    Spark 4 adds a folder to that process's path but leaves it empty. This links the files that were shipped so far into
    it. It does nothing on Spark Connect, where the driver is another process.
    """
    if is_connect(spark):
        return
    root = Path(SparkFiles.getRootDirectory())
    for name in spark.sparkContext._python_includes or ():  # noqa: SLF001 - no public way to what was shipped
        link = root / _STREAM_READERS / name
        link.parent.mkdir(exist_ok=True)
        with suppress(FileExistsError):
            link.symlink_to(root / name)


@contextmanager
def imports_explained() -> Iterator[None]:
    """Raise PrerequisiteError for a Spark job that fails because its Python workers lack tidelog or what it needs."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        missing = missing_module(error)
        if missing is None:
            raise
        raise PrerequisiteError(
            f"the Python of Spark's workers cannot import {missing}",
            advice="install it there or ship it, as the guide 'Run on a cluster' shows; nothing was committed",
        ) from error


def missing_module(error: Any) -> str | None:
    """The package that a Python worker lacks, of those that tidelog's tasks need; None if that is not the reason."""
    found = _MISSING.search(str(error))
    return found[1] if found and found[1] in NEEDED else None
