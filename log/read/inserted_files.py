"""The units of commits that only inserted rows, as Arrow columns: a million files take 120 MB, and 400 as objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from tidelog.log.data.reader import DataFile
from tidelog.log.data.writer import CHANGE_TYPE
from tidelog.log.format.actions import AddFile, Commit
from tidelog.log.format.schema import TIMESTAMP
from tidelog.log.read.change_files import COMMIT_TIMESTAMP, COMMIT_VERSION, INSERT, ChangeFile
from tidelog.log.read.commit_changes import only_inserts
from tidelog.log.read.mixed_commits import Change
from tidelog.log.state.files import bare_add_table, to_adds

# Columns have a fixed cost, so fewer files stay objects.
_MIN_FILES = 32
# So many files wait at most until they become columns, if commits are small.
_MAX_WAITING = 2**13


@dataclass(frozen=True, slots=True)
class InsertedFiles:
    """Many units in their order, each a file that a commit inserted: without statistics and deletion vectors.

    `files` has at least one row, the columns of `bare_add_table` and the change columns.
    """

    files: pa.Table

    @property
    def version(self) -> int:
        """The version of the last unit."""
        version: int = self.files[COMMIT_VERSION][-1].as_py()
        return version


Changed: TypeAlias = Change | InsertedFiles
"""One unit of the change feed, or many."""


def compacted(
    commits: Iterable[tuple[Commit, int]], units_of: Callable[[Commit, int], Iterable[Change]]
) -> Iterator[Changed]:
    """The units of commits with their times, without statistics; those of inserts do not know how many rows they have.

    `units_of` gives the units of a commit that did more than insert.
    """
    run: list[tuple[Sequence[AddFile], int, int]] = []
    waiting = 0
    for commit, stamp in commits:
        adds = only_inserts(commit)
        if adds:
            run.append((adds, commit.version, stamp))
            waiting += len(adds)
        if adds is None or waiting >= _MAX_WAITING:
            yield from _together(run)
            run, waiting = [], 0
        if adds is None:
            yield from units_of(commit, stamp)
    yield from _together(run)


def _together(run: Sequence[tuple[Sequence[AddFile], int, int]]) -> Iterator[Changed]:
    """The units of files that were added, by the versions and times of their commits."""
    adds = [add for files, _, _ in run for add in files]
    if len(adds) < _MIN_FILES:
        for files, version, stamp in run:
            for add in files:
                yield ChangeFile(DataFile.of(add), version, stamp, add.size, None)
        return
    versions = [version for files, version, _ in run for _ in files]
    stamps = [stamp * 1000 for files, _, stamp in run for _ in files]
    table = bare_add_table(adds)
    table = table.append_column(CHANGE_TYPE, pa.repeat(INSERT, len(adds)))
    table = table.append_column(COMMIT_VERSION, pa.array(versions, pa.int64()))
    yield InsertedFiles(table.append_column(COMMIT_TIMESTAMP, pa.array(stamps, TIMESTAMP)))


def to_change_files(files: pa.Table) -> Iterator[ChangeFile]:
    """The units in a table as InsertedFiles has it."""
    stamps = files[COMMIT_TIMESTAMP].cast(pa.int64()).to_pylist()
    for add, version, stamp in zip(to_adds(files), files[COMMIT_VERSION].to_pylist(), stamps, strict=True):
        yield ChangeFile(DataFile.of(add), version, stamp // 1000, add.size, None)


def one_by_one(changes: Iterable[Changed]) -> Iterator[Change]:
    """The units, each by itself."""
    for change in changes:
        if isinstance(change, InsertedFiles):
            yield from to_change_files(change.files)
        else:
            yield change
