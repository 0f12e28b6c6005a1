"""`streaming.table`: row changes on Spark's executors give the same result as those of `Table`."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from operator import methodcaller
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests import lanes
from tests.log.operations.changing_rows import KINDS, SCHEMA, rows
from tests.log.support import live_files, put_foreign
from tests.streaming.executors.twins import Twins, check_upserts, check_upserts_with_an_order, filled, frame_of
from tidelog.log import Table
from tidelog.log.cleanup.pieces import finished
from tidelog.log.data.indexed_key import IndexedKey
from tidelog.log.data.key_runs import open_runs, run_paths
from tidelog.log.data.reader import DataFile, read_numbered_batches
from tidelog.log.errors import ConfigurationError
from tidelog.log.format.actions import Protocol
from tidelog.log.operations.tend_index import tend_index
from tidelog.log.state.loader import load
from tidelog.log.system import REAL_SYSTEM
from tidelog.streaming import SparkTable, table
from tidelog.streaming.executors import spark_upsert
from tidelog.streaming.executors.session import session_settings
from tidelog.streaming.executors.tasks import FilePart, file_parts

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("one_file_a_task")]


@pytest.fixture(params=lanes.full_but(["vectors, feed"], KINDS))
def twins(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Twins:
    return Twins(spark, tmp_path, filled(tmp_path, request.param))


def test_deletes(twins: Twins) -> None:
    """All on one table, so that later deletes meet the deletion vectors of earlier ones."""
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
        (rows([2, 61, 700]), {"where": "k < 4 OR k IN (60, 61, 700)"}),
        ([], {"where": "k = 700"}),
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


def test_upserts_with_an_order(twins: Twins, spark: SparkSession) -> None:
    check_upserts_with_an_order(twins, spark)


def test_upserts_with_an_order_by_an_index(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks search the files without a run only; the order of the other rows is in the index."""
    made = filled(tmp_path, "vectors")
    made.set_properties({"tidelog.primaryKey": "k", "tidelog.orderBy": "v"})
    finished(tend_index(made.store, load(made.store), REAL_SYSTEM))
    searched: list[int] = []

    def parts(files: pa.Table) -> list[FilePart]:
        searched.append(files.num_rows)
        return file_parts(files)

    monkeypatch.setattr(spark_upsert, "file_parts", parts)
    twins = Twins(spark, tmp_path, made)
    for delete_where, shift, outdated in (("k = 5", 1, 0), ("k = 7", 0, 6)):
        data = [{**row, "v": row["v"] + shift} for row in rows(range(4, 10))]
        upsert = methodcaller("upsert", data, delete_where=delete_where)
        on_spark = methodcaller("upsert", frame_of(spark, data), delete_where=delete_where)
        assert twins.check(upsert, on_spark).metrics["numSourceRowsOutdated"] == outdated
    assert searched == [0, 0]


def test_upserts_by_rules_and_of_some_columns(twins: Twins, spark: SparkSession) -> None:
    """The driver does them, with the same rows and the same errors."""
    rules: dict[str, Any] = {
        "when_matched": [("source.k % 2 = 0", "delete"), (None, {"v": "source.v + 1"})],
        "when_not_matched": [("source.k < 40", "insert")],
        "when_not_matched_by_source": [("target.part = 'b'", {"v": "0"})],
    }
    data = [*rows(range(4, 12)), *rows(range(38, 44), "c")]
    on_spark = methodcaller("upsert", frame_of(spark, data), keys=["k"], **rules)
    twins.check(methodcaller("upsert", data, keys=["k"], **rules), on_spark)
    some = [{"k": 5, "v": 7}, {"k": 77, "v": 8}]
    frame = spark.createDataFrame([(row["k"], row["v"]) for row in some], "k long, v int")
    partial_on_spark = methodcaller("upsert", frame, keys=["k"], columns="partial")
    twins.check(methodcaller("upsert", some, keys=["k"], columns="partial"), partial_on_spark)
    with pytest.raises(ConfigurationError):
        twins.spark.upsert(frame, keys=["k"], columns="some")


