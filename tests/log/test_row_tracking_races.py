"""Row ids under random operations of several writers, whose commits are rebased over each other."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest

from tests.log.row_tracking import SCHEMA, TRACKING, mark, rows_with_ids, tracked_table
from tests.log.support import reopen
from tidelog.compaction_daemon import stage
from tidelog.log import Committed, Table, Transaction
from tidelog.log.errors import ConflictError

_WRITERS = 3
_ROUNDS = 12
Staging = Callable[[Table, random.Random], Transaction]


def _rows(choice: random.Random, count: int, keys: range) -> pa.Table:
    numbers = choice.sample(keys, count)
    return pa.table({"n": numbers, "v": [choice.randrange(100) for _ in numbers]}, SCHEMA)


def _insert(table: Table, choice: random.Random) -> Transaction:
    # Keys of inserts are unique: each row can be followed by its key.
    return table.begin().insert(_rows(choice, 4, range(10_000, 10_000_000)))


def _upsert(table: Table, choice: random.Random) -> Transaction:
    return table.begin().upsert(_rows(choice, 5, range(60)), keys=["n"])


def _update(table: Table, choice: random.Random) -> Transaction:
    return table.begin().update(f"n % 7 = {choice.randrange(7)}", {"v": "v + 1"})


def _delete(table: Table, choice: random.Random) -> Transaction:
    return table.begin().delete(f"n % 31 = {choice.randrange(31)}")


def _minor(table: Table, choice: random.Random) -> Transaction:
    del choice
    return stage(table, level="minor")


def _clustered(table: Table, choice: random.Random) -> Transaction:
    return stage(table, level="major", cluster_by=choice.choice([["v"], ["n", "v"]]))


OPERATIONS: Mapping[str, Staging] = {
    "insert": _insert,
    "upsert": _upsert,
    "update": _update,
    "delete": _delete,
    "minor": _minor,
    "clustered": _clustered,
}


def _known(table: Table) -> dict[int, tuple[int, int, int]]:
    """Each row's id, commit version and value, by its key; keys and ids are unique."""
    found = rows_with_ids(table).to_pylist()
    by_key = {row["n"]: (row["id"], row["version"], row["v"]) for row in found}
    assert len(by_key) == len({row["id"] for row in found}) == len(found)
    return by_key


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_ids_are_unique_and_stable(seed: int, vectors: bool) -> None:
    choice = random.Random(seed)
    flag = {"delta.enableDeletionVectors": str(vectors).lower()}
    table = tracked_table(properties={**TRACKING, **flag})
    table.insert(_rows(choice, 40, range(60)))
    known, highest, committed = _known(table), mark(table), 0
    for _ in range(_ROUNDS):
        chosen = [choice.choice([*OPERATIONS]) for _ in range(_WRITERS)]
        staged = [(name, OPERATIONS[name](reopen(table), choice)) for name in chosen]
        for name, transaction in staged:
            try:
                outcome = transaction.commit()
            except ConflictError:
                continue
            if not isinstance(outcome, Committed):
                continue
            committed += 1
            now = _known(table)
            for key, (row_id, version, value) in now.items():
                before = known.get(key)
                if before is None:
                    assert (version, name) in {(outcome.version, "insert"), (outcome.version, "upsert")}
                    assert row_id > highest
                elif (row_id, version) != before[:2]:
                    assert name in {"update", "upsert"}
                    assert (row_id, version) == (before[0], outcome.version)
                else:
                    assert value == before[2]
            assert mark(table) >= highest
            known, highest = now, mark(table)
    assert committed > _ROUNDS
    assert all(row_id <= highest for row_id, _, _ in known.values())
