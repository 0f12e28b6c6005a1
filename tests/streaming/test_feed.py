"""`Feed`, beside the other ways to the same rows.

They are the stream and the batch read of `format("tidelog")`, `changes(spark, ...)` and `Table.changes`.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.streaming.support import (
    JVM_SOURCE,
    PATIENCE_S,
    SINCE_LIMITS,
    drain,
    drain_feed,
    feed,
    foreign_delete,
    read,
    rewrite_all,
    run_to_end,
)
from tidelog import Feed
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, PredicateError, TableNotFoundError
from tidelog.streaming import Sink, changes
from tidelog.streaming.datasource import feed_references

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("part", pa.string()), ("id", pa.int64()), ("v", pa.float64()), ("tags", pa.list_(pa.string()))])


NOTE = pa.field("note", pa.string())


def rows(*ids: int, v: float = 0.5, **more: Any) -> list[dict[str, Any]]:
    return [{"part": "ab"[n % 2], "id": n, "v": v, "tags": [str(n), None], **more} for n in ids]


def every_kind_of_commit(table: Table) -> Table:
    """Each operation, twice: with and without change files. Compactions, properties and claims come between them.

    No key is in the table twice.
    """
    for captured in ("false", "true"):
        table.set_properties({"delta.enableChangeDataFeed": captured})
        table.insert(rows(*range(10)))
        foreign_delete(table)
        rewrite_all(table)
        table.delete("id = 3")
        table.update("id IN (4, 5)", {"v": "v + 1"})
        table.insert([], idempotency_key=("loader", table.version))
        table.upsert(rows(5, 6, 30, v=9.0), keys=["id"])
        table.upsert(rows(6, v=9.0) + rows(7, 8, v=-1.0), keys=["id"], delete_where="v < 0")
        rewrite_all(table)
        table.overwrite(rows(40, 42), where="part = 'a'")
        table.overwrite(rows(50, 52), dynamic=True)
        table.delete("part = 'b'")
        table.restore(version=table.version - 1)
        table.overwrite(rows(*range(60, 64)))
        if captured == "false":
            table.add_columns([NOTE])
            table.insert(rows(70, 71, note="new"))
        table.truncate()
    return table.refresh()


@pytest.fixture(scope="module", params=["vectors", pytest.param("copies", marks=pytest.mark.full)])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    folder = tmp_path_factory.mktemp("feed")
    vectors = str(request.param == "vectors").lower()
    made = Table.create(
        str(folder / "table"), SCHEMA, partition_by=["part"], properties={"delta.enableDeletionVectors": vectors}
    )
    return every_kind_of_commit(made)


class Seen:
    """A batch function that keeps the rows of each micro-batch, and what the feed reports of it."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.batches: list[list[dict[str, Any]]] = []
        self.reports: list[Any] = []

    def __call__(self, batch: DataFrame, _: int) -> None:
        self.batches.append(batch.toArrow().to_pylist())
        self.reports.append(self.feed.last)

    def run(self, checkpoint: Path) -> Seen:
        run_to_end(self.feed.foreachBatch(self), checkpoint)
        return self


def counted(found: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in found)


@SINCE_LIMITS
@pytest.mark.parametrize(
    "max_files", [pytest.param(None, id="all at once"), pytest.param(5, id="in parts", marks=pytest.mark.full)]
)
def test_five_ways_to_the_same_rows(spark: SparkSession, table: Table, tmp_path: Path, max_files: int | None) -> None:
    expected = table.changes().to_arrow()
    feed = Seen(Feed(spark, table.path, changes="cdc", max_files=max_files)).run(tmp_path / "feed")
    found = [row for batch in feed.batches for row in batch]
    assert counted(found) == counted(expected.to_pylist())
    versions = [row["_commit_version"] for row in found]
    # Spark's tasks return in any order within a micro-batch.
    assert [sorted(part) for part in feed_versions(feed)] == split_like(sorted(versions), feed.batches)
    options: dict[str, Any] = {"changes": "cdc"} | ({"maxFilesPerTrigger": max_files} if max_files else {})
    streamed = drain_feed(spark, table.path, tmp_path / "format", **options)
    assert counted([row.asDict() for batch in streamed for row in batch]) == counted(
        [in_session_zone(row) for row in found]
    )
    if max_files is None:
        for frame in (changes(spark, table.path), read(spark, table.path, changes="cdc")):
            assert counted(frame.toArrow().to_pylist()) == counted(found)


