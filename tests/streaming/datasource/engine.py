"""A stand-in for Spark, without a JVM: it calls the Python data source in the same order as Spark does."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from tidelog.streaming import TidelogDataSource
from tidelog.streaming.datasource.feed_reader import FeedReader
from tidelog.streaming.datasource.self_limited_reader import SelfLimitedReader


class Query:
    """One streaming query over `format("tidelog")`, with its checkpoint.

    `run` is a run with Trigger.AvailableNow and returns the rows of each micro-batch. A new Query with the `offset` of
    an old one is a restart; `stored` is the end of a batch that was not completed then. Offsets go through JSON and
    partitions through pickle, as they do between processes.

    With `self_limited` it is a Spark below 4.2, whatever the installed one is.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        *,
        schema: StructType | None = None,
        offset: dict[str, Any] | None = None,
        stored: dict[str, Any] | None = None,
        self_limited: bool = False,
    ) -> None:
        source = TidelogDataSource(options)
        self.schema = schema or source.schema()
        reader: Any = source.streamReader(self.schema)
        self.feed: FeedReader = reader._feed
        self.reader: Any = SelfLimitedReader(self.feed) if self_limited else reader
        self.offset = offset
        newest = stored or offset
        if newest is not None and isinstance(self.reader, SelfLimitedReader):
            assert self.reader.partitions(newest, newest) == []

    def prepare(self) -> None:
        """Fix the end of a run. An older Spark cannot; here it does, so that the tests are the same."""
        self.feed.end_at_newest()

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
        if isinstance(self.reader, SelfLimitedReader):
            return _through_json(self.reader.latestOffset())
        return _through_json(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))

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
