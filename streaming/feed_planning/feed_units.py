"""What the feed reads as a whole: the files of each commit's changes, and of the snapshot that a stream begins with."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log import predicate
from tidelog.log.arrays import Int64Array
from tidelog.log.data.reader import DataFile, physical_rows
from tidelog.log.errors import NotAppendOnlyError
from tidelog.log.format.actions import Commit, Metadata
from tidelog.log.format.statistics import num_records
from tidelog.log.pruning.file_pruning import may_match, prune_values
from tidelog.log.read.change_files import ChangeFile
from tidelog.log.read.commit_changes import Mode, changed_rows, commit_changes
from tidelog.log.read.mixed_commits import Change
from tidelog.log.read.scan import Selection
from tidelog.log.read.snapshot import Snapshot
from tidelog.log.read.table_reader import TableReader
from tidelog.log.state.files import FileValues, to_adds
from tidelog.log.storage import Store
from tidelog.streaming.feed_planning.limits import Admission

# A file takes a few hundred bytes here, so this many take some tens of megabytes.
_CACHED_FILES = 50_000
_NUMBER = "number"
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Unit:
    """What a micro-batch reads as a whole: a file, or the files that a commit rewrote.

    `files` is 0 if no row of it can be selected; it is then not read, and counts nothing.
    """

    change: Change
    files: int
    size_bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class CommitUnits:
    """The units of one commit. `metadata` is what the commit made the table's, if it did.

    `is_divisible` says whether a micro-batch may read some of the units. If a commit took rows away and added rows,
    somebody who applies a part of it could delete a key that another part has just written.
    """

    version: int
    timestamp_ms: int
    units: Sequence[Unit]
    is_divisible: bool
    is_skipped: bool
    metadata: Metadata | None

    def taken(self, done: int, admission: Admission) -> int:
        """How many units after the first `done` a micro-batch takes. Those without rows come along for nothing."""
        ahead = self.units[done:]
        if not self.is_divisible:
            whole = tuple(sum(counts) for counts in zip(*((u.files, u.size_bytes, u.rows) for u in ahead), strict=True))
            return len(ahead) if not any(whole) or admission.admits(*whole) else 0
        for number, unit in enumerate(ahead):
            if unit.files and not admission.admits(unit.files, unit.size_bytes, unit.rows):
                return number
        return len(ahead)


class CommitReader:
    """Reads what each commit changed. Not thread-safe."""

    def __init__(
        self, table: TableReader, mode: Mode, selection: Selection, *, skips_changes: bool, counts_rows: bool
    ) -> None:
        """`counts_rows` says whether a row count that the log lacks is read from the file."""
        self.table = table
        self._mode: Mode = mode
        self._selection = selection
        self._skips_changes = skips_changes
        self._counts_rows = counts_rows
        self._cache: OrderedDict[int, CommitUnits] = OrderedDict()
        self._cached_files = 0

    def between(self, after: int, until: int) -> Iterator[CommitUnits]:
        """The commits in (after, until], oldest first.

        Raises HistoryExpiredError if some of them are expired, NotAppendOnlyError at a commit that cannot be shown.
        """
        version = after + 1
        while version <= until and version in self._cache:
            self._cache.move_to_end(version)
            yield self._cache[version]
            version += 1
        if version > until:
            return
        for commit, stamp in self.table.timeline.between(version - 1, until):
            found = self._cache.get(commit.version) or self._of(commit, stamp)
            self._remember(found)
            yield found

    def unit(self, change: Change, *, matches: bool) -> Unit:
        """A change with its numbers for the limits."""
        if self._selection.tree is not None:
            change = _without_statistics(change)
        if not matches:
            return Unit(change, 0, 0, 0)
        rows = change.rows
        if rows is None:
            rows = self._counted(change) if self._counts_rows else 0
        return Unit(change, change.num_files, change.size_bytes, rows)

    def _of(self, commit: Commit, stamp: int) -> CommitUnits:
        metadata = next((action for action in commit.others if isinstance(action, Metadata)), None)
        source, skips, tree = self.table.change_source, self._skips_changes, self._selection.tree
        try:
            changes = commit_changes(
                commit, stamp, self._mode, source, skip_changes=skips, with_statistics=tree is not None
            )
        except NotAppendOnlyError as error:
            raise _with_options(error) from None
        matches = [True] * len(changes)
        if tree is not None:
            matches = _matches(changes, tree, self._selection.row_schema, source.metadata)
        units = tuple(self.unit(change, matches=is_match) for change, is_match in zip(changes, matches, strict=True))
        is_skipped = self._mode == "append" and skips and changed_rows(commit)
        kinds = {change.change_type if isinstance(change, ChangeFile) else None for change in changes}
        return CommitUnits(
            commit.version,
            stamp,
            units,
            is_divisible=len(kinds) == 1 and None not in kinds,
            is_skipped=is_skipped,
            metadata=metadata,
        )

    def _counted(self, change: Change) -> int:
        files = [file for file in change.files if file.rows is None]
        known = sum(file.rows for file in change.files if file.rows is not None)
        return known + sum(physical_rows(self.table.store, file.file) for file in files)

    def _remember(self, found: CommitUnits) -> None:
        if found.version not in self._cache:
            self._cached_files += 1 + len(found.units)
        self._cache[found.version] = found
        while self._cached_files > _CACHED_FILES and len(self._cache) > 1:
            _, dropped = self._cache.popitem(last=False)
            self._cached_files -= 1 + len(dropped.units)


def _with_options(error: NotAppendOnlyError) -> NotAppendOnlyError:
    """The error with the advice that fits `format("tidelog")` and `Feed`."""
    advice = (
        "read all changes with the option changes=cdc, or leave such commits out with skipChangeCommits=true; a stream "
        f"with a new checkpoint and after={error.version} begins behind it"
    )
    return NotAppendOnlyError(error.message, advice=advice, **error.fields)


def _matches(
    changes: Sequence[Change], tree: predicate.Expression, schema: pa.Schema, metadata: Metadata
) -> list[bool]:
    """For each change, whether a file of it can have a row for which `tree` is true."""
    answers = iter(may_match([file for change in changes for file in change.files], tree, schema, metadata))
    # A list, since all answers of a change must be taken.
    return [any([next(answers) for _ in change.files]) for change in changes]  # noqa: C419


def _without_statistics(change: Change) -> Change:
    """Nothing here reads the statistics again, and they make up most of a file's size."""
    if isinstance(change, ChangeFile):
        return msgspec.structs.replace(change, stats=None)
    removed, added = (
        tuple(msgspec.structs.replace(file, stats=None) for file in side) for side in (change.removed, change.added)
    )
    return replace(change, removed=removed, added=added)


