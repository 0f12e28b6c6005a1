"""A commit that took rows away and added rows, without change files: which rows changed, and how.

A copy-on-write writer removes a file and writes those of its rows that stay into a new one. Such rows have not changed.
So the rows of both sides are compared: equal rows cancel each other, one by one, and what is left are the changes.
Rows are equal if all columns are, bit by bit; null is equal to null, and NaN to NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tidelog.log.arrays import Int64Array, UInt64Array
from tidelog.log.data.row_hashes import row_hashes
from tidelog.log.errors import CorruptLogError
from tidelog.log.format import partition_values
from tidelog.log.format.actions import Metadata
from tidelog.log.format.schema import physical_name
from tidelog.log.predicate import Expression
from tidelog.log.pruning.file_pruning import may_match
from tidelog.log.read.change_files import (
    DELETE,
    INSERT,
    UPDATE_POSTIMAGE,
    UPDATE_PREIMAGE,
    ChangeColumns,
    ChangeFile,
    read_change_file,
)
from tidelog.log.storage import Store


@dataclass(frozen=True, slots=True)
class MixedFiles:
    """The files of one commit whose rows are to be compared; picklable.

    The rows are those of `removed` without an equal row in `added`, in file order, and then the other way round. The
    columns in `schema` are compared. Each row has the change type of its file, unless there are `keys`: then a row
    whose key is on both sides is a pre- or post-image. As a key, null is equal to null and -0.0 to 0.0.
    """

    removed: tuple[ChangeFile, ...]
    added: tuple[ChangeFile, ...]
    schema: pa.Schema
    keys: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[ChangeFile, ...]:
        """The files of both sides."""
        return self.removed + self.added

    @property
    def version(self) -> int:
        """The version of the commit."""
        return self.files[0].version

    @property
    def timestamp_ms(self) -> int:
        """The commit time, in ms since the epoch."""
        return self.files[0].timestamp_ms

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def rows(self) -> int | None:
        """An upper bound for the number of rows; None if a file has no statistics."""
        known = [file.rows for file in self.files if file.rows is not None]
        return sum(known) if len(known) == len(self.files) else None

    @property
    def num_files(self) -> int:
        """The number of files."""
        return len(self.files)


Change: TypeAlias = ChangeFile | MixedFiles
"""A unit of the change feed: it is read as a whole, and independently of the other units."""


def split(mixed: MixedFiles, partition_columns: Sequence[str]) -> list[Change]:
    """Split mixed files into units that can be read independently, one or more for each partition.

    Rows of different partitions are never equal, because the partition is a part of the row. With keys, this needs the
    partition columns among the keys. A file that has no counterpart is a unit by itself: those that only take rows away
    come first, those that only add rows come last.
    """
    fields = [mixed.schema.field(name) for name in partition_columns]
    if not fields or (mixed.keys and not set(mixed.keys).issuperset(partition_columns)):
        return [mixed]
    try:
        removed = _by_partition(mixed.removed, fields)
        added = _by_partition(mixed.added, fields)
    except (KeyError, CorruptLogError):  # a value that is in the file only, or one that the reader will refuse
        return [mixed]
    gone = [file for key, files in removed.items() if key not in added for file in files]
    new = [file for key, files in added.items() if key not in removed for file in files]
    both = [
        replace(mixed, removed=tuple(files), added=tuple(added[key])) for key, files in removed.items() if key in added
    ]
    return [*gone, *both, *new]


def _by_partition(files: Iterable[ChangeFile], fields: Sequence[pa.Field]) -> dict[tuple[Any, ...], list[ChangeFile]]:
    """The files by the values of their partition: writers do not agree on the text of a value."""
    found: dict[tuple[Any, ...], list[ChangeFile]] = {}
    for file in files:
        texts = [file.partition_values[physical_name(field)] for field in fields]
        values = [partition_values.from_text(text, field.type) for text, field in zip(texts, fields, strict=True)]
        key = tuple("NaN" if value != value else value for value in values)  # noqa: PLR0124 - only NaN differs
        found.setdefault(key, []).append(file)
    return found


def pruned(changes: Sequence[Change], tree: Expression, schema: pa.Schema, metadata: Metadata) -> list[Change]:
    """The units that may hold a row for which `tree` is true, without the files that hold none; `schema` is the feed's.

    Mixed files lose such files on both sides. A row that has lost its equal by that is not true either, and the
    predicate takes it out. With keys, all files stay: the change type of a row depends on rows of the other side.
    """
    answers = may_match([file for change in changes for file in change.files], tree, schema, metadata)
    found: list[Change] = []
    start = 0
    for change in changes:
        keep = answers[start : start + change.num_files]
        start += change.num_files
        if isinstance(change, ChangeFile) or change.keys:
            found += [change] if any(keep) else []
            continue
        middle = len(change.removed)
        removed, added = compress(change.removed, keep[:middle]), compress(change.added, keep[middle:])
        found += _without_need(replace(change, removed=tuple(removed), added=tuple(added)))
    return found


def _without_need(mixed: MixedFiles) -> list[Change]:
    """The mixed files, or each file if they are all on one side: then there is nothing to compare."""
    return [mixed] if mixed.removed and mixed.added else [*mixed.files]


# --- the rows that changed --------------------------------------------------------------------------------------------
#
# The rows are read twice: all of them for their hashes, then those that changed for their values. In between, memory
# holds 24 bytes for each row whose equal has not been seen yet, and the positions of the rows that changed. Both sides
# are read at the same pace, because writers keep the order of what they copy: usually few rows wait for their equals.
# If too many wait, the pass goes on with the lower half of the hashes only, and another pass reads the rest.

# Waiting rows take 24 bytes each, and comparing them about as much again: 400 MB at most.
MAX_WAITING_ROWS = 2**23
# Comparing fewer rows at a time costs more than it saves.
_FIRST_COMPARISON_ROWS = 2**19
# A row's number is the number of its file, and in the lower bits its position there.
_POSITION_BITS = 40
_ALL_HASHES = 2**64

# Rows in columns: the two halves of the hash, and the row's number.
_Rows: TypeAlias = UInt64Array
# For each file of a side, the positions of the rows in question; None for all rows.
_Positions: TypeAlias = Sequence[BitMap64 | None]


def read_mixed(store: Store, mixed: MixedFiles, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of mixed files that changed, with exactly `schema`, which can have change columns."""
    removed, added = _changed(store, mixed, mixed.schema)
    if not mixed.keys:
        for file, only in (*zip(mixed.removed, removed, strict=True), *zip(mixed.added, added, strict=True)):
            yield from read_change_file(store, file, schema, only=only)
        return
    keys = pa.schema([mixed.schema.field(name) for name in mixed.keys])
    gone, new = _changed(store, mixed, keys, (removed, added))
    yield from _labelled(store, zip(mixed.removed, removed, gone, strict=True), schema, UPDATE_PREIMAGE, DELETE)
    yield from _labelled(store, zip(mixed.added, added, new, strict=True), schema, UPDATE_POSTIMAGE, INSERT)


