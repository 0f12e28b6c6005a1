"""The streaming query that a batch function belongs to, and whether it still runs.

`query.stop()` waits until the batch function returns (for ever, unless `spark.sql.streaming.stopTimeout` is set), and
what it interrupts is the JVM's thread, which a sleep in Python does not feel. But it marks the query as ended first,
and that can be seen from here.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def java_query(session: SparkSession, query_id: str) -> Any:
    """The streaming query with this id, as the JVM has it; raises what py4j and PySpark raise where there is none.

    The session of a batch function is a clone that has no queries of its own, so this asks the state that all sessions
    share, by an internal call.
    """
    java_session: Any = session._jsparkSession  # noqa: SLF001 - see above; a test pins it
    jvm: Any = session._jvm  # noqa: SLF001
    return java_session.sharedState().activeStreamingQueries().get(jvm.java.util.UUID.fromString(query_id))


def is_running(session: SparkSession, query_id: str) -> bool:
    """Whether nobody has stopped the query with this id; True where this Spark does not tell.

    Takes about a millisecond.
    """
    try:
        query = java_query(session, query_id)
        return query is not None and bool(query.isActive())
    except (Py4JError, PySparkException, AttributeError, TypeError):
        return True
