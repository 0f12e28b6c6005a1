"""`streaming.table`: row changes run by executors end as those of `Table` do on the same table."""

from __future__ import annotations

import datetime as dt
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import msgspec
import pyarrow as pa
import pytest
from pyspark.errors import PySparkAttributeError
from pyspark.sql import DataFrame, SparkSession

from tests.log.operations.changing_rows import KINDS, SCHEMA, rows
from tests.log.support import live_files, put_foreign
from tests.streaming.support import rewrite_all
from tidelog.log import Committed, Table
from tidelog.log.data.reader import DataFile, read_numbered_batches
from tidelog.log.errors import (
    AppendOnlyError,
    ConfigurationError,
    ConflictError,
    DataFileMissingError,
    DuplicateKeyError,
    PredicateError,
    PrerequisiteError,
    SchemaMismatchError,
    TableNotFoundError,
    TidelogError,
)
from tidelog.log.format.actions import Protocol
from tidelog.log.state.loader import load
from tidelog.streaming import SparkTable, table
from tidelog.streaming.executors import spark_table, spark_upsert, tasks

pytestmark = pytest.mark.spark

FRAME = "k long, part string, v int, price decimal(10,2)"
Operation = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def one_file_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are one task otherwise, which would show nothing about many."""
    monkeypatch.setattr(tasks, "SHARE_FILES", 1)


class Twins:
    """Two copies of one table, down to the ids: the one is changed by this process, the other by executors."""

    def __init__(self, spark: SparkSession, folder: Path, made: Table) -> None:
        shutil.copytree(made.path, folder / "twin")
        self.local = Table.open(made.path)
        self.other = Table.open(str(folder / "twin"))
        self.spark = table(spark, str(folder / "twin"))

    def check(self, operation: Operation, spark_operation: Operation | None = None) -> Committed:
        """Run an operation on both: versions, metrics, rows, change rows and live rows by the log are the same."""
        before = self.local.version
        expected, found = operation(self.local), (spark_operation or operation)(self.spark)
        assert isinstance(found, Committed)
        assert (found.version, counts(found)) == (expected.version, counts(expected))
        self.other.refresh()
        assert bag(self.other.scan()) == bag(self.local.scan())
        assert self.other.at().num_rows == self.local.at().num_rows == self.local.scan().count()
        if found.version > before:
            ours, theirs = (one.changes(after=before) for one in (self.other, self.local))
            assert bag(ours) == bag(theirs)
            (record,), (same) = self.other.history(1), self.local.history(1)
            assert [record.operation_class] == [entry.operation_class for entry in same]
        return found


def counts(committed: Committed) -> dict[str, int]:
    """The rows that a commit counts; files are each task's own, and so are the rows copied with them later on."""
    return {name: count for name, count in committed.metrics.items() if "Row" in name and name != "numCopiedRows"}


def bag(reader: Any) -> Counter[str]:
    """The rows without their order and without the columns that tell the commit's time."""
    found = reader.to_arrow()
    names = [name for name in found.column_names if name != "_commit_timestamp"]
    return Counter(repr(row) for row in found.select(names).to_pylist())


def filled(folder: Path, kind: str) -> Table:
    """Twenty rows in five files of three partitions, one of which is that of null; some are dead already."""
    made = Table.create(str(folder / "table"), SCHEMA, partition_by=["part"], properties=KINDS[kind])
    made.insert([*rows(range(6)), *rows(range(6, 10), "b")])
    made.insert([*rows(range(10, 13), None), *rows(range(13, 20))])
    made.delete("k IN (3, 14, 15)")
    return made.refresh()


