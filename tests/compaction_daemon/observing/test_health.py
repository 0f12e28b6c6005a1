"""When a daemon is healthy."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.compaction_daemon.observing.tables import NOW, daemon_status, table_status
from tidelog.compaction_daemon import TableState
from tidelog.compaction_daemon.observing.health import LONGEST_SILENCE, health_of

LONG_AGO = NOW - LONGEST_SILENCE - timedelta(minutes=1)


def test_a_daemon_that_makes_steps_is_healthy() -> None:
    found = health_of(daemon_status(table_status("/a")))
    assert (found.healthy, found.reason, found.tables) == (True, None, {"watched": 1})


def test_a_table_that_fails_does_not_make_it_unhealthy() -> None:
    found = health_of(daemon_status(table_status("/a", TableState.FAILING), table_status("/b", TableState.MISSING)))
    assert found.healthy
    assert found.tables == {"failing": 1, "missing": 1}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"stalled": True}, "a step takes longer than it should ever take"),
        ({"last_step": LONG_AGO}, "the last step ended 31 minutes ago"),
        ({"last_step": None, "started": LONG_AGO}, "the daemon started, and has made no step, 31 minutes ago"),
    ],
)
def test_a_loop_that_does_not_move_is_unhealthy(changes: dict[str, object], reason: str) -> None:
    found = health_of(daemon_status(**changes))
    assert (found.healthy, found.reason) == (False, reason)


def test_a_daemon_that_has_just_started_is_healthy() -> None:
    assert health_of(daemon_status(last_step=None, started=NOW)).healthy
