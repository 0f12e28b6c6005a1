"""What a daemon may use."""

from __future__ import annotations

import pytest

from tidelog.compaction_daemon.process.daemon import rest_s
from tidelog.compaction_daemon.process.table_step import HOUR_S, Bytes


def test_bytes_are_counted_for_an_hour() -> None:
    spent = Bytes(100)
    spent.take(60, now_s=0.0)
    spent.take(30, now_s=600.0)
    assert [spent.used(now_s) for now_s in (600.0, HOUR_S - 1, HOUR_S, HOUR_S + 600)] == [90, 90, 30, 0]
    assert [spent.left(now_s) for now_s in (600.0, HOUR_S)] == [10, 70]


def test_nothing_is_left_once_the_limit_is_passed() -> None:
    spent = Bytes(100)
    spent.take(250, now_s=0.0)
    assert [spent.left(now_s) for now_s in (0.0, HOUR_S)] == [0, 100]


def test_without_a_limit_bytes_are_counted_all_the_same() -> None:
    spent = Bytes(None)
    spent.take(5, now_s=0.0)
    assert (spent.left(0.0), spent.used(0.0)) == (None, 5)


@pytest.mark.parametrize(
    ("cpu_s", "elapsed_s", "share", "rest"),
    [
        (2.0, 1.0, 0.5, 1.0),  # both cores for a second: two seconds at half of them
        (1.0, 1.0, 0.5, 0.0),  # one of two cores
        (1.0, 1.0, 0.25, 1.0),
        (0.1, 5.0, 0.1, 0.0),  # it mostly waited for the store
        (2.0, 1.0, 1.0, 0.0),
    ],
)
def test_work_and_rest_keep_to_the_share_of_the_cores(
    cpu_s: float, elapsed_s: float, share: float, rest: float
) -> None:
    assert rest_s(cpu_s, elapsed_s, cores=2, share=share) == rest
    assert cpu_s / (elapsed_s + rest) <= 2 * share
