from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.starvation import Outcome, Writer


def ended(journal: Path, text: str, ended_s: float) -> Writer:
    journal.write_text(text)
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return Writer(process, journal, ended_s)


def test_gaps_last_from_the_start_or_a_commit_to_the_next_one_or_the_end(tmp_path: Path) -> None:
    outcome = Outcome()
    outcome.add(ended(tmp_path / "a", "10.0 ready\n11.0 7\n11.5 ConflictError\n13.5 8\n14.0 9", 15.0))
    assert (outcome.longest_gap_s, outcome.ids, outcome.errors) == (2.5, [7, 8], {"ConflictError": 1})
    outcome.add(ended(tmp_path / "b", "10.0 ready\n", 14.0))
    assert outcome.longest_gap_s == 4.0
    outcome.add(ended(tmp_path / "c", "", 99.0))
    assert outcome.longest_gap_s == 4.0
