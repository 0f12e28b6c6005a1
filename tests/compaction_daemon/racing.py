"""Compactions during whose rewrites something happens, at a time that the test sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.compaction_daemon.support import PassingClock, memory_table, put
from tidelog.compaction_daemon import PlannedGroup
from tidelog.compaction_daemon.compaction import applying
from tidelog.compaction_daemon.rewriting import rewrite
from tidelog.log import Table
from tidelog.log.conflict.staged import MoveGroup

HONEST = rewrite.rewrite


def clocked(*parts: str, properties: Mapping[str, object] | None = None) -> tuple[Table, PassingClock]:
    """A table with three small files in these partitions, and its clock."""
    clock = PassingClock()
    table = memory_table(**(properties or {}))
    for number in range(3):
        for part in parts:
            put(table, number, part=part)
    return Table.open(table.path, system=clock), clock


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[PlannedGroup], object]) -> None:
    """Let something happen during the rewrite of each group."""

    def rewritten(*args: Any, **named: Any) -> MoveGroup:
        moved = HONEST(*args, **named)
        happens(args[2])
        return moved

    monkeypatch.setattr(applying, "rewrite", rewritten)
