"""What the change feed of a history must be, by the table's rows at each of its versions."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from tidelog.log import OperationClass, Table
from tidelog.log.read.commit_changes import changed_rows
from tidelog.log.state.commits import read_commit

# A row as text, and the rows of a version.
Bag: TypeAlias = Counter[str]
# How many intervals of several commits are checked; all of them would be many.
LONGER = 6
TAKES = ("delete", "update_preimage")
_OWN = ("_change_type", "_commit_version", "_commit_timestamp")


def bag(table: pa.Table) -> Bag:
    """The rows, each as the text of its values."""
    return Counter(repr(row) for row in table.drop_columns([n for n in _OWN if n in table.column_names]).to_pylist())


def rows_of_every_version(table: Table) -> dict[int, pa.Table]:
    """The rows of each version of the table."""
    table.refresh()
    return {version: table.at(version=version).scan().to_arrow() for version in range(table.version + 1)}


def check_feed(table: Table, key: str, *, where: str, randomness: random.Random) -> None:
    """Check the feed of each commit, and of some longer intervals, against the rows at their ends.

    `key` is unique in each version. `where` is a predicate that some rows match.
    """
    states = rows_of_every_version(table)
    bags = {version: bag(rows) for version, rows in states.items()}
    commits = {version: read_commit(table.store, version) for version in states}
    classes = {record.version: record.operation_class for record in table.history()}
    matching = {version: bag(table.at(version=version).scan(where).to_arrow()) for version in states}
    every = list(itertools.combinations(states, 2))
    longer = [(after, until) for after, until in every if until > after + 1]
    chosen = randomness.sample(longer, min(LONGER, len(longer)))
    for after, until in [*itertools.pairwise(states), (min(states), max(states)), *chosen]:
        changes = table.changes(after=after, until=until).to_arrow()
        versions = changes["_commit_version"].to_pylist()
        assert versions == sorted(versions), "commits are in order"
        _replayed(bags, changes, after, until)
        pruned = table.changes(after=after, until=until, where=where).to_arrow()
        _replayed(matching, pruned, after, until)
        assert table.changes(after=after, until=until, where=where).count() == pruned.num_rows
        _check_net(table, states, key, after, until)
        if not any(changed_rows(commits[version]) for version in range(after + 1, until + 1)):
            inserted = bag(table.changes(after=after, until=until, mode="append").to_arrow())
            assert inserted == bags[until] - bags[after]
        if until == after + 1:
            taken, given = _sides(changes)
            replaces = classes[until] is OperationClass.OVERWRITE and commits[until].info.get("operation") != "RESTORE"
            if not replaces and not commits[until].cdc:
                assert not taken & given, f"version {until} shows rows that did not change"


def _sides(changes: pa.Table) -> tuple[Bag, Bag]:
    is_old = pa.array([kind in TAKES for kind in changes["_change_type"].to_pylist()], pa.bool_())
    return bag(changes.filter(is_old)), bag(changes.filter(pa.compute.invert(is_old)))


def _replayed(bags: Mapping[int, Bag], changes: pa.Table, after: int, until: int) -> None:
    """Apply the changes version by version: what is taken away was there, and each version is what it was."""
    found = Counter(bags[after])
    stamps = changes["_commit_version"]
    for version in range(after + 1, until + 1):
        taken, given = _sides(changes.filter(pa.compute.equal(stamps, version)))
        assert taken <= found, f"version {version} takes rows that were not there"
        found = found - taken + given
        assert found == bags[version], f"version {version}"


def _check_net(table: Table, states: Mapping[int, pa.Table], key: str, after: int, until: int) -> None:
    net = table.changes(after=after, until=until, mode="net", keys=[key]).to_arrow()
    before, now = ({row[key]: row for row in states[version].to_pylist()} for version in (after, until))
    expected: Counter[tuple[str, str]] = Counter()
    for name in before.keys() | now.keys():
        if name not in now:
            expected["delete", repr(before[name])] += 1
        elif before.get(name) != now[name]:
            expected["update_postimage" if name in before else "insert", repr(now[name])] += 1
    found: list[dict[str, Any]] = net.drop_columns(_OWN).to_pylist()
    assert Counter(zip(net["_change_type"].to_pylist(), map(repr, found), strict=True)) == expected
