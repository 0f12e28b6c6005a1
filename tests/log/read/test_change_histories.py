"""The change feed of random histories: every interval leads from the rows at its start to those at its end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from tests.log.read.feed_checks import check_feed
from tests.log.support import live_files, memory_store, new_table, stage_compaction
from tests.randomness import seed
from tidelog.log import Transaction
from tidelog.log.errors import ConflictError
from tidelog.log.storage import Store

SCHEMA = pa.schema(
    [("k", pa.int64()), ("v", pa.float64()), ("p", pa.string()), ("s", pa.struct([("x", pa.list_(pa.string()))]))]
)
VALUES = (None, 0.0, 1.0, -2.5, 1e300)
OPERATIONS = 9


class History:
    """A table with random operations. Keys are unique in each version; values often repeat."""

    def __init__(self, randomness: random.Random, store: Store | None = None) -> None:
        self.randomness = randomness
        self._fresh = iter(range(10_000))
        properties = {
            "delta.enableDeletionVectors": randomness.random() < 0.5,
            "delta.enableChangeDataFeed": randomness.random() < 0.3,
        }
        partition_by = ["p"] if randomness.random() < 0.5 else []
        self.table = new_table(store or memory_store(), SCHEMA, partition_by=partition_by, properties=properties)
        self.table.insert(self._rows(8))
        self._partitioned = bool(partition_by)

    def run(self) -> None:
        for _ in range(OPERATIONS):
            first = self._staged()
            if self.randomness.random() < 0.3:
                # Another operation commits first, so this one is rebased, or it loses.
                second = self._staged()
                second.commit()
            with suppress(ConflictError):
                first.commit()
            self.table.refresh()
            if self.randomness.random() < 0.2:
                self.table.checkpoint()

    def _staged(self) -> Transaction:
        stage = self.randomness.choices(
            [self._insert, self._update, self._delete, self._upsert, self._overwrite, self._restore, self._compact],
            weights=[4, 5, 4, 4, 2, 1, 4],
        )[0]
        return stage()

    def _insert(self) -> Transaction:
        return self.table.begin().insert(self._rows(self.randomness.randrange(1, 5)))

    def _update(self) -> Transaction:
        new = self.randomness.choice(["1.0", "v", "v + 1", "-2.5"])
        assignments = {"v": new}
        if self.randomness.random() < 0.3:
            assignments["p"] = self.randomness.choice(["'a'", "'b'"])
        return self.table.begin().update(self._where(), assignments)

    def _delete(self) -> Transaction:
        return self.table.begin().delete(self._where())

    def _upsert(self) -> Transaction:
        known = self.table.scan(columns=["k"]).to_arrow()["k"].to_pylist()
        keys = [*self.randomness.sample(known, min(len(known), 3)), next(self._fresh)]
        rows = [self._row(key) for key in keys]
        # Some are as they were.
        rows[:1] = [row for row in self.table.scan().to_arrow().to_pylist() if row["k"] == keys[0]] or rows[:1]
        delete_where = "v = -2.5" if self.randomness.random() < 0.3 else None
        return self.table.begin().upsert(rows, keys=["k"], delete_where=delete_where)

    def _overwrite(self) -> Transaction:
        where = "p = 'a'" if self._partitioned and self.randomness.random() < 0.7 else None
        if self.randomness.random() < 0.3:
            return self.table.begin().truncate(where=where)
        rows = self._rows(self.randomness.randrange(4))
        if where:
            rows = [{**row, "p": "a"} for row in rows]
        return self.table.begin().overwrite(pa.Table.from_pylist(rows, SCHEMA), where=where)

    def _restore(self) -> Transaction:
        return self.table.begin().restore(version=self.randomness.randrange(1, self.table.version + 1))

    def _compact(self) -> Transaction:
        files = [add for add in live_files(self.table) if not add.deletion_vector]
        values = self.randomness.choice(files).partition_values if files else None
        group = [add for add in files if add.partition_values == values]
        return stage_compaction(self.table, group) if group else self._insert()

    def _rows(self, count: int) -> list[dict[str, Any]]:
        return [self._row(next(self._fresh)) for _ in range(count)]

    def _row(self, key: int) -> dict[str, Any]:
        texts: Any = self.randomness.choice([None, {"x": None}, {"x": []}, {"x": ["a", None]}])
        return {
            "k": key,
            "v": self.randomness.choice(VALUES),
            "p": self.randomness.choice(["a", "b", None]),
            "s": texts,
        }

    def _where(self) -> str:
        low = self.randomness.randrange(20)
        return self.randomness.choice(
            [f"k >= {low} AND k < {low + 4}", "v = 1.0", f"p = 'a' AND k < {low}", "v IS NULL"]
        )


def histories(count: int) -> Iterator[tuple[int, History]]:
    chosen = seed()
    for number in range(count):
        history = History(random.Random(f"{chosen} {number}"))
        history.run()
        yield number, history


@pytest.mark.parametrize("count", [6, pytest.param(500, marks=pytest.mark.nightly)])
def test_every_interval_leads_from_its_start_to_its_end(count: int) -> None:
    for number, history in histories(count):
        print(f"history {number}")
        check_feed(history.table, "k", where="v >= 0 AND k < 25", randomness=history.randomness)