@pytest.fixture(params=list(KINDS))
def twins(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Twins:
    return Twins(spark, tmp_path, filled(tmp_path, request.param))


def test_deletes(twins: Twins) -> None:
    """One after the other on one table, so that the later ones meet the vectors of the earlier ones."""
    for where, matches in [
        ("k = 4", 1),
        ("k BETWEEN 1 AND 2 OR price > 18", 3),
        ("part IS NULL AND NOT k = 11", 2),
        ("part != 'a' AND v + k > 80", 2),
        ("k > 999", 0),
        ("k IN (0, 1, 2, 5, 13, 16)", 4),
        ("part = 'a'", 2),
        ("k >= 0 OR k IS NULL", 3),
        ("k >= 0", 0),
    ]:
        committed = twins.check(methodcaller("delete", where))
        assert committed.metrics["numDeletedRows"] == matches


def test_updates(twins: Twins) -> None:
    for where, assignments in [
        ("k < 8", {"v": "k + 1", "PART": "'c'"}),
        ("part = 'c'", {"k": "v * 10", "price": "1.25"}),
        ("price = 1.25 OR part IS NULL", {"part": "NULL", "price": "1.5"}),
        ("k > 999", {"v": "0"}),
        ("k IS NOT NULL", {"v": "7"}),
    ]:
        twins.check(methodcaller("update", where, assignments))


def test_overwrites(twins: Twins, spark: SparkSession) -> None:
    calls: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
        ([*rows(range(50, 53), "b"), *rows(range(53, 55), "new")], {"dynamic": True}),
        (rows(range(60, 64)), {"where": "part = 'a'"}),
        ([], {"where": "part IS NULL"}),
        ([*rows(range(70, 75), None), *rows(range(80, 82), "")], {"where": "part IS NULL"}),
        ([], {"dynamic": True}),
        (rows(range(90, 95)), {}),
        ([], {}),
        ([], {}),
    ]
    for data, arguments in calls:
        on_spark = methodcaller("overwrite", frame_of(spark, data), **arguments)
        twins.check(methodcaller("overwrite", data, **arguments), on_spark)


def test_upserts(twins: Twins, spark: SparkSession) -> None:
    """The later ones meet rows that the earlier ones wrote; in the last but two a key has two rows in the table."""
    schema = f"{FRAME}, op string"
    calls: list[tuple[list[dict[str, Any]], list[str], str | None]] = [
        ([*rows(range(4, 8)), *rows(range(30, 34), "b")], ["k"], None),
        ([{**row, "op": "d" if row["k"] % 2 else None} for row in rows(range(3, 12), "c")], ["k"], "op = 'd'"),
        ([{**row, "op": "d"} for row in rows(range(98, 99))], ["k"], "op = 'd'"),
        (rows(range(16, 18), "new"), ["part", "k"], None),
        ([*rows(range(16, 17), "x"), *rows(range(90, 92), "")], ["k"], None),
        ([], ["k"], None),
        ([{**row, "op": "d"} for row in rows(range(100))], ["k"], "op = 'd'"),
    ]
    for data, keys, delete_where in calls:
        names = schema if delete_where else FRAME
        frame = spark.createDataFrame([tuple(row.values()) for row in data], names).repartition(2)
        on_spark = methodcaller("upsert", frame, keys=keys, delete_where=delete_where)
        twins.check(methodcaller("upsert", data, keys=keys, delete_where=delete_where), on_spark)


def frame_of(spark: SparkSession, data: list[dict[str, Any]]) -> DataFrame:
    """The rows as a frame of two partitions, so that two tasks write them."""
    return spark.createDataFrame([tuple(row.values()) for row in data], FRAME).repartition(2)


def test_each_task_s_images_have_their_addresses(spark: SparkSession, tmp_path: Path) -> None:
    """The images of all tasks are counted among the files of all: each row that was written is one row's image."""
    made = filled(tmp_path, "vectors")
    transactions: list[Any] = []
    spy: Any = SimpleNamespace(statement=lambda stage: transactions.append(stage(made.begin())), store=made.store)
    SparkTable(spark.sparkContext, spy).update("k != 5", {"v": "k + 1000"})
    staged = transactions[0]._staged
    new = [read_all(made, DataFile.of(add)) for add in staged.adds]
    seen = Counter[tuple[int, int]]()
    for delete in staged.deletes:
        old = read_all(made, DataFile.of(delete.file))
        places = list(zip(delete.images.adds.tolist(), delete.images.positions.tolist(), strict=True))
        assert [new[add][row]["k"] for add, row in places] == [old[position]["k"] for position in delete.positions]
        seen.update(places)
    assert seen == Counter((add, row) for add, found in enumerate(new) for row in found)
    assert len(staged.adds) == len(staged.deletes) == 4


