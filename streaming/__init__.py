"""tidelog.streaming: exactly-once sink, change feed, and row changes run by executors, for Spark.

query = events.writeStream.foreachBatch(Sink("/data/events")).option("checkpointLocation", "/data/_cp").start()

register(spark)
changes = spark.readStream.format("tidelog").load("/data/events")

table(spark, "/data/events").delete("day < '2024-01-01'")
"""

from tidelog.streaming.batch_log import JsonLines, subscribe
from tidelog.streaming.observed import observed
from tidelog.streaming.prerequisites import require_java, require_spark
from tidelog.streaming.registration import register
from tidelog.streaming.report import BatchReport
from tidelog.streaming.sink import Sink
from tidelog.streaming.source import TidelogDataSource
from tidelog.streaming.spark_table import SparkTable, table
from tidelog.streaming.throttle import Throttle

__all__ = [
    "BatchReport",
    "JsonLines",
    "Sink",
    "SparkTable",
    "Throttle",
    "TidelogDataSource",
    "observed",
    "register",
    "require_java",
    "require_spark",
    "subscribe",
    "table",
]
