"""Tables with writer features of delta-spark: tidelog writes them as they are, and delta-spark goes on."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.interop.delta_spark import DeltaSpark
from tests.log.support import live_files, put_foreign
from tidelog.log import Table
from tidelog.log.errors import UnsupportedFeatureError
from tidelog.log.format import filenames
from tidelog.log.format.actions import DomainMetadata, Protocol
from tidelog.log.state import checkpoint_reader, checkpoint_sidecars, checkpoint_writer
from tidelog.log.state.loader import load
from tidelog.log.state.segment import list_checkpoints

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.full]

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def create(delta: DeltaSpark, path: str, columns: str, *, clause: str = "", **properties: str) -> Table:
    given = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true", **properties}
    texts = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    delta.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {clause} TBLPROPERTIES ({texts})")
    return Table.open(path)


def protocol_of(path: str) -> Protocol:
    return load(Table.open(path).store).head.protocol


def data(*keys: int, v: int = 0) -> pa.Table:
    return pa.table({"k": list(keys), "v": [v] * len(keys)}, schema=SCHEMA)


def write_everything(table: Table) -> set[tuple[int, int]]:
    """Every kind of commit that tidelog has, on an empty table; and the rows that are left."""
    table.insert(data(*range(100)))
    table.insert(data(*range(100, 120), v=1))
    table.upsert(data(5, 200, v=2), keys=["k"])
    table.update("k = 6", {"v": "3"})
    table.delete("k = 7")
    table.compact("minor")
    table.insert(data(*range(300, 310)))
    table.compact("major")
    table.delete("k = 8")
    table.compact("major", purge=True)
    table.checkpoint()
    table.expire()
    table.vacuum()
    table.insert(data(400))
    values = {**dict.fromkeys(range(100), 0), **dict.fromkeys(range(100, 120), 1), **dict.fromkeys(range(300, 310), 0)}
    values |= {5: 2, 200: 2, 6: 3, 400: 0}
    return {(key, value) for key, value in values.items() if key not in {7, 8}}


def theirs(delta: DeltaSpark, path: str) -> set[tuple[int, int]]:
    rows = delta.sql(f"SELECT k, v FROM delta.`{path}`")
    found = {(row["k"], row["v"]) for row in rows}
    assert len(found) == len(rows)
    return found


def ours(path: str) -> set[tuple[int, int]]:
    return {(row["k"], row["v"]) for row in Table.open(path).scan().to_arrow().to_pylist()}


def go_on(delta: DeltaSpark, path: str, expected: set[tuple[int, int]]) -> None:
    """delta-spark reads the rows and the feed, and writes on top; then tidelog reads."""
    assert theirs(delta, path) == expected
    feed = delta.changes(path, 0).to_pylist()
    assert {(row["k"], row["v"]) for row in feed if row["_change_type"] == "insert"} >= {(0, 0), (119, 1), (400, 0)}
    assert {row["k"] for row in feed if row["_change_type"] == "delete"} == {7, 8}
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (500, 5)")
    delta.sql(f"UPDATE delta.`{path}` SET v = 6 WHERE k = 6")
    delta.sql(f"OPTIMIZE delta.`{path}`")
    delta.checkpoint(path)
    assert ours(path) == theirs(delta, path) == (expected - {(6, 3)}) | {(500, 5), (6, 6)}


@pytest.mark.parametrize("mapping", [pytest.param("none", marks=pytest.mark.nightly), "name"])
def test_a_clustered_table(delta: DeltaSpark, path: str, mapping: str) -> None:
    properties = {"delta.columnMapping.mode": mapping}
    table = create(delta, path, "k BIGINT, v BIGINT", clause="CLUSTER BY (v, k)", **properties)
    protocol, domains = protocol_of(path), load(table.store).head.domains
    table.insert(data(*range(1000)))
    table.insert(data(*range(1000, 1100)))
    table.compact("major")
    [add] = live_files(table)
    assert add.clustering_provider == "liquid"
    [optimized] = delta.sql(f"OPTIMIZE delta.`{path}`")
    assert not optimized["metrics"]["numFilesRemoved"], "delta-spark leaves alone what tidelog has clustered"
    table.refresh().delete("k = 3")
    table.truncate()
    expected = write_everything(table)
    assert protocol_of(path) == protocol
    assert load(table.store).head.domains == domains
    detail = delta.sql(f"DESCRIBE DETAIL delta.`{path}`")[0]
    assert detail["clusteringColumns"] == ["v", "k"]
    assert theirs(delta, path) == expected
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (500, 5)")
    [optimized] = delta.sql(f"OPTIMIZE delta.`{path}`")
    assert optimized["metrics"]["numFilesAdded"]
    assert ours(path) == theirs(delta, path) == expected | {(500, 5)}
    # What delta-spark has clustered by the same columns, tidelog leaves alone.
    assert not Table.open(path).compact("major").did_anything
    delta.sql(f"ALTER TABLE delta.`{path}` CLUSTER BY (k)")
    Table.open(path).compact("major")
    assert [add.clustering_provider for add in live_files(Table.open(path))] == ["liquid"]
    assert theirs(delta, path) == expected | {(500, 5)}


def test_a_table_with_v2_checkpoints(delta: DeltaSpark, path: str) -> None:
    properties = {"delta.checkpointPolicy": "v2", "delta.enableRowTracking": "true"}
    table = create(delta, path, "k BIGINT, v BIGINT", **properties)
    protocol = protocol_of(path)
    assert "v2Checkpoint" in (protocol.reader_features or ())
    mine = DomainMetadata(domain="com.example", configuration='{"a":1}', removed=False)
    put_foreign(table, mine)
    expected = write_everything(table.refresh())
    cleaned = Table.open(path)
    cleaned.set_properties({"tidelog.maxTransactionTime": "0 seconds"})
    assert cleaned.vacuum(older_than=dt.timedelta(0)).files
    assert protocol_of(path) == protocol
    # Only the checkpoint is left to read the first versions from.
    log = Path(path, "_delta_log")
    newest = max(log.glob("*.checkpoint*.parquet"))
    for file in log.glob("*.json"):
        if file.name[:20] < newest.name[:20]:
            file.unlink()
    for file in log.glob("*.crc"):
        file.unlink()
    assert load(Table.open(path).store).head.domains["com.example"] == mine
    assert theirs(delta, path) == expected
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (500, 5)")
    delta.checkpoint(path)
    state = load(Table.open(path).store).head
    assert state.domains["com.example"] == mine
    assert ours(path) == theirs(delta, path) == expected | {(500, 5)}


def test_domains_of_users(delta: DeltaSpark, path: str) -> None:
    table = create(delta, path, "k BIGINT, v BIGINT", **{"delta.feature.domainMetadata": "supported"})
    protocol = protocol_of(path)
    mine = DomainMetadata(domain="com.example", configuration='{"a":1}', removed=False)
    put_foreign(table, mine)
    expected = write_everything(table.refresh())
    assert protocol_of(path) == protocol
    go_on(delta, path, expected)
    assert load(Table.open(path).store).head.domains == {"com.example": mine}


def test_a_table_with_variants(delta: DeltaSpark, path: str) -> None:
    columns = "k BIGINT, v BIGINT, j VARIANT, s STRUCT<i: VARIANT>, l ARRAY<VARIANT>"
    table = create(delta, path, columns, **{"delta.enableDeletionVectors": "true"})
    protocol = protocol_of(path)
    delta.sql(
        f"INSERT INTO delta.`{path}` SELECT id, 0, IF(id % 3 = 0, NULL, parse_json('{{\"a\": ' || id || '}}')), "
        f"named_struct('i', parse_json(string(id))), array(parse_json('\"x\"'), NULL) FROM range(0, 10)"
    )
    rows = table.refresh().scan().to_arrow()
    table.insert(rows.set_column(0, "k", pa.array([key + 10 for key in rows["k"].to_pylist()], pa.int64())))
    table.upsert(rows.slice(0, 2).set_column(1, "v", pa.array([5, 5], pa.int64())), keys=["k"])
    table.update("k = 3", {"v": "7"})
    table.delete("k = 4")
    table.compact("minor")
    table.compact("major", cluster_by=["k"])
    table.checkpoint()
    assert protocol_of(path) == protocol
    query = (
        f"SELECT k, v, to_json(j) AS j, variant_get(j, '$.a', 'bigint') AS a, to_json(s) AS s, to_json(l) AS l "
        f"FROM delta.`{path}` ORDER BY k"
    )
    found = delta.sql(query)
    assert [row["k"] for row in found] == [key for key in range(20) if key != 4]
    for row in found:
        key = row["k"] % 10
        assert row["a"] == (None if key % 3 == 0 else key)
        assert msgspec.json.decode(row["s"]) == {"i": key}
        assert msgspec.json.decode(row["l"]) == ["x", None]
    assert delta.sql(f"SELECT count(*) AS n FROM delta.`{path}` WHERE j IS NULL") == [{"n": 8}]
    delta.sql(f"UPDATE delta.`{path}` SET j = parse_json('[1]') WHERE k = 5")
    delta.sql(f"OPTIMIZE delta.`{path}`")
    assert len(Table.open(path).scan().to_arrow()) == 19
    assert delta.sql(query) != found


def test_tables_with_iceberg_compatibility_are_refused_with_the_reason(delta: DeltaSpark, path: str) -> None:
    properties = {"delta.enableDeletionVectors": "false", "delta.columnMapping.mode": "name"}
    table = create(delta, path, "k BIGINT, v BIGINT", **properties, **{"delta.enableIcebergCompatV2": "true"})
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (1, 1)")
    with pytest.raises(UnsupportedFeatureError, match=r"icebergCompatV2.*Iceberg's field ids"):
        table.refresh().insert(data(2))
    assert ours(path) == {(1, 1)}


def test_sidecars_of_tidelog(delta: DeltaSpark, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-spark reads a checkpoint whose sidecars tidelog wrote, some of them for the checkpoint before it."""
    for module in (checkpoint_writer, checkpoint_sidecars):
        monkeypatch.setattr(module, "GROUPED_FILES", 1)
    table = create(delta, path, "k BIGINT, v BIGINT", clause="PARTITIONED BY (v)", **{"delta.checkpointPolicy": "v2"})
    for number in range(6):
        table.insert(data(number, number + 100, v=number))
    table.checkpoint()
    table.insert(data(6, v=6))
    table.delete("k = 101")
    table.checkpoint()
    named = [
        {sidecar.path for sidecar in checkpoint_reader.read_sidecars(table.store, found)}
        for found in list_checkpoints(table.store)
        if found.names == (filenames.checkpoint_path(found.version).rpartition("/")[2],)
    ][:2]
    assert named[0] & named[1]
    log = Path(path, "_delta_log")
    for file in (*log.glob("0*.json"), *log.glob("0*.crc")):
        if int(file.name[:20]) < table.version:
            file.unlink()
    expected = {(number + more, number) for number in range(6) for more in (0, 100)} - {(101, 1)} | {(6, 6)}
    assert theirs(delta, path) == expected
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (500, 5)")
    delta.checkpoint(path)
    assert ours(path) == theirs(delta, path) == expected | {(500, 5)}
    Table.open(path).insert(data(7, v=7))
    Table.open(path).checkpoint()
    assert ours(path) == theirs(delta, path) == expected | {(500, 5), (7, 7)}


