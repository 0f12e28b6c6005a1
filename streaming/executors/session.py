"""The Spark session that the work runs on: a classic one, whose workers run this interpreter."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidelog.log.errors import ConfigurationError, PrerequisiteError
from tidelog.streaming.executors.prerequisites import require_spark

# A stream's session has it off; it fits the number of a shuffle's tasks to the rows.
FITTED_SHUFFLES = {"spark.sql.adaptive.enabled": "true"}


@contextmanager
def session_settings(session: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """The session with other settings within the block, and afterwards with its own.

    Blocks of several threads may overlap, as those of two sinks in one batch function do: the session has its own
    settings again when the last of them ends. They give a key the same value.
    """
    shared: Any = session._jsparkSession  # noqa: SLF001 - PySpark wraps one session of the JVM's in several objects
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


# For each session how many blocks use a setting, and the session's own value.
_held: dict[Any, dict[str, tuple[int, str | None]]] = {}
_lock = Lock()


def context_of(spark: SparkSession) -> SparkContext:
    """The context of `spark`. Raises PrerequisiteError where Spark is too old or is Connect, ConfigurationError for
    what is no session.

    On a local master Spark's Python workers are made to run this interpreter: by default Spark takes the `python3`
    that stands first on PATH, which may not have tidelog installed. On a cluster set `PYSPARK_PYTHON` yourself.
    """
    if isinstance(spark, type) or not hasattr(spark, "version"):
        found = spark.__name__ if isinstance(spark, type) else type(spark).__name__
        raise ConfigurationError(
            f"a Spark session is needed, not {found}", advice="pass SparkSession.builder.getOrCreate()"
        )
    require_spark(spark.version)
    try:
        context = spark.sparkContext
    except (PySparkException, AttributeError) as error:
        raise PrerequisiteError(
            "tidelog needs a classic Spark session; this one is Spark Connect's, which has no Spark context",
            advice="start the session with .master(...) instead of .remote(...)",
        ) from error
    use_this_interpreter(context)
    return context


def use_this_interpreter(context: SparkContext) -> None:
    """Make Spark's Python workers run this interpreter, on a local master; see `context_of`."""
    if (context.master or "").startswith("local") and context.pythonExec != sys.executable:
        context.pythonExec = sys.executable
