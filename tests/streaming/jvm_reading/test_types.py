"""Every type, and files that other writers write in other ways, as tidelog's reader gives them."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.lanes import full_but
from tests.log.strategies import PRIMITIVES, SCHEMAS
from tests.log.support import add, put_foreign
from tests.streaming.jvm_reading.support import assert_same, is_read_by_spark, is_read_by_tidelog
from tidelog.log import Table
from tidelog.log.format import paths
from tidelog.log.format.actions import Protocol
from tidelog.log.format.schema import TIMESTAMP, TIMESTAMP_NTZ
from tidelog.log.read import inserted_files
from tidelog.log.state.loader import load
from tidelog.streaming import changes, read, spark_versions
from tidelog.streaming.jvm_reading import jvm_rows

UTC = dt.UTC
MOMENTS = [dt.datetime(year, 3, 29, 2, 30, 0, 1, UTC) for year in (1, 2026, 9999)]
VALUES: dict[pa.DataType, list[Any]] = {
    pa.string(): ["", "a", "\N{PILE OF POO} ü", "x" * 300],
    pa.binary(): [b"", b"\x00\xff"],
    pa.bool_(): [True, False],
    pa.date32(): [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(9999, 12, 31)],
    pa.int8(): [-128, 127],
    pa.int16(): [-(2**15), 2**15 - 1],
    pa.int32(): [-(2**31), 2**31 - 1],
    pa.int64(): [-(2**63), 2**63 - 1],
    pa.float32(): [math.nan, math.inf, -0.0, 1.5],
    pa.float64(): [math.nan, -math.inf, -0.0, 1e300],
    pa.decimal128(9, 2): [Decimal("-9999999.99"), Decimal("0.01")],
    pa.decimal128(18, 0): [Decimal(10**18 - 1)],
    pa.decimal128(38, 18): [Decimal("12345678901234567890.123456789012345678")],
    TIMESTAMP: MOMENTS,
    TIMESTAMP_NTZ: [moment.replace(tzinfo=None) for moment in MOMENTS],
}
PARTITIONS = {kind: values for kind, values in VALUES.items() if kind != pa.binary()}


def column(kind: pa.DataType) -> pa.Array:
    values = VALUES[kind]
    return pa.array([None, *values, *[None] * (4 - len(values))], kind)


def all_types() -> pa.Table:
    plain = {f"c{place}": column(kind) for place, kind in enumerate(VALUES)}
    inner = pa.struct([pa.field("n", pa.int64(), nullable=False), ("t", TIMESTAMP), ("d", pa.decimal128(20, 3))])
    moment = dt.datetime(2026, 1, 1, tzinfo=UTC)
    one = {"n": 1, "t": moment, "d": Decimal("1.250")}
    nested = {
        "structs": pa.array([None, one, {"n": 2, "t": None, "d": None}, one, one], inner),
        "lists": pa.array([None, [], [None], [one, None], [one]], pa.list_(inner)),
        "full": pa.array([[], None, [1], [1, 2], []], pa.list_(pa.field("element", pa.int32(), nullable=False))),
        "maps": pa.array([None, [], [("a", None)], [("a", [1, None])], []], pa.map_(pa.string(), pa.list_(pa.int8()))),
    }
    return pa.table({**plain, **nested})


def test_every_type(spark: SparkSession, tmp_path: Path) -> None:
    rows = all_types()
    assert set(VALUES) > set(PRIMITIVES)
    table = Table.create(str(tmp_path / "table"), rows.schema)
    table.insert(rows)
    table.delete("c4 = 127")
    frame = read(spark, table.path)
    assert assert_same(frame, table.scan()) == 4
    assert is_read_by_spark(frame)
    assert_same(changes(spark, table.path), table.changes())


def test_columns_that_are_written_as_steps(spark: SparkSession, tmp_path: Path) -> None:
    """So many rows that a sample decides their encodings; with nulls, and from the ends of each type."""
    count = 70_000
    numbers = np.arange(count)
    small = {"byte": pa.int8(), "short": pa.int16(), "int": pa.int32(), "long": pa.int64()}
    columns = {}
    for name, kind in small.items():
        most = 2 ** (kind.bit_width - 1) - 1
        values = [n * most // count if most < count else most - count + n for n in range(count)]
        columns[name] = pa.array(values, kind, mask=numbers % 7 == 0)
    micros = pa.array(numbers * 1_000_003 - 2**40, mask=numbers % 11 == 0)
    days = pa.array((numbers // 9 - 200_000).astype(np.int32)).cast(pa.date32())
    columns |= {"day": days, "time": micros.cast(TIMESTAMP), "wall": micros.cast(TIMESTAMP_NTZ)}
    rows = pa.table({**columns, "nested": pa.array([{"n": n} for n in numbers.tolist()])})
    table = Table.create(str(tmp_path / "table"), rows.schema)
    table.insert(rows)
    (path,) = table.at().files()["path"].to_pylist()
    group = pq.read_metadata(tmp_path / "table" / path).row_group(0)
    assert all("DELTA_BINARY_PACKED" in group.column(place).encodings for place in range(len(columns)))
    frame = read(spark, table.path)
    assert assert_same(frame, table.scan()) == count
    assert is_read_by_spark(frame)
    chosen = frame.where("long > 1000 AND time IS NOT NULL").select("byte", "wall")
    assert_same(chosen, table.scan("long > 1000 AND time IS NOT NULL", ["byte", "wall"]))


def test_every_type_of_a_partition(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), *((f"p{place}", kind) for place, kind in enumerate(PARTITIONS))])
    table = Table.create(str(tmp_path / "table"), schema, partition_by=schema.names[1:])
    for number in range(4):
        columns = [column(kind).slice(number, 1) for kind in PARTITIONS]
        table.insert(pa.table([pa.array([number], pa.int64()), *columns], schema=schema))
    frame = read(spark, table.path)
    assert assert_same(frame, table.scan()) == 4
    assert is_read_by_spark(frame)


@pytest.mark.nightly
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_schema(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    schema = data.draw(SCHEMAS.filter(has_distinct_names))
    table = Table.create(str(tmp_path_factory.mktemp("any") / "table"), schema)
    table.insert(data.draw(rows_of(schema)))
    assert_same(read(spark, table.path), table.scan())


def has_distinct_names(fields: Iterable[pa.Field]) -> bool:
    """Whether a table can have these columns: names differ by more than case."""
    fields = list(fields)
    if len({field.name.lower() for field in fields}) < len(fields):
        return False
    inner = [[kind.field(place) for place in range(kind.num_fields)] for kind in (field.type for field in fields)]
    return all(map(has_distinct_names, inner))


def rows_of(schema: pa.Schema) -> st.SearchStrategy[pa.Table]:
    row = st.fixed_dictionaries({field.name: values_of(field) for field in schema})
    return st.lists(row, min_size=1, max_size=5).map(lambda rows: pa.Table.from_pylist(rows, schema=schema))


def values_of(field: pa.Field) -> st.SearchStrategy[Any]:
    kind, values = field.type, PRIMITIVES.get(field.type)
    if pa.types.is_struct(kind):
        values = st.fixed_dictionaries({inner.name: values_of(inner) for inner in kind})
    elif pa.types.is_map(kind):
        key = values_of(kind.key_field.with_nullable(False))
        entries = st.lists(st.tuples(key, values_of(kind.item_field)), max_size=3)
        values = entries
    elif pa.types.is_list(kind):
        values = st.lists(values_of(kind.value_field), max_size=3)
    elif values is None:
        bound = 10**kind.precision - 1
        values = st.integers(-bound, bound).map(lambda digits: Decimal(digits).scaleb(-kind.scale))
    return st.none() | values if field.nullable else values


# --- files of other writers ------------------------------------------------------------------------------------------

WIDE = pa.schema(
    [
        ("long", pa.int64()),
        ("double", pa.float64()),
        ("exact", pa.decimal128(20, 2)),
        ("when", TIMESTAMP),
        ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        ("tags", pa.list_(pa.string())),
        ("ID", pa.int64()),
    ]
)
FILES: dict[str, tuple[dict[str, pa.Array], dict[str, Any]]] = {
    "narrower types": (
        {
            "long": pa.array([1, None], pa.int32()),
            "double": pa.array([0.1, None], pa.float32()),
            "exact": pa.array([Decimal("1.25"), None], pa.decimal128(10, 2)),
            "tags": pa.array([["a"], None], pa.list_(pa.string())),
        },
        {},
    ),
    "int96": (
        {"when": pa.array([-8_520_336_000_000_001, 7_258_118_400_000_000], pa.timestamp("us"))},
        {"use_deprecated_int96_timestamps": True},
    ),
    "milliseconds": ({"when": pa.array([dt.datetime(1500, 1, 1, tzinfo=UTC)], pa.timestamp("ms", "UTC"))}, {}),
    "missing columns": ({"long": pa.array([5], pa.int64())}, {}),
    "other columns only": ({"unknown": pa.array([5, 6], pa.int64())}, {}),
    "a missing field": (
        {"place": pa.array([{"city": "Bern"}, None, {"city": None}], pa.struct([("city", pa.string())]))},
        {},
    ),
    "all fields missing": ({"place": pa.array([{"other": 1}, None], pa.struct([("other", pa.int32())]))}, {}),
    "fields in another order": (
        {"place": pa.array([{"zip": 3000, "city": "Bern"}], pa.struct([("zip", pa.int32()), ("city", pa.string())]))},
        {},
    ),
    "two-level lists": ({"tags": pa.array([["a", "b"], [], None])}, {"use_compliant_nested_type": False}),
    "other case": ({"LONG": pa.array([1]), "id": pa.array([2])}, {}),
    "both cases": ({"LONG": pa.array([1]), "long": pa.array([2]), "ID": pa.array([3]), "id": pa.array([4])}, {}),
    "several row groups": ({"long": pa.array(range(1000)), "ID": pa.array(range(1000))}, {"row_group_size": 64}),
    "large types": ({"tags": pa.array([["a"], None], pa.large_list(pa.large_string()))}, {}),
    "an old format": ({"exact": pa.array([Decimal("1.25")] * 3)}, {"version": "1.0", "store_decimal_as_integer": True}),
}


MAIN = ["narrower types", "int96", "a missing field", "both cases", "several row groups"]


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """One table with all the files, each in a commit of its own."""
    table = Table.create(str(tmp_path_factory.mktemp("foreign") / "table"), WIDE)
    for place, (columns, options) in enumerate(FILES.values()):
        put_file(table, pa.table(columns), f"{place}.parquet", **options)
    return table.refresh()


def put_file(table: Table, rows: pa.Table, name: str, *, uri: str | None = None, **options: Any) -> None:
    file = Path(table.path) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file, **options)
    put_foreign(table.refresh(), add(uri or paths.to_uri(name), size=file.stat().st_size))


@pytest.mark.parametrize("name", full_but(MAIN, FILES))
def test_a_file_of_another_writer(
    spark: SparkSession, foreign: Table, name: str, request: pytest.FixtureRequest
) -> None:
    if name == "all fields missing" and spark_versions.INSTALLED < (4, 1):
        request.applymarker(pytest.mark.xfail(strict=True, reason="Spark 4.0 reads such a struct as null"))
    version = 1 + list(FILES).index(name)
    frame = changes(spark, foreign.path, after=version - 1, until=version)
    assert is_read_by_spark(frame)
    assert assert_same(frame, foreign.changes(after=version - 1, until=version)) > 0


NARROW = {
    "byte": (pa.int8(), -128),
    "short": (pa.int16(), 300),
    "int": (pa.int32(), 2**31 - 1),
    "float": (pa.float32(), 0.1),
    "digits": (pa.decimal128(9, 2), Decimal("1234567.25")),
    "scale": (pa.decimal128(9, 2), Decimal("1234567.25")),
    "both": (pa.decimal128(18, 2), Decimal("1.25")),
    "list": (pa.list_(pa.int32()), [1, None]),
    "map": (pa.map_(pa.int16(), pa.float32()), [(1, 0.1)]),
    "struct": (pa.struct([("n", pa.int8()), ("d", pa.decimal128(5, 1))]), {"n": 1, "d": Decimal("1.5")}),
}
WIDENED = {
    "byte": (pa.int64(), 2**40),
    "short": (pa.int32(), 2**30),
    "int": (pa.int64(), 2**40),
    "float": (pa.float64(), 0.1),
    "digits": (pa.decimal128(20, 2), Decimal(10**15)),
    "scale": (pa.decimal128(11, 4), Decimal("0.0001")),
    "both": (pa.decimal128(38, 10), Decimal("0.0000000001")),
    "list": (pa.list_(pa.int64()), [2**40]),
    "map": (pa.map_(pa.int64(), pa.float64()), [(2**40, 0.1)]),
    "struct": (pa.struct([("n", pa.int64()), ("d", pa.decimal128(20, 5))]), {"n": 2**40, "d": Decimal("0.00001")}),
}


@pytest.mark.parametrize("vectorized", ["true", pytest.param("false", marks=pytest.mark.full)])
def test_columns_that_were_widened(spark: SparkSession, tmp_path: Path, vectorized: str) -> None:
    """Also one with so many rows that a sample decided its encoding."""
    columns = {name: pa.array([value, None], kind) for name, (kind, value) in NARROW.items()}
    narrow = pa.table({**columns, "step": pa.array([1, 2], pa.int32())})
    table = Table.create(str(tmp_path / "table"), narrow.schema, properties={"delta.enableTypeWidening": True})
    table.insert(pa.table({"step": pa.array(range(70_000), pa.int32())}))
    (path,) = table.at().files()["path"].to_pylist()
    group = pq.read_metadata(tmp_path / "table" / path).row_group(0)
    encodings = {
        group.column(place).path_in_schema: group.column(place).encodings for place in range(group.num_columns)
    }
    assert "DELTA_BINARY_PACKED" in encodings["step"]
    table.insert(narrow)
    columns = {name: pa.array([value], kind) for name, (kind, value) in WIDENED.items()}
    wide = pa.table({**columns, "step": pa.array([2**40], pa.int64())})
    transaction = table.begin()
    assert transaction.evolve(wide.schema)
    transaction.insert(wide).commit()
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    try:
        few = "byte IS NOT NULL"
        frame = read(spark, table.refresh().path, where=few)
        assert is_read_by_spark(frame)
        assert assert_same(frame, table.scan(few)) == 2
        assert_same(changes(spark, table.path, after=1, where=few), table.changes(after=1, where=few))
        steps = read(spark, table.path, columns=["step"])
        assert is_read_by_spark(steps)
        assert steps.selectExpr("count(*)", "sum(step)").first() == (70_003, 70_000 * 69_999 // 2 + 3 + 2**40)
        for where in ("step > 69990", f"step = {2**40}", f"byte < {2**40} AND both = 1.25"):
            expected = table.scan(where, ["step"]).to_arrow()["step"].to_pylist()
            found = read(spark, table.path, where=where, columns=["step"])
            assert sorted(row[0] for row in found.collect()) == sorted(expected) != []
            pushed = read(spark, table.path).where(where).select("step")
            assert sorted(row[0] for row in pushed.collect()) == sorted(expected)
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


NAMES = ["a b.parquet", "100%25 ü#?.parquet", "x/%2F.parquet", "_day=2026-01-01/.x/a+b&c=d.parquet"]


@pytest.mark.parametrize("vectorized", ["true", pytest.param("false", marks=pytest.mark.full)])
def test_paths_of_all_kinds(spark: SparkSession, tmp_path: Path, vectorized: str) -> None:
    table = Table.create(str(tmp_path / "a 100% table, ü #1"), pa.schema([("n", pa.int64())]))
    for number, name in enumerate(NAMES):
        put_file(table, pa.table({"n": [number]}), name)
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    try:
        frame = read(spark, table.refresh().path)
        assert is_read_by_spark(frame)
        assert assert_same(frame, table.scan()) == len(NAMES)
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


HIDDEN = ["_a.parquet", ".a.parquet", "x/../a.parquet", "x//a.parquet", "./a.parquet"]


@pytest.mark.parametrize("name", full_but(HIDDEN[1:3], HIDDEN))
def test_paths_that_spark_would_take_for_others(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Its scan leaves out hidden files, and resolves what looks like folders."""
    table = Table.create(str(tmp_path / "table"), pa.schema([("n", pa.int64())]))
    (tmp_path / "table" / "x").mkdir()
    put_file(table, pa.table({"n": [1]}), name)
    frame = read(spark, table.refresh().path)
    assert is_read_by_tidelog(frame)
    assert assert_same(frame, table.scan()) == 1


