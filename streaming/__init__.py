"""tidelog.streaming: the exactly-once sink and the change feed, for Spark Structured Streaming.

query = events.writeStream.foreachBatch(Sink("/data/events")).option("checkpointLocation", "/data/_cp").start()

register(spark)
changes = spark.readStream.format("tidelog").load("/data/events")
"""

from tidelog.streaming.prerequisites import require_java, require_spark
from tidelog.streaming.registration import register
from tidelog.streaming.report import BatchReport
from tidelog.streaming.sink import Sink
from tidelog.streaming.source import TidelogDataSource

__all__ = ["BatchReport", "Sink", "TidelogDataSource", "register", "require_java", "require_spark"]
