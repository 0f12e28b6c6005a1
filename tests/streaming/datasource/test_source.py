"""The data source, driven as Spark drives it but without Spark: rows, micro-batches and errors."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from tests.streaming.datasource.engine import Query
from tests.streaming.support import NUMBERS, rewrite_all
from tidelog.log import Table
from tidelog.log.errors import (
    HistoryExpiredError,
    NotAppendOnlyError,
    SchemaMismatchError,
    TableNotFoundError,
    TableReplacedError,
)
from tidelog.log.format import filenames
from tidelog.log.format.actions import RemoveFile, encode_commit
from tidelog.log.state import files
from tidelog.streaming import TidelogDataSource, spark_versions

PARTS = pa.schema([("part", pa.string()), ("n", pa.int64()), ("text", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(str(tmp_path / "table"), NUMBERS)


@pytest.fixture
def parts(tmp_path: Path) -> Table:
    """Versions 1 to 4, each with the rows a, b and c in a file each."""
    made = Table.create(str(tmp_path / "parts"), PARTS, partition_by=["part"])
    for version in range(1, 5):
        made.insert([{"part": part, "n": version, "text": f"{part}{version}"} for part in "abc"])
    return made


def put(table: Table, *numbers: int) -> None:
    table.insert([{"n": number} for number in numbers])


def query(table: Table, **more: Any) -> Query:
    options = {name: value for name, value in more.items() if name not in {"schema", "offset"}}
    return Query({"path": table.path, **options}, **{name: more[name] for name in ("schema", "offset") if name in more})


def numbers(batches: list[list[dict[str, Any]]]) -> list[list[int]]:
    return [[row["n"] for row in batch] for batch in batches]


# --- rows ------------------------------------------------------------------------------------------------------------


def test_a_run_ends_at_the_version_that_was_newest_when_it_began(table: Table) -> None:
    put(table, 1)
    put(table, 2, 3)
    stream = query(table, maxFilesPerTrigger="1")
    stream.prepare()
    assert numbers([stream.trigger() or []]) == [[1]]
    put(table, 4)
    assert numbers([stream.trigger() or []]) == [[2, 3]]
    assert stream.trigger() is None
    assert numbers(stream.run()) == [[4]]


def test_a_restart_continues_at_the_offset(table: Table) -> None:
    put(table, 1)
    put(table, 2)
    first = query(table, maxFilesPerTrigger="1")
    first.trigger()
    again = query(table, offset=first.offset)
    assert numbers(again.run()) == [[2]]
    assert query(table, offset=again.offset).run() == []


def test_a_replay_gives_the_same_rows_after_compaction_and_checkpoint(parts: Table) -> None:
    stream = query(parts, maxFilesPerTrigger="2")
    start = dict(stream.reader.initialOffset())
    batches = stream.run()
    end = stream.offset
    assert end
    rewrite_all(parts)
    parts.checkpoint()
    flat = [row for batch in batches for row in batch]
    assert query(parts).replay(start, end) == flat


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 12, 100])
def test_a_limit_counts_files_and_splits_commits(parts: Table, limit: int) -> None:
    batches = query(parts, maxFilesPerTrigger=str(limit)).run()
    texts = [row["text"] for batch in batches for row in batch]
    assert texts == [f"{part}{version}" for version in range(1, 5) for part in "abc"]
    assert [len(batch) for batch in batches[:-1]] == [limit] * (len(batches) - 1)
    assert len(batches) == -(-12 // limit)


def test_without_a_limit_there_is_one_batch(parts: Table) -> None:
    assert len(query(parts).run()) == 1


@pytest.mark.skipif(not spark_versions.SOURCES_TAKE_LIMITS, reason="Spark 4.2 and later tell a Python source")
def test_spark_is_told_a_limit(parts: Table) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxFiles  # noqa: PLC0415 - older versions lack it

    assert query(parts).reader.getDefaultReadLimit() == ReadMaxFiles(10_000)
    assert query(parts, maxFilesPerTrigger="7").reader.getDefaultReadLimit() == ReadMaxFiles(7)


def test_compactions_run_no_micro_batch(parts: Table) -> None:
    stream = query(parts)
    stream.run()
    for _ in range(3):
        rewrite_all(parts)
        assert stream.run() == []
    parts.insert([{"part": "a", "n": 5, "text": "new"}])
    rewrite_all(parts)
    assert [[row["text"] for row in batch] for batch in stream.run()] == [["new"]]


def test_a_commit_that_only_records_progress_runs_no_micro_batch(parts: Table) -> None:
    """Such as a sink's claim of its name."""
    stream = query(parts)
    stream.run()
    parts.insert([], idempotency_key=("loader", 1))
    assert parts.version == 5
    assert stream.run() == []
    parts.insert([{"part": "a", "n": 5, "text": "new"}])
    assert [[row["text"] for row in batch] for batch in stream.run()] == [["new"]]


