"""Random interleavings of writers, a compaction, a restorer and two vacuums; each rule of the horizon is needed."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.lanes import full_but
from tests.log.cleanup.interleaving import ObjectionError, run
from tests.randomness import seed

RUNS = 30
MANY_RUNS = 5_000


def run_all(first: int, runs: int) -> None:
    for number in range(first, first + runs):
        run(number)


@pytest.mark.parametrize("runs", [RUNS, pytest.param(MANY_RUNS, marks=pytest.mark.nightly)])
def test_no_interleaving_loses_a_file_or_a_commit(runs: int) -> None:
    run_all(seed(), runs)


def gives(value: Any) -> Callable[[Any], Any]:
    return lambda original: functools.wraps(original)(lambda *_args, **_more: value)


def by_cutoff(original: Any) -> Any:
    """Files count as old by the clock of the vacuum, whatever the horizon."""
    return lambda store, horizon, newest, cutoff_ms, now_ms: replace(
        original(store, horizon, newest, cutoff_ms, now_ms), old=cutoff_ms
    )


# What is left out: a function, and what takes its place; and the seed to begin with, to find a fault soon.
RULES = {
    "the check of writers": ("tidelog.log.conflict.rebase:horizon_conflict", gives(None), 1),
    "the check of restore": ("tidelog.log.commit.content:horizon_of", gives(0), 460),
    "a second look after the horizon's commit": ("tidelog.log.cleanup.vacuum:_Deletion._catch_up", gives(None), 1),
    "the commit of the horizon": ("tidelog.log.cleanup.vacuum:announce_horizon", gives(None), 1),
    "the age of files": ("tidelog.log.cleanup.unneeded:Ages.of", by_cutoff, 14),
}


_SLOW = {"the check of restore", "the age of files"}


@pytest.mark.parametrize("rule", full_but([rule for rule in RULES if rule not in _SLOW], RULES))
def test_each_rule_is_needed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, replaced, first = RULES[rule]
    module, _, name = target.partition(":")
    owner: Any = importlib.import_module(module)
    *holders, attribute = name.split(".")
    for holder in holders:
        owner = getattr(owner, holder)
    monkeypatch.setattr(owner, attribute, replaced(getattr(owner, attribute)))
    with pytest.raises(ObjectionError):
        run_all(first, MANY_RUNS)
