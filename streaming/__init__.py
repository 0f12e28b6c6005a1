"""tidelog for Spark: an exactly-once sink, a change feed, and row changes that run on the executors.

query = events.writeStream.foreachBatch(Sink("/data/events")).option("checkpointLocation", "/data/_cp").start()

register(spark)
stream = spark.readStream.format("tidelog").load("/data/events")
query = Feed(spark, "/data/events").foreachBatch(function).option("checkpointLocation", "/data/_cp2").start()

table(spark, "/data/events").delete("day < '2024-01-01'")
table(spark, "/data/events").compact("major")

read(spark, "/data/events")
lookup(spark, batch, "/data/customers", on=["customer_id"])
capture.debezium(records, schema="id BIGINT, name STRING", keys=["id"])
changes(spark, "/data/events", after=12)

`sink/` is the sink; `capture/` makes rows for it of the change records of databases; `datasource/` is
`format("tidelog")`, with `feed_planning/` for its streams; `feed` is the change feed for a batch function;
`jvm_reading/` is reading by Spark's own parquet reader; `executors/` is the work on Spark's executors, and
`monitoring/` what a stream reports; `prometheus` exports it as metrics; `spark_versions` knows what differs between the
versions of Spark.

Names are imported when they are first used: Spark's Python processes load only what they need. Without PySpark the
import of this package is a PrerequisiteError, which is an ImportError, too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidelog.streaming import spark_versions as _spark_versions  # noqa: F401 - fails if PySpark is missing or old

if TYPE_CHECKING:
    from tidelog.streaming.datasource.register import register
    from tidelog.streaming.datasource.source import TidelogDataSource
    from tidelog.streaming.datasource.sql_statements import sql
    from tidelog.streaming.executors.lookup import lookup
    from tidelog.streaming.executors.prerequisites import require_java, require_spark
    from tidelog.streaming.executors.spark_executor import SparkExecutor
    from tidelog.streaming.executors.spark_table import SparkTable, table
    from tidelog.streaming.feed import Feed, FeedReport
    from tidelog.streaming.jvm_reading.tables import changes, read
    from tidelog.streaming.monitoring.batch_log import JsonLines, subscribe
    from tidelog.streaming.monitoring.batch_report import BatchReport
    from tidelog.streaming.monitoring.observed import observed
    from tidelog.streaming.sink.parking import Backlog
    from tidelog.streaming.sink.progress import wait_for
    from tidelog.streaming.sink.sink import Sink
    from tidelog.streaming.sink.sinks import Sinks
    from tidelog.streaming.sink.throttle import Throttle

__all__ = [
    "Backlog",
    "BatchReport",
    "Feed",
    "FeedReport",
    "JsonLines",
    "Sink",
    "Sinks",
    "SparkExecutor",
    "SparkTable",
    "Throttle",
    "TidelogDataSource",
    "changes",
    "lookup",
    "observed",
    "read",
    "register",
    "require_java",
    "require_spark",
    "sql",
    "subscribe",
    "table",
    "wait_for",
]

_HOMES = {
    "Backlog": "sink.parking",
    "BatchReport": "monitoring.batch_report",
    "Feed": "feed",
    "FeedReport": "feed",
    "JsonLines": "monitoring.batch_log",
    "Sink": "sink.sink",
    "Sinks": "sink.sinks",
    "SparkExecutor": "executors.spark_executor",
    "SparkTable": "executors.spark_table",
    "Throttle": "sink.throttle",
    "TidelogDataSource": "datasource.source",
    "changes": "jvm_reading.tables",
    "lookup": "executors.lookup",
    "observed": "monitoring.observed",
    "read": "jvm_reading.tables",
    "register": "datasource.register",
    "require_java": "executors.prerequisites",
    "require_spark": "executors.prerequisites",
    "sql": "datasource.sql_statements",
    "subscribe": "monitoring.batch_log",
    "table": "executors.spark_table",
    "wait_for": "sink.progress",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
