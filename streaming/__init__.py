"""tidelog for Spark: an exactly-once sink, a change feed, and row changes that run on the executors.

query = events.writeStream.foreachBatch(Sink("/data/events")).option("checkpointLocation", "/data/_cp").start()

register(spark)
changes = spark.readStream.format("tidelog").load("/data/events")

table(spark, "/data/events").delete("day < '2024-01-01'")

read(spark, "/data/events")
changes(spark, "/data/events", after=12)

`sink/` is the sink, `datasource/` the change feed and batch reads and writes, `jvm_reading/` batch reads by Spark's own
parquet reader, `executors/` the work on Spark's executors, and `monitoring/` what a stream reports; `prometheus`
exports it as metrics.
"""

from tidelog.streaming.datasource.registration import register
from tidelog.streaming.datasource.source import TidelogDataSource
from tidelog.streaming.executors.prerequisites import require_java, require_spark
from tidelog.streaming.executors.spark_table import SparkTable, table
from tidelog.streaming.jvm_reading.tables import changes, read
from tidelog.streaming.monitoring.batch_log import JsonLines, subscribe
from tidelog.streaming.monitoring.observed import observed
from tidelog.streaming.monitoring.report import BatchReport
from tidelog.streaming.sink.sink import Sink
from tidelog.streaming.sink.throttle import Throttle

__all__ = [
    "BatchReport",
    "JsonLines",
    "Sink",
    "SparkTable",
    "Throttle",
    "TidelogDataSource",
    "changes",
    "observed",
    "read",
    "register",
    "require_java",
    "require_spark",
    "subscribe",
    "table",
]
