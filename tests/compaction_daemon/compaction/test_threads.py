"""Without an executor, threads of this process rewrite several groups at the same time, if these fit into memory."""

from __future__ import annotations

import threading
from collections import Counter

import pyarrow as pa
import pytest

from tests.compaction_daemon.racing import clocked, meanwhile
from tests.compaction_daemon.support import numbers_of
from tidelog.compaction_daemon import compact
from tidelog.compaction_daemon.compaction import applying


def test_groups_are_rewritten_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = clocked(*"abcd")
    monkeypatch.setattr(applying, "THREADS", 2)
    monkeypatch.setattr(pa, "cpu_count", lambda: 8)
    both = threading.Barrier(2)
    meanwhile(monkeypatch, lambda _: both.wait(timeout=30))
    report = compact(table)
    assert (report.groups, report.files_added) == (4, 4)
    assert Counter(numbers_of(table)) == Counter([0, 1, 2] * 4)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tidelog-rewrite")]


def test_clustered_groups_are_rewritten_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes up to 1 GB."""
    table, _ = clocked(*"abc")
    monkeypatch.setattr(applying, "THREADS", 3)
    monkeypatch.setattr(pa, "cpu_count", lambda: 8)
    threads: list[int] = []
    meanwhile(monkeypatch, lambda _: threads.append(threading.get_ident()))
    assert compact(table, "major", cluster_by=["n"]).groups == 3
    assert set(threads) == {threading.get_ident()}
