"""Claims of MaxCompute's documentation about its tables, tested on tidelog."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.log.support import memory_store, new_table, reopen
from tidelog.compaction_daemon import stage
from tidelog.log import Committed, OperationClass, Superseded, Table
from tidelog.log.errors import PredicateError, SchemaMismatchError
from tidelog.log.format import commit_info
from tidelog.log.state.commits import read_commit

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
PARTS = 12_000


def unsorted() -> Table:
    table = new_table(memory_store(), SCHEMA)
    for start in range(3):
        table.insert([{"k": (key * 7 + start) % 10, "v": f"{start}-{key}"} for key in range(10)])
    table.delete("v = '1-3'")
    return table


def rows(table: Table) -> list[tuple[int, str]]:
    return sorted((row["k"], row["v"]) for row in table.refresh().scan().to_arrow().to_pylist())


@pytest.mark.parametrize("inserts_first", [True, False])
def test_clustering_and_an_insert_both_commit(inserts_first: bool) -> None:
    table = unsorted()
    before = rows(table)
    clustering = stage(table, "major", cluster_by=["k"])
    inserting = reopen(table).begin().insert([{"k": 99, "v": "new"}])
    first, second = (inserting, clustering) if inserts_first else (clustering, inserting)
    assert isinstance(first.commit(), Committed)
    outcome = second.commit()
    assert isinstance(outcome, Committed)
    assert outcome.rebased_over == (outcome.version - 1,)
    assert rows(table) == [*before, (99, "new")]
    (clustered,) = [version for version in (5, 6) if read_commit(table.store, version).info["operation"] == "OPTIMIZE"]
    recorded = commit_info.tidelog(read_commit(table.store, clustered).info)["lineage"]["groups"]
    assert recorded[0]["rowMap"].startswith("_tidelog/rowmaps/")


def test_changes_follow_rows_through_a_clustering_and_a_later_compaction() -> None:
    table = unsorted()
    before = rows(table)
    updating = reopen(table).begin().update("v LIKE '2-%' AND k < 5", {"v": "'changed'"})
    deleting = reopen(table).begin().delete("v = '0-4'")
    stage(table, "major", cluster_by=["k"]).commit()
    table.insert([{"k": 50, "v": "new"}])
    assert isinstance(stage(table, "minor").commit(), Committed)
    assert isinstance(updating.commit(), Committed)
    assert isinstance(deleting.commit(), Committed)
    expected = [(k, "changed" if v.startswith("2-") and k < 5 else v) for k, v in before if v != "0-4"]
    assert rows(table) == sorted([*expected, (50, "new")])


def test_a_clustering_is_superseded_by_another_one() -> None:
    table = unsorted()
    losing = stage(table, "major", cluster_by=["v"])
    stage(reopen(table), "major", cluster_by=["k"]).commit()
    assert isinstance(losing.commit(), Superseded)


@pytest.mark.full
def test_an_overwrite_of_twelve_thousand_partitions_is_one_commit() -> None:
    schema = pa.schema([("part", pa.int32()), ("v", pa.int64())])
    table = new_table(memory_store(), schema, partition_by=["part"], properties={"delta.checkpointInterval": 1000})
    data = pa.table({"part": pa.array(range(PARTS), pa.int32()), "v": pa.array(range(PARTS))}, schema=schema)
    table.insert(data.slice(0, 100))
    inserting = reopen(table).begin().insert([{"part": 3, "v": -1}])
    committed = table.overwrite(data, dynamic=True)
    assert committed.version == 2
    commit = read_commit(table.store, 2)
    assert len({tuple(add.partition_values.items()) for add in commit.adds}) == PARTS
    assert len(commit.removes) == 100
    assert table.history(1)[0].operation_class is OperationClass.OVERWRITE
    assert table.at(version=1).num_rows == 100
    assert table.at(version=2).num_rows == PARTS
    assert isinstance(inserting.commit(), Committed)
    assert table.refresh().at().num_rows == PARTS + 1


def test_a_failed_job_leaves_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    table = unsorted()
    before, version = rows(table), table.version
    with pytest.raises((PredicateError, SchemaMismatchError)):
        table.update("k >= 0", {"k": "9223372036854775807 + k"})
    transaction = table.begin().overwrite([{"k": 1, "v": "half"}])

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(table.store), "put_if_absent", killed)
    with pytest.raises(KeyboardInterrupt):
        transaction.commit()
    monkeypatch.undo()
    assert rows(reopen(table)) == before
    assert table.version == version
