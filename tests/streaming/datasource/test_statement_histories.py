"""Statements of several threads on one table: each sees the others as if they came one after another.

The threads move balances between accounts, open and close some, and count how often they touch one. No balance is lost
or made, no account is there twice, and the counts are those that the statements report.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.randomness import seed
from tests.streaming.support import JVM_SOURCE
from tidelog.log import Table
from tidelog.log.errors import ConflictError
from tidelog.streaming import sql

pytestmark = [pytest.mark.spark, JVM_SOURCE]

SCHEMA = pa.schema([("id", pa.int64()), ("balance", pa.int64()), ("touched", pa.int64())])
# The last ones can be closed and opened again.
ACCOUNTS, LASTING, BALANCE = 8, 4, 100
KINDS: dict[str, dict[str, Any]] = {
    "vectors": {},
    "copies": {"delta.enableDeletionVectors": "false"},
    "feed": {"delta.enableChangeDataFeed": "true"},
    "keys": {"tidelog.primaryKey": "id"},
    "blind appends follow": {"tidelog.conflictPolicy": "write-serializable"},
}

# {a} is a lasting account, {b} another one, {c} any other one, {d} one that can be closed, and {x} an amount. Spark
# computes what is written with abs(...), IN (SELECT ...) or a join; the rest has a translation.
MOVES = [
    "UPDATE {t} SET balance = balance + CASE id WHEN {a} THEN -{x} ELSE {x} END WHERE id IN ({a}, {b})",
    """UPDATE {t} SET balance = balance + CASE id WHEN {a} THEN -{x} ELSE {x} END
    WHERE id IN (SELECT {a}L UNION ALL SELECT {b}L)""",
    # All of an account.
    """UPDATE {t} SET balance = CASE id WHEN {a} THEN balance + (SELECT balance FROM {t} WHERE id = {b}) ELSE 0 END
    WHERE id IN ({a}, {b})""",
]
MERGES = [
    """USING (SELECT * FROM VALUES ({a}L, -{x}L), ({c}L, {x}L) AS v(id, moved)) s ON {on}
    WHEN MATCHED THEN UPDATE SET balance = t.balance + s.moved
    WHEN NOT MATCHED THEN INSERT (id, balance, touched) VALUES (s.id, s.moved, 0)""",
    """USING (SELECT {a}L AS id, balance, touched FROM {t} WHERE id = {d} UNION ALL SELECT {d}L, NULL, NULL) s ON {on}
    WHEN MATCHED AND s.balance IS NULL THEN DELETE
    WHEN MATCHED THEN UPDATE SET balance = t.balance + s.balance, touched = t.touched + s.touched""",
    """USING (SELECT {d}L AS id) s ON {on}
    WHEN NOT MATCHED THEN INSERT (id, balance, touched) VALUES (s.id, 0, 0)""",
]
MOVES += [
    f"MERGE INTO {{t}} t {clauses.replace('{on}', on)}"
    for clauses in MERGES
    for on in ("t.id = s.id", "abs(t.id) = s.id")
]
TOUCHES = [
    "UPDATE {t} SET touched = touched + 1 WHERE id % 3 = {a} % 3",
    "UPDATE {t} SET touched = touched + 1 WHERE id IN (SELECT id FROM {t} WHERE balance > {x})",
]
COMPACTION = "compaction"


@pytest.mark.parametrize(
    ("kind", "threads", "count"),
    [
        pytest.param("vectors", 2, 4, marks=pytest.mark.full),
        *(pytest.param(kind, 4, 25, marks=pytest.mark.nightly) for kind in KINDS),
    ],
)
def test_no_update_is_lost(spark: SparkSession, tmp_path: Path, kind: str, threads: int, count: int) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA, properties=KINDS[kind])
    for half in (range(LASTING), range(LASTING, ACCOUNTS)):
        table.insert([{"id": n, "balance": BALANCE, "touched": 0} for n in half])
    start = seed()

    def worker(number: int) -> int:
        draw = random.Random(f"{start} {number}")
        touched = 0
        for _ in range(count):
            text = draw.choice([*MOVES, *TOUCHES, *TOUCHES, COMPACTION])
            with suppress(ConflictError):  # after several attempts
                touched += run(text, draw)
        return touched

    def run(text: str, draw: random.Random) -> int:
        if text == COMPACTION:
            Table.open(table.path).compact()
            return 0
        a, b = draw.sample(range(LASTING), 2)
        c = draw.choice([n for n in range(ACCOUNTS) if n != a])
        names = {"a": a, "b": b, "c": c, "d": draw.randrange(LASTING, ACCOUNTS), "x": draw.randint(1, BALANCE)}
        [done] = sql(spark, text.format(t=f"tidelog.`{table.path}`", **names)).collect()
        return int(done["num_affected_rows"]) if text in TOUCHES else 0

    with ThreadPoolExecutor(threads) as pool:
        touched = sum(pool.map(worker, range(threads)))
    found = table.refresh().scan().to_arrow().to_pydict()
    assert sorted(found["id"]) == sorted({*found["id"], *range(LASTING)})
    assert (sum(found["balance"]), sum(found["touched"])) == (ACCOUNTS * BALANCE, touched)
