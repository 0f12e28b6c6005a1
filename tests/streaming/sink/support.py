"""Helpers of the sink's tests."""

from __future__ import annotations

from pyspark.sql import DataFrame

from tidelog.streaming import BatchReport, Sink


class Reports:
    """A batch function that passes batches to a sink and keeps the report of each."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.all: list[BatchReport] = []

    def __call__(self, batch: DataFrame, number: int) -> None:
        self.sink(batch, number)
        assert self.sink.last
        self.all.append(self.sink.last)
