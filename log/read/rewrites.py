"""A commit that took rows away and added rows, without change files: which rows changed, and how.

A copy-on-write writer removes a file and writes those of its rows that stay into a new one. Such rows have not changed.
So the rows of both sides are compared: equal rows cancel each other, one by one, and what is left are the changes.
Rows are equal if all columns are, bit by bit; null is equal to null, and NaN to NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, TypeAlias

import pyarrow as pa

from tidelog.log.errors import CorruptLogError
from tidelog.log.format import partition_values
from tidelog.log.format.actions import Metadata
from tidelog.log.format.schema import physical_name
from tidelog.log.predicate import Expression
from tidelog.log.pruning.file_pruning import may_match
from tidelog.log.read.change_files import ChangeFile


@dataclass(frozen=True, slots=True)
class Rewrite:
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


Change: TypeAlias = ChangeFile | Rewrite
"""A unit of the change feed: it is read as a whole, and independently of the other units."""


def split(rewrite: Rewrite, partition_columns: Sequence[str]) -> list[Change]:
    """Split a rewrite into units that can be read independently, one or more for each partition.

    Rows of different partitions are never equal, because the partition is a part of the row. With keys, this needs the
    partition columns among the keys. A file that has no counterpart is a unit by itself: those that only take rows away
    come first, those that only add rows come last.
    """
    fields = [rewrite.schema.field(name) for name in partition_columns]
    if not fields or (rewrite.keys and not set(rewrite.keys).issuperset(partition_columns)):
        return [rewrite]
    try:
        removed = _by_partition(rewrite.removed, fields)
        added = _by_partition(rewrite.added, fields)
    except (KeyError, CorruptLogError):  # a value that is in the file only, or one that the reader will refuse
        return [rewrite]
    gone = [file for key, files in removed.items() if key not in added for file in files]
    new = [file for key, files in added.items() if key not in removed for file in files]
    both = [
        replace(rewrite, removed=tuple(files), added=tuple(added[key]))
        for key, files in removed.items()
        if key in added
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

    A rewrite loses such files on both sides. A row that has lost its equal by that is not true either, and the
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


def _without_need(rewrite: Rewrite) -> list[Change]:
    """The rewrite, or its files if they are all on one side: then there is nothing to compare."""
    return [rewrite] if rewrite.removed and rewrite.added else [*rewrite.files]