def read_all(one: Table, file: DataFile) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for positions, batch in read_numbered_batches(one.store, file, one.schema):
        found |= dict(zip(positions.tolist(), batch.to_pylist(), strict=True))
    return found


def test_a_mapped_table(spark: SparkSession, tmp_path: Path) -> None:
    """Files know the columns, also the one that partitions, by other names."""
    schema = pa.schema([("n", pa.int64()), ("st", pa.struct([("x", pa.string())])), ("p", pa.string())])
    made = Table.create(str(tmp_path / "table"), schema, partition_by=["p"], properties=KINDS["vectors, feed"])
    old = load(made.store).head.metadata
    fields = json.loads(old.schema_string)["fields"]
    for number, field in enumerate([*fields, *fields[1]["type"]["fields"]], start=1):
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "4"}
    metadata = msgspec.structs.replace(
        old,
        schema_string=json.dumps({"type": "struct", "fields": fields}),
        configuration={**old.configuration, **mapping},
    )
    features = ("columnMapping", "deletionVectors")
    protocol = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=features,
        writer_features=(*features, "inCommitTimestamp", "changeDataFeed"),
    )
    put_foreign(made, metadata, protocol)
    made.refresh().insert([{"n": n, "st": {"x": str(n % 3)}, "p": "ab"[n % 2]} for n in range(9)])
    twins = Twins(spark, tmp_path, made)
    assert "col-3" in live_files(twins.other)[0].partition_values
    twins.check(lambda one: one.delete("st.x = '1' AND p = 'b'"))
    twins.check(lambda one: one.update("n < 6", {"n": "n + 100", "p": "'c'"}))
    frame = spark.createDataFrame([(7, ("y",), "c")], "n long, st struct<x: string>, p string")
    twins.check(
        lambda one: one.overwrite([{"n": 7, "st": {"x": "y"}, "p": "c"}], dynamic=True),
        lambda one: one.overwrite(frame, dynamic=True),
    )


MOMENT = dt.datetime(2026, 3, 8, 1, 2, 3, 456789, tzinfo=dt.UTC)
TYPES = pa.table(
    {
        "i": pa.array([1, None, 3], pa.int8()),
        "f": pa.array([1.5, float("nan"), None], pa.float32()),
        "d": pa.array([dt.date(2026, 1, 2), None, dt.date(1582, 10, 15)]),
        "at": pa.array([MOMENT, None, MOMENT], pa.timestamp("us", tz="UTC")),
        "ntz": pa.array([MOMENT.replace(tzinfo=None), None, None], pa.timestamp("us")),
        "b": pa.array([b"\xff\0", None, b""]),
        "s": pa.array([[{"x": 1, "y": None}], [], None], pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())]))),
        "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    }
)
IN_SPARK = (
    "i tinyint, f float, d date, at timestamp, ntz timestamp_ntz, b binary, s array<struct<x: int, y: string>>, "
    "m map<string, long>"
)


def test_every_kind_of_column(spark: SparkSession, tmp_path: Path) -> None:
    made = Table.create(str(tmp_path / "table"), TYPES.schema, properties=KINDS["vectors, feed"])
    made.insert(TYPES)
    twins = Twins(spark, tmp_path, made)
    twins.check(lambda one: one.update("i = 3 OR at IS NULL", {"f": "2.5", "d": "d"}))
    frame = spark.createDataFrame(TYPES, IN_SPARK)
    twins.check(lambda one: one.overwrite(TYPES), lambda one: one.overwrite(frame))
    twins.check(lambda one: one.delete("d = DATE '2026-01-02' OR i IS NULL"))


