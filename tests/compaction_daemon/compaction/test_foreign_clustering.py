"""Tables that another engine clusters: tidelog clusters by the same columns, and says so in a way that engine knows."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from tests.log.row_tracking import SCHEMA, tracked_table
from tests.log.support import live_files, put_foreign
from tidelog.log import Table
from tidelog.log.format.actions import AddFile, DomainMetadata, RemoveFile
from tidelog.log.format.clustering import clustering_columns
from tidelog.log.state.loader import load


def domain(columns: object) -> DomainMetadata:
    text = msgspec.json.encode({"clusteringColumns": columns, "domainName": "delta.clustering"}).decode()
    return DomainMetadata(domain="delta.clustering", configuration=text, removed=False)


def clustered_table(columns: object = (("v",), ("n",))) -> Table:
    table = tracked_table()
    put_foreign(table, domain(columns))
    for start in range(3):
        rows = range(start, 300, 3)
        table.refresh().insert(pa.table({"n": list(rows), "v": [n * 7 % 50 for n in rows]}, SCHEMA))
    return table


def provided(table: Table) -> list[tuple[str | None, str | None]]:
    """The provider of each live file, and the columns that it was clustered by."""
    return [(add.clustering_provider, (add.tags or {}).get("ZCUBE_ZORDER_BY")) for add in live_files(table)]


def change_provider(table: Table, provider: str | None) -> None:
    """Let another engine say who clustered the files; it drops the tags of tidelog and delta-spark."""
    old = live_files(table)
    removes: list[RemoveFile] = [add.removed(1, data_change=False) for add in old]
    adds: list[AddFile] = [
        msgspec.structs.replace(add, path=f"x{add.path}", clustering_provider=provider, tags=None, data_change=False)
        for add in old
    ]
    for add, new in zip(old, adds, strict=True):
        table.store.put_if_absent(new.path, table.store.read(add.path))
    put_foreign(table, *removes, *adds)
    table.refresh()


def test_a_major_compaction_clusters_by_the_tables_columns_and_says_so() -> None:
    table = clustered_table()
    table.compact("major")
    assert provided(table) == [("liquid", '["v","n"]')]
    [add] = live_files(table)
    assert (add.tags or {})["ZCUBE_ID"]
    assert not table.compact("major").did_anything


def test_files_keep_their_provider_when_rows_of_them_are_deleted() -> None:
    table = clustered_table()
    table.compact("major")
    table.delete("n = 5")
    assert provided(table) == [("liquid", '["v","n"]')]
    assert provided(Table(table.store, load(table.store))) == [("liquid", '["v","n"]')]


@pytest.mark.parametrize("options", [{"cluster_by": ["n"]}, {"cluster_by": ["n", "v"]}, {"cluster_order": "sort"}])
def test_other_columns_or_another_order_are_not_called_the_tables_clustering(options: dict[str, object]) -> None:
    table = clustered_table()
    table.compact("major", **options)  # type: ignore[arg-type]
    assert provided(table) == [(None, None)]


def test_a_minor_compaction_does_not_cluster() -> None:
    table = clustered_table()
    table.compact("minor")
    assert provided(table) == [(None, None)]


def test_files_that_delta_spark_clustered_are_left_alone() -> None:
    table = clustered_table()
    table.compact("major")
    [old] = live_files(table)
    tags = {"ZCUBE_ID": "theirs", "ZCUBE_ZORDER_BY": '["v","n"]'}
    put_foreign(table, old.removed(1, data_change=False), msgspec.structs.replace(old, tags=tags, data_change=False))
    assert not table.refresh().compact("major").did_anything


def test_files_of_another_provider_are_not_clustered_again() -> None:
    table = clustered_table()
    table.compact("minor")
    change_provider(table, "someone")
    assert not table.compact("major").did_anything
    assert provided(table) == [("someone", None)]
    change_provider(table, None)
    table.compact("major")
    assert provided(table) == [("liquid", '["v","n"]')]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([["v"], ["n"]], ("v", "n")),
        (["n"], ("n",)),
        ([], ()),
        ([["s", "field"]], ()),
        ([["gone"], ["n"]], ()),
        ([["n"], ["n"]], ()),
        ("no list", ()),
    ],
)
def test_the_columns_of_the_domain(columns: object, expected: tuple[str, ...]) -> None:
    assert clustering_columns({"delta.clustering": domain(columns)}, SCHEMA) == expected
    assert clustering_columns({}, SCHEMA) == ()


def test_a_restore_brings_the_tables_columns_back() -> None:
    table = clustered_table()
    before = table.version
    put_foreign(table, domain([["n"]]))
    table.refresh().restore(version=before)
    assert clustering_columns(load(table.store).head.domains, SCHEMA) == ("v", "n")
    table.restore(version=0)
    assert load(table.store).head.domains["delta.clustering"] == domain([])
