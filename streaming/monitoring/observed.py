"""Figures about the rows themselves in the progress events of a streaming query."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from tidelog.log.errors import ConfigurationError
from tidelog.streaming.executors.plain_frame import quoted


def observed(stream: DataFrame, name: str = "tidelog", *, event_time: str | None = None) -> DataFrame:
    """Add the number of rows, and the range of their event times, to the progress events of a stream.

    Spark counts rows as it computes them for the batch function. So a batch that the sink skips has 0 rows, a batch
    that the function reads twice has twice its rows, and a batch that the function peeks into has a few more. Rows that
    are filtered out after this call are counted. The minimum and maximum are right except for a skipped batch.

    A progress event cannot show what the sink does with the rows (version, files, delays), since Spark fills it from
    the query's own plan. See `Sink.last`, `subscribe` and `PrometheusListener` for that.

    Args:
        stream: A streaming DataFrame.
        name: The key of the figures in `observedMetrics`.
        event_time: A column of the stream to report the minimum and maximum of.

    Returns:
        The same rows. Each progress event has `rows`, and with `event_time` also `min_event_time` and `max_event_time`.

    Raises:
        ConfigurationError: The DataFrame is not a stream, or it lacks the column.

    Example:
        writer = observed(events, event_time="at").writeStream.foreachBatch(Sink(path))
        query = writer.option("checkpointLocation", c).start()
        query.lastProgress.observedMetrics["tidelog"].rows
    """
    if not stream.isStreaming:
        raise ConfigurationError(
            "the DataFrame is not a stream, so it has no progress events",
            advice="pass a DataFrame of spark.readStream, or use pyspark.sql.Observation",
        )
    figures = [sql.count(sql.lit(1)).alias("rows")]
    if event_time is not None:
        if event_time not in stream.columns:
            raise ConfigurationError(
                f"the stream has no column {event_time!r}", advice=f"choose one of {', '.join(stream.columns)}"
            )
        column = stream[quoted(event_time)]
        figures += [sql.min(column).alias("min_event_time"), sql.max(column).alias("max_event_time")]
    return stream.observe(name, *figures)
