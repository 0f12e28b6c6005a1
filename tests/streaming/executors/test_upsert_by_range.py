"""UPSERTs on Spark's executors with more keys than the driver holds: the same results, also after a lost race."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tests import lanes
from tests.log.operations.changing_rows import KINDS, SCHEMA, rows
from tests.log.rules.support import default, generated, ruled_table
from tests.log.support import live_files
from tests.streaming.executors.twins import FRAME, Twins, check_upserts, check_upserts_with_an_order, filled, frame_of
from tests.streaming.support import rewrite_all
from tidelog.log import Table
from tidelog.log.commit.burial import joined_changes
from tidelog.log.commit.discard import files_written_for
from tidelog.log.conflict.staged import Staged
from tidelog.log.data.tombstones import TOMBSTONE_FOLDER
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import (
    ConflictError,
    DataFileMissingError,
    DuplicateKeyError,
    SchemaMismatchError,
    WriteVerificationError,
)
from tidelog.log.format.tombstone_list import TombstoneChange, TombstoneFile
from tidelog.log.state.loader import LogState
from tidelog.log.storage import open_store
from tidelog.streaming import Sink, table
from tidelog.streaming.executors import spark_upsert, tasks, upsert_by_range
from tidelog.streaming.executors.session import session_settings
from tidelog.streaming.executors.spark_upsert import SparkUpsert

pytestmark = [pytest.mark.spark]

Change = Callable[[], Any]


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three ranges, in pieces of a batch of Arrow rows; the driver holds two keys."""
    monkeypatch.setattr(spark_upsert, "MAX_KEYS", 2)
    shuffles = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "3"}
    monkeypatch.setattr(upsert_by_range, "FITTED_SHUFFLES", shuffles)
    monkeypatch.setattr(upsert_by_range, "file_size", lambda _: 1)


