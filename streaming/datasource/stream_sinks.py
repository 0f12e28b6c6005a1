"""The sinks of `writeStream.format("tidelog")` and `toTable(name)`: a Sink for each query, made of its options.

`Streams.java` calls `write` with each micro-batch, in the query's thread and with the frame that a batch function
would get. So the Sink knows the query, and what it promises holds here as well.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, TidelogError
from tidelog.log.storage import open_store
from tidelog.log.system import REAL_SYSTEM
from tidelog.streaming import spark_versions
from tidelog.streaming.datasource.sink_options import SinkOptions, parse_sink
from tidelog.streaming.datasource.sql_catalog import new_of_streams
from tidelog.streaming.executors.session import require_apart

if TYPE_CHECKING:
    from tidelog.streaming.sink.sink import Sink


_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
# Spark does not say when a query has ended. A sink that was let go of is made again.
_MOST_SINKS = 1000
_sinks: OrderedDict[str, Sink] = OrderedDict()
_lock = Lock()


def start(spark: SparkSession, request: Mapping[str, Any]) -> Any:
    """The sink of a query that starts, as an object of the JVM.

    Raises the errors of `parse_sink` and of Sink, and ConfigurationError for a checkpoint that is missing or in the
    table. Then what `toTable` has made for the query is gone again.
    """
    streams: Any = spark._jvm.tidelog.Streams  # type: ignore[union-attr]  # noqa: SLF001 - PySpark's only way to the JVM
    given = dict(request["options"])
    path = next((text for name, text in given.items() if name.lower() == "path"), None)
    of_catalog, name = streams.target(path), streams.made(path)
    new = None if name is None else new_of_streams.pop(open_store(str(path)).url, None)
    if of_catalog is not None:
        # Spark passes on the path alone, and the catalog may have storage options.
        given = {**of_catalog, **given, "path": of_catalog["path"]}
    if streams.isOfPipeline():
        given = with_name_of_flow(given, is_table=streams.isToTable())
    try:
        options = parse_sink(given, partitions=request["partitions"], output_mode=request["outputMode"])
        sink = _sink(options)
        _require_checkpoint(spark, sink, options.checkpoint, given)
        properties = sink.settings.properties_of_new_table
        if new is not None and properties:
            new.set_properties(properties)
    except TidelogError:
        if name is not None:
            _undo(spark, streams, name, new)
        raise
    key = REAL_SYSTEM.uuid()
    _keep(key, sink)
    return streams.Batches(json.dumps({"key": key, "options": given, "partitions": request["partitions"]}), repr(sink))


def with_name_of_flow(options: Mapping[str, str], *, is_table: bool) -> dict[str, str]:
    """The options of a pipeline's flow, with a name of the sink if its user gave none. Pure.

    Each flow into a table needs a name of its own. Its checkpoint is the folder `<flow>/<number>`, and a full refresh,
    which empties the table, begins the next number: so it begins a new name as well. What a refresh does not empty, a
    sink of the pipeline, keeps the name, and refuses the rows that would come twice.
    """
    checkpoint = next((text for name, text in options.items() if name.lower() == "checkpointlocation"), None)
    if checkpoint is None or any(name.lower() == "sinkname" for name in options):
        return dict(options)
    flow, number = checkpoint.rstrip("/").split("/")[-2:]
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", flow)[:60]
    if plain != flow:
        plain = f"{plain}.{blake2b(flow.encode(), digest_size=8).hexdigest()}"
    return {**options, "sinkName": f"{plain}.{number}" if is_table else plain}


def write_batch(spark: SparkSession, request: Mapping[str, Any], java: Any) -> str:
    """Commit a micro-batch. Returns what the query's progress shows of it."""
    kept = json.loads(request["sink"])
    with _lock:
        sink = _sinks.get(kept["key"])
    if sink is None:
        sink = _sink(parse_sink(kept["options"], partitions=kept["partitions"]))
    _keep(kept["key"], sink)
    sink(DataFrame(spark_versions.frame_of_batch(spark, java), spark), request["batch"])
    report = sink.last
    if report is None:
        raise AssertionError(kept["key"])  # the batch would have failed
    found: dict[str, object] = {"outcome": report.outcome, "rows": report.rows, **report.metrics}
    if report.version is not None:
        found["version"] = report.version
    return json.dumps({name: str(value) for name, value in found.items()})


def _sink(options: SinkOptions) -> Sink:
    from tidelog.streaming.sink.sink import Sink  # noqa: PLC0415 - only a stream that writes needs it
    from tidelog.streaming.sink.throttle import Throttle  # noqa: PLC0415 - as above

    more: dict[str, Any] = {}
    if options.dead_letters is not None:
        more["dead_letters"] = _sink(options.dead_letters)
    if options.throttle is not None:
        more["throttle"] = Throttle(**options.throttle)
    return Sink(options.path, **options.arguments, **more)


def _keep(key: str, sink: Sink) -> None:
    with _lock:
        _sinks[key] = sink
        _sinks.move_to_end(key)
        while len(_sinks) > _MOST_SINKS:
            _sinks.popitem(last=False)


def _require_checkpoint(spark: SparkSession, sink: Sink, checkpoint: str | None, options: Mapping[str, str]) -> None:
    """Raise ConfigurationError if the query's checkpoint lies in the table, or the table in it, or if it has none."""
    if checkpoint is None:
        folder = spark.conf.get(_CHECKPOINTS, None)
        if folder is None:
            raise ConfigurationError(
                "the query has no checkpointLocation, by which a batch is known when Spark runs it again",
                advice='add .option("checkpointLocation", "/a/folder/of/its/own"), or set ' + _CHECKPOINTS,
            )
        query = next((text for name, text in options.items() if name.lower() == "queryname"), None)
        # Without a name Spark makes one up.
        checkpoint = f"{folder}/{query or REAL_SYSTEM.uuid()}"
    require_apart(sink.settings.path, checkpoint)


def _undo(spark: SparkSession, streams: Any, name: Any, new: Table | None) -> None:
    """Take back a name in Spark's own catalog, and its table if that was made with it."""
    streams.forget(spark._jsparkSession, name)  # noqa: SLF001 - as above
    if new is not None:
        with suppress(TidelogError):
            Table.drop(new.path)