def test_tasks_write_runs_of_the_index(spark: SparkSession, tmp_path: Path) -> None:
    made = Table.create(str(tmp_path / "table"), SCHEMA, properties={"tidelog.primaryKey": "k"})
    changed = table(spark, made.path)
    changed.upsert(frame_of(spark, rows(range(10))))
    changed.update("k < 3", {"v": "7"})
    key = IndexedKey.of(load(made.store).head.metadata, SCHEMA)
    assert key is not None
    covered = {path for run in open_runs(made.store, key) for path in run.paths.to_pylist()}
    assert set(made.refresh().at().files()["path"].to_pylist()) <= covered


def test_partial_rows_with_a_null_struct(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("s", pa.struct([("x", pa.int64())])), ("v", pa.int64())])
    made = Table.create(str(tmp_path / "structs"), schema, properties={"tidelog.primaryKey": "k"})
    made.insert([{"k": 1, "s": {"x": 1}, "v": 1}])
    frame = spark.sql("SELECT 1L AS k, IF(rand() < 2, NULL, named_struct('x', 5L)) AS s")
    table(spark, made.path).upsert(frame, columns="partial")
    assert made.refresh().scan().to_arrow().to_pylist() == [{"k": 1, "s": None, "v": 1}]


def test_times_of_partial_rows_do_not_depend_on_the_session(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("v", pa.int64())])
    made = Table.create(str(tmp_path / "times"), schema, properties={"tidelog.primaryKey": "k"})
    made.insert([{"k": 1, "at": None, "v": 1}])
    with session_settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        frame = spark.sql("SELECT 1L AS k, TIMESTAMP '2026-01-01 00:00:00Z' AS at")
        table(spark, made.path).upsert(frame, columns="partial")
    (row,) = made.refresh().scan().to_arrow().to_pylist()
    assert row == {"k": 1, "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "v": 1}


@pytest.mark.parametrize("kind", lanes.full_but(["vectors"], KINDS))
def test_upserts_by_an_index(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    """The first files have no run of the index, those of the upserts have one."""
    made = filled(tmp_path, kind)
    made.set_properties({"tidelog.primaryKey": "k"})
    twins = Twins(spark, tmp_path, made)
    calls: list[tuple[list[dict[str, Any]], str | None]] = [
        (rows(range(4, 40)), None),
        (rows(range(30, 50), "b"), None),
        (rows(range(3, 45, 2), "c"), "v > 200"),
        (rows([99]), "k = 99"),
    ]
    for data, delete_where in calls:
        on_spark = methodcaller("upsert", frame_of(spark, data), delete_where=delete_where)
        twins.check(methodcaller("upsert", data, delete_where=delete_where), on_spark)
    assert run_paths(twins.other.store)


def test_upserts(twins: Twins, spark: SparkSession) -> None:
    check_upserts(twins, spark)


def test_images_of_all_tasks_have_the_right_addresses(spark: SparkSession, tmp_path: Path) -> None:
    """The tasks' addresses are renumbered over the files of all tasks: each new row is the image of one old row."""
    made = filled(tmp_path, "vectors")
    transactions: list[Any] = []
    spy: Any = SimpleNamespace(statement=lambda stage: transactions.append(stage(made.begin())), store=made.store)
    SparkTable(spark, spy).update("k != 5", {"v": "k + 1000"})
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


def test_a_table_with_column_mapping(spark: SparkSession, tmp_path: Path) -> None:
    """In the files, all columns have other names, and so has the partition column in the log."""
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


def test_every_column_type(spark: SparkSession, tmp_path: Path) -> None:
    made = Table.create(str(tmp_path / "table"), TYPES.schema, properties=KINDS["vectors, feed"])
    made.insert(TYPES)
    twins = Twins(spark, tmp_path, made)
    twins.check(lambda one: one.update("i = 3 OR at IS NULL", {"f": "2.5", "d": "d"}))
    frame = spark.createDataFrame(TYPES, IN_SPARK)
    twins.check(lambda one: one.overwrite(TYPES), lambda one: one.overwrite(frame))
    twins.check(lambda one: one.delete("d = DATE '2026-01-02' OR i IS NULL"))


@pytest.mark.oldest
def test_columns_of_a_frame_are_matched_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """As in Table.overwrite: any order and case, null for missing columns, and narrower numbers widen."""
    twins = Twins(spark, tmp_path, filled(tmp_path, "vectors"))
    twins.check(
        lambda one: one.overwrite([{"V": 7, "k": 1, "part": None, "price": None}]),
        lambda one: one.overwrite(spark.createDataFrame([(7, 1)], "V int, k int")),
    )


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
