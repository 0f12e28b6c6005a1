"""Files written from a DataFrame have the rows, statistics and partition values that the driver's writer would give."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tests.lanes import full
from tests.log.support import memory_store, new_table, put_foreign
from tidelog.log import Table
from tidelog.log.data.conform import conform
from tidelog.log.data.external_files import take_up
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import SchemaMismatchError, StoreUnavailableError, WriteVerificationError
from tidelog.log.format import hive_paths, statistics
from tidelog.log.format.actions import AddFile, Protocol
from tidelog.log.format.partition_values import folder_text
from tidelog.log.format.paths import to_storage_path
from tidelog.log.state.loader import load
from tidelog.log.storage.local import LocalStore
from tidelog.streaming import spark_versions
from tidelog.streaming.executors import frame_files, jvm_files
from tidelog.streaming.executors.frame_files import DictionaryUse, write_frame
from tidelog.streaming.executors.plain_frame import plain_rows

pytestmark = pytest.mark.spark

# Without these features a table has the oldest kind of protocol, which another writer can change by its versions alone.
PLAIN = ("delta.enableInCommitTimestamps", "delta.enableDeletionVectors")
WHEN = datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("whole", pa.int64()),
        ("small", pa.int8()),
        ("real", pa.float64()),
        ("single", pa.float32()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(20, 3)),
        ("place", pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.string())), ("n", pa.int32())])),
        ("sizes", pa.map_(pa.string(), pa.int64())),
    ]
)


def row(number: int, **others: Any) -> dict[str, Any]:
    return {
        "whole": number,
        "small": number % 100,
        "real": number / 4,
        "single": number / 2,
        "text": "é" * 40 + str(number),
        "raw": bytes([number % 256]),
        "flag": number % 2 == 0,
        "day": date(2024, 1, 1 + number % 28),
        "moment": WHEN.replace(microsecond=number),
        "local": datetime(2024, 3, 1, 2, 30, 0, number),  # noqa: DTZ001 - a time without a zone
        "price": Decimal(number) / 8,
        "place": {"x": number / 3, "tags": [f"t{number}", None], "n": -number},
        "sizes": {"a": number},
        **others,
    }


ROWS = [row(number) for number in range(1, 25)] + [
    dict.fromkeys(SCHEMA.names),
    row(30, real=float("nan"), place={"x": None, "tags": None, "n": None}),
    row(31, single=float("inf"), text="", place=None),
]


def frame(spark: SparkSession, rows: pa.Table, partitions: int = 2) -> DataFrame:
    schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    return spark.createDataFrame(rows, schema).repartition(partitions)


def writer_of(table: Table) -> DataWriter:
    return table.begin().writer


def made(path: Path, schema: pa.Schema = SCHEMA, **how: Any) -> Table:
    return Table.create(str(path), schema, **how)


def rows_of(table: Table, adds: list[AddFile]) -> list[dict[str, Any]]:
    """The rows of these files, read through the table."""
    table.begin().stage_adds(adds).commit()
    return sorted(table.refresh().scan().to_arrow().to_pylist(), key=str)


def expected_rows(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=str)


def files_below(table: Table) -> list[str]:
    return [path for path, _ in table.store.walk() if not path.startswith("_delta_log/")]


def test_all_types_round_trip_with_the_statistics_of_the_drivers_writer(spark: SparkSession, tmp_path: Path) -> None:
    table, data = made(tmp_path / "table"), pa.Table.from_pylist(ROWS, SCHEMA)
    writer = writer_of(table)
    given = frame(spark, data)
    assert plain_rows(given, writer) is not None, "this test is about Spark's own writer"
    adds, count = write_frame(given, writer)
    assert count == len(ROWS)
    assert len(adds) == 2
    for add in adds:
        content = conform(pq.read_table(tmp_path / "table" / add.path, coerce_int96_timestamp_unit="us"), SCHEMA)
        expected = json.loads(statistics.collect(content))
        # A footer counts null elements of lists, not null lists.
        del expected["nullCount"]["sizes"], expected["nullCount"]["place"]["tags"]
        assert json.loads(add.stats or "") == expected
        assert add.size == (tmp_path / "table" / add.path).stat().st_size
        assert add.path.startswith("data/")
    assert str(rows_of(table, adds)) == str(expected_rows(data))
    assert sorted(files_below(table)) == sorted(add.path for add in adds), "no checksums, markers or leftovers"


def test_statistics_follow_the_table_properties(spark: SparkSession, tmp_path: Path) -> None:
    data = pa.Table.from_pylist(ROWS, SCHEMA)
    few = made(tmp_path / "few", properties={"delta.dataSkippingNumIndexedCols": 2})
    named = made(tmp_path / "named", properties={"delta.dataSkippingStatsColumns": "text, place.n"})
    for table, columns in ((few, {"whole", "small"}), (named, {"text", "place"})):
        ((add,), _) = write_frame(frame(spark, data, 1), writer_of(table))
        assert set(json.loads(add.stats or "")["nullCount"]) == columns


def test_the_statistics_of_several_row_groups_are_merged(tmp_path: Path) -> None:
    """A large file of Spark has several. Here one has only nulls, and one has the column's greatest value."""
    table = made(tmp_path / "table", pa.schema([("n", pa.int64()), ("t", pa.string())]))
    rows = pa.table({"n": [None, None, 5, 7, 1, 2], "t": ["b", "a", "z", None, "c", "d"]}, table.schema)
    store = table.store
    (tmp_path / "table" / "data").mkdir()
    pq.write_table(rows, tmp_path / "table" / "data" / "x.parquet", row_group_size=2)
    ((path, status),) = store.walk("data")
    add = take_up(writer_of(table), path, status)
    assert add is not None
    assert json.loads(add.stats or "") == json.loads(statistics.collect(rows))


