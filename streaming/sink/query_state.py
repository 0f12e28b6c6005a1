"""Whether the streaming query that a batch function belongs to still runs.

`query.stop()` waits until the batch function returns, forever unless `spark.sql.streaming.stopTimeout` is set. It
interrupts the JVM's thread, which does not wake a sleep in Python. But it marks the query as ended first, and that can
be seen here.
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidelog.streaming.executors.session import is_connect


def is_running(session: SparkSession, query_id: str) -> bool:
    """Whether the query with this id has not been stopped; True if this Spark has no way to know.

    Takes about a millisecond, on Spark Connect two calls to the server.
    """
    if is_connect(session):
        try:
            # A stopped query is listed until its batch function returns. From Spark 4.3 on none is.
            return all(query.isActive for query in session.streams.active if query.id == query_id)
        except PySparkException:
            return True
    from py4j.protocol import Py4JError  # noqa: PLC0415 - a process of Spark Connect may lack it

    from tidelog.streaming.sink.java_query import java_query  # noqa: PLC0415 - as above

    try:
        query = java_query(session, query_id)
        return query is not None and bool(query.isActive())
    except (Py4JError, PySparkException, AttributeError, TypeError):
        return True
