"""Read the recent commits of a table for its plans; see `planning.history`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from tidelog.compaction_daemon.planning.history import CommitFacts, History, Moment, facts_of, facts_of_large
from tidelog.log import Table
from tidelog.log.errors import CorruptLogError
from tidelog.log.format import commit_info
from tidelog.log.format.actions import Commit
from tidelog.log.state.commits import read_each_up_to

# How many commits are read when none are known: each is a request on an object store, where 16 are made at a time.
FIRST_COMMITS = 64
# With more new commits than these since the last look, reading only the newest ones again is quicker.
MAX_NEW_COMMITS = 1024
# A commit of a thousand files. A larger one is not worth the time that it takes to decode.
MAX_COMMIT_BYTES = 2**20
# How far the clocks of a writer and of this host can be apart without harm.
CLOCK_DIFFERENCE_MS = 300_000


def read_history(table: Table, known: History | None = None) -> History:
    """What plans need to know of the newest commits of the loaded version.

    `known` is what an earlier call returned for the same table: then only the commits since are read, and their time is
    that of this host, which sees them for the first time. The time of others is that of their writers, whose clocks may
    be `CLOCK_DIFFERENCE_MS` behind. Commits that are cleaned up are left out, with all before them.
    """
    now_ms = table.timeline.system.now_ms()
    return (known and _continued(table, known, now_ms)) or _begun(table, now_ms)


def _continued(table: Table, known: History, now_ms: int) -> History | None:
    """The known history with the commits since; None if that is not possible."""
    newest = known.version
    if newest is None or not table.head.first_version <= newest <= table.version <= newest + MAX_NEW_COMMITS:
        return None
    try:
        return known.followed_by(_facts(table, range(newest + 1, table.version + 1), now_ms, now_ms))
    except (FileNotFoundError, CorruptLogError):
        return None


def _begun(table: Table, now_ms: int) -> History:
    newest, first = table.version, table.head.first_version
    found: list[CommitFacts] = []
    with suppress(FileNotFoundError, CorruptLogError):  # a plan can do without
        for facts in _facts(table, range(newest, max(newest - FIRST_COMMITS, first - 1), -1), now_ms):
            found.append(facts)  # noqa: PERF402 - those before an error count
    if not found:
        return History(newest, Moment(newest, now_ms, now_ms), is_whole=False)
    return History(is_whole=found[-1].version == first).followed_by(reversed(found))


def _facts(table: Table, versions: range, now_ms: int, seen_ms: int | None = None) -> Iterator[CommitFacts]:
    """The facts of these commits, in this order. `seen_ms` is when they were seen for the first time, if they were."""
    stamp = table.head.timestamp_ms
    for version, content in zip(versions, read_each_up_to(table.store, versions, MAX_COMMIT_BYTES), strict=True):
        info = content.info if isinstance(content, Commit) else content
        # Good enough without asking the store for the time of the file.
        stamp = commit_info.in_commit_timestamp_ms(info) or commit_info.written_timestamp_ms(info) or stamp
        latest_ms = min(now_ms, stamp + CLOCK_DIFFERENCE_MS) if seen_ms is None else seen_ms
        if isinstance(content, Commit):
            yield facts_of(content, stamp, latest_ms)
        else:
            yield facts_of_large(version, content, stamp, latest_ms)
