"""Every pair of operations, the second staged before or after the first committed, on tables of every kind."""

from __future__ import annotations

import pytest

from tests.log.oracle.history import explore
from tests.log.oracle.settings import SETTINGS, Setting


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_every_pair(setting: Setting) -> None:
    # The table with everything on shows what tidelog's own readers make of it.
    report = explore(setting, 2, thorough=setting == Setting(feed=True, partitioned=True))
    report.require_nothing_wrong()
    # Were most races refused or idle, nothing would be proven.
    assert report.outcomes.count("committed") > len(report.outcomes) / 3
    assert "superseded" in report.outcomes
