from __future__ import annotations

import pytest

from tidelog.streaming.executors import tasks


@pytest.fixture
def one_file_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each file its own task. Otherwise one task would do all the work of a small table."""
    monkeypatch.setattr(tasks, "TASK_FILES", 1)
