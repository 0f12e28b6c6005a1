"""Commit times with the anchors of a checkpoint: the same as from a look at every commit, from few looks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.state.anchored_log import Log, linear, long_log
from tests.log.support import START_MS
from tidelog.log.state import commit_times, versions
from tidelog.log.state.commit_times import Anchor, CommitTimes


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anchors at a distance of two commits, and at most eight of them."""
    monkeypatch.setattr(commit_times, "_SPACING", 2)
    monkeypatch.setattr(commit_times, "_MAX_ANCHORS", 8)
    monkeypatch.setattr(commit_times, "_MAX_BETWEEN", 6)


# Mostly in order, with inversions, equal times and jumps.
FILE_TIMES = st.lists(st.integers(-3, 8), min_size=4, max_size=40).map(
    lambda steps: [START_MS + sum(steps[: end + 1]) for end in range(len(steps))]
)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """A log with some checkpoints, each of the newest version of its time or of one before."""
    log = Log()
    for version, file_time in enumerate(draw(FILE_TIMES), draw(st.integers(0, 2))):
        log.commit(version, file_time)
        if draw(st.integers(0, 5)) == 0:
            log.checkpoint(draw(st.integers(min(log.known), version)))
    return log


@pytest.mark.usefixtures("near")
class TestDefinition:
    """Lookups with anchors against the plain definition."""

    @settings(deadline=None)
    @given(log=logs(), ahead=st.integers(-5, 60), data=st.data())
    def test_times_and_versions_are_those_of_the_definition(self, log: Log, ahead: int, data: st.DataObject) -> None:
        """Also after any clean-up of the oldest commits."""
        for _ in range(data.draw(st.integers(0, len(log.known) - 1))):
            log.expire(min(log.known))
        expected = log.expected()
        assert log.found() == expected
        for version in log.known:
            assert CommitTimes(log.store).at(version) == expected[version]
        at_ms = log.known[data.draw(st.sampled_from(sorted(log.known)))] + ahead
        assert log.at(at_ms) == linear(expected, at_ms)

    @settings(deadline=None)
    @given(log=logs(), data=st.data())
    def test_commits_may_be_missing_in_the_middle(self, log: Log, data: st.DataObject) -> None:
        for version in data.draw(st.sets(st.sampled_from(sorted(log.known)), max_size=len(log.known) - 1)):
            log.expire(version)
        assert log.found() == log.expected()

    @settings(deadline=None)
    @given(log=logs(), later=st.lists(st.integers(-3, 8), max_size=8))
    def test_new_commits_follow_what_is_known(self, log: Log, later: list[int]) -> None:
        times = CommitTimes(log.store)
        for step in later:
            newest = max(log.known)
            assert times.at(newest) == log.expected()[newest]
            log.commit(newest + 1, log.known[newest] + step)
        assert {version: times.at(version) for version in log.known} == log.expected()

    @settings(deadline=None)
    @given(log=logs(), data=st.data())
    def test_in_a_copy_all_commits_are_looked_at(self, log: Log, data: st.DataObject) -> None:
        """A copy has new file times, in any order."""
        order = data.draw(st.permutations(sorted(log.known)))
        for number, version in enumerate(order):
            log.touch(version, START_MS + 10_000 + number // 2)
        assert log.found() == log.expected()
        at_ms = START_MS + 10_000 + data.draw(st.integers(-1, 60))
        assert log.at(at_ms) == linear(log.expected(), at_ms)

    @settings(deadline=None)
    @given(log=logs(), data=st.data())
    def test_after_single_files_were_touched_all_processes_agree(self, log: Log, data: st.DataObject) -> None:
        """Whatever they look up first, and whether they have listed the log. The times still increase."""
        for version in data.draw(st.sets(st.sampled_from(sorted(log.known)), max_size=3)):
            log.touch(version, START_MS + data.draw(st.integers(-5, 500)))
        found = log.found()
        assert list(found.values()) == sorted(set(found.values()), reverse=True)
        for version in log.known:
            times = CommitTimes(log.store)
            assert times.at(version) == found[version]
            assert {other: times.at(other) for other in log.known} == found
        at_ms = START_MS + data.draw(st.integers(-5, 300))
        assert log.at(at_ms) == linear(found, at_ms)

    @settings(deadline=None)
    @given(log=logs(), data=st.data())
    def test_a_checkpoint_records_commits_with_the_times_of_their_files(self, log: Log, data: st.DataObject) -> None:
        until = data.draw(st.sampled_from(sorted(log.known)))
        anchors = log.checkpoint(until)
        expected = log.expected()
        own = [version for version in log.known if version <= until and log.known[version] == expected[version]]
        assert all(anchor == (anchor.version, expected[anchor.version]) for anchor in anchors)
        assert {anchor.version for anchor in anchors} <= {*own}
        assert [anchor.version for anchor in anchors[:1]] == own[:1]
        assert [anchor.version for anchor in anchors[-1:]] == own[-1:]
        assert len(anchors) <= 8

    def test_the_times_after_an_anchor_that_was_touched_stay(self) -> None:
        log = Log()
        for version in range(21):
            log.commit(version, START_MS + 10 * version)
        assert [anchor.version for anchor in log.checkpoint(18)] == [0, 4, 8, 12, 16, 18]
        log.touch(8, START_MS + 10_000)
        for first in log.known:
            times = CommitTimes(log.store)
            times.at(first)
            assert [times.at(version) - START_MS for version in (7, 8, 9, 11, 12, 13, 20)] == [
                *(70, 116, 117, 119, 120, 130, 200)
            ]

    def test_a_clean_up_removes_anchors_from_the_next_checkpoint(self) -> None:
        log = Log()
        for version in range(20):
            log.commit(version, START_MS + version)
        log.checkpoint(15)
        for version in range(9):
            log.expire(version)
        assert log.checkpoint(19)[0].version > 8


# --- what a lookup costs ---------------------------------------------------------------------------------------------


def test_a_lookup_looks_from_one_anchor_to_the_next_and_remembers() -> None:
    log, looks = long_log(2000)
    log.checkpoint(1990)
    times = CommitTimes(looks)
    for _ in range(2):
        assert versions.version_at(times, START_MS + 6005, 0, 1999) == 600
        assert len(looks.times) == 257
    assert versions.version_at(times, START_MS + 19_985, 0, 1999) == 1998
    assert len(looks.times) == 257 + 10, "from the newest anchor on"
    assert versions.version_at(times, START_MS - 1, 0, 1999) is None
    assert looks.lists == 0
    assert len(looks.reads) < 20
    assert versions.version_at(times, START_MS + 19_985, 0, 600) == 600
    assert len(looks.reads) < 24
    assert len(looks.times) == 257 + 10 + 257


def test_a_checkpoint_looks_at_the_commits_since_the_one_before() -> None:
    log, looks = long_log(1000)
    assert len(CommitTimes(looks).anchors(999)) == 5
    assert looks.lists == 1
    log.checkpoint(990)
    looks.lists, looks.times = 0, []
    assert len(CommitTimes(looks).anchors(999)) == 5
    assert (looks.lists, len(looks.times)) == (0, 11)


def test_few_anchors_are_kept_of_many_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_times, "_MAX_ANCHORS", 16)
    anchors = commit_times.spread_out([Anchor(version, START_MS + version) for version in range(10_000)])
    assert [anchor.version for anchor in anchors] == [*range(0, 10_000, 1024), 9999]


def test_a_table_that_stays_open_forgets_and_reads_newer_anchors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_times, "_MAX_NEW", 20)
    log, looks = long_log(300)
    times = CommitTimes(looks)
    for version in range(299, 400):
        if version > 299:
            log.commit(version, START_MS + 10 * version)
        if version == 300:
            log.checkpoint(300)
        assert times.at(version) == START_MS + 10 * version
    assert looks.lists == 1
    assert times.at(5) == START_MS + 50
