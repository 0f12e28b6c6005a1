from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.streaming.executors import tasks


def test_shares_are_bounded_by_files_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TASK_FILES", 3)
    monkeypatch.setattr(tasks, "TASK_BYTES", 100)

    def shares(*sizes: int) -> list[list[int]]:
        adds: Any = [SimpleNamespace(size=size) for size in sizes]
        return [[add.size for add in part] for part in tasks.task_parts(adds)]

    assert shares() == []
    assert shares(1, 1, 1, 1) == [[1, 1, 1], [1]]
    assert shares(60, 40, 1, 500, 100, 1) == [[60, 40], [1], [500], [100], [1]]