def test_columns_of_a_frame_go_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """As in Table.overwrite: order and case do not matter, what is missing is null, a narrower number widens."""
    twins = Twins(spark, tmp_path, filled(tmp_path, "vectors"))
    twins.check(
        lambda one: one.overwrite([{"V": 7, "k": 1, "part": None, "price": None}]),
        lambda one: one.overwrite(spark.createDataFrame([(7, 1)], "V int, k int")),
    )


def with_meanwhile(monkeypatch: pytest.MonkeyPatch, *meanwhile: Callable[[], Any]) -> list[Callable[[], Any]]:
    """What happens between a statement's tasks and its commit: one thing each time that it runs; returns the rest."""
    waiting = list(meanwhile)

    def run_and_wait(*arguments: Any) -> Any:
        values = tasks.run(*arguments)
        if waiting:
            waiting.pop(0)()
        return values

    monkeypatch.setattr(spark_table, "run", run_and_wait)
    return waiting


@pytest.mark.parametrize("kind", ["vectors", "copies", "vectors, feed"])
def test_a_compaction_moves_the_rows_meanwhile(
    kind: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = filled(tmp_path, kind)
    changed = table(spark, made.path)
    waiting = with_meanwhile(monkeypatch, lambda: rewrite_all(Table.open(made.path)))
    changed.update("k < 8", {"v": "k + 1000"})
    assert not waiting
    waiting = with_meanwhile(monkeypatch, lambda: rewrite_all(Table.open(made.path)))
    changed.delete("k >= 16")
    assert not waiting
    found = made.refresh().scan().to_arrow()
    assert sorted(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True)) == [
        (k, k + 1000 if k < 8 else k * 10) for k in range(16) if k not in {3, 14, 15}
    ]


def test_rows_that_match_are_added_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement runs again, a bounded number of times; each loss leaves nothing behind that a reader sees."""
    made = filled(tmp_path, "vectors, feed")
    changed = table(spark, made.path)

    def insert() -> None:
        Table.open(made.path).insert(rows(range(2)))

    with_meanwhile(monkeypatch, insert, insert)
    changed.update("k < 2", {"v": "-1"})
    assert sorted(made.refresh().scan("k < 2").to_arrow()["v"].to_pylist()) == [-1] * 6
    waiting = with_meanwhile(monkeypatch, *[insert] * 9)
    with pytest.raises(ConflictError):
        changed.update("k < 2", {"v": "-2"})
    assert len(waiting) == 5
    assert set(made.refresh().scan("k < 2").to_arrow()["v"].to_pylist()) == {-1, 0, 10}


def test_an_overwrite_takes_what_came_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = filled(tmp_path, "vectors")

    def run_and_wait(*arguments: Any) -> Any:
        values = tasks.run_on_rows(*arguments)
        Table.open(made.path).insert(rows(range(200, 203)))
        return values

    monkeypatch.setattr(spark_table, "run_on_rows", run_and_wait)
    table(spark, made.path).overwrite(frame_of(spark, rows(range(2))), where="part = 'a'")
    assert not {200, 201, 202, 13} & set(made.refresh().scan().to_arrow()["k"].to_pylist())


def compact_at(path: str) -> None:
    rewrite_all(Table.open(path))


def insert_at(path: str) -> None:
    Table.open(path).insert(rows(range(5, 7)))


def test_an_upsert_that_runs_again_reads_its_data_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame that comes out otherwise each time would else be another upsert."""
    made = filled(tmp_path, "vectors, feed")
    computed = spark.sparkContext.accumulator(0)

    def dice(key: int) -> tuple[int, str, int, None]:
        computed.add(1)
        return key, "a", random.randrange(10**9), None

    frame = spark.createDataFrame(spark.sparkContext.parallelize(range(20), 2).map(dice), FRAME)
    waiting: list[Callable[[], Any]] = [partial(compact_at, made.path), partial(insert_at, made.path)]

    def run_and_wait(*arguments: Any) -> Any:
        values = tasks.run(*arguments)
        if waiting:
            waiting.pop(0)()
        return values

    monkeypatch.setattr(spark_upsert, "run", run_and_wait)
    before = made.version
    table(spark, made.path).upsert(frame, keys=["k"])
    assert not waiting
    assert computed.value == 20
    found = made.refresh().scan().to_arrow()
    assert sorted(found["k"].to_pylist()) == list(range(20))
    changes = made.changes(after=before).to_arrow().to_pylist()
    told = {
        row["k"]: row["v"]
        for row in changes
        if row["_commit_version"] == made.version and "pre" not in row["_change_type"]
    }
    assert told == dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.mark.parametrize("kind", ["vectors", "copies, feed"])