@pytest.fixture(params=lanes.full_but(["vectors, feed"], KINDS))
def twins(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Twins:
    return Twins(spark, tmp_path, filled(tmp_path, request.param))


def left_over(made: Table) -> list[str]:
    """The files of staged keys that are left."""
    folder = Path(made.path) / TOMBSTONE_FOLDER
    return sorted(path.name for path in folder.glob("*")) if folder.is_dir() else []


@pytest.mark.full
def test_upserts(twins: Twins, spark: SparkSession) -> None:
    check_upserts(twins, spark)
    assert left_over(twins.other) == []


@pytest.mark.full
def test_upserts_with_an_order(twins: Twins, spark: SparkSession) -> None:
    check_upserts_with_an_order(twins, spark)
    # One file for each commit that deleted something, as in one process.
    assert len(left_over(twins.other)) == len(left_over(twins.local)) == 2


def test_many_deletions_stay_in_several_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.log.commit.burial.MERGED_ROWS", 2)
    made = filled(tmp_path, "vectors")
    changed = table(spark, made.path)
    changed.upsert(frame_of(spark, rows(range(12))), keys=["k"], order_by="v", delete_where="k < 10")
    assert len(left_over(made)) > 1
    late = [{**row, "v": row["v"] - 1} for row in rows(range(12))]
    committed = made.refresh().upsert(late, keys=["k"], order_by="v")
    assert committed.metrics["numSourceRowsOutdated"] == 12
    assert sorted(made.scan("k < 12").to_arrow()["k"].to_pylist()) == [10, 11]


def test_many_deletions_of_a_winner_are_a_conflict(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit does not say which keys it has deleted, even if the table had no row of them."""
    monkeypatch.setattr("tidelog.log.commit.burial.MERGED_ROWS", 2)
    made = filled(tmp_path, "vectors")
    late = [{**row, "v": row["v"] - 1} for row in rows(range(100, 103))]
    loser = made.begin().upsert(late, keys=["k"], order_by="v")
    buried = frame_of(spark, rows(range(100, 112)))
    table(spark, made.path).upsert(buried, keys=["k"], order_by="v", delete_where="k >= 100")
    assert len(left_over(made)) > 1
    with pytest.raises(ConflictError, match="tombstones"):
        loser.commit()
    assert made.refresh().scan("k >= 100").count() == 0


@pytest.mark.parametrize("kind", lanes.full_but(["vectors, feed"], KINDS))
def test_upserts_by_an_index(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    made = filled(tmp_path, kind)
    made.set_properties({"tidelog.primaryKey": "k"})
    twins = Twins(spark, tmp_path, made)
    calls: list[tuple[list[dict[str, Any]], str | None]] = [
        (rows(range(4, 40)), None),
        (rows(range(30, 50), "b"), None),
        (rows(range(3, 45, 2), "c"), "v > 200"),
    ]
    for data, delete_where in calls:
        on_spark = methodcaller("upsert", frame_of(spark, data), delete_where=delete_where)
        twins.check(methodcaller("upsert", data, delete_where=delete_where), on_spark)


@pytest.mark.full
def test_several_rows_of_a_key_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """They come in one piece, whatever the size of the pieces is."""
    made = filled(tmp_path, "vectors")
    before = files_of(made)
    changed = table(spark, made.path)
    with pytest.raises(DuplicateKeyError, match="k=5"):
        changed.upsert(frame_of(spark, [*rows(range(10)), *rows([5], "b")]), keys=["k"])
    nothing = [{**row, "k": None if row["k"] == 5 else row["k"]} for row in rows(range(10))]
    with pytest.raises(SchemaMismatchError, match="null"):
        changed.upsert(frame_of(spark, nothing), keys=["k"])
    assert files_of(made) == before


TEXTS = pa.schema([("k", pa.string()), ("n", pa.int64())])
ROW_BY_ROW = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"}


@pytest.mark.parametrize("collation", ["UTF8_BINARY", "UTF8_LCASE"])
def test_keys_are_compared_as_the_table_does(collation: str, spark: SparkSession, tmp_path: Path) -> None:
    """A varchar loses blanks, and a collation of the data does not count."""
    typed = {"k": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}}
    made = ruled_table(TEXTS, fields=typed, store=open_store(str(tmp_path / "table")))
    changed = table(spark, made.path)
    data = [("abc", 5), ("ABC", 5), ("abc", 6), ("abc ", 5), ("ABC", 7), ("ABC ", 7)]
    frame = spark.createDataFrame(data, "k string, n long").withColumn("k", F.collate("k", collation))
    with (
        session_settings(spark, ROW_BY_ROW),
        pytest.raises(DuplicateKeyError, match=r"k='(ABC', n=7|abc', n=5)"),
    ):
        changed.upsert(frame, keys=["k", "n"])
    changed.upsert(frame.where("n < 6 AND length(k) = 3"), keys=["k"], order_by="n")
    assert sorted(made.refresh().scan().to_arrow()["k"].to_pylist()) == ["ABC", "abc"]


def test_keys_that_the_data_lacks(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("digit", pa.int64()), ("kind", pa.string()), ("v", pa.string())])
    fields = {"digit": generated("k % 10"), "kind": default("'new'")}
    made = ruled_table(schema, fields=fields, partition_by=["digit"], store=open_store(str(tmp_path / "table")))
    for value in ("a", "b"):
        data = [(k, value) for k in range(12)]
        frame = spark.createDataFrame(data, "k int, v string")
        committed = table(spark, made.path).upsert(frame, keys=["k", "digit", "kind"])
    assert committed.metrics["numTargetRowsUpdated"] == 12
    found = made.refresh().scan().to_arrow().to_pylist()
    assert sorted(found, key=lambda row: row["k"]) == [
        {"k": k, "digit": k % 10, "kind": "new", "v": "b"} for k in range(12)
    ]


def test_a_batch_that_changes_nothing_leaves_no_files(spark: SparkSession, tmp_path: Path) -> None:
    made = filled(tmp_path, "vectors")
    sink = Sink(made.path, mode="upsert", keys=["k"], writer="spark", delete_where="k >= 100")
    (tmp_path / "in").mkdir()
    frame_of(spark, rows(range(100, 110))).write.parquet(str(tmp_path / "in" / "1"))
    stream = spark.readStream.schema(FRAME).parquet(str(tmp_path / "in" / "*"))
    query = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert left_over(made) == []


def files_of(made: Table) -> set[str]:
    return {str(path) for path in Path(made.path).rglob("*") if path.is_file()}


def test_lost_rows_are_an_error(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that forgets a part of its rows; the files of the others go."""
    made = filled(tmp_path, "vectors")
    before = files_of(made)

    forgotten: list[upsert_by_range.RangePart] = []

    def forgetful(*arguments: Any) -> Any:
        first, *others = tasks.run_on_rows(*arguments)
        forgotten.append(first)
        return others

    monkeypatch.setattr(upsert_by_range, "run_on_rows", forgetful)
    with pytest.raises(WriteVerificationError):
        table(spark, made.path).upsert(frame_of(spark, rows(range(10))), keys=["k"])
    left = {str(Path(path).relative_to(made.path)) for path in files_of(made) - before}
    assert {path for path in left if not path.startswith("_tidelog/keys")} == files_written_for(forgotten[0].staged)


@pytest.mark.full
def test_a_batch_that_turns_out_to_be_large(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink counts its first batch, and expects as many rows of the second. What tasks wrote until then goes."""
    made = Table.create(str(tmp_path / "table"), SCHEMA)
    sink = Sink(made.path, mode="upsert", keys=["k"], writer="spark")
    checkpoint = str(tmp_path / "checkpoint")
    (tmp_path / "in").mkdir()
    found: list[bool] = []
    stage = SparkUpsert.stage

    def noted(upsert: SparkUpsert, state: LogState, writer: DataWriter) -> Staged:
        staged = stage(upsert, state, writer)
        found.append(upsert._is_large)
        return staged

    monkeypatch.setattr(SparkUpsert, "stage", noted)
    stream = spark.readStream.schema(FRAME).parquet(str(tmp_path / "in" / "*"))
    query = stream.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    for number, keys in enumerate([range(2), range(30)]):
        frame_of(spark, rows(keys)).write.parquet(str(tmp_path / "in" / str(number)))
        query.trigger(availableNow=True).start().awaitTermination()
    assert found == [False, True]
    assert sorted(made.refresh().scan().to_arrow()["k"].to_pylist()) == list(range(30))
    # The file of the first batch, whose rows are replaced, stays for readers of older versions.
    assert len(list(Path(made.path).glob("**/*.parquet"))) == len(live_files(made)) + 1


# --- races ------------------------------------------------------------------------------------------------------------


def with_winner(monkeypatch: pytest.MonkeyPatch, *changes: Change) -> list[Change]:
    """Run one of `changes` between the tasks and the commit of each attempt. Returns those that have not run yet."""
    waiting = list(changes)

    def run_then_change(*arguments: Any) -> Any:
        values = tasks.run_on_rows(*arguments)
        if waiting:
            waiting.pop(0)()
        return values

    monkeypatch.setattr(upsert_by_range, "run_on_rows", run_then_change)
    return waiting


def insert_at(path: str, data: list[dict[str, Any]]) -> None:
    Table.open(path).insert(data)


def upsert_at(path: str, data: list[dict[str, Any]], **arguments: Any) -> None:
    Table.open(path).upsert(data, **arguments)


def counted(attempts: list[int], *arguments: Any) -> Any:
    attempts.append(1)
    return upsert_by_range.stage_by_ranges(*arguments)


@pytest.mark.parametrize("indexed", [True, False])
def test_keys_of_a_winner_are_found(
    indexed: bool,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rows that a winner inserts are replaced without another attempt, by the keys in files; others stay."""
    made = filled(tmp_path, "vectors")
    if indexed:
        made.set_properties({"tidelog.primaryKey": "k"})
    waiting = with_winner(monkeypatch, partial(insert_at, made.path, rows([7, 60, 61], "z")))
    attempts: list[int] = []
    monkeypatch.setattr(spark_upsert, "stage_by_ranges", partial(counted, attempts))
    table(spark, made.path).upsert(frame_of(spark, rows(range(5, 12), "new")), keys=["k"], delete_where="k = 6")
    assert (waiting, len(attempts)) == ([], 1)
    found = made.refresh().scan("part IN ('new', 'z')").to_arrow().to_pylist()
    assert sorted((row["k"], row["part"]) for row in found) == [
        (5, "new"), *((k, "new") for k in range(7, 12)), (60, "z"), (61, "z")
    ]  # fmt: skip
    assert left_over(made) == []


def test_a_compaction_wins(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = filled(tmp_path, "vectors")
    waiting = with_winner(monkeypatch, lambda: rewrite_all(Table.open(made.path)))
    table(spark, made.path).upsert(frame_of(spark, rows(range(5, 12), "new")), keys=["k"])
    assert not waiting
    found = made.refresh().scan("k >= 5 AND k < 12").to_arrow()
    assert sorted(zip(found["k"].to_pylist(), found["part"].to_pylist(), strict=True)) == [
        (k, "new") for k in range(5, 12)
    ]


def test_staged_keys_that_are_gone_are_an_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as after a vacuum, for a transaction that takes longer than `tidelog.maxTransactionTime`."""
    made = filled(tmp_path, "vectors")

    def insert_and_clean() -> None:
        insert_at(made.path, rows([7], "z"))
        for name in left_over(made):
            (Path(made.path) / TOMBSTONE_FOLDER / name).unlink()

    with_winner(monkeypatch, insert_and_clean)
    before = made.refresh().version
    with pytest.raises(DataFileMissingError, match="staged keys"):
        table(spark, made.path).upsert(frame_of(spark, rows(range(5, 12), "new")), keys=["k"])
    assert made.refresh().version == before + 1


def test_parts_without_deletions_let_tombstones_expire(tmp_path: Path) -> None:
    file = TombstoneFile("a", 1, 7, ("k",), ("v",))
    changes = [TombstoneChange(("v",)), TombstoneChange(("v",), file, expired_ms=5)]
    writer = filled(tmp_path, "vectors").begin().writer
    assert joined_changes(writer.store, writer.system, writer.metadata, changes, ["k"]) == changes[1]


def test_orders_of_winners_count(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A winner's newer record of a key, and its newer deletion of another: the statement runs again, and loses both."""
    made = filled(tmp_path, "vectors")
    arguments: dict[str, Any] = {"keys": ["k"], "order_by": "v"}
    newer = [{"k": 40, "part": "a", "v": 1_000, "price": None}]
    buried = [{"k": 41, "part": "a", "v": 1_000, "price": None}]
    waiting = with_winner(
        monkeypatch,
        partial(upsert_at, made.path, newer, **arguments),
        partial(upsert_at, made.path, buried, delete_where="k = 41", **arguments),
    )
    committed = table(spark, made.path).upsert(frame_of(spark, rows(range(38, 44))), **arguments)
    assert not waiting
    assert committed.metrics["numSourceRowsOutdated"] == 2
    found = made.refresh().scan("k >= 38").to_arrow()
    assert dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True)) == {
        38: 380, 39: 390, 40: 1_000, 42: 420, 43: 430
    }  # fmt: skip
