"""A streaming query as Spark's JVM knows it, in a classic session. It needs an internal call of Spark's."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidelog.log.errors import NotInStreamError


def java_query(session: SparkSession, query_id: str) -> Any:
    """The JVM's object for the streaming query with this id. Raises errors of py4j and PySpark if there is none.

    A batch function's session is a clone that has no queries, so this asks the state that all sessions share, through
    an internal call of Spark's.
    """
    java_session: Any = session._jsparkSession  # noqa: SLF001 - see above; a test pins it
    jvm: Any = session._jvm  # noqa: SLF001
    return java_session.sharedState().activeStreamingQueries().get(jvm.java.util.UUID.fromString(query_id))


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a streaming query: the JVM's query object, the run's id and the checkpoint's location."""

    query: Any
    run_id: str
    checkpoint: str


def run_of(session: SparkSession, query_id: str) -> Run:
    """The query's current run; see `java_query`. Raises NotInStreamError."""
    try:
        query = java_query(session, query_id)
        return Run(query, str(query.runId().toString()), str(query.resolvedCheckpointRoot()))
    except (Py4JError, PySparkException, AttributeError, TypeError) as error:
        raise NotInStreamError(
            f"cannot find the checkpoint of streaming query {query_id}: {error}",
            advice="this Spark lacks the internal call that tidelog uses; pass the checkpoint's location to the Sink, "
            "Sink(path, checkpoint=...), or install a supported version of pyspark",
        ) from error


class Runs:
    """A cache of runs by query id: a run's id and checkpoint never change, and getting them takes a dozen JVM calls."""

    _MAX_QUERIES = 64

    def __init__(self) -> None:
        self._known: dict[str, Run] = {}
        self._lock = Lock()

    def of(self, session: SparkSession, query_id: str) -> Run:
        """The run that the query is in."""
        with self._lock:
            found = self._known.get(query_id)
        if found is None or not is_active(found.query):
            found = run_of(session, query_id)
            with self._lock:
                while len(self._known) >= self._MAX_QUERIES:
                    del self._known[next(iter(self._known))]
                self._known[query_id] = found
        return found


def is_active(query: Any) -> bool:
    """Whether the JVM's query is still active; False if its session was stopped."""
    try:
        return bool(query.isActive())
    except (Py4JError, PySparkException):
        return False


known_runs = Runs()
