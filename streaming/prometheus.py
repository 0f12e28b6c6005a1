"""Metrics of streaming queries and sinks for Prometheus.

    listener = PrometheusListener()
    spark.streams.addListener(listener)
    listener.serve(9464)

`tidelog.streaming` does not import this module, since loading prometheus_client takes about a tenth of a second.
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
from tidelog.log.system import REAL_SYSTEM, System
from tidelog.streaming.monitoring.batch_log import subscribe
from tidelog.streaming.monitoring.batch_report import BatchReport

# Beyond this many queries, or sinks, the series of the least recently updated one are dropped.
MAX_QUERIES = 200
MAX_SINKS = 200
# From a small batch on a local disk to one that takes minutes.
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_STATES = ("active", "terminated", "failed")

Metric: TypeAlias = Counter | Gauge | Histogram
M = TypeVar("M", Counter, Gauge, Histogram)


class PrometheusListener(StreamingQueryListener):
    """Exports metrics of the streaming queries of a Spark session and of all sinks in this process.

    Metrics of queries have the label `query`: the query's name, or its id if it has none. Metrics of sinks have the
    labels `path` and `sink`. At most 200 queries and 200 sinks are kept; beyond that the least recently updated one is
    dropped.

    Args:
        registry: Where the metrics are registered. Default: the registry of prometheus_client.
        system: The clock; only tests pass one.

    Raises:
        ConfigurationError: The registry already has the metrics of another listener.

    Example:
        listener = PrometheusListener()
        spark.streams.addListener(listener)
        endpoint = listener.serve(9464)
    """

    def __init__(self, registry: CollectorRegistry | None = None, system: System = REAL_SYSTEM) -> None:
        self._registry = REGISTRY if registry is None else registry
        queries = _Family(self._registry, ("query",), MAX_QUERIES)
        sinks = _Family(self._registry, ("path", "sink"), MAX_SINKS)
        self._families = (queries, sinks)
        try:
            self._queries = _QueryMetrics(queries, system)
            self._sinks = _SinkMetrics(sinks)
        except ValueError as error:
            self._forget_families()
            raise ConfigurationError(
                f"the registry already has the metrics of another listener: {error}",
                advice="use that listener, close() it first, or pass registry=CollectorRegistry()",
            ) from error
        self._unsubscribe = subscribe(self._sinks.add)

    def serve(self, port: int, addr: str = "127.0.0.1") -> Endpoint:
        """Serve the metrics over HTTP, in a background thread.

        Args:
            port: TCP port; 0 takes a free one, which the result's `port` has.
            addr: Address to listen on. Default: only this machine can connect.

        Returns:
            The endpoint, which serves until it is closed.

        Raises:
            ConfigurationError: The port is in use, or the address is not this machine's.
        """
        try:
            server, thread = start_http_server(port, addr=addr, registry=self._registry)
        except OSError as error:
            raise ConfigurationError(
                f"cannot serve metrics on {addr}:{port}: {error}", advice="choose another port or address"
            ) from error
        return Endpoint(server, thread)

    def close(self) -> None:
        """Remove the metrics from the registry. Call `spark.streams.removeListener` first."""
        self._unsubscribe()
        self._forget_families()

    def _forget_families(self) -> None:
        for family in self._families:
            family.close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Count the query as active."""
        self._queries.started(str(event.id), event.name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Update the query's metrics."""
        self._queries.progressed(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing: no metric depends on it."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Count the query as terminated, or as failed."""
        self._queries.ended(str(event.id), failed=event.exception is not None)


class Endpoint:
    """An HTTP endpoint for Prometheus. `port` is the TCP port that it listens on."""

    def __init__(self, server: Any, thread: Any) -> None:
        self._server, self._thread = server, thread
        self.port: int = server.server_port

    def close(self) -> None:
        """Stop serving; returns when the thread has ended."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Family:
    """Metrics with the same leading labels; beyond `limit` label values, the least recently used are dropped."""

    def __init__(self, registry: CollectorRegistry, labels: tuple[str, ...], limit: int) -> None:
        self._registry, self._labels, self._limit = registry, labels, limit
        self._metrics: list[Metric] = []
        self._series: OrderedDict[tuple[str, ...], set[tuple[Metric, tuple[str, ...]]]] = OrderedDict()
        self._lock = Lock()

    def counter(self, name: str, help_text: str) -> Counter:
        return self._added(Counter(name, help_text, self._labels, registry=self._registry))

    def gauge(self, name: str, help_text: str, *more: str) -> Gauge:
        return self._added(Gauge(name, help_text, (*self._labels, *more), registry=self._registry))

    def histogram(self, name: str, help_text: str, *more: str) -> Histogram:
        labels = (*self._labels, *more)
        return self._added(Histogram(name, help_text, labels, registry=self._registry, buckets=_BUCKETS_S))

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

    def _added(self, metric: M) -> M:
        self._metrics.append(metric)
        return metric


class _QueryMetrics:
    """Metrics of queries, from Spark's events."""

    def __init__(self, family: _Family, system: System) -> None:
        self._family, self._system = family, system
        self._names: OrderedDict[str, str] = OrderedDict()
        self._batches = family.counter("tidelog_query_batches_total", "Micro-batches that the query has run")
        self._input_rows = family.counter("tidelog_query_input_rows_total", "Rows that the query's batches have read")
        self._input_rate = family.gauge(
            "tidelog_query_input_rows_per_second", "Arrival rate of rows at the newest batch"
        )
        self._processed_rate = family.gauge(
            "tidelog_query_processed_rows_per_second", "Processing rate of rows at the newest batch"
        )
        self._seconds = family.histogram(
            "tidelog_query_trigger_seconds", "Duration of each phase of a trigger", "phase"
        )
        self._last_batch = family.gauge("tidelog_query_last_batch_id", "Number of the newest batch")
        self._last_progress = family.gauge(
            "tidelog_query_last_progress_timestamp_seconds",
            "Time of the query's newest progress event, in seconds since the epoch",
        )
        self._state = family.gauge("tidelog_query_state", "1 for the query's current state", "state")

    def started(self, query_id: str, name: str | None) -> None:
        self._names[query_id] = name or query_id
        self._names.move_to_end(query_id)
        if len(self._names) > MAX_QUERIES:
            self._names.popitem(last=False)
        self._enter(query_id, "active")

    def progressed(self, progress: Any) -> None:
        key = self._key(str(progress.id), progress.name)
        of = self._family.of
        # An idle query also sends progress events now and then, without the phase that runs a batch.
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
        """The labels of a query. The event of its end has no name, so the name from its start is used."""
        return (name or self._names.get(query_id, query_id),)


class _SinkMetrics:
    """Metrics of sinks, from their batch reports."""

    def __init__(self, family: _Family) -> None:
        self._family = family
        self._commits = family.counter("tidelog_sink_commits_total", "Committed batches")
        self._rows = family.counter("tidelog_sink_rows_total", "Rows of committed batches")
        self._files = family.counter("tidelog_sink_files_total", "Data files that commits added")
        self._bytes = family.counter("tidelog_sink_bytes_total", "Bytes of data files that commits added")
        self._skipped = family.counter(
            "tidelog_sink_skipped_batches_total", "Replayed batches that were already in the table"
        )
        self._rebased = family.counter(
            "tidelog_sink_rebased_commits_total", "Commits rebased over commits of other writers"
        )
        self._seconds = family.histogram("tidelog_sink_phase_seconds", "Duration of each phase of a batch", "phase")
        self._debt_files = family.gauge("tidelog_sink_debt_files", "Small files when the throttle last measured them")
        self._delayed = family.counter(
            "tidelog_sink_delayed_seconds_total", "Time for which the throttle delayed batches"
        )
        self._last_version = family.gauge("tidelog_sink_last_version", "Version of the newest commit")

    def add(self, report: BatchReport) -> None:
        """Add one batch."""
        key = (report.path, report.sink)
        of = self._family.of
        # Create every counter at the first batch: one that appears later looks to Prometheus as if it had not risen.
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