@pytest.mark.parametrize("form", full_but(["file://{}"], ["{}", "file:{}", "file://{}"]))
def test_absolute_paths(spark: SparkSession, tmp_path: Path, form: str) -> None:
    table = Table.create(str(tmp_path / "table"), pa.schema([("n", pa.int64())]))
    uri = form.format(paths.to_uri(f"{tmp_path}/else where.parquet"))
    put_file(table, pa.table({"n": [1]}), "../else where.parquet", uri=uri)
    table.refresh().insert([{"n": 2}])
    assert assert_same(read(spark, table.path), table.scan()) == 2


def test_names_of_all_kinds(spark: SparkSession, tmp_path: Path) -> None:
    names = ["_metadata", "file", "listed", "a.b", "a`b", "with space", "ü", "block", "words", "Constant"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    feed = {"delta.enableChangeDataFeed": True}
    table = Table.create(str(tmp_path / "table"), schema, partition_by=["a.b", "words"], properties=feed)
    table.insert([dict.fromkeys(names, number) for number in range(3)])
    table.delete("file = 1")
    frame = read(spark, table.path)
    assert is_read_by_spark(frame)
    assert assert_same(frame, table.scan()) == 2
    assert_same(changes(spark, table.path, where="`a.b` < 2"), table.changes(where="`a.b` < 2"))


def test_types_that_spark_reads_differently_are_left_to_tidelog(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("nothing", pa.null())])
    table = Table.create(str(tmp_path / "void"), schema)
    table.insert([{"n": 1, "nothing": None}])
    frame = read(spark, table.path)
    assert is_read_by_tidelog(frame)
    assert assert_same(frame, table.scan()) == 1
    assert is_read_by_spark(read(spark, table.path, columns=["n"]))


