"""The change feed in the modes cdc and net, over deletes, updates, overwrites and restores."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.operations.changing_rows import KINDS, SCHEMA, bag, filled, rows
from tests.log.support import live_files, memory_store, new_table, put_foreign, put_vector, remove, stage_compaction
from tidelog.log import Table
from tidelog.log.errors import (
    ConfigurationError,
    DuplicateKeyError,
    HistoryExpiredError,
)
from tidelog.log.format import paths
from tidelog.log.state.commits import read_commit


@pytest.fixture(params=list(KINDS))
def table(request: pytest.FixtureRequest) -> Table:
    return filled(request.param)


def test_change_types_of_deletes_and_updates(table: Table) -> None:
    start = table.version
    table.delete("k = 1")
    table.update("k = 2", {"v": "5"})
    found = table.changes(after=start, where="k < 3", columns=["k", "v", "_change_type", "_commit_version"]).to_arrow()
    triples = Counter(
        (version, kind, value)
        for version, kind, value, key in zip(
            found["_commit_version"].to_pylist(),
            found["_change_type"].to_pylist(),
            found["v"].to_pylist(),
            found["k"].to_pylist(),
            strict=True,
        )
        if key in {1, 2}
    )
    assert triples == Counter(
        [(start + 1, "delete", 10), (start + 2, "update_preimage", 20), (start + 2, "update_postimage", 5)]
    )
    log = read_commit(table.store, start + 2)
    assert bool(log.cdc) == (table.properties.get("delta.enableChangeDataFeed") == "true")
    assert all(cdc.path.startswith("_change_data/") and not cdc.data_change for cdc in log.cdc)


def test_vacuumed_data_files_are_expired_history(table: Table) -> None:
    start = table.version
    for add in live_files(table):
        table.store.delete(paths.to_storage_path(add.path))
    with pytest.raises(HistoryExpiredError, match="a vacuum deleted their files"):
        table.changes(until=start).to_arrow()


def test_vacuumed_deletion_vectors_are_expired_history() -> None:
    table = new_table(memory_store(), SCHEMA)
    table.insert(rows(range(5)))
    table.delete("k = 1")
    start = table.version
    table.delete("k = 2")
    table.delete("k = 3")
    for path, _ in list(table.store.walk()):
        if path.startswith("_dv/"):
            table.store.delete(path)
    for until in (start, table.version):
        with pytest.raises(HistoryExpiredError, match="a vacuum deleted their files"):
            table.changes(after=start - 1, until=until).to_arrow()


def test_net_changes_have_one_row_per_key() -> None:
    table = new_table(memory_store(), SCHEMA, properties={"tidelog.primaryKey": "k"})
    table.insert(rows(range(5)))
    start = table.version
    table.insert(rows(range(5, 8)))  # 5: inserted and changed, 6: inserted and deleted, 7: inserted
    table.update("k = 5 OR k = 1", {"v": "7"})
    table.delete("k = 6 OR k = 2")
    table.update("k = 3", {"v": "99"})
    table.update("k = 3", {"v": "30"})  # its old value again
    net = table.changes(after=start, mode="net").to_arrow().sort_by("k")
    kinds = dict(zip(net["k"].to_pylist(), net["_change_type"].to_pylist(), strict=True))
    assert kinds == {1: "update_postimage", 2: "delete", 5: "insert", 7: "insert"}
    assert net["v"].to_pylist() == [7, 20, 7, 70]
    assert net["_commit_version"].to_pylist() == [start + 2, start + 3, start + 2, start + 1]
    only = table.changes(after=start, mode="net", where="_change_type = 'insert'", columns=["k"]).to_arrow()
    assert only["k"].to_pylist() == [7, 5]


def test_net_changes_need_a_valid_key() -> None:
    table = new_table(memory_store(), SCHEMA)
    table.insert(rows(range(3)))
    with pytest.raises(ConfigurationError, match="no keys are given"):
        table.changes(mode="net")
    with pytest.raises(ConfigurationError, match="there is no key column 'id'"):
        table.changes(mode="net", keys=["id"])
    with pytest.raises(ConfigurationError, match="keys must be a list of column names, not a string"):
        table.changes(mode="net", keys="k")
    table.insert(rows(range(1)))
    with pytest.raises(DuplicateKeyError, match=r"the key \{'k': 0\}"):
        table.changes(mode="net", keys=["k"]).to_arrow()
    with pytest.raises(ConfigurationError, match="unknown change mode 'all'"):
        table.changes(mode="all")


_OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "delete", "update", "overwrite", "truncate", "restore", "compact", "checkpoint"]),
        st.integers(0, 11),
        st.integers(0, 11),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(KINDS)), _OPERATIONS, st.integers(0, 8), st.integers(0, 8))
def test_changes_between_two_versions_lead_from_one_to_the_other(
    kind: str, operations: list[tuple[str, int, int]], first: int, last: int
) -> None:
    """Applying the changes between two versions to the rows of the first gives the second; so do the net changes."""
    table = new_table(memory_store(), SCHEMA, partition_by=["part"], properties=KINDS[kind])
    expected: dict[int, Counter[str]] = {0: Counter()}
    fresh = iter(range(0, 10_000, 3))
    for name, one, two in operations:
        _run(table, name, one, two, fresh)
        expected[table.version] = bag(table.scan().to_arrow())
    versions = sorted(expected)
    start, end = sorted((versions[first % len(versions)], versions[last % len(versions)]))
    changes = table.changes(after=start, until=end).to_arrow()
    _assert_replay(expected[start], changes, expected[end])
    net = table.changes(after=start, until=end, mode="net", keys=["k"]).to_arrow()
    assert len(set(net["k"].to_pylist())) == net.num_rows
    before, after = (table.at(version=version).scan().to_arrow() for version in (start, end))
    gained, lost = bag(after) - bag(before), bag(before) - bag(after)
    kinds = net["_change_type"].to_pylist()
    written = net.filter(pa.array([change != "delete" for change in kinds], pa.bool_()))
    assert bag(written) == gained
    deleted = net.filter(pa.array([change == "delete" for change in kinds], pa.bool_()))
    assert bag(deleted) <= lost
    assert len(kinds) - written.num_rows == len(set(before["k"].to_pylist()) - set(after["k"].to_pylist()))


def _assert_replay(start: Counter[str], changes: pa.Table, end: Counter[str]) -> None:
    found = Counter(start)
    for version in sorted(set(changes["_commit_version"].to_pylist())):
        own = changes.filter(pa.compute.equal(changes["_commit_version"], version))
        is_old = pa.compute.is_in(own["_change_type"], pa.array(["delete", "update_preimage"]))
        old, new = bag(own.filter(is_old)), bag(own.filter(pa.compute.invert(is_old)))
        assert old <= found
        found = found - old + new
    assert found == end


def _run(table: Table, name: str, one: int, two: int, fresh: Any) -> None:
    part = "abc"[one % 3]
    low, high = min(one, two) * 2, max(one, two) * 3
    match name:
        case "insert":
            first = next(fresh)
            table.insert([*rows(range(first, first + 2), part), *rows(range(first + 2, first + 3), None)])
        case "delete":
            table.delete(f"k >= {low} AND k < {high}")
        case "update":
            table.update(f"k >= {low} AND k < {high}", {"v": f"v + {one - 5}", "part": f"'{part}'"})
        case "overwrite":
            table.overwrite(rows(range(next(fresh), next(fresh) - 1), part), where=f"part = '{part}'")
        case "truncate":
            table.truncate(where=f"part = '{part}'")
        case "restore":
            table.restore(version=one % (table.version + 1))
        case "compact":
            group = [
                add for add in live_files(table) if add.partition_values["part"] == part and not add.deletion_vector
            ]
            if group:
                stage_compaction(table, group).commit()
                table.refresh()
        case _:
            table.checkpoint()


def test_deleted_rows_are_not_pruned_by_the_statistics_of_live_rows() -> None:
    table = new_table(memory_store())
    table.insert([{"n": n} for n in range(10)])
    (file,) = live_files(table)
    tight = '{"numRecords":10,"minValues":{"n":0},"maxValues":{"n":6},"nullCount":{"n":0},"tightBounds":true}'
    vector = put_vector(table.store, [7, 8, 9], "dv.bin")
    put_foreign(table, remove(file), msgspec.structs.replace(file, deletion_vector=vector, stats=tight))
    assert table.changes(after=1, where="n >= 8").to_arrow()["n"].to_pylist() == [8, 9]
