"""Every pair of operations on every kind of table, the second staged before or after the first committed."""

from __future__ import annotations

import pytest

from tests.log.oracle.history import explore
from tests.log.oracle.settings import SETTINGS, Setting


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_every_pair(setting: Setting) -> None:
    # tidelog's own readers are checked only on the table that has every feature.
    report = explore(setting, 2, thorough=setting == Setting(feed=True, partitioned=True))
    report.require_nothing_wrong()
    # If most operations conflicted or did nothing, this would prove little.
    assert report.outcomes.count("committed") > len(report.outcomes) / 3
    assert "superseded" in report.outcomes
