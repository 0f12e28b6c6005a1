"""Figures of streaming queries and sinks for Prometheus.

    listener = PrometheusListener()
    spark.streams.addListener(listener)
    listener.serve(9464)

Not imported by `tidelog.streaming`, since prometheus_client takes about a tenth of a second to load.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock
from typing import Any, TypeAlias, TypeVar

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from tidelog.log.errors import ConfigurationError
from tidelog.log.internals import REAL_SYSTEM, System
from tidelog.streaming.monitoring.batch_log import subscribe
from tidelog.streaming.monitoring.report import BatchReport

# Past so many queries, and so many sinks, the series of the one that was quiet for longest are dropped.
MAX_QUERIES = 200
MAX_SINKS = 200
# From a small batch on a local disk to one that takes minutes.
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_STATES = ("active", "terminated", "failed")

Metric: TypeAlias = Counter | Gauge | Histogram
M = TypeVar("M", Counter, Gauge, Histogram)


class PrometheusListener(StreamingQueryListener):
    """Exports figures of each query that Spark tells it of, and of each sink of this process.

    Queries have the label `query`: the query's name, or its id where it has none. Sinks have `path` and `sink`. At most
    200 of each are kept. The figures go to `registry`, by default prometheus_client's own. Raises ConfigurationError
    where the registry has such figures already; `close` takes them out.
    """

    def __init__(self, registry: CollectorRegistry | None = None, system: System = REAL_SYSTEM) -> None:
        self._registry = REGISTRY if registry is None else registry
        queries = _Family(self._registry, ("query",), MAX_QUERIES)
        sinks = _Family(self._registry, ("path", "sink"), MAX_SINKS)
        self._families = (queries, sinks)
        try:
            self._queries = _QueryFigures(queries, system)
            self._sinks = _SinkFigures(sinks)
        except ValueError as error:
            self._forget_families()
            raise ConfigurationError(
                f"the registry has a listener's figures already: {error}",
                advice="use that listener, close() it first, or give registry=CollectorRegistry()",
            ) from error
        self._unsubscribe = subscribe(self._sinks.add)

    def serve(self, port: int, addr: str = "127.0.0.1") -> Endpoint:
        """Answer to Prometheus on a thread of its own, by default to this machine only; port 0 takes any free one."""
        try:
            server, thread = start_http_server(port, addr=addr, registry=self._registry)
        except OSError as error:
            raise ConfigurationError(
                f"nothing can be served on {addr}:{port}: {error}", advice="choose another port or address"
            ) from error
        return Endpoint(server, thread)

    def close(self) -> None:
        """Take the figures out of the registry; first take the listener from Spark (`spark.streams.removeListener`)."""
        self._unsubscribe()
        self._forget_families()

    def _forget_families(self) -> None:
        for family in self._families:
            family.close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """See StreamingQueryListener."""
        self._queries.started(str(event.id), event.name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """See StreamingQueryListener."""
        self._queries.progressed(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """See StreamingQueryListener."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """See StreamingQueryListener."""
        self._queries.ended(str(event.id), failed=event.exception is not None)


class Endpoint:
    """An HTTP endpoint that answers until it is closed."""

    def __init__(self, server: Any, thread: Any) -> None:
        self._server, self._thread = server, thread
        self.port: int = server.server_port

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Family:
    """Metrics that share their first labels; the series of the label values used least recently are dropped."""

    def __init__(self, registry: CollectorRegistry, labels: tuple[str, ...], limit: int) -> None:
        self._registry, self._labels, self._limit = registry, labels, limit
        self._metrics: list[Metric] = []
        self._series: OrderedDict[tuple[str, ...], set[tuple[Metric, tuple[str, ...]]]] = OrderedDict()
        self._lock = Lock()

    def counter(self, name: str, what: str) -> Counter:
        return self._made(Counter(name, what, self._labels, registry=self._registry))

    def gauge(self, name: str, what: str, *more: str) -> Gauge:
        return self._made(Gauge(name, what, (*self._labels, *more), registry=self._registry))

    def histogram(self, name: str, what: str, *more: str) -> Histogram:
        labels = (*self._labels, *more)
        return self._made(Histogram(name, what, labels, registry=self._registry, buckets=_BUCKETS_S))

    def of(self, metric: M, key: tuple[str, ...], *more: str) -> M:
        """The series of a metric for these label values."""
        with self._lock:
            self._series.setdefault(key, set()).add((metric, more))
            self._series.move_to_end(key)
            while len(self._series) > self._limit:
                oldest, series = self._series.popitem(last=False)
                for known, values in series:
                    known.remove(*oldest, *values)
            return metric.labels(*key, *more)

    def close(self) -> None:
        for metric in self._metrics:
            self._registry.unregister(metric)
        self._metrics = []

    def _made(self, metric: M) -> M:
        self._metrics.append(metric)
        return metric


class _QueryFigures:
    """What Spark's events tell of queries."""

    def __init__(self, family: _Family, system: System) -> None:
        self._family, self._system = family, system
        self._names: OrderedDict[str, str] = OrderedDict()
        self._batches = family.counter("tidelog_query_batches_total", "Micro-batches that the query ran")
        self._input_rows = family.counter("tidelog_query_input_rows_total", "Rows that its batches read")
        self._input_rate = family.gauge("tidelog_query_input_rows_per_second", "Rows arriving, of the newest batch")
        self._processed_rate = family.gauge(
            "tidelog_query_processed_rows_per_second", "Rows processed, of the newest batch"
        )
        self._seconds = family.histogram("tidelog_query_trigger_seconds", "Time of each phase of a trigger", "phase")
        self._last_batch = family.gauge("tidelog_query_last_batch_id", "Number of the newest batch")
        self._last_progress = family.gauge(
            "tidelog_query_last_progress_timestamp_seconds", "When the query last told of progress, since the epoch"
        )
        self._state = family.gauge("tidelog_query_state", "1 for the state that the query is in", "state")

    def started(self, query_id: str, name: str | None) -> None:
        self._names[query_id] = name or query_id
        self._names.move_to_end(query_id)
        if len(self._names) > MAX_QUERIES:
            self._names.popitem(last=False)
        self._enter(query_id, "active")

    def progressed(self, progress: Any) -> None:
        key = self._key(str(progress.id), progress.name)
        of = self._family.of
        # An idle query tells of progress as well, from time to time, without the phase that runs a batch.
        if "addBatch" in progress.durationMs:
            of(self._batches, key).inc()
            of(self._input_rows, key).inc(max(0, progress.numInputRows))
            for phase, milliseconds in progress.durationMs.items():
                of(self._seconds, key, phase).observe(milliseconds / 1000)
        of(self._input_rate, key).set(progress.inputRowsPerSecond)
        of(self._processed_rate, key).set(progress.processedRowsPerSecond)
        of(self._last_batch, key).set(progress.batchId)
        of(self._last_progress, key).set(self._system.now_ms() / 1000)

    def ended(self, query_id: str, *, failed: bool) -> None:
        self._enter(query_id, "failed" if failed else "terminated")

    def _enter(self, query_id: str, state: str) -> None:
        for known in _STATES:
            self._family.of(self._state, self._key(query_id), known).set(known == state)

    def _key(self, query_id: str, name: str | None = None) -> tuple[str]:
        """The event of a query's end has no name, so the one that it started with is kept."""
        return (name or self._names.get(query_id, query_id),)


