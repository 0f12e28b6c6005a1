"""The kills that a seed draws."""

from __future__ import annotations

import pytest

from tests.soak.disruptions import LEASE_TTL_S, How, calm, disruptions
from tests.soak.programs import NAMES, WITH_SPARK
from tests.soak.settings import DAEMONS, LEAST_MINUTES, Settings

SEEDS = range(20)


@pytest.mark.parametrize("minutes", [LEAST_MINUTES, 30])
def test_every_program_is_killed_and_has_a_calm_third(minutes: float) -> None:
    for seed in SEEDS:
        settings = Settings(minutes, seed)
        found = disruptions(settings)
        assert found == disruptions(settings)
        assert [each.at_s for each in found] == sorted(each.at_s for each in found)
        for name in NAMES:
            own = [each for each in found if each.name == name]
            assert own
            begin, end = calm(name, settings)
            assert settings.seconds / 3 < end - begin
            assert end < settings.seconds
            assert not [each for each in own if begin < each.at_s + each.away_s and each.at_s < end]


def test_a_long_run_has_all_kinds() -> None:
    found = disruptions(Settings(30, 1))
    assert {(each.name in DAEMONS, each.how) for each in found} == {
        (True, How.KILL),
        (True, How.PAUSE),
        (False, How.KILL),
        (False, How.KILL_JVM),
    }
    assert all(each.away_s > LEASE_TTL_S for each in found if each.how is How.PAUSE)
    assert {each.after_work for each in found if each.name in WITH_SPARK} == {True, False}
    assert disruptions(Settings(30, 2)) != found
