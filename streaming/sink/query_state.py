"""The streaming query that a batch function belongs to, and whether it still runs.

`query.stop()` waits until the batch function returns, forever unless `spark.sql.streaming.stopTimeout` is set. It
interrupts the JVM's thread, which does not wake a sleep in Python. But it marks the query as ended first, and that can
be seen here.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def java_query(session: SparkSession, query_id: str) -> Any:
    """The JVM's object for the streaming query with this id. Raises errors of py4j and PySpark if there is none.

    A batch function's session is a clone that has no queries, so this asks the state that all sessions share, through
    an internal call of Spark's.
    """
    java_session: Any = session._jsparkSession  # noqa: SLF001 - see above; a test pins it
    jvm: Any = session._jvm  # noqa: SLF001
    return java_session.sharedState().activeStreamingQueries().get(jvm.java.util.UUID.fromString(query_id))


def is_running(session: SparkSession, query_id: str) -> bool:
    """Whether the query with this id has not been stopped; True if this Spark has no way to know.

    Takes about a millisecond.
    """
    try:
        query = java_query(session, query_id)
        return query is not None and bool(query.isActive())
    except (Py4JError, PySparkException, AttributeError, TypeError):
        return True