@pytest.mark.full
def test_appended_rows_in_five_ways(spark: SparkSession, tmp_path: Path) -> None:
    """A compaction, properties and new columns are among the commits."""
    table = Table.create(str(tmp_path / "table"), SCHEMA, partition_by=["part"])
    table.insert(rows(1, 2))
    table.insert(rows(3, 4))
    rewrite_all(table)
    table.set_properties({"delta.appendOnly": "true"})
    table.add_columns([NOTE])
    table.insert(rows(5, note="new"))
    expected = table.changes(after=1, mode="append").to_arrow()
    assert expected["id"].to_pylist() == [3, 4, 5]
    feed = Seen(Feed(spark, table.path, after=1)).run(tmp_path / "feed")
    (streamed,) = drain_feed(spark, table.path, tmp_path / "format", changes="append", after=1)
    assert counted([row.asDict() for row in streamed]) == counted(
        [in_session_zone(row) for row in expected.to_pylist()]
    )
    batches = [
        *feed.batches,
        changes(spark, table.path, after=1, mode="append").toArrow().to_pylist(),
        read(spark, table.path, after=1, changes="append").toArrow().to_pylist(),
    ]
    assert [counted(batch) for batch in batches] == [counted(expected.to_pylist())] * 3


def test_net_changes_in_three_ways(spark: SparkSession, table: Table) -> None:
    expected = table.changes(after=6, until=13, mode="net", keys=["id"]).to_arrow()
    assert set(expected["_change_type"].to_pylist()) == {"insert", "delete", "update_postimage"}
    for frame in (
        changes(spark, table.path, after=6, until=13, mode="net", keys=["id"]),
        read(spark, table.path, changes="net", keys="id", after=6, endingVersion=13),
    ):
        assert counted(frame.toArrow().to_pylist()) == counted(expected.to_pylist())


def feed_versions(feed: Seen) -> list[list[int]]:
    return [[row["_commit_version"] for row in batch] for batch in feed.batches]


def split_like(values: list[int], batches: list[list[Any]]) -> list[list[int]]:
    left = iter(values)
    return [[next(left) for _ in batch] for batch in batches]


def in_session_zone(row: dict[str, Any]) -> dict[str, Any]:
    """The row as `collect` shows it: a timestamp is a local time."""
    return {
        name: value.astimezone().replace(tzinfo=None) if isinstance(value, dt.datetime) and value.tzinfo else value
        for name, value in row.items()
    }


def test_columns_and_predicates(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"columns": ["id", "_change_type"], "where": "id >= 5 AND part = 'b'"}
    feed = Seen(Feed(spark, table.path, changes="cdc", **chosen)).run(tmp_path / "cp")
    expected = table.changes(**chosen).to_arrow()
    assert counted([row for batch in feed.batches for row in batch]) == counted(expected.to_pylist())
    own = ["id", "_change_type", "_commit_version", "_commit_timestamp"]
    assert list(feed.batches[0][0]) == expected.column_names == own
    frame = read(spark, table.path, changes="cdc", columns="id, _change_type", where=chosen["where"])
    assert counted(frame.toArrow().to_pylist()) == counted(expected.to_pylist())
    assert frame.columns == own


@SINCE_LIMITS
def test_a_snapshot_then_what_follows_and_a_report(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA)
    table.insert(rows(1, 2))
    table.insert(rows(3))
    table.delete("id = 2")
    options: dict[str, Any] = {"initial_snapshot": True, "max_files": 1, "skip_change_commits": True}
    first = Seen(Feed(spark, table.path, **options)).run(tmp_path / "cp")
    assert [[(row["id"], row["_commit_version"]) for row in batch] for batch in first.batches] == [[(1, 3)], [(3, 3)]]
    assert [report.files for report in first.reports] == [1, 1]
    assert first.reports[0].complete_until is None
    assert first.reports[1].complete_until == table.at(version=3).timestamp
    table.delete("id = 1")
    table.insert(rows(4))
    rest = Seen(Feed(spark, table.path, **options)).run(tmp_path / "cp")
    assert [[row["id"] for row in batch] for batch in rest.batches] == [[4]]
    (report,) = rest.reports
    assert (report.version, report.skipped_commits, report.complete_until) == (5, 1, table.at(version=5).timestamp)
    assert Seen(Feed(spark, table.path, **options)).run(tmp_path / "cp").batches == []


def test_the_files_to_read_come_to_the_batch_function_without_a_job(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA)
    table.insert(rows(1, 2))
    feed = Feed(spark, table.path)
    seen = []

    def note(batch: DataFrame, _: int) -> None:
        context = batch.sparkSession.sparkContext
        group = context.getLocalProperty("spark.jobGroup.id")
        before = len(context.statusTracker().getJobIdsForGroup(group))
        batch.count()
        seen.append((before, len(context.statusTracker().getJobIdsForGroup(group)) > 0))

    query = feed.foreachBatch(note).option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True)
    assert query.start().awaitTermination(PATIENCE_S)
    assert seen == [(0, True)]


@pytest.mark.full
def test_where_spark_keeps_the_plan_elsewhere_a_job_brings_it(
    spark: SparkSession, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_references, "_planned", lambda _: None)
    feed = Seen(Feed(spark, table.path, changes="cdc")).run(tmp_path / "cp")
    found = [row for batch in feed.batches for row in batch]
    assert counted(found) == counted(table.changes().to_arrow().to_pylist())


