"""Register `format("tidelog")` with a Spark session."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidelog.streaming.datasource import jvm_source
from tidelog.streaming.datasource.source import TidelogDataSource
from tidelog.streaming.datasource.table_functions import TABLE_FUNCTIONS, register_functions
from tidelog.streaming.executors.session import link_for_stream_readers, prepare_session

# Spark's error for a Python source whose name a class has.
_TAKEN = "DATA_SOURCE_ALREADY_EXISTS"


def register(spark: SparkSession) -> None:
    """Make `format("tidelog")` available to `spark.read`, `spark.readStream`, `df.write`, `df.writeStream` and SQL.

    In a classic session it is a class of the JVM, known to all sessions of this process, and rows do not pass through
    Python. Sessions that are made later also have the SQL catalog `tidelog`, but not the table functions; if this
    process is a server of Spark Connect, so have the sessions of its clients. It adds to
    `spark.sql.redaction.options.regex`, so that plans hide storage options. The class and its neighbours are compiled
    in the first process, which takes seconds, and kept in `$XDG_CACHE_HOME/tidelog/classes` (`~/.cache` without it).

    On Spark Connect, with `PYSPARK_PIN_THREAD=false`, and where Spark does not take the class (a warning says so), it
    is a Python source; then timestamp options without a time zone are read in the session's zone as it is now. On a
    server that has the class, it only adds the table functions.

    With a local master, Spark's Python workers will run this interpreter: by default Spark takes the first `python3` on
    PATH, which may not have tidelog installed. On a cluster set `PYSPARK_PYTHON` yourself.

    Args:
        spark: A Spark session, classic or Spark Connect. Each session needs its own call.

    Raises:
        PrerequisiteError: Java is missing or older than 17, or Spark is older than 4.0. The error shows the command
            that installs Java.
        ConfigurationError: `spark` is not a Spark session.

    Example:
        spark = SparkSession.builder.master("local[2]").getOrCreate()
        register(spark)
        spark.read.format("tidelog").load("/data/events").show()
    """
    prepare_session(spark)
    if not jvm_source.install(spark):
        _register_python_source(spark)
        register_functions(spark)
        return
    register_functions(spark)
    jvm_source.name_functions(spark, TABLE_FUNCTIONS)


def _register_python_source(spark: SparkSession) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")

    class InSessionZone(TidelogDataSource):
        session_zone = zone

    link_for_stream_readers(spark)
    try:
        spark.dataSource.register(InSessionZone)
    except PySparkException as error:
        if _TAKEN not in str(error):
            raise
        # The server of this session has it as a class.