class SnapshotUnits:
    """The files of one snapshot, oldest first. They stay in Arrow columns: a million of them take some 100 MB.

    `count` is the number of all files. Those that can have selected rows are read, and count for the limits.
    """

    def __init__(self, snapshot: Snapshot, selection: Selection, *, count_in: Store | None = None) -> None:
        """A row count that the log lacks is read from the file in the store `count_in`, or is 0 without it."""
        self.version = snapshot.version
        self.timestamp_ms = int(snapshot.timestamp.timestamp() * 1000)
        files = snapshot.files()
        order = pc.sort_indices(files, sort_keys=[("modificationTime", "ascending"), ("path", "ascending")])
        self._files: pa.Table = files.take(order)
        self.count: int = files.num_rows
        values = FileValues(self._files)
        if selection.tree is not None:
            numbered = FileValues(self._files.append_column(_NUMBER, pa.array(np.arange(self.count))))
            metadata = snapshot.state.head.metadata
            kept = prune_values(numbered, selection.tree, selection.row_schema, metadata).files
            matching = np.sort(kept[_NUMBER].to_numpy())
        else:
            matching = np.arange(self.count)
        self._sizes: Int64Array = self._files["size"].to_numpy()
        self._rows: Int64Array = pc.fill_null(values.live_rows(), _UNKNOWN).to_numpy()
        self._matching = matching[self._rows[matching] != 0]
        self._count_in = count_in

    def advance(self, start: int, admission: Admission) -> int:
        """How many files are read once the next micro-batch has taken what it admits after the first `start`."""
        ahead = self._matching[np.searchsorted(self._matching, start) :]
        for number in ahead:
            if not admission.admits(1, int(self._sizes[number]), self._rows_of(int(number))):
                return int(number)
        return self.count

    @property
    def has_rows(self) -> bool:
        """Whether any file can have selected rows."""
        return bool(len(self._matching))

    def between(self, start: int, end: int) -> list[ChangeFile]:
        """The files after the first `start`, up to the first `end`, that can have selected rows."""
        low, high = np.searchsorted(self._matching, [start, end])
        return [
            ChangeFile(DataFile.of(add), self.version, self.timestamp_ms, add.size, num_records(add.stats))
            for add in to_adds(self._files.take(pa.array(self._matching[low:high])))
        ]

    def _rows_of(self, number: int) -> int:
        if self._rows[number] != _UNKNOWN:
            return int(self._rows[number])
        (add,) = to_adds(self._files.slice(number, 1))
        return physical_rows(self._count_in, DataFile.of(add)) if self._count_in else 0
