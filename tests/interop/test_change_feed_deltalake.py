"""The change feed of tables that tidelog and the library deltalake write in turn, which copies rows."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.interop.deltalake_rows import PLAIN
from tests.log.read.feed_checks import check_feed
from tests.randomness import seed
from tidelog.log import Table

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("p", pa.string())])


def rows(*keys: int, add: float = 0.0) -> pa.Table:
    columns = [pa.array(keys), pa.array([key % 4 + add for key in keys]), pa.array([f"p{key % 2}" for key in keys])]
    return pa.table(columns, schema=SCHEMA)


def merge(table: DeltaTable, source: pa.Table) -> None:
    merger = table.merge(source, "t.k = s.k", source_alias="s", target_alias="t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


def changed(table: Table) -> Counter[tuple[Any, ...]]:
    """The changes of the newest version: the type, the key and the value."""
    found = table.changes(after=table.refresh().version - 1).to_arrow()
    return Counter(zip(*(found[name].to_pylist() for name in ("_change_type", "k", "v")), strict=True))


@pytest.mark.parametrize("partition_by", [[], ["p"]], ids=["one partition", "partitions"])
def test_rows_that_deltalake_copies_do_not_show(path: str, partition_by: list[str]) -> None:
    properties = {**PLAIN, "tidelog.primaryKey": "k"}
    table = Table.create(path, SCHEMA, partition_by=partition_by, properties=properties)
    table.insert(rows(*range(8)))
    DeltaTable(path).update({"v": "v + 10"}, predicate="k = 1 OR k = 2")
    images = [("update_preimage", 1, 1), ("update_preimage", 2, 2), ("update_postimage", 1, 11)]
    assert changed(table) == Counter([*images, ("update_postimage", 2, 12)])
    DeltaTable(path).delete("k >= 6")
    assert changed(table) == Counter([("delete", 6, 2), ("delete", 7, 3)])
    merge(DeltaTable(path), rows(3, 4, 20, add=1.0))
    images = [("update_preimage", 3, 3), ("update_preimage", 4, 0), ("update_postimage", 3, 4)]
    assert changed(table) == Counter([*images, ("update_postimage", 4, 1), ("insert", 20, 1)])
    write_deltalake(path, rows(0, 3, add=1.0), mode="overwrite")
    gone = [("delete", k, v) for k, v in ((0, 0), (1, 11), (2, 12), (3, 4), (4, 1), (5, 1), (20, 1))]
    assert changed(table) == Counter([*gone, ("insert", 0, 1), ("insert", 3, 4)])


def test_dead_rows_do_not_die_again_in_the_feed_of_deltalake(path: str) -> None:
    """An overwrite takes a file without live rows. Its removal is no change of rows, or all of them would show."""
    table = Table.create(path, SCHEMA, properties={"delta.enableChangeDataFeed": True})
    table.insert(rows(*range(4)))
    table.delete("k = 1")
    table.delete("k >= 0")
    table.overwrite(rows(7))
    feed = DeltaTable(path).load_cdf(starting_version=table.version)
    theirs = pa.table(pa.RecordBatchReader.from_stream(feed).read_all())
    assert list(zip(theirs["_change_type"].to_pylist(), theirs["k"].to_pylist(), strict=True)) == [("insert", 7)]
    assert changed(table) == Counter([("insert", 7, 3)])


@pytest.mark.parametrize("partition_by", [[], ["p"]], ids=["one partition", "partitions"])
def test_every_interval_leads_from_its_start_to_its_end(tmp_path: Path, partition_by: list[str]) -> None:
    randomness = random.Random(seed())
    table = Table.create(str(tmp_path / "table"), SCHEMA, partition_by=partition_by, properties=PLAIN)
    table.insert(rows(*range(10)))
    fresh = iter(range(100, 1000))
    for _ in range(12):
        low = randomness.randrange(12)
        where, other = f"k >= {low} AND k < {low + 5}", DeltaTable(table.path)
        match randomness.choice(["update", "delete", "merge", "replace", "append", "ours", "upsert", "compact"]):
            case "update":
                other.update({"v": randomness.choice(["v", "v + 1", "1.0"])}, predicate=where)
            case "delete":
                other.delete(where)
            case "merge":
                merge(other, rows(low, next(fresh), add=randomness.choice([0.0, 1.0])))
            case "replace":
                again = rows(*range(low, low + 2), next(fresh))
                write_deltalake(table.path, again, mode="overwrite", predicate=f"k >= {low}")
            case "append":
                write_deltalake(table.path, rows(next(fresh)), mode="append")
            case "ours":
                table.refresh().update(where, {"v": "v + 2"})
            case "upsert":
                table.refresh().upsert(rows(low, next(fresh), add=5.0), keys=["k"])
            case _:
                other.optimize.compact()
    check_feed(table, "k", where="v >= 1 AND k < 40", randomness=randomness)