class _SinkFigures:
    """What the reports tell of sinks."""

    def __init__(self, family: _Family) -> None:
        self._family = family
        self._commits = family.counter("tidelog_sink_commits_total", "Batches that were committed")
        self._rows = family.counter("tidelog_sink_rows_total", "Rows of the batches that were committed")
        self._files = family.counter("tidelog_sink_files_total", "Data files that the commits added")
        self._bytes = family.counter("tidelog_sink_bytes_total", "Bytes of those files")
        self._skipped = family.counter("tidelog_sink_skipped_batches_total", "Replayed batches that were in the table")
        self._rebased = family.counter("tidelog_sink_rebased_commits_total", "Commits that followed others' commits")
        self._seconds = family.histogram("tidelog_sink_phase_seconds", "Time of each phase of a batch", "phase")
        self._debt_files = family.gauge("tidelog_sink_debt_files", "Small files, when the throttle last looked")
        self._delayed = family.counter("tidelog_sink_delayed_seconds_total", "Time that the throttle held batches back")
        self._last_version = family.gauge("tidelog_sink_last_version", "Version of the newest commit")

    def add(self, report: BatchReport) -> None:
        """Take one batch in."""
        key = (report.path, report.sink)
        of = self._family.of
        # All are there from the first batch on, since a counter that appears late seems not to have risen.
        of(self._skipped, key).inc(report.skipped)
        of(self._commits, key).inc(report.version is not None)
        of(self._rebased, key).inc(bool(report.rebased_over))
        of(self._delayed, key).inc(report.delayed_s)
        for counter, count in self._written(report):
            of(counter, key).inc(count)
        for phase, seconds in report.seconds.items():
            of(self._seconds, key, phase).observe(seconds)
        if report.debt_files is not None:
            of(self._debt_files, key).set(report.debt_files)
        if report.version is not None:
            of(self._last_version, key).set(report.version)

    def _written(self, report: BatchReport) -> Iterable[tuple[Counter, int]]:
        written = report.version is not None
        yield self._rows, report.rows if written else 0
        yield self._files, report.files if written else 0
        yield self._bytes, report.bytes if written else 0
