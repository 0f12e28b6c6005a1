from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tidelog.streaming.executors import tasks


def test_shares_are_bounded_by_files_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TASK_FILES", 3)
    monkeypatch.setattr(tasks, "TASK_BYTES", 100)

    def shares(*sizes: int) -> list[list[int]]:
        adds: Any = [SimpleNamespace(size=size) for size in sizes]
        return [[add.size for add in part] for part in tasks.task_parts(adds)]

    def table_shares(*sizes: int) -> list[list[int]]:
        files = pa.table({"size": pa.array(sizes, pa.int64())})
        return [pickle.loads(pickle.dumps(part)).rows["size"].to_pylist() for part in tasks.file_parts(files)]

    for shared in (shares, table_shares):
        assert shared() == []
        assert shared(1, 1, 1, 1) == [[1, 1, 1], [1]]
        assert shared(60, 40, 1, 500, 100, 1) == [[60, 40], [1], [500], [100], [1]]


def test_a_part_of_a_table_is_sent_without_the_rest() -> None:
    files = pa.table({"size": pa.array(range(100_000), pa.int64())})
    part = tasks.file_parts(files)[7]
    assert part.rows.num_rows == tasks.TASK_FILES
    assert len(pickle.dumps(part)) < 2_000
