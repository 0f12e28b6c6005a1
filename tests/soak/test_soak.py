"""A short soak: everything at once, with kills, and every row is accounted for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.randomness import seed
from tests.soak.folder import Folder
from tests.soak.run import soak
from tests.soak.settings import Settings

# It lives on real time: retentions, leases and lives of processes.
pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.nightly, pytest.mark.timeout(900)]

MINUTES = 2.5


def test_a_short_soak_accounts_for_every_row(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    report = soak(folder, Settings(MINUTES, seed()))
    print(report.summary())
    assert report.holds, report.summary()
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["holds"]
    assert len(written["samples"]) > MINUTES * 60 / 4