def coded_columns(table: Table, add: AddFile) -> set[str]:
    """The columns of a file that have a dictionary."""
    group = pq.ParquetFile(f"{table.path}/{add.path}").metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {column.path_in_schema for column in columns if column.has_dictionary_page}


@pytest.fixture(params=["v1", *full(("v2",))])
def writer_version(
    request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The setting of Spark's writer on which the encodings depend. Dictionaries get large after fewer rows."""
    settings = {"parquet.writer.version": request.param, "parquet.dictionary.page.size": str(2**16)}
    monkeypatch.setattr(frame_files, "_TELLING_VALUES", 20_000)
    for key, value in settings.items():
        spark.conf.set(key, value)
    yield request.param
    for key in settings:
        spark.conf.unset(key)


@pytest.mark.full
def test_columns_whose_values_do_not_repeat_get_no_dictionary_in_the_next_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer_version: str
) -> None:
    monkeypatch.setattr(frame_files, "_TRIED_AGAIN", 3)
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("few", pa.string()),
            ("s", pa.struct([("n", pa.int64())])),
            ("text", pa.string()),
            ("real", pa.float64()),
            ("few_reals", pa.float64()),
        ]
    )
    table, dictionaries = made(tmp_path / "table", schema), DictionaryUse()
    given = spark.range(0, 60_000, 1, 1).selectExpr("if(id < 20000, id % 10, id) AS id")
    given = given.selectExpr(
        "id",
        "concat('v', id % 5) AS few",
        "struct(id AS n) AS s",
        "string(id) AS text",
        "double(id) AS real",
        "double(id % 5) AS few_reals",
    )
    coded: list[set[str]] = []
    for _ in range(4):
        ((add,), _) = write_frame(given, writer_of(table), dictionaries=dictionaries)
        coded.append(coded_columns(table, add))
    # Those of fractions are tried in each batch of the second version, because one that was in vain does not show.
    first, later = (
        set(schema.names) - {"s"} | {"s.n"},
        {"few", "few_reals", *(["real"] if writer_version == "v2" else [])},
    )
    # Values may repeat by now, so dictionaries are tried again from time to time.
    assert coded == [first, later, first, later]