def test_a_table_whose_columns_are_widened(delta: DeltaSpark, path: str) -> None:
    """By each of the two in turn, in columns, and within lists and maps; with the feed."""
    columns = "k INT, f FLOAT, d DECIMAL(6, 2), l ARRAY<SMALLINT>, m MAP<INT, STRUCT<n: TINYINT>>"
    table = create(delta, path, columns, **{"delta.enableTypeWidening": "true"})
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (1, 0.5, 1.25, array(1), map(1, named_struct('n', 1)))")
    wide = pa.schema(
        [
            ("k", pa.int64()),
            ("f", pa.float64()),
            ("d", pa.decimal128(12, 4)),
            ("l", pa.list_(pa.int32())),
            ("m", pa.map_(pa.int64(), pa.struct([("n", pa.int64())]))),
        ]
    )
    big = 2**40
    row = {"k": big, "f": 0.1, "d": Decimal("12345678.0001"), "l": [2**30], "m": [(big, {"n": big})]}
    transaction = table.refresh().begin()
    assert transaction.evolve(wide)
    transaction.insert(pa.Table.from_pylist([row], wide)).commit()
    table.checkpoint()
    assert table.schema.types == wide.types
    expected = Table.open(path).scan().to_arrow().sort_by("k")
    assert delta.arrow(path).sort_by("k").cast(expected.schema).equals(expected)
    assert [found["k"] for found in delta.sql(f"SELECT k FROM delta.`{path}` WHERE k = {big} AND f < 0.2")] == [big]
    # Its feed has one schema for all versions, and refuses those before the change; tidelog's has not.
    assert delta.changes(path, 1)["k"].to_pylist() == [big]
    assert sorted(table.changes(after=0).to_arrow()["k"].to_pylist()) == [1, big]
    # delta-spark goes on: a type that data alone does not cause, and one of its own evolution.
    delta.sql(f"ALTER TABLE delta.`{path}` CHANGE COLUMN k TYPE DECIMAL(20, 0)")
    delta.sql(f"ALTER TABLE delta.`{path}` CHANGE COLUMN l.element TYPE BIGINT")
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (10000000000000000000, 1, 1, array({big}), map())")
    table.refresh()
    assert table.schema.types[0] == pa.decimal128(20, 0)
    assert sorted(map(int, table.scan().to_arrow()["k"].to_pylist())) == [1, big, 10**19]
    assert table.scan(f"k = {big}").count() == table.scan("k = 1").count() == 1
    # And tidelog: its compaction has one type for all rows, and its restore keeps the types.
    table.compact("major")
    assert delta.arrow(path).num_rows == 3
    table.restore(version=1)
    (only,) = delta.arrow(path).to_pylist()
    assert (int(only["k"]), only["l"]) == (1, [1])
    assert table.refresh().schema.types[0] == pa.decimal128(20, 0)
