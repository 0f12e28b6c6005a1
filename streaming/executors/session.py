"""The Spark session that runs the work, classic or Spark Connect, and its streaming queries."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log.errors import ConfigurationError
from tidelog.streaming.executors.prerequisites import require_jvm, require_spark

# The local property of a batch function's thread that has its query's id.
QUERY_ID = "sql.streaming.queryId"
_MOST_TASKS = 2**16
# Lets Spark fit the number of a shuffle's tasks to its rows; the session of a stream has it off.
FITTED_SHUFFLES = {"spark.sql.adaptive.enabled": "true"}


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
