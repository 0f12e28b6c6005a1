"""Work in pieces: a generator that yields after each bounded piece of work, and returns the result.

A caller with other things to do, such as the daemon, carries out as many pieces at a time as it has time for.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeAlias, TypeVar

from tidelog.log.format.actions import Commit
from tidelog.log.state.commits import read_commits
from tidelog.log.storage import Store

_T = TypeVar("_T")

Pieces: TypeAlias = Generator[None, None, _T]

# Reading so many takes a tenth of a second on a disk and a few seconds on an object store.
COMMITS_AT_ONCE = 1000
# Deleting so many takes milliseconds on a disk and a few seconds on an object store.
DELETIONS_AT_ONCE = 100


def finished(work: Pieces[_T]) -> _T:
    """Carry out all pieces, and return the result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: _T = end.value
            return result


def commits_in_pieces(store: Store, versions: Sequence[int]) -> Generator[Commit | None, None, None]:
    """The commits at `versions`, in that order, with a None after each piece. Raises CorruptLogError."""
    for number, commit in enumerate(read_commits(store, versions), start=1):
        yield commit
        if number % COMMITS_AT_ONCE == 0:
            yield None