def test_another_engine_reads_the_result(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    made = filled(tmp_path, kind)
    changed = table(spark, made.path)
    changed.delete("k IN (0, 10)")
    changed.update("k < 8", {"part": "'c'", "v": "v + 1"})
    changed.overwrite(frame_of(spark, rows(range(50, 53), "b")), dynamic=True)
    reader = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(made.path)).execute("select * from t")
    found = pa.table(reader.read_all()).select(SCHEMA.names).cast(SCHEMA)
    expected = made.refresh().scan().to_arrow()
    assert Counter(map(repr, found.to_pylist())) == Counter(map(repr, expected.to_pylist()))
    assert expected.num_rows == 17 - 2 - 2 + 3


@pytest.mark.parametrize(
    ("operation", "kind", "message"),
    [
        (lambda one, _: one.delete("nothing = 1"), PredicateError, "there is no column 'nothing'"),
        (lambda one, _: one.delete("upper(part) = 'A'"), PredicateError, "not supported"),
        (
            lambda one, _: one.update("k = 1", {}),
            ConfigurationError,
            "set is empty, so the update would change nothing",
        ),
        (lambda one, _: one.update("k = 1", {"nothing": "1"}), PredicateError, "no column 'nothing' to set"),
        # Seen by a task alone, which reads the values.
        (lambda one, _: one.update("k > 5", {"v": "k * 1000000000"}), SchemaMismatchError, "column 'v' is int32"),
        (lambda one, frame: one.overwrite(frame, where="part = 'a'"), ConfigurationError, "1 of 3 rows are outside"),
        (lambda one, frame: one.overwrite(frame, where="k = 1"), PredicateError, "'k' is no partition column"),
        (lambda one, frame: one.overwrite(frame, where="part = 'a'", dynamic=True), ConfigurationError, "both where"),
        (
            lambda one, frame: one.overwrite(frame.withColumnRenamed("v", "w")),
            SchemaMismatchError,
            "a column 'w' that the table does not have",
        ),
        (
            lambda one, frame: one.overwrite(frame.selectExpr("k", "cast(v as string) as v")),
            SchemaMismatchError,
            "column 'v' is int32 in the table but string",
        ),
        (
            lambda one, frame: one.overwrite(frame.selectExpr("k * 1000000000 as v")),
            SchemaMismatchError,
            "column 'v' is int32 in the table but int64",
        ),
        (lambda one, frame: one.upsert(frame), ConfigurationError, "no keys are given"),
        (lambda one, frame: one.upsert(frame, keys=["n"]), ConfigurationError, "there is no key column 'n'"),
        (lambda one, frame: one.upsert(frame.union(frame), keys=["k"]), DuplicateKeyError, "3 keys have several rows"),
        (lambda one, frame: one.upsert(frame.drop("k"), keys=["k"]), SchemaMismatchError, "'k' is null in 3 rows"),
        (lambda one, frame: one.upsert(frame, keys=["k"], delete_where="op = 'd'"), PredicateError, "no column 'op'"),
        (lambda one, _: one.upsert([{"k": 1}], keys=["k"]), SchemaMismatchError, "list is no Spark DataFrame"),
        (lambda one, _: one.overwrite([{"k": 1}]), SchemaMismatchError, "of the type list is no Spark DataFrame"),
    ],
)
def test_errors_are_typed_and_nothing_is_committed(
    operation: Callable[[SparkTable, DataFrame], Any],
    kind: type[TidelogError],
    message: str,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    made = filled(tmp_path, "vectors")
    frame = frame_of(spark, [*rows(range(1, 3)), *rows(range(8, 9), "b")])
    with pytest.raises(kind, match=message) as caught:
        operation(table(spark, made.path), frame)
    assert type(caught.value) is kind
    before = made.version
    assert made.refresh().version == before


def test_a_file_that_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    made = filled(tmp_path, "vectors")
    (tmp_path / "table" / live_files(made)[0].path).unlink()
    with pytest.raises(DataFileMissingError, match="is missing"):
        table(spark, made.path).delete("v >= 0")


def test_more_keys_than_the_driver_holds(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_upsert, "MAX_KEYS", 2)
    made = filled(tmp_path, "vectors")
    with pytest.raises(ConfigurationError, match="has 3 keys, and the driver holds at most 2"):
        table(spark, made.path).upsert(frame_of(spark, rows(range(3))), keys=["k"])
    table(spark, made.path).upsert(frame_of(spark, rows(range(2))), keys=["k"])


def test_an_append_only_table(spark: SparkSession, tmp_path: Path) -> None:
    made = Table.create(str(tmp_path / "table"), SCHEMA, properties={"delta.appendOnly": True})
    changed = table(spark, made.path)
    with pytest.raises(AppendOnlyError):
        changed.delete("k = 1")
    with pytest.raises(AppendOnlyError):
        changed.update("k = 1", {"v": "1"})
    with pytest.raises(AppendOnlyError):
        changed.overwrite(frame_of(spark, []))
    with pytest.raises(AppendOnlyError):
        changed.upsert(frame_of(spark, []), keys=["k"])


def test_tables_and_sessions_that_will_not_do(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        table(spark, str(tmp_path / "nothing"))
    Table.create("memory://for-spark", SCHEMA, exist_ok=True)
    with pytest.raises(ConfigurationError, match="in this process's memory"):
        table(spark, "memory://for-spark")
    with pytest.raises(ConfigurationError, match="a Spark session is needed, not str"):
        table("local[2]", str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="a Spark session is needed, not SparkSession"):
        table(SparkSession, str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(PrerequisiteError, match=r"Spark 4\.1\.0 is too old"):
        table(SimpleNamespace(version="4.1.0"), str(tmp_path))  # type: ignore[arg-type]


def test_spark_connect_is_refused(tmp_path: Path) -> None:
    class Connect:
        version = "4.2.0"

        @property
        def sparkContext(self) -> Any:  # noqa: N802 - Spark's name
            raise PySparkAttributeError("JVM_ATTRIBUTE_NOT_SUPPORTED")

    with pytest.raises(PrerequisiteError, match="this one is Spark Connect's"):
        table(Connect(), str(tmp_path))  # type: ignore[arg-type]


def test_shares_are_bounded_by_files_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "SHARE_FILES", 3)
    monkeypatch.setattr(tasks, "SHARE_BYTES", 100)

    def shares(*sizes: int) -> list[list[int]]:
        adds: Any = [SimpleNamespace(size=size) for size in sizes]
        return [[add.size for add in share] for share in tasks.shares_of(adds)]

    assert shares() == []
    assert shares(1, 1, 1, 1) == [[1, 1, 1], [1]]
    assert shares(60, 40, 1, 500, 100, 1) == [[60, 40], [1], [500], [100], [1]]
