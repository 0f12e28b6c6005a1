"""The sink's modes in real queries, with both writers: which rows are in the table afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.lanes import full_but
from tests.streaming.sink.support import Reports
from tests.streaming.support import Input, drain, footprint, forget_last_commit, refused, rewrite_all
from tidelog.log import OperationClass, Table
from tidelog.log.errors import (
    ConfigurationError,
    DuplicateKeyError,
    PredicateError,
    SchemaMismatchError,
    TidelogError,
)
from tidelog.log.state.commits import read_commit
from tidelog.streaming import Sink
from tidelog.streaming import table as spark_table
from tidelog.streaming.executors.collected import collected
from tidelog.streaming.sink.batch_rows import CollectedRows, FrameRows
from tidelog.streaming.spark_versions import columns_to_arrow

pytestmark = pytest.mark.spark

MODES = ("append", "upsert", "overwrite-partitions")

WRITERS = ("driver", "spark")
EVENTS = "k long, day string, v string, at long"
CHANGES = "k long, day string, v string, at long, op string"


def events(*rows: tuple[Any, ...]) -> pa.Table:
    names = ("k", "day", "v", "at", "op")[: len(rows[0])]
    types = (pa.int64(), pa.string(), pa.string(), pa.int64(), pa.string())
    schema = pa.schema(list(zip(names, types, strict=False)))
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema)


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


@pytest.fixture(params=WRITERS)
def writer(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(
    spark: SparkSession, source: Input, sink: Callable[[DataFrame, int], None], tmp_path: Path, schema: str
) -> None:
    drain(source.stream(spark, schema=schema), sink, tmp_path / "cp")


def contents(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    rows = Table.open(str(path)).scan(columns=list(columns)).to_arrow().to_pylist()
    return sorted(tuple(row[name] for name in columns) for row in rows)


def test_upsert_takes_the_newest_row_of_a_key_and_deletes(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str
) -> None:
    path = tmp_path / "table"
    sink = Sink(str(path), mode="upsert", keys=["k"], order_by="at", delete_where="op = 'd'", writer=writer)
    source.put_table(
        events(
            (1, "a", "one", 1, "c"), (2, "a", "two", 1, "c"), (2, "b", "two again", 3, "u"), (2, "a", "late", 2, "u")
        )
    )
    source.put_table(events((1, "a", "gone", 5, "d"), (3, "b", "three", 4, "c"), (4, "c", "never", 6, "d")))
    source.put_table(events((3, "b", "x", 8, "d"), (3, "b", "back", 9, "c"), (2, "b", "two at last", 10, "u")))
    run(spark, source, sink, tmp_path, CHANGES)

    assert contents(path, "k", "day", "v") == [(2, "b", "two at last"), (3, "b", "back")]
    table = Table.open(str(path))
    assert table.version == 3
    assert table.properties["tidelog.primaryKey"] == "k", "net changes of the change feed need it"
    info = read_commit(table.store, 3).info
    assert info["tidelog"]["batch"]["batchId"] == 2
    assert info["operationMetrics"] | {"numTargetRowsUpdated": "2"} == info["operationMetrics"]
    assert sink.last is not None
    assert (sink.last.version, sink.last.files > 0, sink.last.bytes > 0) == (3, True, True)


def test_the_order_holds_across_batches(spark: SparkSession, source: Input, tmp_path: Path, writer: str) -> None:
    """By columns that the table has: an older record has no effect, also if a newer one deleted its key."""
    path = tmp_path / "table"
    sink = Sink(str(path), mode="upsert", keys=["k"], order_by="at", delete_where="op = 'd'", writer=writer)
    source.put_table(events((1, "a", "one", 10, "c"), (2, "a", "gone", 20, "d"), (3, "a", "three", 5, "c")))
    source.put_table(events((1, "a", "old", 5, "u"), (2, "a", "old", 19, "c"), (3, "a", "four", 6, "u")))
    source.put_table(events((1, "a", "old", 9, "d"), (2, "a", "old", 18, "d")))
    source.put_table(events((2, "a", "back", 21, "c"), (2, "a", "back", 21, "c")))
    reports = Reports(sink)
    run(spark, source, reports, tmp_path, CHANGES)
    assert contents(path, "k", "v", "at") == [(1, "one", 10), (2, "back", 21), (3, "four", 6)]
    outdated = [report.metrics.get("numSourceRowsOutdated") for report in reports.all]
    assert (outdated, [report.rows for report in reports.all]) == ([0, 2, 2, 0], [3, 3, 2, 1])
    assert [report.version for report in reports.all] == [1, 2, None, 3], "the third has no effect"


def test_some_columns_of_rows_are_changed(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    """The batch lacks `v`. The second one is older for one key, and deletes another."""
    path = tmp_path / "table"
    table = Table.create(str(path), events((1, "a", "x", 1)).schema, properties={"tidelog.primaryKey": "k"})
    table.insert(events((1, "a", "one", 1), (2, "a", "two", 9), (3, "a", "three", 1)))
    sink = Sink(str(path), mode="upsert", columns="partial", order_by="at", delete_where="op = 'd'")
    source.put_table(events((1, "b", "-", 5, "u"), (2, "b", "-", 5, "u"), (4, "b", "-", 5, "c"), (3, "b", "-", 5, "d")))
    reports = Reports(sink)
    some = source.stream(spark, schema=CHANGES).drop("v")
    drain(some, reports, tmp_path / "cp")
    assert contents(path, "k", "day", "v", "at") == [(1, "b", "one", 5), (2, "a", "two", 9), (4, "b", None, 5)]
    assert [(report.writer, report.rows) for report in reports.all] == [("driver", 4)]
    wrong: list[dict[str, Any]] = [{"mode": "append"}, {"mode": "upsert", "writer": "spark"}]
    for arguments in wrong:
        with pytest.raises(ConfigurationError, match="the driver writes such a batch"):
            Sink(str(path), columns="partial", **arguments)
    with pytest.raises(ConfigurationError, match="columns='some'"):
        Sink(str(path), mode="upsert", columns="some")


@pytest.mark.full
def test_the_order_of_the_table_counts(spark: SparkSession, source: Input, tmp_path: Path, writer: str) -> None:
    path = tmp_path / "table"
    properties = {"tidelog.primaryKey": "k", "tidelog.orderBy": "at"}
    Table.create(str(path), events((1, "a", "x", 1)).schema, properties=properties)
    source.put_table(events((1, "a", "new", 10), (1, "a", "newer", 11)))
    source.put_table(events((1, "a", "old", 5)))
    run(spark, source, Sink(str(path), mode="upsert", writer=writer), tmp_path, EVENTS)
    assert contents(path, "k", "v") == [(1, "newer")]
    source.put_table(events((1, "a", "tied", 12), (1, "a", "with this", 12)))
    error = refused(
        source.stream(spark, schema=EVENTS),
        Sink(str(path), mode="upsert", writer=writer),
        tmp_path / "cp",
        DuplicateKeyError,
    )
    assert "the order has the same value" in error.advice


def test_a_sink_can_do_without_the_order_of_the_table(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str
) -> None:
    path = tmp_path / "table"
    properties = {"tidelog.primaryKey": "k", "tidelog.orderBy": "at"}
    Table.create(str(path), events((1, "a", "x", 1)).schema, properties=properties).insert(events((1, "a", "new", 10)))
    source.put_table(events((1, "a", "old", 5)))
    run(spark, source, Sink(str(path), mode="upsert", order_by=(), writer=writer), tmp_path, EVENTS)
    assert contents(path, "k", "v") == [(1, "old")]


@pytest.mark.parametrize(
    ("columns", "count"),
    [
        ("id % 2 AS k, map('a', 1) AS m, 5 AS at", 2),
        ("1 AS k, IF(id = 0, 5, null) AS m, IF(id = 0, null, 5) AS at", 1),
        ("1 AS k, map('a', timestamp_micros(id % 2)) AS m, 5 AS at", None),
        ("1 AS k, IF(id % 2 = 0, array('x', null), array('x')) AS m, 5 AS at", None),
        ("1 AS k, IF(id % 2 = 0, null, 'x') AS m, 5 AS at", None),
    ],
)
def test_only_rows_that_are_equal_are_one(
    spark: SparkSession, tmp_path: Path, writer: str, columns: str, count: int | None
) -> None:
    """With `count` None they are different, and none is the newest."""
    text = f"SELECT {columns} FROM range(4)"
    table = Table.create(str(tmp_path / "table"), columns_to_arrow(spark.sql(text).schema))
    data, target = (spark.sql(text), spark_table(spark, table.path)) if writer == "spark" else (None, table)
    given: Any = data if data is not None else collected(spark.sql(text))
    if count is None:
        with pytest.raises(DuplicateKeyError):
            target.upsert(given, keys=["k"], order_by="at")
        return
    target.upsert(given, keys=["k"], order_by="at")
    found = table.refresh().scan().to_arrow().to_pylist()
    assert (len(found), {row["at"] for row in found}) == (count, {5})


@pytest.mark.full
def test_a_column_that_the_table_lacks_orders_the_rows_of_one_batch(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str
) -> None:
    """Of different batches the columns before it are compared, and the batch that comes later wins a tie."""
    path = tmp_path / "table"
    Table.create(str(path), pa.schema([("k", pa.int64()), ("v", pa.string()), ("day", pa.string())]))
    sink = Sink(str(path), mode="upsert", keys=["k"], order_by=["day", "at"], writer=writer)
    source.put_table(events((1, "b", "one", 7), (1, "b", "two", 8), (1, "a", "old", 9)))
    source.put_table(events((1, "b", "three", 2), (1, "b", "four", 3)))
    source.put_table(events((1, "a", "late", 99)))
    run(spark, source, sink, tmp_path, EVENTS)
    assert contents(path, "k", "v", "day") == [(1, "four", "b")]


def test_the_table_need_not_have_columns_that_only_order_by_and_delete_where_read(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str
) -> None:
    """As with change records: `op` and `at` control what happens to a row; the table does not have them."""
    path = tmp_path / "table"
    table = Table.create(str(path), pa.schema([("k", pa.int64()), ("v", pa.string()), ("day", pa.string())]))
    sink = Sink(
        str(path),
        mode="upsert",
        keys=["k"],
        order_by=["at"],
        delete_where="op = 'd'",
        writer=writer,
        schema_evolution=True,
    )
    source.put_table(events((1, "a", "one", 1, "c"), (1, "a", "two", 2, "u"), (2, "a", "gone", 2, "d")))
    run(spark, source, sink, tmp_path, CHANGES)
    assert table.refresh().schema.names == ["k", "v", "day"]
    assert contents(path, "k", "v", "day") == [(1, "two", "a")]


@pytest.mark.parametrize(
    ("order", "rows", "advice"),
    [
        (None, [(1, "a", "x", 1), (1, "a", "y", 2), (2, "a", "z", 1)], "pass order_by="),
        ("at", [(1, "a", "x", 7), (1, "a", "y", 7), (1, "b", "z", 6)], "add a column that differs"),
    ],
)
def test_a_key_that_comes_twice_in_a_batch_is_named(
    spark: SparkSession,
    source: Input,
    tmp_path: Path,
    writer: str,
    order: str | None,
    rows: list[tuple[Any, ...]],
    advice: str,
) -> None:
    path = tmp_path / "table"
    table = Table.create(str(path), events((1, "a", "x", 1)).schema)
    before = footprint(path)
    sink = Sink(str(path), mode="upsert", keys=["k"], order_by=order, writer=writer)
    stream = source.put_table(events(*rows)).stream(spark, schema=EVENTS)
    error = refused(stream, sink, tmp_path / "cp", DuplicateKeyError)
    assert "such as k=1" in str(error)
    assert advice in error.advice
    assert table.refresh().version == 0
    assert footprint(path) == before


def test_keys_that_are_not_the_primary_key_need_a_word(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str
) -> None:
    """The property is set beside a running sink: its next batch is refused before anything is written."""
    path = tmp_path / "table"
    Table.create(str(path), events((1, "a", "x", 1)).schema)
    sink = Sink(str(path), mode="upsert", keys=["v"], writer=writer)
    run(spark, source.put_table(events((1, "a", "x", 1), (2, "a", "y", 1))), sink, tmp_path, EVENTS)
    Table.open(str(path)).set_properties({"tidelog.primaryKey": "k"})
    before = footprint(path)
    stream = source.put_table(events((3, "a", "x", 1))).stream(spark, schema=EVENTS)
    error = refused(stream, sink, tmp_path / "cp", ConfigurationError)
    assert "keys=['v'] are not the table's primary key, ['k'] (tidelog.primaryKey)" in error.message
    assert "other_keys=True" in error.advice
    assert footprint(path) == before
    asked = Sink(str(path), mode="upsert", keys=["v"], other_keys=True, writer=writer)
    run(spark, source, asked, tmp_path, EVENTS)
    assert contents(path, "k", "v") == [(2, "y"), (3, "x")]


@pytest.mark.full
def test_a_partition_of_dead_rows_is_overwritten_without_a_change_for_append_readers(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str
) -> None:
    path = tmp_path / "table"
    table = Table.create(str(path), events((1, "a", "x", 1)).schema, partition_by=["day"])
    table.insert(events((1, "a", "x", 1), (2, "a", "x", 1)))
    for key in (1, 2):
        table.delete(f"k = {key}")
    before = table.version
    assert table.at().num_files == 1
    sink = Sink(str(path), mode="overwrite-partitions", writer=writer)
    run(spark, source.put_table(events((3, "a", "y", 1))), sink, tmp_path, EVENTS)
    assert [row["k"] for row in table.changes(after=before, mode="append").to_arrow().to_pylist()] == [3]
    assert table.at().num_files == 1
    spark_table(spark, str(path)).delete("k = 3")
    frame = spark.createDataFrame(events((4, "a", "z", 1)))
    spark_table(spark, str(path)).delete("k >= 0")
    last = table.refresh().version
    spark_table(spark, str(path)).overwrite(frame, dynamic=True)
    assert [row["k"] for row in table.changes(after=last, mode="append").to_arrow().to_pylist()] == [4]


def test_overwrite_partitions_replaces_the_partitions_that_the_batch_has_rows_in(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str
) -> None:
    path = tmp_path / "table"
    sink = Sink(str(path), mode="overwrite-partitions", partition_by=["day"], writer=writer)
    source.put_table(events((1, "a", "x", 1), (2, "b", "x", 1), (3, "b", "x", 1), (4, None, "x", 1)))
    source.put_table(events((5, "b", "y", 2), (6, "c", "y", 2), (7, "", "y", 2)))
    run(spark, source, sink, tmp_path, EVENTS)
    assert sorted(row[0] for row in contents(path, "k")) == [1, 5, 6, 7]
    record = Table.open(str(path)).history(1)[0]
    assert record.operation_class is OperationClass.OVERWRITE
    assert sink.last is not None
    assert (sink.last.rows, sink.last.files) == (3, 3)


@pytest.mark.parametrize("mode", full_but(["upsert"], MODES))
def test_a_replayed_batch_is_skipped_and_an_empty_one_commits_nothing(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str, mode: str
) -> None:
    path = tmp_path / "table"
    keys = ["k"] if mode == "upsert" else ()

    def sink() -> Sink:
        return Sink(str(path), mode=mode, keys=keys, partition_by=["day"], writer=writer)

    source.put_table(events((1, "a", "x", 1), (2, "b", "x", 1)))
    run(spark, source, sink(), tmp_path, EVENTS)
    before = footprint(path)
    forget_last_commit(tmp_path / "cp")
    replayed = sink()
    run(spark, source, replayed, tmp_path, EVENTS)
    assert replayed.last is not None
    assert (replayed.last.skipped, replayed.last.version) == (True, None)

    source.put_table(events((3, "a", "x", 1)).slice(0, 0))
    empty = sink()
    run(spark, source, empty, tmp_path, EVENTS)
    assert empty.last is not None
    assert (empty.last.rows, empty.last.version, empty.last.skipped) == (0, None, False)
    assert footprint(path) == before, "no commit, and no new file"


def test_an_upsert_that_changes_nothing_commits_nothing(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str
) -> None:
    path = tmp_path / "table"
    sink = Sink(str(path), mode="upsert", keys=["k"], delete_where="op = 'd'", writer=writer)
    source.put_table(events((1, "a", "x", 1, "c"))).put_table(events((9, "a", "x", 1, "d")))
    run(spark, source, sink, tmp_path, CHANGES)
    assert Table.open(str(path)).version == 1
    assert sink.last is not None
    assert (sink.last.rows, sink.last.version) == (1, None)


class AfterFirstStaging:
    """Runs `action` once a sink has staged its batch, before the commit. `stagings` counts how often it staged."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
        self.stagings = 0
        for kind in (CollectedRows, FrameRows):
            monkeypatch.setattr(kind, "stage", self._wrapped(kind.stage, action))

    def _wrapped(self, stage: Callable[..., None], action: Callable[[], object]) -> Callable[..., None]:
        def wrapper(rows: Any, transaction: Any) -> None:
            stage(rows, transaction)
            self.stagings += 1
            if self.stagings == 1:
                action()

        return wrapper