def _labelled(
    store: Store,
    files: Iterator[tuple[ChangeFile, BitMap64 | None, BitMap64 | None]],
    schema: pa.Schema,
    paired: str,
    alone: str,
) -> Iterator[pa.RecordBatch]:
    """The rows of files, with their positions and those of the rows that have no counterpart with the same key."""
    for file, only, unpaired in files:
        columns = ChangeColumns(schema, file)
        for positions, batch in file.numbered_batches(store, columns.of_file, only=only):
            is_alone = np.ones(len(positions), dtype=bool)
            if unpaired is not None:
                is_alone = np.fromiter((position in unpaired for position in positions.tolist()), dtype=bool)
            kinds = pc.if_else(pa.array(is_alone), alone, paired)
            yield columns.complete(batch, kinds)


def _changed(
    store: Store, mixed: MixedFiles, columns: pa.Schema, within: tuple[_Positions, _Positions] | None = None
) -> tuple[_Positions, _Positions]:
    """The rows of each side without an equal in `columns` on the other. Equal rows cancel each other one by one."""
    sides = mixed.removed, mixed.added
    if within is None:
        within = [None] * len(sides[0]), [None] * len(sides[1])
    found = tuple([BitMap64() for _ in side] for side in sides)
    hashes = [(0, _ALL_HASHES)]
    while hashes:
        low, high = hashes.pop()
        waiting = _Waiting()
        streams = [_hashed(store, side, only, columns) for side, only in zip(sides, within, strict=True)]
        for side, rows in _at_the_same_pace(streams):
            waiting.add(side, _between(rows, low, high))
            if waiting.are_too_many():
                middle = (low + high) // 2
                hashes.append((middle, high))
                high = middle
                waiting.keep(low, high)
        for bitmaps, rows in zip(found, waiting.rest(), strict=True):
            _add_positions(bitmaps, rows[2])
    return found[0], found[1]


def _hashed(store: Store, files: Sequence[ChangeFile], within: _Positions, columns: pa.Schema) -> Iterator[_Rows]:
    for number, (file, only) in enumerate(zip(files, within, strict=True)):
        for positions, batch in file.numbered_batches(store, columns, only=only):
            rows = np.empty((3, len(positions)), dtype=np.uint64)
            rows[:2] = row_hashes(batch.columns, len(positions))
            rows[2] = positions + (number << _POSITION_BITS)
            yield rows


def _at_the_same_pace(streams: Sequence[Iterator[_Rows]]) -> Iterator[tuple[int, _Rows]]:
    """The rows of all streams with the stream's number; next is always a stream of which fewest rows were read."""
    counts = dict.fromkeys(range(len(streams)), 0)
    while counts:
        number = min(counts, key=counts.__getitem__)
        rows = next(streams[number], None)
        if rows is None:
            del counts[number]
        else:
            counts[number] += rows.shape[1]
            yield number, rows


