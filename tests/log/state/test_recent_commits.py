"""The commits that a refresh keeps for the next reader of the history."""

from __future__ import annotations

import pytest

from tests.log.support import add
from tidelog.log.format.actions import Commit
from tidelog.log.state import commits
from tidelog.log.state.commits import RecentCommits


def commit(version: int, files: int) -> Commit:
    return Commit(version, {}, tuple(add(f"{version}-{number}") for number in range(files)))


def test_each_commit_is_given_away_once() -> None:
    recent = RecentCommits([commit(3, 1), commit(4, 1)])
    assert recent.take(4) == commit(4, 1)
    assert recent.take(4) is None
    assert recent.take(5) is None
    assert recent.take(3) == commit(3, 1)


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        pytest.param([2, 2, 2], [0, 1, 2], id="all"),
        pytest.param([2, 3, 2], [0, 1], id="the oldest"),
        pytest.param([9, 0, 0], [], id="a large one, and none after it"),
        pytest.param([0] * 12, list(range(9)), id="commits without files count, too"),
    ],
)
def test_they_are_kept_up_to_a_bound(sizes: list[int], kept: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "_MAX_ACTIONS", 9)
    recent = RecentCommits(commit(version, files) for version, files in enumerate(sizes))
    assert [version for version in range(len(sizes)) if recent.take(version)] == kept