@pytest.mark.full
def test_a_sink_in_the_batch_function_keeps_a_copy_equal(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA)
    copy = Sink(
        str(tmp_path / "copy"),
        mode="upsert",
        keys=["id"],
        order_by=["version", "is_row"],
        delete_where="NOT is_row",
    )

    def apply(batch: DataFrame, number: int) -> None:
        images = batch.where("_change_type != 'update_preimage'")
        own = ["_commit_version AS version", "_change_type != 'delete' AS is_row"]
        copy(images.selectExpr(*SCHEMA.names, *own), number)

    for step in range(3):
        table.insert(rows(*range(10 * step, 10 * step + 10)))
        table.update("id > 10" if step % 2 else "id < 5", {"v": f"{step}.5"})
        table.delete(f"id = {step}")
        run_to_end(Feed(spark, table.path, changes="cdc").foreachBatch(apply), tmp_path / "cp")
    copied = Table.open(str(tmp_path / "copy")).scan(columns=SCHEMA.names).to_arrow()
    assert counted(copied.to_pylist()) == counted(table.scan().to_arrow().to_pylist())


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"changes": "net"}, ConfigurationError, "a stream cannot have the change mode 'net'"),
        ({"max_files": 0}, ConfigurationError, "'maxFilesPerTrigger' cannot be '0'"),
        ({"columns": ["nope"]}, ConfigurationError, "there is no column 'nope'"),
        ({"where": "nope = 1"}, PredicateError, "there is no column 'nope'"),
        ({"starting_timestamp": dt.datetime(2026, 1, 1)}, ConfigurationError, "has no time zone"),  # noqa: DTZ001
        ({"starting_version": 1, "initial_snapshot": True}, ConfigurationError, "exclude each other"),
    ],
    ids=str,
)
def test_a_wrong_argument(
    spark: SparkSession, table: Table, arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as caught:
        Feed(spark, table.path, **arguments)
    assert message in str(caught.value)


def test_a_feed_shows_its_arguments_without_credentials(spark: SparkSession, table: Table) -> None:
    secret = {"key": "secret"}
    feed = Feed(spark, table.path, changes="cdc", initial_snapshot=True, max_files=5, storage_options=secret)
    assert repr(feed) == f"Feed('{table.path}', changes='cdc', initial_snapshot='true', max_files='5')"
    assert repr(Feed(spark, table.path, after=0)) == f"Feed('{table.path}', after='0')"


def test_there_is_no_table(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        Feed(spark, str(tmp_path / "nothing"))


def test_errors_while_the_query_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Each with its code, which survives Spark's wrapping."""
    table = Table.create(str(tmp_path / "table"), SCHEMA)
    table.insert(rows(1))
    feed = Feed(spark, table.path)
    Seen(feed).run(tmp_path / "cp")
    table.delete("id = 1")
    with pytest.raises(StreamingQueryException, match="TIDELOG_NOT_APPEND_ONLY: version 2 of"):
        Seen(feed).run(tmp_path / "cp")
    with pytest.raises(StreamingQueryException, match="TIDELOG_HISTORY_RANGE: version 9 does not exist"):
        Seen(Feed(spark, table.path, after=9)).run(tmp_path / "other")


def test_a_table_in_memory_is_refused(spark: SparkSession) -> None:
    table = Table.create("memory://for-a-feed", pa.schema([("n", pa.int64())]), exist_ok=True)
    with pytest.raises(ConfigurationError, match=r"memory://for-a-feed is in this process's memory"):
        Feed(spark, table.path)


@pytest.mark.parametrize(
    "way",
    [
        "feed",
        pytest.param("format", marks=JVM_SOURCE),  # Spark does not tell a Python source where the checkpoint is
    ],
)
def test_a_checkpoint_in_the_folder_of_the_source_is_refused(spark: SparkSession, tmp_path: Path, way: str) -> None:
    table = Table.create(str(tmp_path / "base" / "table"), SCHEMA)
    table.insert(rows(1))
    seen: list[int] = []

    def run(checkpoint: Path) -> None:
        if way == "feed":
            run_to_end(Feed(spark, table.path).foreachBatch(lambda _, number: seen.append(number)), checkpoint)
        else:
            drain(feed(spark, table.path), lambda _, number: seen.append(number), checkpoint)

    for refused in ("base/table/cp", "base"):
        with pytest.raises(StreamingQueryException, match=r"the query's checkpoint .* checkpointLocation"):
            run(tmp_path / refused)
    assert not seen
    run(tmp_path / "base" / "cp")
    # One that was moved there has a batch to run again.
    (tmp_path / "base" / "cp" / "commits" / "0").unlink()
    (tmp_path / "base" / "cp").rename(tmp_path / "base" / "table" / "moved")
    with pytest.raises(StreamingQueryException, match="the query's checkpoint"):
        run(tmp_path / "base" / "table" / "moved")
    assert seen == [0]
