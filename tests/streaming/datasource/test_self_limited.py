"""The feed for a Spark below 4.2, which does not say where a micro-batch begins. These tests need no such Spark.

test_feed_restarts.py and test_first_batch.py run their histories with this reader, too.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.streaming.datasource.engine import Query
from tests.streaming.support import NUMBERS, rewrite_all
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path / "table"), NUMBERS)
    for number in range(1, 6):
        made.insert([{"n": number}])
    return made


def query(table: Table, offset: dict[str, Any] | None = None, **options: str) -> Query:
    return Query({"path": table.path, **options}, offset=offset, self_limited=True)


def numbers(rows: list[dict[str, Any]] | None) -> list[int]:
    return [row["n"] for row in rows or []]


def test_each_micro_batch_is_bounded_from_the_first_on(table: Table) -> None:
    stream = query(table, maxFilesPerTrigger="2")
    assert [numbers(stream.trigger()) for _ in range(3)] == [[1, 2], [3, 4], [5]]
    assert stream.trigger() is None
    table.insert([{"n": 6}])
    while (rows := stream.trigger()) is None:  # an idle stream looks at the log every 20 ms
        pass
    assert numbers(rows) == [6]


def test_the_first_micro_batch_after_a_restart_is_bounded(table: Table) -> None:
    first = query(table, maxFilesPerTrigger="2")
    first.trigger()
    again = query(table, first.offset, maxFilesPerTrigger="2")
    assert numbers(again.trigger()) == [3, 4]


def test_after_a_crash_in_a_micro_batch_the_next_begins_at_its_end(table: Table) -> None:
    first = query(table, maxFilesPerTrigger="2")
    first.trigger()
    start = first.start()
    end = first.end(start)
    table.insert([{"n": 6}])
    again = Query(first.feed._raw, offset=first.offset, stored=end, self_limited=True)
    assert numbers(again.replay(start, end)) == [3, 4]
    again.offset = end
    assert numbers(again.trigger()) == [5, 6]


def test_without_a_limit_one_micro_batch_has_everything(table: Table) -> None:
    assert numbers(query(table).trigger()) == [1, 2, 3, 4, 5]


def test_a_crash_in_a_first_micro_batch_without_rows(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "empty"), NUMBERS)
    first = query(table)
    end = first.end(first.start())
    again = Query({"path": table.path}, stored=end, self_limited=True)
    assert again.replay(again.start(), end) == []
    again.offset = end
    table.insert([{"n": 1}])
    assert numbers(again.trigger()) == [1]


def test_a_run_that_a_limit_may_cut_short_says_so_once(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        stream = query(table, maxFilesPerTrigger="2")
        stream.trigger()
        stream.trigger()
        assert len(caplog.records) == 1
        assert "ends after this batch" in caplog.text
        assert "leave the limit out, use a processing-time trigger, or read with" in caplog.text
        caplog.clear()
        rewrite_all(table)
        query(table, maxFilesPerTrigger="9").trigger()
        query(table).trigger()
    assert caplog.text == ""


def test_an_end_before_the_start_of_a_restarted_stream_is_refused(table: Table) -> None:
    """With Spark's wrapper for AvailableNow: the answer would be that of a new stream, behind what was read."""
    first = query(table, maxFilesPerTrigger="2")
    first.trigger()
    first.trigger()
    again = query(table, maxFilesPerTrigger="2")
    again.reader.latestOffset()
    with pytest.raises(ConfigurationError, match="triggerAvailableNowWrapper"):
        again.reader.partitions(first.offset, first.offset)
