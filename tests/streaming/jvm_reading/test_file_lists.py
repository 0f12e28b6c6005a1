"""The list of files that a scan gets: its distinct constants, how it goes to the JVM, and the files left to tidelog."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.log.support import live_files, put_foreign
from tests.streaming.jvm_reading.support import assert_same, is_read_by_spark, physical_plan
from tidelog.log import Table
from tidelog.streaming import changes, read
from tidelog.streaming.jvm_reading import file_scan, jvm_rows
from tidelog.streaming.jvm_reading.file_scan import FileList

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("day", pa.date32())])


def test_files_with_the_same_constants_are_a_partition() -> None:
    constants = pa.table({"a": ["x", None, "x", "x", None], "b": [1, 2, 1, 3, 2], "c": [0.5] * 5})
    listed = FileList.of(pa.array(list("vwxyz")), pa.array([1] * 5), constants)
    assert listed.constants.num_rows == 3
    assert listed.constants.take(listed.partitions).equals(constants)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_files_without_constants_are_one_partition(count: int) -> None:
    listed = FileList.of(pa.array(["x"] * count), pa.array([1] * count), pa.table({}))
    assert listed.partitions.to_pylist() == [0] * count


@pytest.mark.parametrize("limit", [0, 2**20], ids=["through a file", "in the call"])
@pytest.mark.parametrize("partition_by", [(), ("part",), ("part", "day")], ids=str)
def test_a_scan_has_every_file(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    partition_by: tuple[str, ...],
) -> None:
    monkeypatch.setattr(file_scan, "_SMALL_LIST", limit)
    monkeypatch.setattr(file_scan, "_BATCH", 2)
    table = Table.create(str(tmp_path / "a table=1, ü"), SCHEMA, partition_by=partition_by)
    for number in range(3):
        rows = [{"id": number * 10 + n, "part": "ab"[n % 2] if n else None, "day": None} for n in range(5)]
        table.insert(pa.Table.from_pylist(rows, schema=SCHEMA))
    frame = read(spark, table.path)
    assert assert_same(frame, table.scan()) == 15
    assert is_read_by_spark(frame)
    assert assert_same(changes(spark, table.path), table.changes()) == 15


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("path", "is_plain"),
    [
        ("a.parquet", True),
        ("data/ü b/part-1.c000.parquet", True),
        ("day=2026-01-31/_x/a.parquet", True),
        ("_a.parquet", False),
        ("data/.a.parquet", False),
        (".hidden/a.parquet", False),
        ("a//b.parquet", False),
        ("/a.parquet", False),
        ("../a.parquet", False),
        ("a%20b.parquet", False),
        ("file:/tmp/a.parquet", False),
        ("s3://b/a.parquet", False),
        ("a?b.parquet", False),
        ("a#b.parquet", False),
    ],
)
def test_which_pathsare_plain(path: str, is_plain: bool) -> None:
    files = pa.table(
        {"path": [path], "size": [1], "deletionVector": pa.nulls(1, pa.struct([("cardinality", pa.int64())]))}
    )
    assert jvm_rows.are_plain(files).to_pylist() == [is_plain]


def test_a_snapshot_of_plain_files_and_others(spark: SparkSession, tmp_path: Path) -> None:
    """Files with a deletion vector, and with a path that is encoded, come by other ways."""
    table = Table.create(str(tmp_path / "table"), SCHEMA, properties={"delta.enableDeletionVectors": True})
    for number in range(3):
        rows = [{"id": number * 10 + n, "part": "a", "day": None} for n in range(5)]
        table.insert(pa.Table.from_pylist(rows, schema=SCHEMA))
    table.delete("id = 12")
    one = live_files(table)[-1]
    Path(table.path, "odd %20.parquet").write_bytes(Path(table.path, one.path).read_bytes())
    put_foreign(table, msgspec.structs.replace(one, path="odd%20%2520.parquet"))
    table.refresh()
    frame = read(spark, table.path)
    # A scan each of plain files, of those with vectors, and of the others.
    assert physical_plan(frame).count("FileScan parquet") == 3
    assert assert_same(frame, table.scan()) == 19
