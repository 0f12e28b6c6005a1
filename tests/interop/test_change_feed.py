"""`Table.changes` gives what delta-spark's `readChangeFeed` gives, of tables that either of them wrote.

With one difference: tidelog does not show rows that are there again after a RESTORE, or after an overwrite by a
predicate on data. delta-spark deletes and inserts all rows of the files that a RESTORE exchanges.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from tests.interop.delta_spark import DeltaSpark
from tidelog.log import Table
from tidelog.log.state.commits import read_commit

pytestmark = [pytest.mark.spark, pytest.mark.interop]

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("p", pa.string())])
FEED = {"delta.enableChangeDataFeed": True}
Version = Counter[tuple[Any, ...]]


def by_version(changes: pa.Table, table: Table) -> dict[int, Version]:
    """The changes of each version, with all columns as text."""
    assert changes.column_names == [*table.schema.names, "_change_type", "_commit_version", "_commit_timestamp"]
    found: dict[int, Version] = {version: Counter() for version in range(1, table.version + 1)}
    for row in changes.to_pylist():
        stamp = row["_commit_timestamp"].timestamp()
        values = tuple(repr(row[name]) for name in table.schema.names)
        found[row["_commit_version"]][(row["_change_type"], round(stamp * 1000), *values)] += 1
    return found


def assert_same_feed(table: Table, delta: DeltaSpark) -> dict[str, int]:
    """Returns the number of changes by operation."""
    theirs = by_version(delta.changes(table.path, 0), table)
    ours = by_version(table.changes(after=0).to_arrow(), table)
    counts: Counter[str] = Counter()
    for version in range(1, table.version + 1):
        info = read_commit(table.store, version).info
        operation = info["operation"]
        counts[operation] += ours[version].total()
        expected = theirs[version]
        if operation == "RESTORE" or "v >= 80" in info["operationParameters"].get("predicate", ""):
            assert ours[version].total() <= expected.total()
            expected, ours[version] = without_pairs(expected), without_pairs(ours[version])
        assert ours[version] == expected, f"version {version}, {operation}"
    return counts


def without_pairs(changes: Version) -> Version:
    """The changes without rows that are both deleted and inserted."""
    gone, new = (Counter({row[1:]: n for row, n in changes.items() if row[0] == kind}) for kind in ("delete", "insert"))
    left = [("delete", *row) for row in (gone - new).elements()] + [("insert", *row) for row in (new - gone).elements()]
    return Counter(left)


def rows(*keys: int, add: float = 0.0) -> pa.Table:
    names = [None if key % 3 == 2 else f"p{key % 3}" for key in keys]
    return pa.table([pa.array(keys), pa.array([key * 10.0 + add for key in keys]), pa.array(names)], schema=SCHEMA)


@pytest.mark.full
@pytest.mark.parametrize(
    "vectors", [pytest.param(True, id="vectors"), pytest.param(False, id="copies", marks=pytest.mark.full)]
)
@pytest.mark.parametrize(
    "partitioned",
    [pytest.param(True, id="partitions"), pytest.param(False, id="one partition", marks=pytest.mark.full)],
)
def test_tables_of_tidelog(*, vectors: bool, partitioned: bool, path: str, delta: DeltaSpark) -> None:
    properties = {**FEED, "delta.enableDeletionVectors": vectors}
    table = Table.create(path, SCHEMA, partition_by=["p"] if partitioned else [], properties=properties)
    table.insert(rows(*range(12)))
    table.update("k = 1 OR k = 5", {"v": "v + 1", "p": "'p0'"})
    table.delete("k = 2 OR k = 3")
    table.insert(rows(20, 21, 22))
    table.upsert(rows(0, 4, 21, 30, add=5), keys=["k"])
    table.upsert(rows(6, 7, 31, add=-100), keys=["k"], delete_where="v < 0")
    table.compact()
    table.delete("k = 20")
    table.overwrite(rows(4, 40), dynamic=partitioned)
    table.set_properties({"mine": "1"})
    table.restore(version=4)
    table.truncate(where="p = 'p1'" if partitioned else None)
    table.insert(rows(50, 51))
    table.delete("k = 50")
    table.delete("k >= 0")
    # With vectors a file is left that has no live row.
    table.overwrite(rows(60, 61))
    table.truncate()
    counts = assert_same_feed(table, delta)
    assert counts.pop("OPTIMIZE") == counts.pop("SET TBLPROPERTIES") == 0
    assert set(counts) == {"WRITE", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "RESTORE"}
    assert all(counts.values()), counts


def values(*rows: tuple[int, int, str]) -> str:
    """Rows as a relation of SQL."""
    return f"VALUES {', '.join(f'({k}L, {v}.0D, {p!r})' for k, v, p in rows)} AS s(k, v, p)"


MERGE = f"""
    MERGE INTO {{}} t USING (SELECT * FROM {values((6, 1, "p0"), (7, -1, "p1"), (60, 1, "p0"))}) s ON t.k = s.k
    WHEN MATCHED AND s.v < 0 THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "vectors", [pytest.param(True, id="vectors"), pytest.param(False, id="copies", marks=pytest.mark.nightly)]
)
def test_tables_of_delta_spark(*, vectors: bool, path: str, delta: DeltaSpark) -> None:
    """Slow, because of its many statements of Spark."""
    flags = {"delta.enableChangeDataFeed": True, "delta.enableDeletionVectors": vectors}
    options = ", ".join(f"'{name}' = '{str(flag).lower()}'" for name, flag in flags.items())
    using = f"USING delta PARTITIONED BY (p) TBLPROPERTIES ({options})"
    delta.sql(f"CREATE TABLE delta.`{path}` (k BIGINT, v DOUBLE, p STRING) {using}")
    delta.append(path, "SELECT id AS k, id * 10.0D AS v, concat('p', id % 3) AS p FROM range(12)")
    for statement in (
        "UPDATE {} SET v = v + 1 WHERE k IN (1, 2)",
        "UPDATE {} SET v = v WHERE k = 3",
        "DELETE FROM {} WHERE k IN (4, 5)",
        MERGE,
        f"INSERT INTO {{}} REPLACE WHERE v >= 80 SELECT * FROM {values((8, 80, 'p2'), (200, 999, 'p1'))}",
        f"INSERT INTO {{}} REPLACE WHERE p = 'p1' SELECT * FROM {values((200, 999, 'p1'))}",
        "OPTIMIZE {}",
        "DELETE FROM {} WHERE k = 0",
        f"INSERT OVERWRITE {{}} SELECT * FROM {values((6, 1, 'p0'), (2, 2, 'p2'))}",
        "RESTORE TABLE {} TO VERSION AS OF 3",
        "TRUNCATE TABLE {}",
        f"INSERT INTO {{}} SELECT * FROM {values((1, 1, 'p1'))}",
        f"CREATE OR REPLACE TABLE {{}} {using} AS SELECT * FROM {values((1, 1, 'p1'))}",
    ):
        delta.sql(statement.format(f"delta.`{path}`"))
    counts = assert_same_feed(Table.open(path), delta)
    assert counts.pop("OPTIMIZE") == 0
    expected = {"WRITE", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "RESTORE", "CREATE OR REPLACE TABLE AS SELECT"}
    assert set(counts) == expected
    assert all(counts.values()), counts
