"""All readers see upserts, new columns and properties that tidelog commits, and delta-spark continues on the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from tests.interop.delta_spark import DeltaSpark
from tests.interop.readers import as_texts, assert_same_everywhere
from tests.interop.test_everywhere import KINDS, SCHEMA, assert_same_changes, rows, table_of
from tidelog.log import Table

pytestmark = pytest.mark.interop

MORE = pa.schema([("note", pa.string()), ("place", pa.struct([("x", pa.float64())]))])


def some_data() -> pa.Table:
    """Rows 5 to 14 have new values, 15 to 17 are deleted, and 40 to 43 are added."""
    known, new = rows(5, 13), rows(40, 4)
    changed = pa.concat_tables([known, new])
    ratio = changed.schema.get_field_index("ratio")
    changed = changed.set_column(ratio, SCHEMA.field("ratio"), pc.multiply(changed["n"].cast(pa.float64()), -1.0))
    gone = pc.and_(pc.greater_equal(changed["n"], 15), pc.less(changed["n"], 40))
    return changed.append_column("op", pc.if_else(gone, "d", "u"))


def expected_rows() -> pa.Table:
    written = some_data().filter(pc.field("op") == "u").drop_columns(["op"])
    return pa.concat_tables([rows(0, 5), rows(18, 12), written])


def with_nulls(table: pa.Table) -> pa.Table:
    for field in MORE:
        table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table


@pytest.mark.parametrize("kind", list(KINDS))
def test_all_readers_see_upserts_and_new_columns(kind: str, tmp_path: Path) -> None:
    table = table_of(tmp_path, kind)
    table.upsert(some_data(), keys=["n"], delete_where="op = 'd'")
    assert_same_everywhere(table.path, expected_rows())
    if kind == "with change files":
        assert_feed_by_delta_rs(table)
    table.add_columns(MORE)
    assert_same_everywhere(table.path, with_nulls(expected_rows()))
    table.set_properties({"delta.checkpointInterval": 50, "mine": "x"})
    table.upsert([{"n": 0, "note": "ü", "place": {"x": 0.5}}], keys=["n"])
    expected = table.scan().to_arrow()
    assert (expected.num_rows, expected["note"].null_count) == (31, 30)
    assert_same_everywhere(table.path, expected)
    table.checkpoint()
    assert_same_everywhere(table.path, expected)


@pytest.mark.parametrize("kind", list(KINDS))
def test_all_readers_see_an_overwrite_of_matching_rows(kind: str, tmp_path: Path) -> None:
    table = table_of(tmp_path, kind)
    new = some_data().drop_columns(["op"]).filter(pc.field("n") < 15)
    after = table.version
    table.overwrite(new, where="n BETWEEN 5 AND 20")
    assert_same_everywhere(table.path, pa.concat_tables([rows(0, 5), rows(21, 9), new]))
    if kind == "with change files":
        feed = DeltaTable(table.path).load_cdf(starting_version=after + 1)
        found = pa.table(pa.RecordBatchReader.from_stream(feed).read_all())
        ours = table.changes(after=after).to_arrow()
        assert as_texts(found, ours.schema) == as_texts(ours, ours.schema)


def assert_feed_by_delta_rs(table: Table) -> None:
    feed = DeltaTable(table.path).load_cdf(starting_version=table.version)
    found = pa.table(pa.RecordBatchReader.from_stream(feed).read_all())
    ours = table.changes(after=table.version - 1).to_arrow()
    assert as_texts(found, ours.schema) == as_texts(ours, ours.schema)
    counts = pc.value_counts(ours["_change_type"]).to_pylist()
    expected = {"update_preimage": 10, "update_postimage": 10, "delete": 3, "insert": 4}
    assert {entry["values"]: entry["counts"] for entry in counts} == expected


def test_delta_rs_writes_after_columns_were_added(tmp_path: Path) -> None:
    table = table_of(tmp_path, "old protocol")
    table.add_columns(MORE)
    DeltaTable(table.path).delete("n = 0")
    table.refresh().upsert([{"n": 1, "note": "mine"}, {"n": 2, "op": "d"}], keys=["n"], delete_where="op = 'd'")
    DeltaTable(table.path).update(predicate="n = 3", updates={"note": "'theirs'"})
    found = table.refresh().scan("note IS NOT NULL", ["n", "note"]).to_arrow().sort_by("n").to_pylist()
    assert found == [{"n": 1, "note": "mine"}, {"n": 3, "note": "theirs"}]
    assert table.scan().count() == 28


@pytest.mark.spark
@pytest.mark.full
def test_delta_spark_continues_after_our_commits(tmp_path: Path, delta: DeltaSpark) -> None:
    """Two properties turn features on first, one of them in-commit timestamps."""
    table = table_of(tmp_path, "without commit times")
    table.set_properties({"delta.enableInCommitTimestamps": True, "delta.enableChangeDataFeed": True})
    start = table.version
    table.upsert(some_data(), keys=["n"], delete_where="op = 'd'")
    assert_same_changes(table, start, delta)
    table.add_columns(MORE)
    expected = table.scan().to_arrow()
    assert_same_everywhere(table.path, expected, delta)
    delta.sql(f"UPDATE delta.`{table.path}` SET note = 'theirs' WHERE n = 1")
    delta.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('delta.checkpointInterval' = '20')")
    table.refresh().upsert([{"n": 1, "note": "ours"}], keys=["n"])
    found: list[dict[str, Any]] = table.scan("note IS NOT NULL", ["n", "note"]).to_arrow().to_pylist()
    assert found == [{"n": 1, "note": "ours"}]
    assert_same_everywhere(table.path, table.scan().to_arrow(), delta)
    stamps = [record.timestamp for record in table.history()]
    assert stamps == sorted(stamps, reverse=True)


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.parametrize("mode", ["name", "id"])
def test_upserts_and_new_columns_on_a_table_with_column_mapping(mode: str, tmp_path: Path, delta: DeltaSpark) -> None:
    path = str(tmp_path / "mapped")
    delta.sql(
        f"CREATE TABLE delta.`{path}` (n BIGINT, st STRUCT<x: STRING>, p STRING) USING delta PARTITIONED BY (p) "
        f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}', 'delta.enableChangeDataFeed' = 'true')"
    )
    delta.append(path, "select 1L as n, struct('x' as x) as st, 'p' as p")
    delta.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN p TO part")
    table = Table.open(path)
    table.add_columns(MORE)
    table.upsert([{"n": 1, "part": "q", "note": "a"}, {"n": 2, "part": "p", "place": {"x": 2.0}}], keys=["n"])
    delta.append(path, "select 3L as n, null as st, 'p' as part, 'b' as note, struct(3.0D as x) as place")
    delta.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN later INT")
    table.refresh().upsert([{"n": 3, "part": "p", "later": 7}], keys=["n", "part"])
    expected = table.scan().to_arrow()
    assert sorted(expected["n"].to_pylist()) == [1, 2, 3]
    assert as_texts(delta.arrow(path), expected.schema) == as_texts(expected, expected.schema)
    assert delta.sql(f"SELECT n FROM delta.`{path}` WHERE place.x = 2.0") == [{"n": 2}]
