"""The first micro-batch of a stream reads what was planned.

Spark asks for `initialOffset` again when it runs that batch, and once more in a new process after a crash in it. By
then the table can have changed. Only the end of the batch is stored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.streaming.datasource.engine import Query
from tests.streaming.support import NUMBERS
from tidelog.log import Table


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["n"] for row in rows)


@pytest.mark.parametrize("self_limited", [False, True], ids=["this Spark", "Spark below 4.2"])
@pytest.mark.parametrize("restart", [False, True], ids=["same process", "new process"])
@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        ({"initialSnapshot": "true"}, [1], [2, 3]),
        ({"startingVersion": "latest"}, [], [2, 3]),
        ({"startingVersion": "latest", "consumer": "copy"}, [], [2, 3]),
        ({}, [1], [2, 3]),
    ],
    ids=["snapshot", "latest", "consumer", "earliest"],
)
def test_a_commit_while_the_first_batch_is_planned(
    tmp_path: Path, options: dict[str, str], first: list[int], second: list[int], restart: bool, self_limited: bool
) -> None:
    table = Table.create(str(tmp_path / "table"), NUMBERS)
    table.insert([{"n": 1}])
    options = {"path": table.path, **options}
    query = Query(options, self_limited=self_limited)
    end = query.end(query.start())
    table.insert([{"n": 2}])
    table.insert([{"n": 3}])
    if restart:
        query = Query(options, stored=end, self_limited=self_limited)
    else:
        query.prepare()
    assert numbers(query.replay(query.start(), end)) == first
    query.offset = end
    query.prepare()
    assert numbers(query.replay(end, query.end(end))) == second


def test_rows_between_the_start_and_the_end_of_the_first_batch(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), NUMBERS)
    query = Query({"path": table.path, "startingVersion": "latest"})
    start = query.start()
    table.insert([{"n": 1}])
    query.prepare()
    end = query.end(start)
    table.insert([{"n": 2}])
    again = Query({"path": table.path, "startingVersion": "latest"})
    assert numbers(again.replay(again.start(), end)) == [1]
