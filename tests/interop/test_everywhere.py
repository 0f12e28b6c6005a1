"""All readers see the same rows in tables that tidelog wrote, and tidelog reads what delta-spark then commits."""

from __future__ import annotations

import datetime as dt
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests import lanes
from tests.interop.delta_spark import DeltaSpark
from tests.interop.readers import POLARS, as_texts, assert_same_everywhere
from tidelog.compaction_daemon import compact, expire, vacuum
from tidelog.log import Table

pytestmark = pytest.mark.interop

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("part", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(20, 3)),
        ("ratio", pa.float64()),
        ("raw", pa.binary()),
        ("nested", pa.struct([("tags", pa.list_(pa.string())), ("x", pa.int32())])),
    ]
)
OLD = {"delta.enableDeletionVectors": False, "delta.enableInCommitTimestamps": False}
KINDS: dict[str, dict[str, Any]] = {
    "new": {},
    "partitioned": {"partition_by": ["part", "day"]},
    "old protocol": {"properties": OLD},
    "partitioned, old protocol": {"properties": OLD, "partition_by": ["day"]},
    "without commit times": {"properties": {"delta.enableInCommitTimestamps": False}},
    # Not by `part`, since Polars 2.1.0 ignores the deletion vectors of files with an escaped character in their path.
    "with change files": {"properties": {"delta.enableChangeDataFeed": True}, "partition_by": ["day"]},
}


def rows(first: int, count: int) -> pa.Table:
    return pa.Table.from_pylist([_row(n) for n in range(first, first + count)], SCHEMA)


def _row(n: int) -> dict[str, Any]:
    return {
        "n": n,
        "part": None if n % 4 == 3 else f"p/ä %{n % 4}",
        "day": dt.date(2026, 2, 28) + dt.timedelta(days=n % 2),
        "at": dt.datetime(2026, 3, 8, 2, 30, 0, 123_456, dt.UTC) + dt.timedelta(hours=n),
        "price": Decimal(n) / 8,
        "ratio": [1.5, -0.0, float("inf"), 1e-300][n % 4],
        "raw": None if n % 3 else bytes([0, 255, n]),
        "nested": {"tags": [str(n), None], "x": None if n % 2 else n} if n % 5 else None,
    }


def table_of(tmp_path: Path, kind: str) -> Table:
    """Three inserts of ten rows."""
    made = Table.create(str(tmp_path / "table"), SCHEMA, **KINDS[kind])
    for number in range(3):
        made.insert(rows(number * 10, 10))
    return made


def keep_from(table: Table, version: int) -> None:
    """Delete the log before `version`, as a clean-up after its checkpoint does."""
    for file in Path(table.path, "_delta_log").iterdir():
        if file.name[:20].isdigit() and int(file.name[:20]) < version:
            file.unlink()


@pytest.mark.spark
@pytest.mark.parametrize("kind", lanes.full_but(["new"], KINDS))
def test_all_readers_see_our_inserts(kind: str, tmp_path: Path, delta: DeltaSpark) -> None:
    table = table_of(tmp_path, kind)
    assert_same_everywhere(table.path, rows(0, 30))
    table.refresh().checkpoint()
    table.insert(rows(30, 5))
    keep_from(table, 3)
    assert_same_everywhere(table.path, rows(0, 35))
    assert compact(table).did_anything
    assert_same_everywhere(table.path, rows(0, 35))
    table.refresh().checkpoint()
    keep_from(table, table.version)
    assert_same_everywhere(table.path, rows(0, 35), delta)


# The kinds whose row changes are read in `make test` and `make test-full`; the others are nightly.
FEW: dict[str, Any] = {"with change files": [], "new": pytest.mark.full, "partitioned": pytest.mark.full}


