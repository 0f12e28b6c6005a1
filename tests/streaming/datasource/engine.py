"""A stand-in for Spark, without a JVM: it calls the Python data source in the same order as Spark does."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tidelog.streaming import TidelogDataSource
from tidelog.streaming.datasource.feed_reader import FeedReader


class Query:
    """One streaming query over `format("tidelog")`, with its checkpoint.

    `run` is a run with Trigger.AvailableNow and returns the rows of each micro-batch. A new Query with the `offset` of
    an old one is a restart. Offsets go through JSON and partitions through pickle, as they do between processes.
    """

    def __init__(
        self, options: Mapping[str, str], *, schema: StructType | None = None, offset: dict[str, Any] | None = None
    ) -> None:
        source = TidelogDataSource(options)
        self.schema = schema or source.schema()
        reader = source.streamReader(self.schema)
        assert isinstance(reader, FeedReader)
        self.reader = reader
        self.offset = offset

    def prepare(self) -> None:
        self.reader.prepareForTriggerAvailableNow()

    def trigger(self) -> list[dict[str, Any]] | None:
        """One trigger: the rows of a micro-batch, or None if Spark would not run one.

        The first trigger of a query always runs one, even if it is empty, because it records where the query began.
        """
        start = self.start()
        end = self.end(start)
        if end == self.offset:
            return None
        # Spark asks again where the stream begins when it runs the first micro-batch.
        rows = self.replay(self.start(), end)
        self.reader.commit(end)
        self.offset = end
        return rows

    def start(self) -> dict[str, Any]:
        """Where the next micro-batch begins."""
        return self.offset or _through_json(self.reader.initialOffset())

    def end(self, start: dict[str, Any]) -> dict[str, Any]:
        """Where it ends."""
        limit: ReadLimit = self.reader.getDefaultReadLimit()
        return _through_json(self.reader.latestOffset(start, limit))

    def replay(self, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
        """The rows between two offsets, as Spark reads them at first, and again after a crash."""
        partitions = pickle.loads(pickle.dumps(self.reader.partitions(start, end)))
        batches = [batch for partition in partitions for batch in self.reader.read(partition)]
        return pa.Table.from_batches(batches).to_pylist() if batches else []

    def run(self) -> list[list[dict[str, Any]]]:
        self.prepare()
        batches = []
        while (rows := self.trigger()) is not None:
            batches.append(rows)
        return batches


def _through_json(offset: dict[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = json.loads(json.dumps(offset))
    return copied
