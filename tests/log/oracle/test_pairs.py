"""Every pair of operations, the second staged before or after the first committed.

`make test` explores two kinds of table, and `make test-full` all of them.
"""

from __future__ import annotations

import pytest

from tests.log.oracle.history import explore
from tests.log.oracle.settings import SETTINGS, Setting

MAIN = (Setting(),)
KINDS = [
    pytest.param(setting, id=name, marks=[] if setting in MAIN else pytest.mark.full)
    for name, setting in SETTINGS.items()
]


@pytest.mark.parametrize("setting", KINDS)
def test_every_pair(setting: Setting) -> None:
    # tidelog's own readers are checked only on the table that has every feature.
    report = explore(setting, 2, thorough=setting == Setting(feed=True, partitioned=True))
    report.require_nothing_wrong()
    # If most operations conflicted or did nothing, this would prove little.
    assert report.outcomes.count("committed") > len(report.outcomes) / 3
    assert "superseded" in report.outcomes
