"""Metrics for Prometheus: from simulated events, and of real queries, scraped over HTTP."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.log.support import START_MS, Clock
from tests.streaming.support import PATIENCE_S, Input, wait_until
from tidelog.log.errors import ConfigurationError
from tidelog.streaming import BatchReport, Sink, observed, prometheus
from tidelog.streaming.monitoring import batch_log
from tidelog.streaming.monitoring.batch_log import publish
from tidelog.streaming.prometheus import PrometheusListener


class Event:
    """An event with the fields that a test gives it, in place of Spark's."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def started(query_id: str, name: str | None = None) -> Any:
    return Event(id=query_id, name=name)


def progress(query_id: str, name: str | None = None, *, batch_id: int = 0, rows: int = 10, **phases_ms: int) -> Any:
    fields = {"inputRowsPerSecond": 5.0, "processedRowsPerSecond": 20.0, "durationMs": phases_ms}
    return Event(progress=Event(id=query_id, name=name, batchId=batch_id, numInputRows=rows, **fields))


def ended(query_id: str, exception: str | None = None) -> Any:
    return Event(id=query_id, exception=exception)


def report(path: str = "/t", *, version: int | None = 3, skipped: bool = False, **more: Any) -> BatchReport:
    rows, files, size = (10, 2, 500) if version is not None else (0, 0, 0)
    return BatchReport(1, version, rows, files, size, skipped=skipped, path=path, sink="main", **more)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def listener(registry: CollectorRegistry) -> Iterator[PrometheusListener]:
    made = PrometheusListener(registry, Clock())
    yield made
    made.close()


def series(registry: CollectorRegistry) -> set[tuple[str, ...]]:
    """The label values of all series."""
    return {tuple(sample.labels.values()) for family in registry.collect() for sample in family.samples}


# --- queries ---------------------------------------------------------------------------------------------------------


def test_the_metrics_of_a_query_from_start_to_end(listener: PrometheusListener, registry: CollectorRegistry) -> None:
    def state() -> dict[str, float | None]:
        labels = {"query": "flights"}
        names = ("active", "terminated", "failed")
        return {name: registry.get_sample_value("tidelog_query_state", {**labels, "state": name}) for name in names}

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"tidelog_query_{name}", {"query": "flights", **labels})

    listener.onQueryStarted(started("id-1", "flights"))
    assert state() == {"active": 1, "terminated": 0, "failed": 0}
    listener.onQueryProgress(progress("id-1", "flights", batch_id=4, addBatch=1500, walCommit=20))
    listener.onQueryProgress(progress("id-1", "flights", batch_id=5, addBatch=500, walCommit=20))
    listener.onQueryProgress(progress("id-1", "flights", batch_id=6, rows=0, latestOffset=3))
    assert (value("batches_total"), value("input_rows_total")) == (2, 20)
    assert (value("input_rows_per_second"), value("processed_rows_per_second")) == (5, 20)
    assert (value("last_batch_id"), value("last_progress_timestamp_seconds")) == (6, START_MS / 1000)
    assert value("trigger_seconds_sum", phase="addBatch") == pytest.approx(2)
    assert value("trigger_seconds_bucket", phase="addBatch", le="0.5") == 1
    assert value("trigger_seconds_count", phase="walCommit") == 2
    assert value("trigger_seconds_count", phase="latestOffset") is None
    listener.onQueryTerminated(ended("id-1"))
    assert state() == {"active": 0, "terminated": 1, "failed": 0}
    listener.onQueryStarted(started("id-1", "flights"))
    listener.onQueryTerminated(ended("id-1", "it broke"))
    assert state() == {"active": 0, "terminated": 0, "failed": 1}


def test_a_query_without_a_name_is_labelled_with_its_id(
    listener: PrometheusListener, registry: CollectorRegistry
) -> None:
    listener.onQueryStarted(started("id-1"))
    listener.onQueryProgress(progress("id-1", addBatch=1))
    assert registry.get_sample_value("tidelog_query_batches_total", {"query": "id-1"}) == 1


def test_the_series_of_old_queries_are_dropped(listener: PrometheusListener, registry: CollectorRegistry) -> None:
    for number in range(prometheus.MAX_QUERIES * 2):
        listener.onQueryStarted(started(f"id-{number}"))
        listener.onQueryProgress(progress(f"id-{number}", addBatch=1))
        listener.onQueryProgress(progress("id-0", addBatch=1))
        listener.onQueryTerminated(ended(f"id-{number}"))
    queries = {labels[0] for labels in series(registry)}
    assert len(queries) == prometheus.MAX_QUERIES
    batches = registry.get_sample_value("tidelog_query_batches_total", {"query": "id-0"})
    assert batches == prometheus.MAX_QUERIES * 2 + 1, "a query that makes progress keeps its series"
    assert f"id-{prometheus.MAX_QUERIES * 2 - 1}" in queries
    assert len(listener._queries._names) == prometheus.MAX_QUERIES


# --- sinks -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("listener")
def test_the_metrics_of_a_sink_come_from_its_reports(registry: CollectorRegistry) -> None:
    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"tidelog_sink_{name}", {"path": "/t", "sink": "main", **labels})

    publish(report(version=None, skipped=True))
    assert [value(name) for name in ("commits_total", "rows_total", "skipped_batches_total")] == [0, 0, 1]
    assert (value("debt_files"), value("last_version")) == (None, None)
    publish(report(version=3, seconds={"write": 0.2, "commit": 0.01}, rebased_over=(1, 2)))
    publish(report(version=4, seconds={"write": 0.4}, debt_files=77, delayed_s=1.5))
    publish(report(version=None))
    counters = {
        "commits_total": 2,
        "rows_total": 20,
        "files_total": 4,
        "bytes_total": 1000,
        "skipped_batches_total": 1,
        "rebased_commits_total": 1,
        "delayed_seconds_total": 1.5,
        "debt_files": 77,
        "last_version": 4,
    }
    assert {name: value(name) for name in counters} == counters
    assert value("phase_seconds_sum", phase="write") == pytest.approx(0.6)
    assert value("phase_seconds_count", phase="commit") == 1


