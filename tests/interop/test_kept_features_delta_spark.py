"""A tidelog stream and tidelog's clean-up in tables with features of delta-spark, which reads rows and feed after."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.interop.delta_spark import DeltaSpark
from tests.log import row_tracking
from tests.log.support import put_foreign
from tests.streaming.support import Input, drain
from tidelog.log import Table
from tidelog.log.format.actions import DomainMetadata
from tidelog.log.state.loader import load
from tidelog.streaming import Sink

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.full]

MINE = DomainMetadata(domain="com.example", configuration='{"a":1}', removed=False)
NOW = dt.timedelta(0)
# The clause and the properties with which delta-spark creates a table that has the feature.
FEATURES: dict[str, tuple[str, dict[str, str]]] = {
    "clustering": ("CLUSTER BY (v)", {}),
    "v2Checkpoint": ("", {"delta.checkpointPolicy": "v2"}),
    "domainMetadata": ("", {"delta.feature.domainMetadata": "supported"}),
    "variantType": ("", {}),
    "rowTracking": ("", {"delta.enableRowTracking": "true"}),
}


def created(delta: DeltaSpark, path: str, feature: str) -> Table:
    """A table in which delta-spark has written rows in several commits, and a checkpoint."""
    clause, more = FEATURES[feature]
    properties = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true", **more}
    texts = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    variant = feature == "variantType"
    columns = "k BIGINT, v BIGINT" + ", j VARIANT" * variant
    delta.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {clause} TBLPROPERTIES ({texts})")
    values = "id, 0" + ", parse_json(string(id))" * variant
    for first in (0, 10):
        delta.sql(f"INSERT INTO delta.`{path}` SELECT {values} FROM range({first}, {first + 10})")
    delta.sql(f"UPDATE delta.`{path}` SET v = 1 WHERE k = 11")
    delta.checkpoint(path)
    table = Table.open(path)
    assert feature in (table.head.protocol.writer_features or ())
    if feature == "domainMetadata":
        put_foreign(table, MINE)
    return table.refresh()


def arrived(source: Input, spark: SparkSession, feature: str) -> DataFrame:
    stream = source.stream(spark, schema="k long, v long")
    return stream.selectExpr("*", "parse_json(string(k)) AS j") if feature == "variantType" else stream


def rows(*keys: int, v: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array([v] * len(keys), pa.int64())})


def theirs(delta: DeltaSpark, path: str) -> dict[int, int]:
    found = delta.sql(f"SELECT * FROM delta.`{path}`")
    by_key = {row["k"]: row["v"] for row in found}
    assert len(by_key) == len(found)
    assert all(str(row["j"]) == str(row["k"]) for row in found if "j" in row)
    return by_key


def feed(delta: DeltaSpark, path: str, first: int) -> set[tuple[Any, ...]]:
    """The changes from the version `first` on, as delta-spark reads them."""
    found = delta.sql(f"SELECT k, v, _change_type AS kind FROM table_changes_by_path('{path}', {first})")
    return {(row["k"], row["v"], row["kind"]) for row in found}


def ids(table: Table) -> dict[int, int]:
    """The row ids as tidelog reads them."""
    return {row["k"]: row["id"] for row in row_tracking.rows_with_ids(table).to_pylist()}


@pytest.mark.parametrize(
    "feature",
    [pytest.param(feature, marks=[] if feature == "domainMetadata" else pytest.mark.nightly) for feature in FEATURES],
)
def test_delta_spark_reads_what_a_stream_and_a_clean_up_leave(
    spark: SparkSession, delta: DeltaSpark, tmp_path: Path, feature: str
) -> None:
    path = str(tmp_path / "table")
    before = created(delta, path, feature)
    protocol, configuration = before.head.protocol, before.properties
    domains = {name: entry for name, entry in before.head.domains.items() if name != "delta.rowTracking"}
    source = Input(tmp_path / "input")
    source.put_table(rows(3, 30, v=3)).put_table(rows(4, 30, v=4))
    drain(arrived(source, spark, feature), Sink(path, mode="upsert", keys=["k"], writer="spark"), tmp_path / "cp")
    expected = {**dict.fromkeys(range(20), 0), 11: 1, 3: 3, 4: 4, 30: 4}
    assert theirs(delta, path) == expected

    table = Table.open(path)
    table.set_properties({"tidelog.maxTransactionTime": "0 seconds"})
    known = ids(table) if feature == "rowTracking" else {}
    table.compact("major", purge=True)
    table.checkpoint()
    expired = table.expire(older_than=NOW)
    assert expired.earliest_version > before.version
    assert table.vacuum(older_than=NOW).files
    assert not list(Path(path, "_delta_log").glob(f"{before.version:020d}.*"))
    assert theirs(delta, path) == expected

    # The stream goes on, and delta-spark reads from the feed what it brings.
    cleaned = Table.open(path).version
    source.put_table(rows(5, 31, v=5))
    drain(arrived(source, spark, feature), Sink(path, mode="upsert", keys=["k"], writer="spark"), tmp_path / "cp")
    assert theirs(delta, path) == {**expected, 5: 5, 31: 5}
    assert feed(delta, path, cleaned + 1) == {
        (5, 0, "update_preimage"),
        (5, 5, "update_postimage"),
        (31, 5, "insert"),
    }
    after = Table.open(path)
    assert after.head.protocol == protocol
    assert {key: after.properties[key] for key in configuration} == configuration
    assert {**after.head.domains, **domains} == after.head.domains
    if feature == "rowTracking":
        found = delta.sql(f"SELECT k, _metadata.row_id AS id FROM delta.`{path}`")
        now = {row["k"]: row["id"] for row in found}
        assert len(set(now.values())) == len(found)
        assert {key: now[key] for key in known} == known

    delta.sql(f"DELETE FROM delta.`{path}` WHERE k = 5")
    delta.sql(f"OPTIMIZE delta.`{path}`")
    delta.checkpoint(path)
    assert {row["k"] for row in Table.open(path).scan(columns=["k"]).to_arrow().to_pylist()} == {*expected, 31} - {5}
    assert load(Table.open(path).store).head.domains.items() >= domains.items()
