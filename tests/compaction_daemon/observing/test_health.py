"""When a daemon is healthy."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.compaction_daemon.observing.tables import NOW, daemon_status, table_status
from tidelog.compaction_daemon import TableState
from tidelog.compaction_daemon.observing.health import health_of


def test_a_daemon_that_makes_steps_is_healthy() -> None:
    found = health_of(daemon_status(table_status("/a")))
    assert (found.healthy, found.reason, found.tables) == (True, None, {"watched": 1})


def test_a_table_that_fails_does_not_make_it_unhealthy() -> None:
    found = health_of(daemon_status(table_status("/a", TableState.FAILING), table_status("/b", TableState.MISSING)))
    assert found.healthy
    assert found.tables == {"failing": 1, "missing": 1}


def test_a_loop_that_does_not_get_on_is_unhealthy() -> None:
    found = health_of(daemon_status(stalled=True))
    assert (found.healthy, found.reason) == (False, "a step takes longer than it should ever take")


@pytest.mark.parametrize("last_step", [None, NOW - timedelta(days=1)])
def test_a_daemon_with_nothing_to_do_is_healthy(last_step: datetime | None) -> None:
    assert health_of(daemon_status(last_step=last_step)).healthy
