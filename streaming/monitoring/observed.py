"""Figures of the rows themselves, in each progress event of a streaming query."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from tidelog.log.errors import ConfigurationError
from tidelog.streaming.executors.plain_frame import quoted


def observed(stream: DataFrame, name: str = "tidelog", *, event_time: str | None = None) -> DataFrame:
    """The same stream, whose progress tells `rows` of each batch, and with `event_time` the `min_event_time` and
    `max_event_time` of that column.

        observed(events, event_time="at").writeStream.foreachBatch(Sink(path))...
        query.lastProgress.observedMetrics["tidelog"].rows

    Spark counts rows as they are computed for the batch function: a batch that the sink skips has 0, one that the
    function reads twice has twice its rows, and one that is looked into first (as a sink does before it makes a table)
    some more; minimum and maximum are right in each case but the first. Rows filtered out after this call are counted.

    What a sink does with the rows (version, files, delays) cannot be had in a progress event, which Spark fills from
    the query's own plan: see `Sink.last`, `subscribe` and `PrometheusListener`. Raises ConfigurationError for a
    DataFrame that is no stream, and an unknown column.
    """
    if not stream.isStreaming:
        raise ConfigurationError(
            "only a stream has progress to observe", advice="give a DataFrame of spark.readStream, or use Observation"
        )
    figures = [sql.count(sql.lit(1)).alias("rows")]
    if event_time is not None:
        if event_time not in stream.columns:
            raise ConfigurationError(
                f"the stream has no column {event_time!r}", advice=f"its columns are {', '.join(stream.columns)}"
            )
        column = stream[quoted(event_time)]
        figures += [sql.min(column).alias("min_event_time"), sql.max(column).alias("max_event_time")]
    return stream.observe(name, *figures)
