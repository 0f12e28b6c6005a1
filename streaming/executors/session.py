"""The Spark session that runs the work, classic or Spark Connect."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tidelog.log.errors import ConfigurationError
from tidelog.streaming.executors.prerequisites import require_jvm, require_spark

# Lets Spark fit the number of a shuffle's tasks to its rows; the session of a stream has it off.
_MOST_TASKS = 2**16
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
