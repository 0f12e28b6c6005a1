"""Whether this process has a JVM for Spark; if not, whether it could start one."""

from __future__ import annotations

from pyspark import SparkContext

from tidelog.log.internals import environment
from tidelog.streaming.executors.prerequisites import require_java

# Set by spark-submit, whose JVM started this process, and by PySpark for a Spark Connect session, whose JVM is remote.
_OTHER_JVM = ("PYSPARK_GATEWAY_PORT", "SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE")


def require_jvm() -> None:
    """Raise PrerequisiteError, with the commands that install Java, if no JVM runs and Java is missing or too old.

    Without Java PySpark itself only says that its gateway exited.
    """
    if SparkContext._gateway is None and not any(map(environment, _OTHER_JVM)):  # noqa: SLF001 - no public way to ask
        require_java()