def test_mapped_columns(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the files the columns have other names, and so has the partition column in the log."""
    schema = pa.schema([("n", pa.int64()), ("part", pa.string()), ("place", pa.struct([("city", pa.string())]))])
    table = Table.create(str(tmp_path / "table"), schema, partition_by=["part"])
    map_columns(table)
    table.insert([{"n": n, "part": "ab"[n % 2], "place": {"city": "Bern"}} for n in range(4)])
    table.delete("n = 1")
    whole = read(spark, table.path)
    assert is_read_by_tidelog(whole)
    assert assert_same(whole, table.scan()) == 3
    frame = changes(spark, table.path, columns=["part", "n"], where="n > 0 AND part = 'b'")
    assert is_read_by_spark(frame)
    assert assert_same(frame, table.changes(columns=["part", "n"], where="n > 0 AND part = 'b'")) == 3
    monkeypatch.setattr(inserted_files, "_MIN_FILES", 1)
    monkeypatch.setattr(jvm_rows, "to_change_files", lambda _: [])  # without it there are only columns
    frame = changes(spark, table.path, until=2, columns=["part", "n"])
    assert is_read_by_spark(frame)
    assert assert_same(frame, table.changes(until=2, columns=["part", "n"])) == 4


def map_columns(table: Table) -> None:
    """Give all columns and fields other names in the files, as another engine does."""
    old = load(table.store).head.metadata
    fields = json.loads(old.schema_string)["fields"]
    for number, field in enumerate([*fields, *fields[2]["type"]["fields"]], start=1):
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    metadata = msgspec.structs.replace(
        old,
        schema_string=json.dumps({"type": "struct", "fields": fields}),
        configuration={**old.configuration, "delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "4"},
    )
    features = ("columnMapping", "deletionVectors")
    put_foreign(table, metadata, Protocol(3, 7, features, (*features, "inCommitTimestamp")))
    table.refresh()