def test_compacted_rows_are_read_from_the_files_that_appended_them(parts: Table) -> None:
    rewrite_all(parts)
    rows = [row for batch in query(parts).run() for row in batch]
    assert len(rows) == 12
    assert {tuple(row) for row in rows} == {("part", "n", "text")}


def test_an_empty_table_gives_only_the_empty_first_batch(table: Table) -> None:
    stream = query(table)
    assert stream.run() == [[]]
    assert stream.run() == []
    put(table, 1)
    assert numbers(stream.run()) == [[1]]


# --- the start --------------------------------------------------------------------------------------------------------


def at(which: int, plus_us: int = 0) -> Callable[[Table], str]:
    """The commit time of a version, or some microseconds later, as ISO text."""
    return lambda table: (table.at(version=which).timestamp + timedelta(microseconds=plus_us)).isoformat()


@pytest.mark.parametrize(
    ("option", "value", "first"),
    [
        ("after", "earliest", 1),
        ("after", "0", 1),
        ("after", "2", 3),
        ("after", "4", None),
        ("after", "latest", None),
        ("after", at(2), 3),
        ("after", "1970-01-01T00:00:00Z", 1),
        ("after", at(4), None),
        ("startingVersion", "earliest", 1),
        ("startingVersion", "0", 1),
        ("startingVersion", "2", 2),
        ("startingVersion", "4", 4),
        ("startingVersion", "5", None),
        ("startingVersion", "latest", None),
        ("startingTimestamp", at(2), 2),
        ("startingTimestamp", at(2, plus_us=1), 3),
        ("startingTimestamp", "1970-01-01T00:00:00Z", 1),
        ("startingTimestamp", at(4), 4),
        ("startingTimestamp", at(4, plus_us=1), None),
    ],
)
def test_where_a_stream_begins(parts: Table, option: str, value: Any, first: int | None) -> None:
    """`after` leaves out the version, or a commit at exactly the time; the starts of Delta include it."""
    text = value(parts) if callable(value) else value
    stream = query(parts, **{option: text})
    versions = sorted({row["n"] for batch in stream.run() for row in batch})
    assert versions == ([] if first is None else list(range(first, 5)))
    parts.insert([{"part": "a", "n": 5, "text": "later"}])
    assert numbers(stream.run()) == [[5]]


def test_a_start_time_between_two_commits(table: Table) -> None:
    put(table, 1)
    between = table.at().timestamp.timestamp() + 0.0005
    put(table, 2)
    moment = pa.scalar(int(between * 1_000_000), pa.timestamp("us", "UTC")).as_py().isoformat()
    assert numbers(query(table, after=moment).run()) == [[2]]


@pytest.mark.parametrize(
    ("option", "value"), [("startingVersion", "7"), ("after", "7"), ("startingTimestamp", "2999-01-01T00:00:00Z")]
)
def test_a_start_in_the_future_is_an_error(table: Table, option: str, value: str) -> None:
    """If the stream waited for it, it would silently skip everything committed until then."""
    put(table, 1)
    with pytest.raises(HistoryExpiredError, match=r"the available versions are 0 to 1") as caught:
        query(table, **{option: value}).run()
    assert (caught.value.earliest_version, caught.value.latest_version) == (0, 1)


# --- columns ---------------------------------------------------------------------------------------------------------


def test_the_option_changes_adds_the_commit_columns(parts: Table) -> None:
    (batch,) = query(parts, changes="append", after="3").run()
    assert {row["_commit_version"] for row in batch} == {4}
    assert {row["_commit_timestamp"] for row in batch} == {parts.at(version=4).timestamp}
    assert list(batch[0]) == ["part", "n", "text", "_commit_version", "_commit_timestamp"]


def test_columns_and_where_together(parts: Table) -> None:
    (batch,) = query(parts, columns="text", where="part = 'b' and n >= 3").run()
    assert batch == [{"text": "b3"}, {"text": "b4"}]


def test_where_can_use_the_commit_columns(parts: Table) -> None:
    (batch,) = query(
        parts, changes="append", columns="n,-_commit_version,-_commit_timestamp", where="_commit_version = 2"
    ).run()
    assert batch == [{"n": 2}] * 3


def test_a_batch_with_all_rows_filtered_out_still_runs(parts: Table) -> None:
    stream = query(parts, where="n > 100")
    assert stream.run() == [[]]
    assert stream.run() == []


