"""Tables whose files are in partition folders: all writers together keep them readable for all readers."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from tests.interop.delta_spark import DeltaSpark
from tests.interop.readers import POLARS, as_texts, assert_same_everywhere
from tests.streaming.support import Input, drain
from tidelog.compaction_daemon import compact
from tidelog.log import Table
from tidelog.log.format.paths import to_storage_path
from tidelog.streaming import Sink, table

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("n", pa.int64()), ("day", pa.date32()), ("city", pa.string())])
DAYS = (dt.date(2026, 1, 30), dt.date(2026, 1, 31))
CITIES = ("Rome", "a/b %:=+?#é x", None, "'\"[{^*\\]}~|<>", "\x01\x7f\t", ".")
PLAIN_CITIES = ("Rome", "Oslo", None)
# Without the features that delta-rs cannot write.
OLD = {"delta.enableDeletionVectors": False, "delta.enableInCommitTimestamps": False}


def rows(first: int, count: int, cities: tuple[str | None, ...] = CITIES) -> pa.Table:
    found = [{"n": n, "day": DAYS[n % 2], "city": cities[n // 2 % len(cities)]} for n in range(first, first + count)]
    return pa.Table.from_pylist(found, SCHEMA)


def by_delta_rs(path: str, _: DeltaSpark, **properties: str) -> None:
    write_deltalake(path, rows(0, 12), partition_by=["day", "city"], configuration=properties)


def by_delta_spark(path: str, delta: DeltaSpark, **properties: str) -> None:
    made = {"delta.enableDeletionVectors": "false", **properties}
    known = ", ".join(f"'{key}' = '{text}'" for key, text in made.items())
    columns = "n BIGINT, day DATE, city STRING"
    delta.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta PARTITIONED BY (day, city) TBLPROPERTIES ({known})")
    delta_appends(path, delta, rows(0, 12))


def by_conversion(path: str, _: DeltaSpark, **properties: str) -> None:
    pq.write_to_dataset(rows(0, 12), path, partition_cols=["day", "city"])
    Table.convert(path, partition_by=["day", pa.field("city", pa.string())], properties={**OLD, **properties})


MAKERS: Mapping[str, Callable[..., None]] = {
    "delta-rs": by_delta_rs,
    "delta-spark": by_delta_spark,
    "conversion": by_conversion,
}


def delta_appends(path: str, delta: DeltaSpark, data: pa.Table) -> None:
    texts = [json.dumps(row, default=str) for row in data.to_pylist()]
    quoted = ", ".join("('" + text.replace("\\", "\\\\").replace("'", "\\'") + "')" for text in texts)
    delta.append(
        path, f"SELECT r.* FROM (SELECT from_json(col1, 'n BIGINT, day DATE, city STRING') AS r FROM VALUES {quoted})"
    )


def outside(path: str) -> list[str]:
    """The live files that are not in the folders of their values, as they are on the disk."""
    found = Table.open(path).at().files()
    names = [to_storage_path(uri).rpartition("/")[0] for uri in found["path"].to_pylist()]
    return [name for name in names if not (name.startswith("day=") and "/city=" in name)]


def test_polars_goes_on_reading_a_table_of_delta_rs(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    write_deltalake(path, rows(0, 8), partition_by=["day", "city"])
    ours = Table.open(path)
    for step in (
        lambda: ours.insert(rows(8, 12)),
        lambda: ours.update("n % 5 = 0", {"n": "n + 1000"}),
        lambda: write_deltalake(DeltaTable(path), rows(20, 2), mode="append"),
        lambda: compact(ours, "major"),
    ):
        step()
        assert outside(path) == []
        assert_same_everywhere(path, ours.refresh().scan().to_arrow())


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("feed", [True, pytest.param(False, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("maker", MAKERS)
def test_every_operation_beside_other_writers(maker: str, feed: bool, delta: DeltaSpark, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    MAKERS[maker](path, delta, **({"delta.enableChangeDataFeed": "true"} if feed else {}))
    ours = Table.open(path)
    steps: list[Callable[[], object]] = [
        lambda: ours.insert(rows(12, 12)),
        lambda: ours.update("n % 5 = 0", {"n": "n + 1000"}),
        lambda: ours.update("n = 3", {"city": "'new / city'", "day": "DATE '2026-02-01'"}),
        lambda: ours.delete("n % 7 = 0"),
        lambda: delta_appends(path, delta, rows(24, 8)),
        lambda: ours.upsert(rows(24, 10).filter(pa.compute.field("city").is_valid()), keys=["n", "day", "city"]),
        lambda: write_deltalake(DeltaTable(path), rows(40, 8), mode="append"),
        lambda: compact(ours),
        lambda: delta.sql(f"UPDATE delta.`{path}` SET n = n + 2000 WHERE n = 41"),
        lambda: ours.overwrite(rows(60, 2), dynamic=True),
        lambda: ours.overwrite(rows(70, 12), where="day = DATE '2026-01-31' OR day = DATE '2026-01-30'"),
        lambda: compact(ours, "major"),
        lambda: ours.truncate(where="city = 'Rome'"),
        lambda: ours.restore(version=ours.version - 3),
        lambda: delta.sql(f"OPTIMIZE delta.`{path}`"),
        lambda: ours.insert(rows(90, 12)),
    ]
    start = ours.version
    for number, step in enumerate(steps):
        step()
        expected = ours.refresh().scan().to_arrow()
        assert expected.num_rows > 10
        assert_same_everywhere(path, expected, delta if number % 4 == 3 else None)
        assert outside(path) == []
    assert as_texts(delta.arrow(path), SCHEMA) == as_texts(expected, SCHEMA)
    changed = [str(file.parent.name) for file in Path(path, "_change_data").rglob("*.parquet")]
    assert bool(changed) is feed
    assert all(name.startswith("city=") for name in changed)
    if feed:
        assert_same_feed(ours, start, delta)


def assert_same_feed(ours: Table, start: int, delta: DeltaSpark) -> None:
    """Not by delta-rs 1.6.6: its `load_cdf` fails on files with an escape in their path and on null in a partition
    column, whoever wrote them.
    """
    found = ours.changes(after=start).to_arrow()
    assert as_texts(delta.changes(ours.path, start), found.schema) == as_texts(found, found.schema)


@pytest.mark.full
@pytest.mark.spark
def test_with_deletion_vectors(delta: DeltaSpark, tmp_path: Path) -> None:
    """Values without escapes, since Polars 2.1.0 ignores the vectors of files with an escape in their path."""
    path = str(tmp_path / "table")
    by_delta_spark(path, delta, **{"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"})
    ours = Table.open(path)
    ours.overwrite(rows(0, 12, PLAIN_CITIES))
    start = ours.version
    for step in (
        lambda: ours.insert(rows(12, 12, PLAIN_CITIES)),
        lambda: ours.delete("n % 5 = 0"),
        lambda: ours.update("n % 3 = 0", {"city": "'Bern'"}),
        lambda: delta.sql(f"DELETE FROM delta.`{path}` WHERE n = 4"),
        lambda: ours.upsert(rows(1, 1, PLAIN_CITIES), keys=["n"]),
        lambda: compact(ours, "major", purge=True),
        lambda: delta.sql(f"UPDATE delta.`{path}` SET city = 'Kyiv' WHERE n = 8"),
    ):
        step()
        expected = ours.refresh().scan().to_arrow()
        assert_same_everywhere(path, expected, delta)
        assert outside(path) == []
    assert_same_feed(ours, start, delta)


KINDS: Mapping[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False, None]),
    "tinyint": (pa.int8(), [-128, 127]),
    "bigint": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "double": (pa.float64(), [1e300, -1.5, 1e-7, 1e16, float("inf"), float("nan")]),
    # Not below zero: delta-rs 1.6.6 reads -0.001 as `0.0-1`.
    "decimal(20,3)": (pa.decimal128(20, 3), [Decimal("0.001"), Decimal("12345678901234567.890"), None]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(2026, 3, 8, 2, 30, 0, 123_456, dt.UTC), dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=dt.UTC)],
    ),
    "timestamp_ntz": (pa.timestamp("us"), [dt.datetime(2026, 3, 8, 2, 30, 0, 100_000), None]),  # noqa: DTZ001
    "binary": (pa.binary(), [b"ab", "é/%".encode(), b"\x01"]),
    "string": (pa.string(), [*CITIES, " spaces ", "NaN", "null", "\N{EURO SIGN}" * 80, "2026-01-01", "007"]),
}


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("kind", KINDS)
def test_partition_columns_of_every_type(kind: str, delta: DeltaSpark, tmp_path: Path) -> None:
    path, (arrow, values) = str(tmp_path / "table"), KINDS[kind]
    features = ", 'delta.feature.timestampNtz' = 'supported'" if kind == "timestamp_ntz" else ""
    delta.sql(
        f"CREATE TABLE delta.`{path}` (n BIGINT, p {kind}) USING delta PARTITIONED BY (p) "
        f"TBLPROPERTIES ('delta.enableDeletionVectors' = 'false'{features})"
    )
    literal = {"binary": "X'6162'", "boolean": "true"}.get(kind, f"CAST('2026-01-01' AS {kind})")
    if pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_decimal(arrow):
        literal = f"CAST(7 AS {kind})"
    delta.append(path, f"SELECT 0L AS n, {literal} AS p")
    ours = Table.open(path)
    assert ours.schema.field("p").type == arrow
    ours.insert(pa.table({"n": pa.array(range(1, len(values) + 1), pa.int64()), "p": pa.array(values, arrow)}))
    delta.append(path, f"SELECT n + 100 AS n, p FROM delta.`{path}` WHERE n > 0")
    ours.refresh().update("n > 100", {"n": "n + 100"})
    assert all(name.startswith("p=") for name in ours.at().files()["path"].to_pylist())
    expected = ours.scan().to_arrow()
    assert expected.num_rows == 2 * len(values) + 1
    # Polars 2.1.0 cannot take a binary value from a folder, whoever wrote it.
    assert_same_everywhere(path, expected, delta, but=POLARS if kind == "binary" else ())


@pytest.mark.full
@pytest.mark.spark
def test_a_value_that_no_folder_can_hold(delta: DeltaSpark, tmp_path: Path) -> None:
    """Polars needs the folder, and fails then. All others take the value from the log."""
    path = str(tmp_path / "table")
    by_delta_rs(path, delta)
    ours = Table.open(path)
    for city in ("x" * 300, "/" * 100, "__HIVE_DEFAULT_PARTITION__"):
        ours.insert([{"n": 1, "day": DAYS[0], "city": city}])
    assert_same_everywhere(path, ours.scan().to_arrow(), delta, but=POLARS)
    compact(ours, "major")
    ours.refresh().delete("length(city) > 50 OR city LIKE '!_!_HIVE%' ESCAPE '!'")
    assert_same_everywhere(path, ours.scan().to_arrow(), delta)


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize(
    "properties", ["'delta.columnMapping.mode' = 'name'", "'delta.randomizeFilePrefixes' = 'true'"]
)
def test_folders_with_random_names_are_kept(properties: str, delta: DeltaSpark, tmp_path: Path) -> None:
    """As delta-spark does with column mapping, even if the table had partition folders before."""
    path = str(tmp_path / "table")
    by_delta_spark(path, delta)
    delta.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({properties})")
    ours = Table.open(path)
    ours.insert(rows(12, 4))
    delta_appends(path, delta, rows(16, 4))
    assert len(outside(path)) >= 8
    compact(ours.refresh(), "major")
    assert as_texts(delta.arrow(path), SCHEMA) == as_texts(ours.refresh().scan().to_arrow(), SCHEMA)


def test_a_mixture_is_mended_by_a_major_compaction(tmp_path: Path) -> None:
    """A table of tidelog, into which another engine inserts."""
    path = str(tmp_path / "table")
    ours = Table.create(path, SCHEMA, partition_by=["day", "city"], properties=OLD)
    ours.insert(rows(0, 12))
    assert_same_everywhere(path, rows(0, 12))
    write_deltalake(DeltaTable(path), rows(12, 2), mode="append")
    assert_same_everywhere(path, rows(0, 14), but=POLARS)
    assert outside(path)
    compact(ours, "major")
    assert outside(path) == []
    assert_same_everywhere(path, rows(0, 14))
    ours.refresh().insert(rows(14, 12))
    assert outside(path) == []
    assert_same_everywhere(path, rows(0, 26))


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("writer", ["driver", "spark"])
@pytest.mark.parametrize("mode", ["append", "upsert", "overwrite-partitions"])
def test_a_sink(mode: str, writer: str, spark: SparkSession, delta: DeltaSpark, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    by_delta_rs(path, delta)
    source = Input(tmp_path / "input").put_table(rows(6, 12)).put_table(rows(10, 12))
    stream = source.stream(spark, schema="n long, day date, city string")
    if mode == "upsert":
        stream = stream.where("city IS NOT NULL")
    drain(stream, Sink(path, mode=mode, keys=["n"] if mode == "upsert" else (), writer=writer), tmp_path / "cp")
    ours = Table.open(path)
    assert ours.version == 2
    assert outside(path) == []
    assert_same_everywhere(path, ours.scan().to_arrow(), delta)


@pytest.mark.full
@pytest.mark.spark
def test_what_spark_writes_without_a_stream(spark: SparkSession, delta: DeltaSpark, tmp_path: Path) -> None:
    """`df.write`, and the operations of `table(spark, path)`, on the executors."""
    path = str(tmp_path / "table")
    by_delta_rs(path, delta)
    frame = spark.createDataFrame(rows(12, 12))
    frame.write.format("tidelog").mode("append").save(path)
    far = table(spark, path)
    far.update("n = 13", {"n": "n + 100"})
    far.delete("n < 3")
    far.upsert(frame.where("city IS NOT NULL").withColumn("n", frame.n + 5), keys=["n"])
    far.overwrite(frame.where("n = 12"), dynamic=True)
    far.compact("major")
    assert outside(path) == []
    assert_same_everywhere(path, Table.open(path).scan().to_arrow(), delta)
    frame.write.format("tidelog").mode("overwrite").save(path)
    assert outside(path) == []
    assert_same_everywhere(path, rows(12, 12), delta)