@pytest.mark.spark
@pytest.mark.parametrize(
    "kind",
    [
        *(pytest.param(kind, marks=marks) for kind, marks in FEW.items()),
        *(pytest.param(kind, marks=pytest.mark.nightly) for kind in KINDS if kind not in FEW),
    ],
)
def test_all_readers_see_our_row_changes(kind: str, tmp_path: Path, delta: DeltaSpark) -> None:
    """With deletion vectors or copies, change files, whole partitions and a restore; from the log and a checkpoint."""
    table = table_of(tmp_path, kind)
    start = table.version
    table.delete("n IN (0, 3, 11, 25)")
    table.update("n BETWEEN 5 AND 14 AND n != 7", {"ratio": "n * 2", "day": "DATE '2026-03-01'", "part": "NULL"})
    updated = table.version
    table.delete("day = DATE '2026-03-01' AND n > 10")
    expected = table.scan().to_arrow()
    assert expected.num_rows == 16
    assert_same_everywhere(table.path, expected, delta)
    if table.properties.get("delta.enableChangeDataFeed") == "true":
        # Not for the steps below, since deltalake reports the changes of removed files with deletion vectors wrongly.
        assert_same_changes(table, start, delta)
    if table.partition_by:
        table.overwrite(rows(100, 4), dynamic=True)
        table.truncate(where="day = DATE '2026-03-01'")
    else:
        table.overwrite(rows(100, 4))
    assert_same_everywhere(table.path, table.scan().to_arrow())
    table.restore(version=updated)
    table.checkpoint()
    keep_from(table, table.version)
    expected = table.scan().to_arrow()
    assert expected.num_rows == 26
    assert_same_everywhere(table.path, expected, delta)
    # delta-spark continues on the table.
    delta.sql(f"DELETE FROM delta.`{table.path}` WHERE n = 8")
    # Polars 2.1.0 raises a ShapeError if only some files are in partition folders.
    but = POLARS if kind == "partitioned, old protocol" else ()
    assert_same_everywhere(table.path, table.refresh().scan("n != 8").to_arrow(), delta, but=but)


def assert_same_changes(table: Table, after: int, delta: DeltaSpark) -> None:
    """Compare the change feeds of tidelog, delta-rs and delta-spark."""
    ours = table.changes(after=after).to_arrow()
    feed = DeltaTable(table.path).load_cdf(starting_version=after + 1)
    by_delta_rs = pa.table(pa.RecordBatchReader.from_stream(feed).read_all())
    for found in (by_delta_rs, delta.changes(table.path, after)):
        assert as_texts(found, ours.schema) == as_texts(ours, ours.schema)


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("mode", ["name", "id"])
def test_changing_rows_of_a_table_with_column_mapping(mode: str, tmp_path: Path, delta: DeltaSpark) -> None:
    """delta-spark renames and drops columns, tidelog changes rows and compacts, and delta-spark reads the result."""
    path = str(tmp_path / "mapped")
    delta.sql(
        f"CREATE TABLE delta.`{path}` (n BIGINT, `old name` STRING, gone INT, st STRUCT<x: STRING, y: INT>, p STRING) "
        f"USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}', "
        "'delta.enableChangeDataFeed' = 'true')"
    )
    delta.append(path, "select 1L as n, 'a' as `old name`, 7 as gone, struct('x' as x, 1 as y) as st, 'p' as p")
    delta.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN `old name` TO renamed")
    delta.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN st.x TO z")
    delta.sql(f"ALTER TABLE delta.`{path}` DROP COLUMN gone")
    table = Table.open(path)
    protocol = table.head.protocol
    data = [{"n": n, "renamed": str(n), "st": {"z": "s", "y": n}, "p": "pq"[n % 2]} for n in range(2, 12)]
    table.insert(data)
    start = table.version
    table.delete("st.y = 4")
    table.update("n = 1", {"renamed": "'changed'"})
    assert as_texts(delta.changes(path, start), table.changes(after=start).schema) == as_texts(
        table.changes(after=start).to_arrow(), table.changes(after=start).schema
    )
    compact(table)
    table.refresh().checkpoint()
    expected = table.scan().to_arrow()
    assert expected.num_rows == 10
    assert as_texts(delta.arrow(path), expected.schema) == as_texts(expected, expected.schema)
    assert Table.open(path).head.protocol == protocol
    delta.sql(f"UPDATE delta.`{path}` SET renamed = 'again' WHERE n > 5")
    assert as_texts(delta.arrow(path), expected.schema) == as_texts(table.refresh().scan().to_arrow(), expected.schema)


