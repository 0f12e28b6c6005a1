"""Read the recent commits of a table for its plans; see `planning.history`."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.compaction_daemon.planning.history import CommitFacts, History, facts_of, facts_of_large
from tidelog.log import Table
from tidelog.log.errors import CorruptLogError
from tidelog.log.internals import Commit, commit_info, read_each_up_to

# How many commits are read when none are known: each is a request on an object store, where 16 are made at a time.
FIRST_COMMITS = 64
# How many are remembered as more arrive: at a commit a second the last quarter of an hour.
MAX_KNOWN_COMMITS = 1024
# A commit of a thousand files. A larger one is not worth the time that it takes to decode.
MAX_COMMIT_BYTES = 2**20


def read_history(table: Table, known: History | None = None) -> History:
    """The facts of the newest commits of the loaded version, oldest first.

    `known` is what an earlier call returned for the same table: then only the commits since are read. Commits that are
    cleaned up are left out, with all before them.
    """
    before = known.commits if known else ()
    newest = before[-1].version if before else -1
    if newest > table.version:
        before, newest = (), -1
    first = max(
        newest + 1, table.version + 1 - (MAX_KNOWN_COMMITS if before else FIRST_COMMITS), table.head.first_version
    )
    found = list(_newest_first(table, range(table.version, first - 1, -1)))[::-1]
    is_gapless = bool(before) and (not found or found[0].version == newest + 1)
    return History((*(before if is_gapless else ()), *found)[-MAX_KNOWN_COMMITS:])


def _newest_first(table: Table, versions: range) -> Iterator[CommitFacts]:
    contents = read_each_up_to(table.store, versions, MAX_COMMIT_BYTES)
    later_ms = table.head.timestamp_ms
    for version in versions:
        try:
            content = next(contents)
        except (FileNotFoundError, CorruptLogError):  # a plan can do without
            return
        info = content.info if isinstance(content, Commit) else content
        # Good enough without asking the store for the time of the file.
        stamp = commit_info.in_commit_timestamp_ms(info) or commit_info.written_timestamp_ms(info) or later_ms
        later_ms = stamp
        yield (facts_of(content, stamp) if isinstance(content, Commit) else facts_of_large(version, content, stamp))