def test_a_given_schema_selects_orders_and_casts_columns(parts: Table) -> None:
    schema = StructType([StructField("text", StringType()), StructField("n", LongType())])
    (batch,) = query(parts, schema=schema, where="part = 'a' and n = 1").run()
    assert batch == [{"text": "a1", "n": 1}]
    assert list(batch[0]) == ["text", "n"]
    narrower = StructType([StructField("n", IntegerType())])
    (batch,) = query(parts, schema=narrower, where="n = 2").run()
    assert batch == [{"n": 2}] * 3


def test_a_given_schema_with_an_unknown_column(parts: Table) -> None:
    schema = StructType([StructField("m", LongType())])
    with pytest.raises(SchemaMismatchError, match=r"'m' that the table does not have; leave .schema.*part, n, text"):
        query(parts, schema=schema).run()


def test_changes_include_rows_deleted_later_but_snapshots_do_not(table: Table) -> None:
    from tests.compaction_daemon.support import delete_rows  # noqa: PLC0415 - only this test writes deletion vectors

    put(table, 1, 2, 3)
    delete_rows(table, [1], data_change=True)
    with pytest.raises(NotAppendOnlyError):
        query(table).run()
    assert numbers(query(table, after="2").run()) == [[]]
    rows = read_batch(table, versionAsOf="2")
    assert [row["n"] for row in rows] == [1, 3]
    assert [row["n"] for row in read_batch(table, versionAsOf="1")] == [1, 2, 3]


def read_batch(table: Table, **options: str) -> list[dict[str, Any]]:
    source = TidelogDataSource({"path": table.path} | options)
    reader = source.reader(source.schema())
    batches: list[Any] = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_many_files_are_split_over_tasks(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), PARTS, partition_by=["part"])
    table.insert([{"part": f"{k:03}", "n": k, "text": ""} for k in range(70)])
    source = TidelogDataSource({"path": table.path})
    partitions: Any = source.reader(source.schema()).partitions()
    assert [len(partition.changes) for partition in partitions] == [32, 32, 6]
    assert sorted(row["n"] for row in read_batch(table)) == list(range(70))


# --- errors ----------------------------------------------------------------------------------------------------------


def remove_one_file(table: Table) -> None:
    file = files.to_adds(table.refresh().at().files())[0]
    gone = RemoveFile(path=file.path, data_change=True, deletion_timestamp=1, size=file.size)
    stamp = int(table.at().timestamp.timestamp() * 1000) + 1
    table.store.put_if_absent(
        filenames.commit_path(table.version + 1), encode_commit({"inCommitTimestamp": stamp}, [gone])
    )


def test_a_commit_that_removed_rows_fails_the_stream(table: Table) -> None:
    put(table, 1)
    stream = query(table)
    stream.run()
    remove_one_file(table)
    with pytest.raises(NotAppendOnlyError, match=r"version 2 of .* changes=cdc.* skipChangeCommits=true; .* after=2 "):
        stream.run()
    put(table, 2)
    assert numbers(query(table, after="2").run()) == [[2]]


@pytest.mark.parametrize("commits", [0, 1, 5])
@pytest.mark.parametrize("restarted", [True, False])
def test_a_recreated_table_is_an_error_not_a_restart(table: Table, commits: int, restarted: bool) -> None:
    put(table, 1)
    stream = query(table)
    stream.run()
    shutil.rmtree(table.path)
    another = Table.create(table.path, NUMBERS)
    for k in range(commits):
        put(another, 100 + k)
    again = query(table, offset=stream.offset) if restarted else stream
    with pytest.raises(TableReplacedError) as caught:
        again.run()
    assert (caught.value.expected_id, caught.value.found_id) == (table.id, another.id)
    assert "new checkpoint" in str(caught.value)


def test_the_checkpoint_of_another_table(table: Table, parts: Table) -> None:
    put(table, 1)
    stream = query(table)
    stream.run()
    with pytest.raises(TableReplacedError, match=r"belongs to another table than the one at .*; start the stream with"):
        query(parts, offset=stream.offset).run()


def test_expired_history_is_an_error_with_the_available_versions(parts: Table) -> None:
    stream = query(parts, maxFilesPerTrigger="1")
    stream.trigger()
    parts.checkpoint()
    for version in range(3):
        Path(parts.path, filenames.commit_path(version)).unlink()
    for late in (query(parts), query(parts, offset=stream.offset), query(parts, startingVersion="earliest")):
        with pytest.raises(HistoryExpiredError, match="the available versions are 3 to 4"):
            late.run()
    assert numbers(query(parts, after="3").run()) == [[4, 4, 4]]


def test_a_missing_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError, match=r"check the path, create the table with Table.create or a Sink"):
        Query({"path": str(tmp_path / "nothing")})


def test_a_table_dropped_while_a_stream_reads_it(table: Table) -> None:
    put(table, 1)
    stream = query(table)
    stream.run()
    shutil.rmtree(table.path)
    with pytest.raises(TableNotFoundError):
        stream.run()