def history_of(delta: DeltaSpark, table: Table) -> list[tuple[int, dt.datetime]]:
    entries = delta.sql(f"DESCRIBE HISTORY delta.`{table.path}`")
    return [(entry["version"], dt.datetime.fromisoformat(entry["timestamp"])) for entry in entries]


STEPS = (
    "INSERT INTO {t} SELECT n + 1000, part, day, at, price, ratio, raw, nested FROM {t} WHERE n < 8",
    "DELETE FROM {t} WHERE n % 7 = 0",
    "UPDATE {t} SET ratio = 42, nested = NULL WHERE n % 5 = 1",
    "OPTIMIZE {t}",
    "DELETE FROM {t} WHERE n % 11 = 0",
)


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.parametrize("kind", ["with change files", pytest.param("without commit times", marks=pytest.mark.nightly)])
def test_tidelog_reads_what_delta_spark_commits(kind: str, tmp_path: Path, delta: DeltaSpark) -> None:
    table = table_of(tmp_path, kind)
    for step in STEPS:
        delta.sql(step.format(t=f"delta.`{table.path}`"))
        table.refresh()
        found = delta.arrow(table.path)
        assert as_texts(table.scan().to_arrow(), SCHEMA) == as_texts(found, SCHEMA), step
    history = [(record.version, record.timestamp) for record in table.history()]
    assert history == history_of(delta, table)
    assert table.version == 3 + len(STEPS)
    expected = table.scan().to_arrow()
    assert 0 < expected.num_rows < 38
    assert_same_everywhere(table.path, expected, delta)

    # From delta-spark's checkpoint, first alone and then with more commits of tidelog.
    delta.checkpoint(table.path)
    keep_from(table, table.version)
    assert_same_everywhere(table.path, expected, delta)
    assert [(record.version, record.timestamp) for record in Table.open(table.path).history()] == history[:1]
    table.insert(rows(200, 3))
    assert compact(table).did_anything
    assert_same_everywhere(table.path, pa.concat_tables([expected, rows(200, 3)]), delta)


@pytest.mark.spark
def test_a_damaged_checksum_of_delta_spark_is_not_used(tmp_path: Path, delta: DeltaSpark) -> None:
    table = table_of(tmp_path, "new")
    delta.sql(f"DELETE FROM delta.`{table.path}` WHERE n = 1")
    expected = table.refresh().scan().to_arrow()
    checksum = Path(table.path, "_delta_log", f"{table.version:020d}.crc")
    content = json.loads(checksum.read_text())
    content["metadata"]["schemaString"] = content["metadata"]["schemaString"].replace('"n"', '"m"')
    checksum.write_text(json.dumps(content))
    opened = Table.open(table.path)
    assert opened.schema == SCHEMA
    assert as_texts(opened.scan().to_arrow(), SCHEMA) == as_texts(expected, SCHEMA)


def test_a_running_scan_keeps_its_snapshot(tmp_path: Path) -> None:
    """Other writers insert, delete, compact and clean up within the retention without changing the scan's rows."""
    table = table_of(tmp_path, "partitioned")
    scan = table.scan()
    batches = scan.to_batches()
    first = next(batches)
    snapshot, not_begun, changes = table.at(), table.scan(), table.changes()

    other = Table.open(table.path)
    other.insert(rows(100, 10))
    assert compact(other).did_anything
    other.delete("n < 15")
    DeltaTable(table.path).create_checkpoint()
    for file in Path(table.path).rglob("*.parquet"):
        # Made to look old, so that only the tombstones in the log keep the vacuum from deleting them.
        os.utime(file, (1_700_000_000, 1_700_000_000))
    other.refresh().checkpoint()
    assert vacuum(other).data_files == 0
    expire(other)

    wanted = as_texts(rows(0, 30), SCHEMA)
    assert as_texts(pa.Table.from_batches([first, *batches]), SCHEMA) == wanted
    assert as_texts(not_begun.to_arrow(), SCHEMA) == wanted
    assert as_texts(snapshot.scan().to_arrow(), SCHEMA) == wanted
    assert as_texts(changes.to_arrow(), SCHEMA) == wanted
    assert other.refresh().scan().count() == 25
