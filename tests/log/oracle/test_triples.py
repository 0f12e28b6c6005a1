"""Triples of operations, which show faults in lineage that no pair shows.

`make test` samples them on one kind of table, `make test-full` on all; `make nightly` runs every one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.log.oracle.history import Turn, explore
from tests.log.oracle.operations import catalogue
from tests.log.oracle.settings import SETTINGS, Setting
from tests.randomness import seed

# The first two operations are sampled. Each pair continues with every operation, so that staged ones are used often.
FIRST, SECOND = 5, 8


KINDS = [
    pytest.param(setting, id=name, marks=[] if setting == Setting() else pytest.mark.full)
    for name, setting in SETTINGS.items()
]


@pytest.mark.parametrize("setting", KINDS)
def test_sampled_triples(setting: Setting) -> None:
    names = list(catalogue(setting))
    chance = random.Random(f"{seed()} {setting.name}")
    seconds = {
        first: {(chance.choice(names), chance.randrange(2)) for _ in range(SECOND)}
        for first in chance.sample(names, FIRST)
    }

    def wanted(trail: Sequence[Turn]) -> bool:
        match trail:
            case [first]:
                return first.operation.name in seconds
            case [first, second]:
                return (second.operation.name, second.staged_after) in seconds[first.operation.name]
            case _:
                # An operation staged after both has no winners.
                return trail[-1].staged_after < len(trail) - 1

    explore(setting, 3, wanted).require_nothing_wrong()


_ALL = [(setting, name) for setting in SETTINGS.values() for name in catalogue(setting)]


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("setting", "first"), _ALL, ids=[f"{setting.name}: {name}" for setting, name in _ALL])
def test_every_triple(setting: Setting, first: str) -> None:
    explore(setting, 3, lambda trail: trail[0].operation.name == first).require_nothing_wrong()
