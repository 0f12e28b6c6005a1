"""The bounds of the debt, and that a debt above them is seen."""

from __future__ import annotations

from typing import Any

from tests.soak.bounds import BEHIND_S, bounds
from tests.soak.conductor import Soaked
from tests.soak.log_tail import Commit
from tests.soak.sampling import Sample, Sampler
from tests.soak.settings import CHECKPOINT_INTERVAL, Settings
from tests.soak.support import START_S, sample

SETTINGS = Settings(30, 1)


def commit(version: int, **given: Any) -> Commit:
    values = {"operation": "WRITE", "kind": "INSERT", "changes_rows": True, "added": (5_000,), "removed": 0}
    return Commit(version, START_S + version, **{**values, "vectors": 0, "dead_rows": 0, "batch": None, **given})


def over(commits: list[Commit], *samples: Sample) -> list[str]:
    sampler = Sampler.__new__(Sampler)  # without a table
    sampler.samples = list(samples)
    sampler.tail = type("Tail", (), {"commits": commits})()
    return [bound.what for bound in bounds(Soaked(sampler), SETTINGS) if not bound.holds]


def test_what_was_written_lately_may_be_small() -> None:
    commits = [commit(version) for version in range(1000)]
    assert not over(commits, sample(500, small_files=int(BEHIND_S) + 5))
    assert over(commits, sample(500, small_files=int(BEHIND_S) + 15)) == ["small files"]


def test_a_compaction_makes_no_room_for_small_files() -> None:
    commits = [commit(version, kind="MINOR") for version in range(1000)]
    assert over([commit(0), *commits[1:]], sample(500, small_files=20)) == ["small files"]


def test_the_log_tail_is_the_interval_and_what_came_lately() -> None:
    commits = [commit(version) for version in range(1000)]
    most = CHECKPOINT_INTERVAL + int(BEHIND_S)
    assert not over(commits, sample(500, log_tail=most))
    assert over(commits, sample(500, log_tail=most + 5)) == ["log tail"]


def test_files_stay_on_disk_only_as_long_as_something_needs_them() -> None:
    commits = [commit(version, removed=1) for version in range(1000)]
    stale_s = SETTINGS.file_retention_s + SETTINGS.max_transaction_s + BEHIND_S + 1.5 * 60
    assert not over(commits, sample(900, data_files=int(stale_s)))
    assert over(commits, sample(900, data_files=int(stale_s) + 50)) == ["data files on disk"]


def test_rows_stay_dead_until_major_has_come() -> None:
    commits = [commit(version, added=(), dead_rows=10, kind="UPDATE_DELETE") for version in range(1000)]
    lately = 10 * int(2 * SETTINGS.part_s + 60 + BEHIND_S)
    share = int(0.1 * 2 * SETTINGS.part_rows)
    assert not over(commits, sample(500, dead_rows=lately + share))
    assert over(commits, sample(500, dead_rows=lately + share + 700)) == ["dead rows"]
