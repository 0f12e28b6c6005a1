"""The option `consumer` of a stream: a fence for clean-up that is never past what was processed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.streaming.datasource.engine import Query
from tests.streaming.support import NUMBERS, rewrite_all
from tidelog.log import Table
from tidelog.log.consumers.consumer_status import ConsumerStatus, consumers
from tidelog.log.errors import ConfigurationError, ConsumerInUseError, FencedError, HistoryExpiredError
from tidelog.log.system import REAL_SYSTEM

NOW = timedelta(0)
FAST = {"tidelog.maxTransactionTime": "0 seconds"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path / "table"), NUMBERS, properties=FAST)
    for n in range(4):
        made.insert([{"n": n}])
    return made


def query(table: Table, **more: Any) -> Query:
    options = {"path": table.path, "consumer": "copy", "changes": "cdc", "maxFilesPerTrigger": "1"}
    offset = more.pop("offset", None)
    return Query({**options, **more}, offset=offset)


def status(table: Table) -> ConsumerStatus:
    (found,) = consumers(table.store, table.refresh().head, REAL_SYSTEM)
    return found


def position(table: Table) -> int | None:
    return status(table).position


def test_the_position_is_where_a_micro_batch_begins(table: Table) -> None:
    """When Spark asks for the next one, it has completed the one before."""
    stream = query(table)
    assert stream.trigger() is not None
    assert position(table) == -1
    stream.trigger()
    assert position(table) == 1
    stream.trigger()
    stream.trigger()
    assert position(table) == 3
    assert stream.trigger() is None
    assert position(table) == 4


def test_a_crash_in_a_micro_batch_leaves_the_position_before_it(table: Table) -> None:
    stream = query(table)
    stream.trigger()
    start = stream.start()
    end = stream.end(start)
    stream.replay(start, end)
    assert position(table) == 1
    again = query(table, offset=stream.offset)
    assert again.replay(start, end)
    again.offset = end
    assert position(table) == 1
    again.end(end)
    assert position(table) == 2


def test_part_of_a_version_is_not_processed(table: Table) -> None:
    table.update("n >= 0", {"n": "n + 10"})
    stream = query(table, after="4", maxFilesPerTrigger="1")
    positions = []
    while stream.trigger() is not None:
        positions.append(position(table))
    assert positions[:-1] == [4] * (len(positions) - 1)
    assert position(table) == 5


def test_clean_up_keeps_what_the_stream_has_not_read(table: Table) -> None:
    stream = query(table)
    stream.trigger()
    stream.trigger()
    table.delete("n >= 0")
    table.checkpoint()
    assert table.expire(older_than=NOW).earliest_version <= 1
    table.vacuum(older_than=NOW)
    rows = [row for batch in query(table, offset=stream.offset).run() for row in batch]
    assert [(row["_change_type"], row["n"]) for row in rows] == [
        ("insert", 2),
        ("insert", 3),
        *[("delete", n) for n in range(4)],
    ]


def test_without_a_consumer_the_same_clean_up_ends_the_stream(table: Table) -> None:
    """So the test above can fail."""
    stream = Query({"path": table.path, "changes": "cdc", "maxFilesPerTrigger": "1"})
    stream.trigger()
    stream.trigger()
    table.delete("n >= 0")
    table.checkpoint()
    table.expire(older_than=NOW)
    with pytest.raises(HistoryExpiredError):
        stream.run()


def test_a_second_query_with_the_name_is_refused(table: Table) -> None:
    first = query(table)
    first.trigger()
    with pytest.raises(ConsumerInUseError, match="copy"):
        query(table).trigger()
    first.trigger()
    query(table, offset=first.offset).trigger()
    query(table, consumer="another").trigger()


def test_a_name_that_somebody_removed_stops_the_query(table: Table) -> None:
    from tidelog.log.consumers.administration import remove_consumer  # noqa: PLC0415 - only this test removes one

    stream = query(table)
    stream.trigger()
    remove_consumer(table.store, table.refresh().head, "copy", REAL_SYSTEM)
    with pytest.raises(FencedError):
        stream.trigger()


def test_a_consumer_can_be_added_to_a_running_stream(table: Table) -> None:
    """The checkpoint has no id of it yet."""
    stream = Query({"path": table.path, "changes": "cdc", "maxFilesPerTrigger": "1"})
    stream.trigger()
    named = query(table, offset=stream.offset)
    named.trigger()
    named.trigger()
    assert position(table) == 2
    assert query(table, offset=named.offset).run() == [[row] for row in table.changes(after=3).to_arrow().to_pylist()]


def test_a_stream_that_begins_behind_a_clean_up_says_so_at_once(table: Table) -> None:
    table.checkpoint()
    table.expire(older_than=NOW)
    with pytest.raises(HistoryExpiredError):
        query(table).trigger()
    version = table.refresh().version
    stream = query(table, initialSnapshot="true")
    batches = stream.run()
    table.delete("n = 0")
    batches += stream.run()
    assert [[(row["_change_type"], row["_commit_version"], row["n"]) for row in batch] for batch in batches] == [
        *([("insert", version, n)] for n in range(4)),
        [("delete", version + 1, 0)],
    ]


def test_the_name_must_be_a_file_name(table: Table) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the name of a consumer"):
        query(table, consumer="../up").trigger()


def test_a_quiet_stream_holds_back_no_clean_up(table: Table) -> None:
    """Compactions follow the last rows. Their commits and the files before them go, and the stream continues."""
    stream = query(table)
    stream.run()
    for _ in range(3):
        rewrite_all(table)
    assert [stream.run(), stream.run()] == [[], []]
    assert position(table) == 7
    table.checkpoint()
    assert table.expire(older_than=NOW).earliest_version == 7
    table.vacuum(older_than=NOW)
    assert query(table, offset=stream.offset).run() == []
    table.insert([{"n": 9}])
    again = query(table, offset=stream.offset)
    start, end = again.start(), again.end(again.start())
    # A crash in the micro-batch: a new process reads the same interval.
    for reader in (again, query(table, offset=stream.offset)):
        assert [row["n"] for row in reader.replay(start, end)] == [9]
    again.offset = end
    assert again.trigger() is None
    lag = status(table).lag
    assert lag is not None
    assert lag.versions == 0


def test_a_restored_checkpoint_is_not_taken_for_a_quiet_one(table: Table) -> None:
    """Its version is older than the one that the position continues."""
    stream = query(table)
    stream.trigger()
    stream.trigger()
    copy = dict(stream.offset or {})
    stream.run()
    rewrite_all(table)
    assert [stream.run(), stream.run()] == [[], []]
    assert position(table) == 5
    rows = [row["n"] for batch in query(table, offset=copy).run() for row in batch]
    assert rows == [2, 3]