@pytest.mark.full
def test_columns_of_few_values_tell_nothing_about_dictionaries(
    spark: SparkSession, tmp_path: Path, writer_version: str
) -> None:
    assert writer_version
    schema = pa.schema([("id", pa.int64()), ("none", pa.int64()), ("text", pa.string()), ("sparse", pa.int64())])
    table, dictionaries = made(tmp_path / "table", schema), DictionaryUse()
    rows = spark.range(0, 200_000, 1, 1)
    given = rows.selectExpr(
        "id", "CAST(null AS BIGINT) none", "CAST(null AS STRING) text", "if(id < 20, id, null) sparse"
    )
    write_frame(given, writer_of(table), dictionaries=dictionaries)
    assert dictionaries.plain() == {"id"}
    repeated = rows.selectExpr("id", "id % 5 AS none", "string(id % 5) AS text", "id % 5 AS sparse")
    ((add,), _) = write_frame(repeated, writer_of(table), dictionaries=dictionaries)
    assert coded_columns(table, add) == {"none", "text", "sparse"}


@pytest.mark.full
def test_a_footer_that_cannot_be_read_does_not_fail_the_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, dictionaries = made(tmp_path / "table", pa.schema([("id", pa.int64())])), DictionaryUse()

    def away(*_: object) -> None:
        raise StoreUnavailableError("the store is away")

    rows = spark.range(0, 200_000, 1, 1)
    with monkeypatch.context() as patched:
        patched.setattr(frame_files, "read_footer", away)
        (_, count) = write_frame(rows, writer_of(table), dictionaries=dictionaries)
    assert (count, dictionaries.plain()) == (200_000, frozenset())
    write_frame(rows, writer_of(table), dictionaries=dictionaries)
    assert dictionaries.plain() == {"id"}