@pytest.mark.parametrize("mode", full_but(["upsert"], MODES))
def test_each_mode_is_rebased_over_a_compaction_and_another_stream(
    spark: SparkSession,
    source: Input,
    tmp_path: Path,
    writer: str,
    mode: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "table"
    table = Table.create(str(path), events((1, "a", "x", 1)).schema, partition_by=["day"])
    table.insert(events((1, "a", "old", 1), (2, "b", "old", 1)))
    table.insert(events((3, "a", "old", 1), (4, "b", "old", 1)))

    def other_commits() -> None:
        rewrite_all(table.refresh())
        table.insert(events((5, "c", "other", 2)))

    staged = AfterFirstStaging(monkeypatch, other_commits)
    sink = Sink(str(path), mode=mode, keys=["k"] if mode == "upsert" else (), writer=writer)
    run(spark, source.put_table(events((1, "a", "new", 3))), sink, tmp_path, EVENTS)
    expected = {
        "append": [(1, "new"), (1, "old"), (2, "old"), (3, "old"), (4, "old"), (5, "other")],
        "upsert": [(1, "new"), (2, "old"), (3, "old"), (4, "old"), (5, "other")],
        "overwrite-partitions": [(1, "new"), (2, "old"), (4, "old"), (5, "other")],
    }[mode]
    assert contents(path, "k", "v") == expected
    assert staged.stagings == 1, "a rebase uses metadata only and computes nothing again"
    assert sink.last is not None
    assert sink.last.rebased_over == (3, 4)


def test_an_upsert_is_staged_again_if_another_stream_wrote_its_key(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table"
    table = Table.create(str(path), events((1, "a", "x", 1)).schema, properties={"delta.enableChangeDataFeed": True})
    table.insert(events((1, "a", "old", 1)))
    staged = AfterFirstStaging(monkeypatch, lambda: table.upsert(events((1, "a", "theirs", 2)), keys=["k"]))
    sink = Sink(str(path), mode="upsert", keys=["k"], writer=writer)
    run(spark, source.put_table(events((1, "a", "ours", 3))), sink, tmp_path, EVENTS)
    assert contents(path, "k", "v") == [(1, "ours")]
    assert staged.stagings == 2
    changes = table.refresh().changes(after=2, mode="cdc").to_arrow().to_pylist()
    assert sorted((row["_change_type"], row["v"]) for row in changes) == [
        ("update_postimage", "ours"),
        ("update_preimage", "theirs"),
    ]


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"mode": "upsert"}, ConfigurationError, "no keys are given; pass keys=[...], or set the property"),
        ({"mode": "upsert", "keys": ["x"]}, ConfigurationError, "there is no key column 'x'; the columns are k, day"),
        (
            {"mode": "upsert", "keys": ["k"], "order_by": "x"},
            SchemaMismatchError,
            "the data lacks the column 'x', by which its rows are found or compared; choose one of k, day",
        ),
        ({"mode": "upsert", "keys": ["k"], "delete_where": "x = 1"}, PredicateError, "x"),
        ({"mode": "upsert", "keys": ["v"]}, SchemaMismatchError, "the key column 'v' is null in 1 rows"),
        ({"mode": "overwrite-partitions"}, ConfigurationError, "is not partitioned, so mode="),
        ({"adopt_txn": "other"}, ConfigurationError, "no stream with the application id 'other' has written"),
    ],
)
def test_arguments_that_only_a_batch_can_contradict_are_refused(
    spark: SparkSession,
    source: Input,
    tmp_path: Path,
    writer: str,
    arguments: dict[str, Any],
    kind: type[TidelogError],
    message: str,
) -> None:
    path = tmp_path / "table"
    Table.create(str(path), events((1, "a", "x", 1)).schema)
    stream = source.put_table(events((1, "a", "x", 1), (2, "a", None, 1))).stream(spark, schema=EVENTS)
    error = refused(stream, Sink(str(path), writer=writer, **arguments), tmp_path / "cp", kind)
    assert message in str(error)
    assert Table.open(str(path)).version == 0
