"""The final rows as they are computed, beside the same statements run on a table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

from tests.soak.rows import (
    DELETE_WHERE,
    DELETES_KEY,
    KEYS,
    NEW,
    SCHEMA,
    UPDATE_SET,
    UPDATE_WHERE,
    Row,
    Written,
    payload,
    round_rows,
)
from tidelog.log import Table

PART_ROWS, SEED = 20, 5
COUNTS = {"a": 120, "b": 90}


def streamed(stream: str, first: int, count: int) -> list[dict[str, object]]:
    return [
        Row(stream, number, number // PART_ROWS, NEW, 0, payload(stream, number))._asdict()
        for number in range(first, first + count)
    ]


def test_the_computed_rows_are_those_of_the_statements_in_any_order(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA, partition_by=["part"])
    random, rounds = Random(3), 0
    for stream, count in COUNTS.items():
        for first in range(0, count, 10):
            table.insert(streamed(stream, first, 10))
            if random.random() < 0.3:
                table.update(UPDATE_WHERE, UPDATE_SET)
            if random.random() < 0.3:
                table.delete(DELETE_WHERE)
            rounds += 1
            for _ in range(random.choice([1, 1, 2])):  # the second time is that of a killed updater
                table.upsert(round_rows(SEED, rounds), keys=KEYS, delete_where=DELETES_KEY)
    table.truncate(where="part > -1 AND part < 2")
    table.update(UPDATE_WHERE, UPDATE_SET)
    table.delete(DELETE_WHERE)

    found = Counter(Row(**row) for row in table.scan().to_arrow().to_pylist())
    expected = Counter(Written(SEED, rounds, 2, COUNTS, PART_ROWS).rows())
    assert found == expected
    assert {row.stream for row in found} == {"a", "b", "keyed"}
    assert max(found.values()) == 1