PARTITIONED = pa.schema(
    [
        ("n", pa.int64()),
        ("text", pa.string()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", tz="UTC")),
        ("real", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("flag", pa.bool_()),
    ]
)
VALUES: list[dict[str, Any]] = [
    {"text": "a", "day": date(2024, 1, 1), "real": 0.5},
    {"text": "A", "day": date(2024, 1, 1), "real": 0.5},
    {"text": "", "day": None, "real": -0.0},
    {"text": None, "day": None, "real": 0.0},
    {"text": "a", "real": float("nan")},
    {"text": "a/b=c %20é.x", "price": Decimal("1.50"), "flag": True},
    {"text": "long " * 200, "flag": False},
    {"text": "long " * 200 + "!", "flag": False},
    # Two moments with the same local time in Berlin, when clocks were set back.
    {"moment": datetime(2024, 10, 27, 0, 30, tzinfo=UTC)},
    {"moment": datetime(2024, 10, 27, 1, 30, tzinfo=UTC)},
]


@pytest.mark.parametrize(
    "columns", [["text"], ["moment"], ["real"], ["text", "day", "moment", "real", "price", "flag"]]
)
def test_partition_values_are_those_of_the_drivers_writer(
    spark: SparkSession, tmp_path: Path, columns: list[str]
) -> None:
    rows = pa.Table.from_pylist([{"n": n, **VALUES[n % len(VALUES)]} for n in range(100)], PARTITIONED)
    ours, theirs = (made(tmp_path / name, PARTITIONED, partition_by=columns) for name in ("spark", "driver"))
    adds, count = write_frame(frame(spark, rows, 3), writer_of(ours))
    written = writer_of(theirs).write(rows)
    assert count == 100
    assert sorted(str(add.partition_values) for add in adds) == sorted(str(add.partition_values) for add in written)
    by_values = {str(add.partition_values): json.loads(add.stats or "") for add in written}
    assert {str(add.partition_values): json.loads(add.stats or "") for add in adds} == by_values
    assert str(rows_of(ours, adds)) == str(rows_of(theirs, written)), "as text, NaN is equal to itself"


@pytest.mark.parametrize("by_jvm", [True, False])
def test_files_are_written_into_the_partition_folders_of_a_table_that_has_such(
    spark: SparkSession, tmp_path: Path, by_jvm: bool
) -> None:
    """By Spark's writer they are moved there; a value that no folder can hold stays outside. Nothing is left behind."""
    columns = ["text", "moment", "real"]
    rows = pa.Table.from_pylist([{"n": n, **VALUES[n % len(VALUES)]} for n in range(50)], PARTITIONED)
    table = made(tmp_path / "table", PARTITIONED, partition_by=columns)
    writer = replace(writer_of(table), in_folders=True)
    adds, count = write_frame(frame(spark, rows, 3), writer, by_jvm=by_jvm)
    assert count == 50
    for add in adds:
        values = {name: folder_text(text, PARTITIONED.field(name).type) for name, text in add.partition_values.items()}
        folder = hive_paths.folder_of(columns, values)
        is_long = len(add.partition_values["text"] or "") > 255
        assert (folder is None) is is_long
        assert to_storage_path(add.path).rpartition("/")[0] == (folder or add.path[:2])
    assert sorted(files_below(table)) == sorted(to_storage_path(add.path) for add in adds)
    assert not any((tmp_path / "table" / "data").glob("*"))
    assert str(rows_of(table, adds)) == str(expected_rows(writer.prepared(rows)))


def test_a_move_that_fails_leaves_no_file(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "table", PARTITIONED, partition_by=["text"])
    move = LocalStore.move
    moved: list[str] = []

    def failing(store: LocalStore, old: str, new: str) -> None:
        if moved:
            raise PermissionError(13, "no")
        moved.append(new)
        move(store, old, new)

    monkeypatch.setattr(LocalStore, "move", failing)
    rows = pa.Table.from_pylist([{"n": n, "text": f"p{n % 2}"} for n in range(4)], PARTITIONED)
    with pytest.raises(PermissionError):
        write_frame(frame(spark, rows), replace(writer_of(table), in_folders=True))
    assert moved[0].startswith("text=p")
    assert files_below(table) == []


def test_sparks_writer_is_not_used_for_partition_folders_in_an_object_store(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There its files cannot be moved, and the names that it would give to folders do not distinguish all values."""
    writer = new_table(memory_store(), PARTITIONED, partition_by=["text"]).begin().writer
    assert jvm_files.fits_layout(writer)
    assert not jvm_files.fits_layout(replace(writer, in_folders=True))
    monkeypatch.setattr(jvm_files, "fits_layout", lambda writer: not writer.in_folders)
    writer = replace(writer_of(made(tmp_path / "table", PARTITIONED, partition_by=["text"])), in_folders=True)
    ((add,), _) = write_frame(frame(spark, pa.Table.from_pylist([{"n": 1, "text": "a"}], PARTITIONED)), writer)
    assert add.path.startswith("text=a/part-")
    assert not (tmp_path / "table" / "data").exists(), "Python in the tasks has written it"


@pytest.mark.parametrize("kind", ["int", "long"])
def test_a_partition_column_can_have_any_name(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """With Spark's own writer, and in Python tasks if the values must be checked."""
    schema = pa.schema([("n", pa.int32()), ("a b.c`d", pa.string())])
    rows = pa.table({"n": pa.array([1, 2], pa.int32()), "a b.c`d": ["x", "y"]}, schema)
    table = made(tmp_path / "table", schema, partition_by=["a b.c`d"])
    given = frame(spark, rows).selectExpr(f"cast(n as {kind}) n", "`a b.c``d`")
    assert (plain_rows(given, writer_of(table)) is None) is (kind == "long")
    adds, _ = write_frame(given, writer_of(table))
    assert rows_of(table, adds) == rows.to_pylist()


def test_each_partition_is_written_by_one_task(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path / "table", PARTITIONED, partition_by=["text"])
    rows = pa.Table.from_pylist([{"n": n, "text": f"p{n % 5}"} for n in range(100)], PARTITIONED)
    adds, _ = write_frame(frame(spark, rows, 8), writer_of(table))
    assert len(adds) == 5, "one file per partition, not one per partition and task"


def test_the_number_of_tasks_and_rows_per_file_is_limited(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path / "table", pa.schema([("id", pa.int64())]))
    adds, _ = write_frame(spark.range(0, 100, 1, 8), writer_of(table), max_tasks=2, rows_per_file=20)
    assert len({add.path.split("-")[5] for add in adds}) == 2, "two tasks wrote"
    assert sorted(statistics.num_records(add.stats) or 0 for add in adds) == [10, 10, 20, 20, 20, 20]


def test_the_session_s_settings_are_restored(spark: SparkSession, tmp_path: Path) -> None:
    key, other = "spark.sql.parquet.outputTimestampType", "spark.sql.parquet.compression.codec"
    table = made(tmp_path / "table", pa.schema([("id", pa.int64())]))
    spark.conf.set(other, "gzip")
    before = spark.conf.get(key)
    try:
        write_frame(spark.range(3), writer_of(table))
        assert (spark.conf.get(key), spark.conf.get(other)) == (before, "gzip")
    finally:
        spark.conf.unset(other)


# --- types that may not fit ------------------------------------------------------------------------------------------


def plain(spark: SparkSession, tmp_path: Path, select: str, schema: pa.Schema, **how: Any) -> tuple[bool, list[Any]]:
    """Whether Spark's own writer is used, and the rows."""
    table = made(tmp_path / "table", schema, **how)
    given = spark.range(1, 4).selectExpr(*select.split("; "))
    by_spark = plain_rows(given, writer_of(table)) is not None
    adds, count = write_frame(given, writer_of(table))
    assert count == 3
    return by_spark, rows_of(table, adds)


N = pa.schema([("n", pa.int64())])
NESTED = pa.schema([("s", pa.struct([("a", pa.int64()), ("b", pa.string())])), ("l", pa.list_(pa.int64()))])


@pytest.mark.parametrize(
    ("select", "schema", "by_spark", "first"),
    [
        ("cast(id as int) n", N, True, {"n": 1}),
        ("id N", N, True, {"n": 1}),
        ("id n", pa.schema([("n", pa.int32())]), False, {"n": 1}),
        ("id n", pa.schema([("n", pa.float64())]), False, {"n": 1.0}),
        ("cast(id as int) n", pa.schema([("n", pa.float64())]), True, {"n": 1.0}),
        ("cast(id as int) n", pa.schema([("n", pa.decimal128(12, 2))]), True, {"n": Decimal("1.00")}),
        ("cast(id as float) n", pa.schema([("n", pa.float64())]), True, {"n": 1.0}),
        ("cast(id as decimal(5,1)) n", pa.schema([("n", pa.decimal128(9, 2))]), True, {"n": Decimal("1.00")}),
        ("cast(id as decimal(9,2)) n", pa.schema([("n", pa.decimal128(8, 1))]), False, {"n": Decimal("1.0")}),
        ("null n; id m", pa.schema([("n", pa.string()), ("m", pa.int64())]), True, {"n": None, "m": 1}),
        ("id m", pa.schema([("n", pa.string()), ("m", pa.int64())]), True, {"n": None, "m": 1}),
        (
            "array(cast(id as int)) L; named_struct('b', 'x', 'a', id) s",
            NESTED,
            True,
            {"s": {"a": 1, "b": "x"}, "l": [1]},
        ),
        (  # Whether Spark matches fields that differ only in case depends on the session.
            "array(id) l; named_struct('B', 'x', 'a', id) s",
            NESTED,
            False,
            {"s": {"a": 1, "b": "x"}, "l": [1]},
        ),
        ("named_struct('b', 'x') s", NESTED, True, {"s": {"a": None, "b": "x"}, "l": None}),
    ],
)
@pytest.mark.parametrize("writes", [False, pytest.param(True, marks=pytest.mark.full)], ids=["plan", "files"])
def test_sparks_writer_is_used_if_every_value_of_the_type_fits(
    spark: SparkSession,
    tmp_path: Path,
    select: str,
    schema: pa.Schema,
    by_spark: bool,
    first: dict[str, Any],
    writes: bool,
) -> None:
    if writes:
        done, rows = plain(spark, tmp_path, select, schema)
        assert rows[0] == first
    else:
        given = spark.range(1, 4).selectExpr(*select.split("; "))
        done = plain_rows(given, writer_of(made(tmp_path / "table", schema))) is not None
    assert done is by_spark


def test_tables_with_column_mapping_are_written_in_python_tasks(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path / "table", N, properties=dict.fromkeys(PLAIN, False))
    old = load(table.store).head.metadata
    schema = old.schema_string.replace(
        '"metadata":{}', '"metadata":{"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"col-1"}'
    )
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
    new = msgspec.structs.replace(old, schema_string=schema, configuration={**old.configuration, **mapping})
    put_foreign(table, new, Protocol(min_reader_version=2, min_writer_version=5))
    table.refresh()
    given = spark.range(1, 4).toDF("n")
    assert plain_rows(given, writer_of(table)) is None
    adds, _ = write_frame(given, writer_of(table))
    assert pq.read_schema(tmp_path / "table" / adds[0].path).names == ["col-1"]
    assert rows_of(table, adds) == [{"n": 1}, {"n": 2}, {"n": 3}]


@pytest.mark.parametrize(
    ("select", "schema", "message"),
    [
        ("id * 3000000000 n", pa.schema([("n", pa.int32())]), "'n' is int32 in the table but int64 in the data"),
        ("cast(id as string) n", N, "'n' is int64 in the table but string in the data"),
        ("id n; id other", N, "the data has a column 'other' that the table does not have"),
        ("named_struct('a', id, 'c', 1) s", NESTED, "the data has a column 's.c' that the table does not have"),
        ("id / 3 n", pa.schema([("n", pa.float32())]), "'n' is float in the table but double in the data"),
        ("if(id = 2, null, id) n", pa.schema([pa.field("n", pa.int64(), nullable=False)]), "'n' cannot be null, but 1"),
        (
            "if(id = 2, '', 'x') p; id n",
            pa.schema([pa.field("p", pa.string(), nullable=False), ("n", pa.int64())]),
            "'p' cannot be null",
        ),
    ],
)
def test_a_lossy_write_is_an_error_and_leaves_no_file(
    spark: SparkSession, tmp_path: Path, select: str, schema: pa.Schema, message: str
) -> None:
    table = made(tmp_path / "table", schema, partition_by=["p"] if "p" in schema.names else [])
    with pytest.raises(SchemaMismatchError) as caught:
        write_frame(spark.range(1, 4).selectExpr(*select.split("; ")), writer_of(table))
    assert message in str(caught.value)
    assert caught.value.advice
    assert files_below(table) == []


# --- verified counts -------------------------------------------------------------------------------------------------


def lose_a_file(table: Table) -> Callable[..., Any]:
    """`_taken_up`, but one file is deleted first."""
    original = jvm_files._taken_up

    def delete_first(*arguments: Any) -> list[AddFile]:
        table.store.delete(next(path for path, _ in table.store.walk("data")))
        return original(*arguments)

    return delete_first


def test_a_lost_file_is_detected(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "table", pa.schema([("id", pa.int64())]))
    monkeypatch.setattr(jvm_files, "_taken_up", lose_a_file(table))
    with pytest.raises(WriteVerificationError, match=r"have 2 rows, but Spark counted 4; run it again; nothing was"):
        write_frame(spark.range(0, 4, 1, 2), writer_of(table))
    assert files_below(table) == []


def test_an_extra_file_is_detected(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "table", pa.schema([("id", pa.int64())]))
    save = jvm_files._save

    def save_twice(*arguments: Any) -> int | None:
        written = save(*arguments)
        (path, *_) = (path for path, _ in table.store.walk("data"))
        store = table.store
        store.put_if_absent(path.replace("part-", "part-9"), store.read(path))
        return written

    monkeypatch.setattr(jvm_files, "_save", save_twice)
    with pytest.raises(WriteVerificationError, match="have 6 rows, but Spark counted 4"):
        write_frame(spark.range(0, 4, 1, 2), writer_of(table))
    assert files_below(table) == []


@pytest.mark.parametrize("partitioned", [False, True])
def test_sparks_writer_counts_its_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, partitioned: bool
) -> None:
    """From Spark 4.2 on: an Observation would make the job slower. This pins what Spark's plan is asked."""
    if not spark_versions.WRITERS_COUNT:
        pytest.skip("this Spark needs an Observation")
    monkeypatch.setattr(jvm_files, "Observation", None)
    schema = pa.schema([("id", pa.int64()), ("part", pa.int64())])
    table = made(tmp_path / "table", schema, partition_by=["part"] if partitioned else [])
    adds, count = write_frame(spark.range(0, 9, 1, 2).selectExpr("id", "id % 2 part"), writer_of(table))
    assert count == 9
    assert len(rows_of(table, adds)) == 9


def test_a_writer_that_counts_nothing_is_replaced_by_an_observation(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(writer: DataFrameWriter, location: str) -> None:
        writer.save(location)

    monkeypatch.setattr(jvm_files, "_writer", {"counts": True})
    monkeypatch.setattr(spark_versions, "saved_rows", silent)
    table = made(tmp_path / "table", pa.schema([("id", pa.int64())]))
    for _ in range(2):
        adds, count = write_frame(spark.range(0, 4, 1, 2), writer_of(table))
        assert (len(adds), count) == (2, 4)
    assert len(files_below(table)) == 4
    assert jvm_files._writer == {"counts": False}
    other = made(tmp_path / "other", table.schema)
    monkeypatch.setattr(jvm_files, "_taken_up", lose_a_file(other))
    with pytest.raises(WriteVerificationError, match="have 2 rows, but Spark counted 4"):
        write_frame(spark.range(0, 4, 1, 2), writer_of(other))


def test_rows_lost_by_a_task_are_detected(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "table", pa.schema([("id", pa.int32())]))
    monkeypatch.setattr(frame_files, "run_on_rows", lambda data, *_: [data.collect(), []][1:])
    with pytest.raises(WriteVerificationError, match="have 0 rows, but Spark counted 4"):
        write_frame(spark.range(0, 4, 1, 2), writer_of(table))


def test_a_failed_job_leaves_no_file(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path / "table", pa.schema([("n", pa.int64())]))
    failing = spark.range(0, 4, 1, 2).selectExpr("if(id = 3, raise_error('the third row fails'), id) n")
    with pytest.raises(Exception, match="the third row fails"):
        write_frame(failing, writer_of(table))
    assert files_below(table) == []


def test_a_full_disk_is_the_error_that_the_drivers_writer_raises(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path / "table", pa.schema([("n", pa.int64())]))
    full = "raise_error('java.io.IOException: No space left on device')"
    with pytest.raises(StoreUnavailableError, match=r"failed to write .*: No space left on device; free up space"):
        write_frame(spark.range(0, 4, 1, 2).selectExpr(f"if(id = 3, {full}, id) n"), writer_of(table))
    assert files_below(table) == []


def test_no_rows_make_no_files(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path / "table", pa.schema([("id", pa.int64())]))
    assert write_frame(spark.range(0), writer_of(table)) == ([], 0)
    assert files_below(table) == []


def test_the_files_are_synced(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "table", PARTITIONED, partition_by=["text"])
    writer, synced = writer_of(table), []
    monkeypatch.setattr(type(writer.store), "sync", lambda _, paths: synced.extend(paths))
    rows = pa.Table.from_pylist([{"n": n, "text": f"p{n % 2}"} for n in range(4)], PARTITIONED)
    adds, _ = write_frame(frame(spark, rows), writer)
    assert sorted(synced) == sorted(add.path for add in adds)