class _Waiting:
    """The rows of both sides whose equals have not been seen yet."""

    def __init__(self) -> None:
        self._sides: tuple[list[_Rows], list[_Rows]] = ([], [])
        self._rows = 0
        self._next_comparison = _FIRST_COMPARISON_ROWS

    def add(self, side: int, rows: _Rows) -> None:
        self._sides[side].append(rows)
        self._rows += rows.shape[1]

    def are_too_many(self) -> bool:
        """Whether more rows than half of the bound wait; never lets more than the bound wait."""
        if self._rows < self._next_comparison:
            return False
        self._keep(_without_equals(*self._joined()))
        return self._rows > MAX_WAITING_ROWS // 2

    def keep(self, low: int, high: int) -> None:
        """Forget the rows whose hashes are not in [low, high)."""
        removed, added = self._joined()
        self._keep((_between(removed, low, high), _between(added, low, high)))

    def rest(self) -> tuple[_Rows, _Rows]:
        return _without_equals(*self._joined())

    def _joined(self) -> tuple[_Rows, _Rows]:
        none = np.empty((3, 0), dtype=np.uint64)
        removed, added = (np.concatenate([none, *rows], axis=1) for rows in self._sides)
        return removed, added

    def _keep(self, sides: tuple[_Rows, _Rows]) -> None:
        removed, added = sides
        self._sides = ([removed], [added])
        self._rows = removed.shape[1] + added.shape[1]
        # A row is compared a bounded number of times, no matter how many wait.
        self._next_comparison = min(MAX_WAITING_ROWS, max(_FIRST_COMPARISON_ROWS, 2 * self._rows))


def _between(rows: _Rows, low: int, high: int) -> _Rows:
    if high - low == _ALL_HASHES:
        return rows
    first = rows[0]
    return rows[:, (first >= np.uint64(low)) & (first <= np.uint64(high - 1))]


def _without_equals(removed: _Rows, added: _Rows) -> tuple[_Rows, _Rows]:
    """The rows that are left when equal rows have cancelled each other one by one, the first ones first."""
    # Nearly all pairs are found in tables, which is several times faster than sorting.
    for half in (0, 1):
        pairs = _looked_up(removed, added, half)
        removed, added = (np.delete(rows, found, axis=1) for rows, found in zip((removed, added), pairs, strict=True))
    middle = removed.shape[1]
    first, second = np.concatenate([removed, added], axis=1)[:2]
    order = np.argsort(first)
    again = first[order[1:]] == first[order[:-1]]
    # Only a row whose first half occurs again can have an equal.
    order = order[np.append(again, [False]) | np.append([False], again)] if middle < len(first) else order[:0]
    if not len(order):
        return removed, added
    order = order[np.lexsort((order, second[order], first[order]))]
    one, two = first[order], second[order]
    begins = np.flatnonzero(np.append([True], (one[1:] != one[:-1]) | (two[1:] != two[:-1])))
    counts = np.diff(np.append(begins, len(order)))
    # In a group of equal rows, the removed ones come first.
    is_removed = order < middle
    removed_counts = np.add.reduceat(is_removed, begins, dtype=np.int64)
    pairs_of_group = np.minimum(removed_counts, counts - removed_counts)
    places = np.arange(len(order)) - np.repeat(begins, counts)
    places = np.where(is_removed, places, places - np.repeat(removed_counts, counts))
    cancelled = order[places < np.repeat(pairs_of_group, counts)]
    return (
        np.delete(removed, cancelled[cancelled < middle], axis=1),
        np.delete(added, cancelled[cancelled >= middle] - middle, axis=1),
    )


def _looked_up(removed: _Rows, added: _Rows, half: int) -> tuple[Int64Array, Int64Array]:
    """Pairs of equal rows, as their places: at most one for each slot of a table addressed by a half of the hashes."""
    none = np.empty(0, dtype=np.int64)
    if not removed.shape[1] or not added.shape[1]:
        return none, none
    mask = np.uint64(2 ** (2 * removed.shape[1]).bit_length() - 1)
    table = np.zeros(int(mask) + 1, dtype=np.int32)
    # Of several that are written to one slot the last one stays, so the first one is written last.
    places = np.arange(removed.shape[1], dtype=np.int32)
    table[(removed[half] & mask)[::-1]] = places[::-1]
    partners = table[added[half] & mask]
    hits = np.flatnonzero((removed[0, partners] == added[0]) & (removed[1, partners] == added[1]))
    partners = partners[hits]
    owners = np.zeros(removed.shape[1], dtype=np.int64)
    owners[partners[::-1]] = hits[::-1]
    own = owners[partners] == hits
    return partners[own], hits[own]


def _add_positions(bitmaps: Sequence[BitMap64], numbers: UInt64Array) -> None:
    """Add rows by their numbers to the positions of their files."""
    numbers = np.sort(numbers)
    ends = np.searchsorted(numbers, np.arange(1, len(bitmaps) + 1, dtype=np.uint64) << np.uint64(_POSITION_BITS))
    for bitmap, begin, end in zip(bitmaps, [0, *ends[:-1]], ends, strict=True):
        bitmap.update(numbers[begin:end] & np.uint64(2**_POSITION_BITS - 1))