@pytest.mark.usefixtures("listener")
def test_the_series_of_old_sinks_are_dropped(registry: CollectorRegistry) -> None:
    for number in range(prometheus.MAX_SINKS + 5):
        publish(report(f"/t/{number}", seconds={"write": 0.1}))
    paths = {labels[0] for labels in series(registry)}
    assert paths == {f"/t/{number}" for number in range(5, prometheus.MAX_SINKS + 5)}


def test_a_registry_takes_a_second_listener_only_after_close(
    listener: PrometheusListener, registry: CollectorRegistry
) -> None:
    with pytest.raises(ConfigurationError, match="close"):
        PrometheusListener(registry)
    listener.close()
    publish(report())
    assert series(registry) == set()
    assert listener._sinks.add not in batch_log._subscribers
    again = PrometheusListener(registry)
    publish(report())
    assert registry.get_sample_value("tidelog_sink_commits_total", {"path": "/t", "sink": "main"}) == 1
    again.close()


def test_a_refused_listener_leaves_no_metrics_behind(registry: CollectorRegistry) -> None:
    first = PrometheusListener(registry)
    first._families[0].close()
    with pytest.raises(ConfigurationError):
        PrometheusListener(registry)
    first._families[1].close()
    PrometheusListener(registry).close()
    first.close()


def test_the_default_registry_is_that_of_prometheus_client() -> None:
    listener = PrometheusListener()
    publish(report("/own"))
    assert REGISTRY.get_sample_value("tidelog_sink_commits_total", {"path": "/own", "sink": "main"}) == 1
    listener.close()
    assert REGISTRY.get_sample_value("tidelog_sink_commits_total", {"path": "/own", "sink": "main"}) is None


def scrape(port: int) -> dict[tuple[str, ...], float]:
    """The value of each series; the key is its name and its label values, in the order of the label names."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_port_in_use_is_refused(listener: PrometheusListener) -> None:
    endpoint = listener.serve(0)
    with pytest.raises(ConfigurationError, match=f"127.0.0.1:{endpoint.port}"):
        listener.serve(endpoint.port)
    endpoint.close()
    again = listener.serve(endpoint.port)
    assert ("tidelog_query_state", "q", "active") not in scrape(again.port)
    again.close()


# --- real queries ----------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_real_queries_over_http(
    spark: SparkSession, tmp_path: Path, listener: PrometheusListener, registry: CollectorRegistry
) -> None:
    source, sink = Input(tmp_path / "input").put(2), Sink(str(tmp_path / "t"))

    def function(batch: DataFrame, number: int) -> None:
        sink(batch, number)

    def failing(batch: DataFrame, number: int) -> None:
        raise ValueError(batch, number)

    def run(stream: DataFrame, name: str, batch_function: Any) -> Any:
        writer = stream.writeStream.queryName(name).foreachBatch(batch_function)
        query = writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
        query.awaitTermination(PATIENCE_S)
        return query

    def is_ended(name: str, state: str) -> bool:
        return registry.get_sample_value("tidelog_query_state", {"query": name, "state": state}) == 1

    endpoint = listener.serve(0)
    spark.streams.addListener(listener)
    try:
        query = run(observed(source.stream(spark), event_time="n"), "good", function)
        events = query.recentProgress
        seen = [event.observedMetrics["tidelog"] for event in events]
        unread = run(observed(source.stream(spark)), "unread", lambda batch, number: None)  # noqa: ARG005 - as Spark calls
        with pytest.raises(StreamingQueryException):
            run(source.stream(spark), "bad", failing)
        wait_until(lambda: is_ended("good", "terminated") and is_ended("bad", "failed"), "Spark has reported both ends")
        found = scrape(endpoint.port)
    finally:
        spark.streams.removeListener(listener)
        endpoint.close()
    assert found["tidelog_query_batches_total", "good"] == 2
    assert found["tidelog_query_input_rows_total", "good"] == sum(event.numInputRows for event in events)
    assert found["tidelog_query_last_batch_id", "good"] == 1
    assert found["tidelog_query_trigger_seconds_count", "addBatch", "good"] == 2
    assert found["tidelog_query_trigger_seconds_sum", "triggerExecution", "good"] > 0
    assert found["tidelog_query_last_progress_timestamp_seconds", "good"] == START_MS / 1000
    assert [(row.min_event_time, row.max_event_time) for row in seen] == [(0, 9), (10, 19)]
    assert [row.rows for row in seen] == [10, 10]
    assert [batch.observedMetrics["tidelog"].rows for batch in unread.recentProgress] == [0, 0]


@pytest.mark.spark
def test_only_a_stream_that_has_the_column_can_be_observed(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not a stream"):
        observed(spark.range(3).toDF("n"))
    stream = Input(tmp_path / "input").put().stream(spark, schema="`a.b` long")
    with pytest.raises(ConfigurationError, match=r"no column 'b'.*a\.b"):
        observed(stream, event_time="b")
    assert observed(stream, event_time="a.b").columns == ["a.b"]
